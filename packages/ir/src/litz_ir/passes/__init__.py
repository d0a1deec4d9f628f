"""Passes and the runner that applies them."""

from litz_ir.passes.base import Hook, Pass, PassContext, Timings
from litz_ir.passes.pipeline import Pipeline, run_pass, run_passes

__all__ = ["Hook", "Pass", "PassContext", "Pipeline", "Timings", "run_pass", "run_passes"]
