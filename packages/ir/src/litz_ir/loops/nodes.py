"""The loop graph, which lowering gives to the scheduler.

Buffers are values in single-assignment form: a name is defined once, by an input, a constant or an operation. A
mutation defines a new version, under a new name, of its target, and every read names the version that it needs. So the
order is data: an operation runs after those that define its reads, a mutation after every read of the version that it
overwrites, and operations with the same ``token`` in the order of the graph.

All classes of the graph can be imported from here. Their modules build on one another in this order: ``values``,
``arguments``, ``reduction_kinds``, ``combiners``, ``operations``, ``calls``, ``graph``.
"""

from __future__ import annotations

from litz_ir.loops.arguments import (
    Argument,
    Attributes,
    ComplexRef,
    Keyword,
    Ref,
    ScalarRef,
    StridedRef,
    complex_references,
    references,
    sizes_in,
)
from litz_ir.loops.calls import Call, Collective, ContractionCall, Extern, LayoutRequirement, Random
from litz_ir.loops.combiners import SORT, Combiner, NamedCombiner, ReductionName, UserCombiner
from litz_ir.loops.graph import Input, LoopGraph, ObjectInput, Output, Region, RegionKind, ScalarInput
from litz_ir.loops.operations import (
    Assert,
    AssertedError,
    HostScalar,
    Mutation,
    Operation,
    Pointwise,
    Reduction,
    Scan,
    Scatter,
    ScatterMode,
    Sort,
    View,
    index_reads,
)
from litz_ir.loops.values import Axis, ComplexValue, TensorType, Value, tensor_type

__all__ = [
    "SORT",
    "Argument",
    "Assert",
    "AssertedError",
    "Attributes",
    "Axis",
    "Call",
    "Collective",
    "UserCombiner",
    "Combiner",
    "ComplexRef",
    "ComplexValue",
    "ContractionCall",
    "Extern",
    "HostScalar",
    "Input",
    "Keyword",
    "NamedCombiner",
    "LoopGraph",
    "Mutation",
    "LayoutRequirement",
    "ObjectInput",
    "Operation",
    "Output",
    "Pointwise",
    "Random",
    "Reduction",
    "ReductionName",
    "Ref",
    "Region",
    "RegionKind",
    "ScalarInput",
    "ScalarRef",
    "Scan",
    "Scatter",
    "ScatterMode",
    "Sort",
    "TensorType",
    "Value",
    "View",
    "StridedRef",
    "complex_references",
    "index_reads",
    "references",
    "sizes_in",
    "tensor_type",
]
