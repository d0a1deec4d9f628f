"""The reference interpreter: the meaning of loop graphs and kernels, computed in NumPy."""

from litz_ir.interp.body import with_origin
from litz_ir.interp.calls import Externs
from litz_ir.interp.graph import run_graph
from litz_ir.interp.regions import Runner, run_region

__all__ = ["Externs", "Runner", "with_origin", "run_graph", "run_region"]
