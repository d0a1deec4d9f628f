"""Faults of a compiler, and a program of more than thirty operations that each of them breaks: five that make values
wrong, one of each kind that bisection tells apart, and others that raise, end the process, hang or are slow.

``install`` injects one. A process that imports this module with the variable ``INJECTED_FAULT`` has it from then on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

import litz_lowering
from litz.capture.aot import CompileSession
from litz_codegen_cpp.emit.bodies import body
from litz_codegen_cpp.emit.source.ops_table import SPELLINGS
from litz_ir.loops import Axis, LoopGraph, Pointwise
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, const, op
from litz_lowering import LoweredGraph
from litz_lowering.fx_passes import pipeline as fx_pipeline
from litz_scheduler.analysis import kernels
from litz_scheduler.analysis.fusion_candidate import ScheduledNode
from litz_scheduler.fusion import vertical
from litz_scheduler.memory import storage_layout
from litz_scheduler.memory.arena import ArenaLayout, ArenaSpan
from litz_scheduler.simplification import simplify

Set = Callable[[Any, str, Any], None]
"""Function that sets an attribute, such as ``setattr`` or that of a monkeypatch."""


def wrong_fx_pass(put: Set) -> None:
    """A pass over the FX graph takes relu for an identity."""
    real = fx_pipeline._is_no_op

    def is_no_op(node: torch.fx.Node) -> bool:
        return real(node) or str(node.target) == "aten.relu.default"

    put(fx_pipeline, "_is_no_op", is_no_op)


def wrong_graph_pass(put: Set) -> None:
    """A pass over the loop graph adds one to the results of sigmoid."""
    real = simplify.UnitReductions.apply

    def apply(self: simplify.UnitReductions, data: LoopGraph, context: PassContext) -> LoopGraph:
        found = real(self, data, context)
        return found.with_operations(
            tuple(
                replace(each, bodies=(op("add", each.bodies[0], const(1.0, each.bodies[0].dtype)),))
                if isinstance(each, Pointwise) and each.name.startswith("sigmoid")
                else each
                for each in found.operations
            )
        )

    put(simplify.UnitReductions, "apply", apply)


def wrong_fusion(put: Set) -> None:
    """Fusion takes each read of the group's values for one of the element that it has just computed."""

    def phase_for(
        new_node: ScheduledNode,
        defined: Mapping[str, ScheduledNode],
        inner: Sequence[Axis],
        *,
        rows: bool = False,
    ) -> int | None:
        producers = [defined[load.buffer] for load in new_node.loads if load.buffer in defined]
        return max((each.phase + (1 if each.reduces else 0) for each in producers), default=0)

    def own_element(self: Any, load: Load) -> Expr:
        member = self.producer[load.buffer]
        results = [each.name for each in self.operations[member.operation].results]
        return self._resolve(member.bodies[results.index(load.buffer)], member.phase)

    put(vertical, "phase_for", phase_for)
    put(kernels._KernelBodyBuilder, "_read_row", own_element)


def wrong_memory(put: Set) -> None:
    """All values of an arena are at its start."""

    def assign_offsets(spans: Sequence[ArenaSpan], limit: int | None = None) -> ArenaLayout:
        return ArenaLayout((0,) * len(spans), max(each.nbytes for each in spans))

    put(storage_layout, "assign_offsets", assign_offsets)


def wrong_kernel(put: Set) -> None:
    """The C++ code generator writes sin for tanh."""
    put(body, "SPELLINGS", {**SPELLINGS, "tanh": SPELLINGS["sin"]})


FAULTS: Mapping[str, Callable[[Set], None]] = {
    each.__name__: each
    for each in (wrong_fx_pass, wrong_graph_pass, wrong_fusion, wrong_memory, wrong_kernel)
}


def _has_tanh(gm: torch.fx.GraphModule) -> bool:
    return any("tanh" in str(node.target) for node in gm.graph.nodes if node.op == "call_function")


def raising(put: Set) -> None:
    """Lowering raises an exception for tanh."""
    real = litz_lowering.lower

    def lower(gm: torch.fx.GraphModule, **options: Any) -> LoweredGraph:
        if _has_tanh(gm):
            raise ZeroDivisionError("injected")
        return real(gm, **options)

    put(litz_lowering, "lower", lower)


def ending_the_process(put: Set) -> None:
    """Lowering of tanh ends the process, as a defect of a library does."""
    real = litz_lowering.lower

    def lower(gm: torch.fx.GraphModule, **options: Any) -> LoweredGraph:
        if _has_tanh(gm):
            os.kill(os.getpid(), signal.SIGSEGV)
        return real(gm, **options)

    put(litz_lowering, "lower", lower)


def hanging(put: Set) -> None:
    """Lowering of tanh does not end."""
    real = litz_lowering.lower

    def lower(gm: torch.fx.GraphModule, **options: Any) -> LoweredGraph:
        while _has_tanh(gm):
            time.sleep(1)
        return real(gm, **options)

    put(litz_lowering, "lower", lower)


def slow(put: Set) -> None:
    """Compiled graphs with tanh wait for some milliseconds in each call."""
    real = CompileSession._compiled

    def compiled(self: CompileSession, gm: torch.fx.GraphModule, *rest: Any) -> Callable[..., Any]:
        call = real(self, gm, *rest)

        def late(args: list[Any]) -> Any:
            time.sleep(0.004)
            return call(args)

        return late if _has_tanh(gm) else call

    put(CompileSession, "_compiled", compiled)


OTHERS: Mapping[str, Callable[[Set], None]] = {
    each.__name__: each for each in (raising, ending_the_process, hanging, slow)
}


def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """More than thirty operations, with matmuls between groups that are fused."""
    a = torch.softmax(x @ w, -1)
    b = ((a * 2 + x).relu() - 0.5).abs()
    c = torch.tanh(b) + b.sigmoid() * 3
    d = c.exp() / (c.exp() + 2)
    e = d + d.t()
    f = (e @ v / 4).cos() + e.mean(-1, keepdim=True)
    g = torch.nn.functional.layer_norm(f, (f.shape[-1],)) * 0.5
    h = torch.where(g > 0, g, g * 0.1).square() + a
    return (h @ w).sum(0) / 8, (h - d).amax(-1)


def short(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A dozen operations, of which each fault breaks one."""
    a = torch.softmax(x @ w, -1)
    b = (a * 2 + x).relu() - 0.5
    c = torch.tanh(b) + b.sigmoid() * 3
    return (c + c.t()).exp() @ v + a.sum(-1, keepdim=True) * c.sum(-1, keepdim=True)


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Arguments of the program."""
    source = torch.Generator().manual_seed(0)
    x, w, v = (torch.randn(8, 8, generator=source) for _ in range(3))
    return x, w, v


if os.environ.get("INJECTED_FAULT"):
    {**FAULTS, **OTHERS}[os.environ["INJECTED_FAULT"]](setattr)
