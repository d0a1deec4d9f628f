"""Check of a pass: the reference interpreter runs its input and output on random values and compares the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from litz_ir.dtypes import DType, i64
from litz_ir.errors import AssertionFailed, KernelError, LitzError, PassError, SymbolError
from litz_ir.fused.group import FusedGraph
from litz_ir.host.executor import Executor
from litz_ir.host.externs import numpy_externs
from litz_ir.host.memory import NumpyMemory
from litz_ir.interp.calls import Externs
from litz_ir.interp.encoding import Array, decode
from litz_ir.interp.graph import run_graph
from litz_ir.loops.nodes import LoopGraph, Operation, Ref, Region, Value
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.passes.base import Hook, Pass
from litz_ir.passes.call_replay import CallRecorder
from litz_ir.passes.samples import Sample, draw, points
from litz_ir.plan.program import Plan

LIMIT = 1 << 22
"""Most points of a loop in a graph that is checked."""

_PLAN_ULP = 64
"""Bound of planning, in units in the last place: a split reduction adds in another order."""

_ATTEMPTS = 3
"""Most draws of random inputs until the graph accepts them."""


def check_pass(
    before: LoopGraph | FusedGraph,
    after: LoopGraph | FusedGraph | Plan,
    *,
    name: str,
    ulp: int = 0,
    externs: Externs | None = None,
    constants: Mapping[str, Array] | None = None,
    seed: int = 0,
    limit: int = LIMIT,
) -> bool:
    """Run ``before`` and ``after`` on the same random inputs; raises :class:`PassError` for the first output that
    differs.

    Outputs, and inputs that are mutated, may differ by ``ulp`` units in the last place of the largest value of their
    tensor. Routines that are missing from ``externs`` (by default NumPy's matmuls) give random results, the same in
    both runs. False means that nothing was compared: a loop exceeds ``limit`` points, there are regions, or no inputs
    were found that the graph accepts.
    """
    graph = before.graph if isinstance(before, FusedGraph) else before
    for attempt in range(_ATTEMPTS):
        rng = np.random.default_rng(seed + attempt)
        sample = draw(graph, rng, constants)
        if points(graph, sample.symbols) > limit or _has_regions(graph) or _has_regions(after):
            return False
        recorder = CallRecorder(graph, numpy_externs() if externs is None else externs, sample.symbols, rng)
        inputs, sample_constants = sample.fresh()
        try:
            expected = run_graph(graph, inputs, sample_constants, recorder.recording())
        except (KernelError, AssertionFailed, SymbolError):
            continue  # the graph does not accept these inputs
        mutated, sample_constants = sample.fresh()
        try:
            found = _run(after, mutated, sample_constants, recorder.replaying())
        except (LitzError, KeyError) as error:
            raise PassError(
                f"the output of pass {name} fails to run: {error}", hint=_repeat(sample, seed + attempt)
            ) from error
        for description, dtype, origin, a, b in _pairs(graph, (*expected, *inputs), (*found, *mutated)):
            complaint = difference(a, b, dtype, ulp)
            if complaint:
                raise PassError(
                    f"pass {name} changed {description}: {complaint}",
                    origin=origin,
                    hint=_repeat(sample, seed + attempt),
                )
        return True
    return False


def _has_regions(data: LoopGraph | FusedGraph | Plan) -> bool:
    if isinstance(data, Plan):
        return bool(data.subplans)
    graph = data.graph if isinstance(data, FusedGraph) else data
    return any(isinstance(operation, Region) for operation in graph.operations)


def _run(
    data: LoopGraph | FusedGraph | Plan,
    inputs: Sequence[Any],
    constants: Mapping[str, Array],
    externs: Externs,
) -> list[Any]:
    if isinstance(data, Plan):
        return Executor(
            data, None, NumpyMemory(fill=0xA5), {**numpy_externs(), **externs}, constants=constants
        ).run(inputs)
    return run_graph(data.graph if isinstance(data, FusedGraph) else data, inputs, constants, externs)


def _repeat(sample: Sample, seed: int) -> str:
    sizes = ", ".join(f"{name} = {value}" for name, value in sample.symbols.items())
    return f"repeat with check_pass(…, seed={seed})" + (f"; there {sizes}" if sizes else "")


def _pairs(
    graph: LoopGraph, expected: Sequence[Any], found: Sequence[Any]
) -> list[tuple[str, DType, Origin, Any, Any]]:
    """The values to compare: (description, dtype, origin, before, after)."""
    values = graph.values()
    makers: dict[str, Operation] = {v.name: o for o in graph.operations for v in o.results}
    pairs = []
    for position, (output, a, b) in enumerate(zip(graph.outputs, expected, found)):
        name = output.name if isinstance(output, Ref) else ""
        dtype = values[name].type.dtype if name in values else i64
        origin = makers[name].origin if name in makers else UNKNOWN
        pairs.append((f"output {position}" + (f" (%{name})" if name else ""), dtype, origin, a, b))
    for each, a, b in zip(graph.inputs, expected[len(graph.outputs) :], found[len(graph.outputs) :]):
        if isinstance(each, Value):
            pairs.append((f"input %{each.name} in place", each.type.dtype, UNKNOWN, a, b))
    return pairs


def difference(a: Any, b: Any, dtype: DType, ulp: int) -> str:
    """A description of the first difference beyond ``ulp`` units of the largest value; empty if there is none.

    Arrays are in memory form, of ``dtype``. NaN equals NaN.
    """
    if not isinstance(a, np.ndarray):
        return "" if a == b else f"it was {a} and is {b}"
    if a.shape != np.shape(b):
        return f"its shape was {a.shape} and is {np.shape(b)}"
    if a.dtype != b.dtype:
        return f"its dtype was {a.dtype} and is {b.dtype}"
    before, after = decode(a, dtype), decode(b, dtype)
    wrong = before != after
    if dtype.is_float:
        wrong &= ~(np.isnan(before) & np.isnan(after))
        finite = np.abs(before[np.isfinite(before)])
        allowed = ulp * 2.0**-dtype.mantissa * float(finite.max(initial=0.0))
        with np.errstate(invalid="ignore"):
            wrong &= ~(np.abs(before.astype(np.float64) - after) <= allowed)
    if not wrong.any():
        return ""
    index = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"element {index} was {before[index]} and is {after[index]} ({int(wrong.sum())} of {wrong.size} differ)"


def check_hook_for(
    passes: Sequence[Pass[Any, Any]],
    *,
    externs: Externs | None = None,
    constants: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> Hook:
    """A hook that checks every pass against its own bound.

    Other stages must be exact, except the one called ``plan``, whose bound is :data:`_PLAN_ULP`.
    """
    bounds = {"plan": _PLAN_ULP, **{item.name: item.ulp for item in passes}}

    def hook(name: str, before: object, after: object) -> None:
        if isinstance(before, (LoopGraph, FusedGraph)) and isinstance(after, (LoopGraph, FusedGraph, Plan)):
            check_pass(
                before,
                after,
                name=name,
                ulp=bounds.get(name, 0),
                externs=externs,
                constants=constants,
                seed=seed,
            )

    return hook


check_hook: Hook = check_hook_for(())
"""The hook for exact passes."""
