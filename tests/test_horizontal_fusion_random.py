"""Random programs of small operations, planned for a GPU: horizontally fused kernels compute what separate loops and
eager compute, in whichever order their loops run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from litz_codegen_triton.capabilities import chip_capabilities
from litz_ir.device import CPU
from litz_ir.host import Executor
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, Launch, Plan, invocations_of, memory_root
from litz_ir.symbols import add
from litz_ir.text import from_text, to_text
from litz_ir.verifier import verify
from litz_scheduler import SchedulerOptions, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

pytestmark = pytest.mark.sampled  # it compiles whole programs

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = replace(chip_capabilities("sm_90"), device=CPU)
ALONE = SchedulerOptions(isomorphic_fusion_bytes=0)
LIMITED = SchedulerOptions(horizontal_fusion_bytes=200, isomorphic_fusion_bytes=2000)
"""Limits of horizontal fusion that some of these loops exceed."""
TIGHT = SchedulerOptions(horizontal_fusion_bytes=400, horizontal_fusion_peak=0)
"""No extra peak memory for horizontal fusion: some loops stay separate."""

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 33, 64)
MAPS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.sin,
    torch.tanh,
    lambda x: x * 2 + 1,
    lambda x: x.to(torch.bfloat16).float(),
    lambda x: (x > 0).float(),
    lambda x: x.clamp(-1, 1),
)
PAIRS = (torch.add, torch.mul, torch.maximum, lambda a, b: torch.where(a > b, a, b * 2))
SUMS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x.sum(),
    lambda x: x.sum(-1),
    lambda x: x.square().mean(0),
    lambda x: x.softmax(-1),
    lambda x: x.cumsum(-1),
    torch.linalg.vector_norm,
)
VIEWS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x[: max(1, x.shape[0] // 2)],
    lambda x: x[x.shape[0] // 2 :],
    lambda x: x.transpose(0, -1),
    lambda x: x.reshape(-1),
    lambda x: x[..., ::2],
)


class Program:
    """A random program of operations on lists of tensors, the same at every call: new tensors, and changes in place."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        draw = Random(seed)
        torch.manual_seed(seed)
        shapes = [
            tuple(draw.choice(SIZES[draw.random() > 0.15 :]) for _ in range(draw.choice((0, 1, 1, 2, 3))))
            for _ in range(draw.randint(2, 12))
        ]
        self.arguments = [torch.randn(draw.choice(shapes)) for _ in shapes]

    def __call__(self, *arguments: Tensor) -> list[Tensor]:
        draw = Random(self.seed + 1)
        pool = list(arguments)
        for _ in range(draw.randint(3, 25)):
            made = self._step(draw, pool, arguments)
            pool += [each for each in made if each.numel() < 5000]
        # What is returned is new, so that what matters here is what is computed.
        return [each.clone() for each in draw.sample(pool, min(len(pool), 8))]

    def _step(self, draw: Random, pool: Sequence[Tensor], arguments: Sequence[Tensor]) -> Iterator[Tensor]:
        some = draw.sample(pool, min(len(pool), draw.randint(1, 6)))
        x = some[0]
        like = [each for each in pool if each.shape == x.shape]
        match draw.randrange(9):
            case 0 | 1:
                yield from map(draw.choice(MAPS), some)
            case 2:
                yield draw.choice(PAIRS)(x, draw.choice(like))
            case 3:
                yield from map(draw.choice(SUMS), (each for each in some if each.dim()))
            case 4 if x.dim():
                yield draw.choice(VIEWS)(x)
            case 5:
                # A copy, since what is written must not be read at other places.
                x.add_(draw.choice(like).clone(), alpha=0.5)
            case 6 if x.dim():
                draw.choice(VIEWS)(x).mul_(0.5)
            case 7:
                torch._foreach_mul_(draw.sample(arguments, min(len(arguments), 4)), 0.5)
            case 8 if x.dim() and x.shape[0] > 0:
                places = torch.arange(3) * draw.randrange(1, 5) % x.shape[0]
                yield x.index_add(0, places, torch.ones((3, *x.shape[1:])))


def reversed_loops(plan: Plan) -> Plan:
    """Return the plan with the loops of its fused kernels in the opposite order."""

    def kernel(each: Kernel) -> Kernel:
        parts = tuple(replace(part, invocations=part.invocations[::-1]) for part in each.subkernels[::-1])
        return replace(each, subkernels=parts)

    return replace(plan, kernels=tuple(map(kernel, plan.kernels)))


