"""Programs of small operations, drawn at random, planned for a GPU: what their packs compute is what the loops alone
do, in whichever order they run, and what eager does."""

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
from litz_ir.plan import Kernel, Launch, Plan, invocations_of, memory_root, verify_plan
from litz_ir.symbols import add
from litz_ir.text import from_text, to_text
from litz_scheduler import SchedulerOptions, schedule
from litz_scheduler.memory import slots as homes

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = replace(chip_capabilities("sm_90"), sm_count=132, device=CPU)
ALONE = SchedulerOptions(isomorphic_fusion_bytes=0)
LIMITED = SchedulerOptions(horizontal_fusion_bytes=200, isomorphic_fusion_bytes=2000)
"""Limits that some of these loops exceed."""
TIGHT = SchedulerOptions(horizontal_fusion_bytes=400, horizontal_fusion_peak=0)
"""No memory to spend on packs: some loops stay apart."""

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
    """Operations on lists of tensors, the same ones whenever it is called: new tensors, and changes in place."""

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


def turned(plan: Plan) -> Plan:
    """The plan with the loops of its packs in the opposite order."""

    def kernel(each: Kernel) -> Kernel:
        parts = tuple(replace(part, invocations=part.invocations[::-1]) for part in each.subkernels[::-1])
        return replace(each, subkernels=parts)

    return replace(plan, kernels=tuple(map(kernel, plan.kernels)))


Bytes = tuple[str, int, int]
"""Some memory: whose it is, the first byte and the one after the last."""


def memory_of(plan: Plan, buffer: str) -> Bytes | None:
    """The memory that a buffer lies in, with all that has that memory; ``None`` where sizes are not known."""
    placements = dict(plan.buffers)
    owner = memory_root(buffer, placements)
    placement = placements[owner]
    end = add(placement.offset, homes.placement_bytes(placement))
    if not (isinstance(placement.offset, int) and isinstance(end, int)):
        return None
    # What shares memory with an input or a result of a call lies at most where that does.
    return (placement.storage or owner), placement.offset, end


def shared(plan: Plan) -> Iterator[str]:
    """The buffers that a loop of a pack writes where another loop of that launch touches memory too."""
    for step in plan.steps:
        if not isinstance(step, Launch):
            continue
        kernel = plan.kernel(step.kernel)
        names = dict(zip((parameter.name for parameter in kernel.parameters), step.buffers, strict=True))
        touched: list[list[tuple[str, Bytes, bool]]] = []
        for own, binding in invocations_of(kernel):
            touched.append([])
            for parameter, name in zip(own.parameters, binding.buffers, strict=True):
                where = memory_of(plan, names[name])
                if where is not None:
                    touched[-1].append((names[name], where, parameter.access != "in"))
        for loop, other in permutations(touched, 2):
            for (name, (mine, begin, end), writes), (_, (theirs, first, last), _) in product(loop, other):
                if writes and mine == theirs and max(begin, first) < min(end, last):
                    yield name


class Runs:
    """Runs graphs with packs, and asks that they compute the same without them."""

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.packed = 0
        self.apart = 0

    def run(
        self,
        graph: LoopGraph,
        inputs: Sequence[Any],
        constants: Mapping[str, Any] | None = None,
        externs: Any = None,
    ) -> list[Any]:
        """The outputs of a graph."""
        plan, alone = (schedule(graph, PassContext({CPU: MACHINE}), each) for each in (self.options, ALONE))
        verify_plan(plan)
        verify_plan(alone)
        assert not list(shared(plan))
        assert from_text(to_text(plan)) == plan
        assert not any(kernel.subkernels for kernel in alone.kernels)
        self.packed += sum(len(invocations_of(kernel)) for kernel in plan.kernels)
        self.apart += sum(decision.reason == "refuse.peak" for decision in plan.decisions)
        given = [
            [each.copy(order="K") if isinstance(each, np.ndarray) else each for each in inputs]
            for _ in range(2)
        ]
        others = [
            Executor(other, externs=externs, constants=constants).run(own)
            for other, own in zip((alone, turned(plan)), given, strict=True)
        ]
        found = Executor(plan, externs=externs, constants=constants).run(inputs)
        for other, own in zip(others, given, strict=True):
            for mine, theirs in zip((*found, *inputs), (*other, *own), strict=True):
                np.testing.assert_array_equal(mine, theirs)
        return found


@pytest.mark.parametrize(
    ("first", "count", "dynamic", "options", "least", "apart"),
    [
        (0, 30, False, SchedulerOptions(), 100, 0),
        (100, 20, False, LIMITED, 30, 0),
        (200, 12, True, SchedulerOptions(), 30, 0),
        (300, 20, False, TIGHT, 60, 5),
    ],
    ids=["fixed sizes", "limited", "any sizes", "tight"],
)
def test_packs_compute_what_loops_alone_do(
    first: int,
    count: int,
    dynamic: bool,
    options: SchedulerOptions,
    least: int,
    apart: int,
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
    assert runs.packed >= least and runs.apart >= apart
