"""Compilations leave no graph to Python's cyclic collector, which may not run for long after them."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

import litz


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """Count what became garbage in cycles, by the module and name of its type."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def block(x: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    taken = nn.functional.gelu(x[index] @ weight)
    return nn.functional.layer_norm(taken, taken.shape[-1:]).cumsum(0).softmax(-1)


def test_a_loop_graph_is_not_kept_by_cycles() -> None:
    x, index, weight = torch.randn(8, 16), torch.tensor([3, 1, 5, 0]), torch.randn(16, 32, requires_grad=True)
    compiled = torch.compile(block, backend="litz")
    with litz.config.patch(cache=False), garbage() as found:
        compiled(x, index, weight).sum().backward()
    graphs = {name: count for name, count in found.items() if name.startswith("litz_ir.loops.")}
    assert not graphs, graphs
