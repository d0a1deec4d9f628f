"""The reference interpreter: what every operation means, in NumPy."""

from litz_ir.interp.body import blame
from litz_ir.interp.calls import Externs
from litz_ir.interp.loops import run_graph
from litz_ir.interp.regions import Runner, run_region

__all__ = ["Externs", "Runner", "blame", "run_graph", "run_region"]