Bytes = tuple[str, int, int]
"""A range of memory: its storage, the first byte and the one after the last."""


def memory_of(plan: Plan, buffer: str) -> Bytes | None:
    """Return the memory range of a buffer; ``None`` where sizes are not known."""
    placements = dict(plan.buffers)
    owner = memory_root(buffer, placements)
    placement = placements[owner]
    end = add(placement.offset, placement.nbytes)
    if not (isinstance(placement.offset, int) and isinstance(end, int)):
        return None
    # What shares memory with an input or a result of a call lies at most where that does.
    return (placement.storage or owner), placement.offset, end


def conflicts(plan: Plan) -> Iterator[str]:
    """Yield the buffers that a loop of a fused kernel writes and another loop of the launch accesses."""
    for step in plan.steps:
        if not isinstance(step, Launch):
            continue
        kernel = plan.kernel(step.kernel)
        names = dict(zip((parameter.name for parameter in kernel.parameters), step.buffers, strict=True))
        touched: list[list[tuple[str, Bytes, bool]]] = []
        for own, invocation in invocations_of(kernel):
            touched.append([])
            for parameter, name in zip(own.parameters, invocation.buffers, strict=True):
                where = memory_of(plan, names[name])
                if where is not None:
                    touched[-1].append((names[name], where, parameter.access != "in"))
        for loop, other in permutations(touched, 2):
            for (name, (mine, begin, end), writes), (_, (theirs, first, last), _) in product(loop, other):
                if writes and mine == theirs and max(begin, first) < min(end, last):
                    yield name


class Runs:
    """Runs graphs with horizontal fusion, and asserts that they compute the same without it."""

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.fused = 0
        self.separate = 0

    def run(
        self,
        graph: LoopGraph,
        inputs: Sequence[Any],
        constants: Mapping[str, Any] | None = None,
        externs: Any = None,
    ) -> list[Any]:
        """Return the outputs of a graph."""
        plan, alone = (schedule(graph, PassContext({CPU: MACHINE}), each) for each in (self.options, ALONE))
        verify(plan)
        verify(alone)
        assert not list(conflicts(plan))
        assert from_text(to_text(plan)) == plan
        assert not any(kernel.subkernels for kernel in alone.kernels)
        self.fused += sum(len(invocations_of(kernel)) for kernel in plan.kernels)
        self.separate += sum(decision.reason.key == "refuse.peak" for decision in plan.decisions)
        given = [
            [each.copy(order="K") if isinstance(each, np.ndarray) else each for each in inputs]
            for _ in range(2)
        ]
        others = [
            Executor(other, externs=externs, constants=constants).run(own)
            for other, own in zip((alone, reversed_loops(plan)), given, strict=True)
        ]
        found = Executor(plan, externs=externs, constants=constants).run(inputs)
        for other, own in zip(others, given, strict=True):
            for mine, theirs in zip((*found, *inputs), (*other, *own), strict=True):
                np.testing.assert_array_equal(mine, theirs)
        return found


@pytest.mark.parametrize(
    ("first", "count", "dynamic", "options", "least", "separate"),
    [
        (0, 30, False, SchedulerOptions(), 100, 0),
        (100, 20, False, LIMITED, 30, 0),
        (200, 12, True, SchedulerOptions(), 30, 0),
        (300, 20, False, TIGHT, 60, 5),
    ],
    ids=["fixed sizes", "limited", "any sizes", "tight"],
)
def test_fused_kernels_compute_what_separate_loops_do(
    first: int,
    count: int,
    dynamic: bool,
    options: SchedulerOptions,
    least: int,
    separate: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = Runs(options)
    monkeypatch.setattr(lowering_check, "run_graph", runs.run)
    for seed in range(first, first + count):
        program = Program(seed)
        mine, theirs = ([each.clone() for each in program.arguments] for _ in range(2))
        compiled, _ = lowering_check.captured(program, dynamic=dynamic)
        with torch.no_grad():
            found, expected = compiled(*mine), program(*theirs)
        message = f"program {seed}: {{}}".format
        for own, other in zip((*found, *mine), (*expected, *theirs), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-3, equal_nan=True, msg=message)
    assert runs.fused >= least and runs.separate >= separate
