"""Passes: named values with one ``apply`` from data to data, and the pipeline that runs and checks them."""

from litz_ir.passes.base import Hook, Pass, PassContext, Timings
from litz_ir.passes.fuel import FUEL_KINDS, Fuel, FuelKind
from litz_ir.passes.pipeline import Pipeline, run_pass, run_passes

__all__ = [
    "FUEL_KINDS",
    "Fuel",
    "FuelKind",
    "Hook",
    "Pass",
    "PassContext",
    "Pipeline",
    "Timings",
    "run_pass",
    "run_passes",
]
