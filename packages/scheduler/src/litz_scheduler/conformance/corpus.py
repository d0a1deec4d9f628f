"""The corpus of whole graphs: makers that models consist of, in small sizes."""

from __future__ import annotations

from litz_ir.device import CPU, Device
from litz_scheduler.conformance.case import GraphCase, case
from litz_scheduler.conformance.elementwise import ELEMENTWISE
from litz_scheduler.conformance.indexing import INDEXING
from litz_scheduler.conformance.layers import LAYERS
from litz_scheduler.conformance.random_graphs import random_programs
from litz_scheduler.conformance.reductions import REDUCTIONS


def graph_cases(device: Device = CPU) -> tuple[GraphCase, ...]:
    """Return the cases of the corpus, whose tensors are on ``device``; their inputs are the same on every machine."""
    makers = {**ELEMENTWISE, **REDUCTIONS, **LAYERS, **INDEXING, **random_programs()}
    return tuple(case(name, device, program) for name, program in makers.items())
