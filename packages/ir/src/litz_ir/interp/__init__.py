"""The reference interpreter: the meaning of loop graphs and kernels, computed in NumPy."""

from litz_ir.interp.body import with_origin
from litz_ir.interp.calls import Externs
from litz_ir.interp.encoding import decode, encode, storage_dtype
from litz_ir.interp.graph import run_graph
from litz_ir.interp.regions import Runner, run_region

__all__ = [
    "Externs",
    "Runner",
    "decode",
    "encode",
    "run_graph",
    "run_region",
    "storage_dtype",
    "with_origin",
]
