"""The head of a program of its own process that counts lowering, scheduling and builds in `counts`."""

COUNTED_STAGES = """
import litz_lowering
import litz_scheduler
from litz_codegen_cpp.target import CpuTarget

counts = {"lower": 0, "schedule": 0, "build": 0}

def counted(name, function):
    def call(*args, **kwargs):
        counts[name] += 1
        return function(*args, **kwargs)
    return call

litz_lowering.lower = counted("lower", litz_lowering.lower)
litz_scheduler.schedule = counted("schedule", litz_scheduler.schedule)
CpuTarget.build = counted("build", CpuTarget.build)
"""
