"""Random numbers of a graph that takes its seed and offset, as ``functionalize_rng_ops`` traces them on a GPU.

Tracing and lowering such a graph needs no GPU, nor does the replacement of ``philox_rand`` that runs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from lowering_check import run_graph
from torch import Tensor
from torch._decomp.decompositions_for_rng import PhiloxStateTracker, rng_decompositions
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.loops import Extern
from litz_lowering import LoweredGraph, decompositions, lower

PHILOX = "rngprims.philox_rand.default"
SHAPE = (8, 16)


def program(x: Tensor) -> Tensor:
    return torch.rand_like(x) * x + torch.nn.functional.dropout(x, 0.25) + torch.rand_like(x)


def functional(x: Tensor, seed: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """The program, and the generator's offset after it from AOTAutograd."""
    with PhiloxStateTracker():
        PhiloxStateTracker.record_state(seed, offset, "forward")
        return program(x), PhiloxStateTracker.get_updated_fwd_offset()


@pytest.fixture(scope="module")
def traced() -> LoweredGraph:
    # The table that AOTAutograd uses: torch's functional random numbers, overridden by litz's decompositions.
    table = {**rng_decompositions, **decompositions()}
    with FakeTensorMode():
        x = torch.empty(*SHAPE, device="cuda")
        seed, offset = torch.tensor(7), torch.tensor(40)
        graph = make_fx(functional, decomposition_table=table)(x, seed, offset)
    return lower(graph)


def test_random_calls_stay_in_order(traced: LoweredGraph) -> None:
    calls = [each for each in traced.graph.operations if isinstance(each, Extern)]
    assert [(each.target, each.token) for each in calls] == [(PHILOX, "rng")] * 3
    assert not [each for each in traced.graph.operations if each.token == "rng" and each not in calls]


class Philox(Mapping[str, Any]):
    """Replacement of ``philox_rand`` whose offsets advance by ``steps``; ``seen`` records its seeds and offsets."""

    def __init__(self, *steps: int) -> None:
        self.steps = steps
        self.seen: list[tuple[int, int]] = []

    def __getitem__(self, name: str) -> Any:
        assert name == PHILOX

        def draw(shape: Any, seed: Any, offset: Any, *rest: Any, **keywords: Any) -> tuple[Any, Any]:
            self.seen.append((int(seed), int(offset)))
            number = np.full(SHAPE, 0.5 + len(self.seen), np.float32)
            return number, np.array(self.steps[len(self.seen) - 1], np.int64)

        return draw

    def __iter__(self) -> Iterator[str]:
        return iter((PHILOX,))

    def __len__(self) -> int:
        return 1


def test_offsets_continue(traced: LoweredGraph) -> None:
    externs = Philox(4, 8, 5)
    x = np.ones(SHAPE, np.float32)
    _, after = run_graph(traced.graph, [x, np.array(7), np.array(40)], {}, externs)
    assert externs.seen == [(7, 40), (7, 44), (7, 52)]
    # 57 as the next multiple of four.
    assert int(after) == 60
