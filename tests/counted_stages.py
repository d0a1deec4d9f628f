"""The head of a program of its own process that counts lowering, scheduling and builds in `counts`."""

COUNTED_STAGES = """
import litz.pipeline
from litz_codegen_cpp.target import CpuTarget

counts = {"lower": 0, "schedule": 0, "build": 0}

def counted(name, function):
    def call(*args, **kwargs):
        counts[name] += 1
        return function(*args, **kwargs)
    return call

litz.pipeline.lower = counted("lower", litz.pipeline.lower)
litz.pipeline.schedule = counted("schedule", litz.pipeline.schedule)
CpuTarget.build = counted("build", CpuTarget.build)
"""
