"""Recompilations: over a sweep of shapes litz compiles as often as a backend that adds no guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import litz
from litz.compilation import Compilation
from litz.loading import Compiled

Program = Callable[..., Any]
Shapes = Sequence[tuple[int, int]]

SHAPES: Shapes = [(2 + 3 * k % 17, 4 + 5 * k % 23) for k in range(50)]
"""Return fifty pairs of batch and length, none of them 0 or 1."""


def batch(b: int, n: int) -> tuple[Tensor, ...]:
    return (torch.arange(b * n * 8.0).sin().reshape(b, n, 8),)


def image(b: int, n: int) -> tuple[Tensor, ...]:
    return (torch.arange(b * 4.0 * n * (n + 1)).sin().reshape(b, 4, n, n + 1),)


def tokens(b: int, n: int) -> tuple[Tensor, ...]:
    return (torch.arange(b * n).reshape(b, n) % 11,)


WIDE, SQUARE = torch.linspace(-1, 1, 48).reshape(6, 8), torch.linspace(-1, 1, 64).reshape(8, 8)
FILTER, TABLE = torch.linspace(-1, 1, 108).reshape(3, 4, 3, 3), torch.linspace(-1, 1, 88).reshape(11, 8)


def split_in_two(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x.split([3, x.shape[1] - 3], 1)
    return a * 2, b + 1


def attention(x: Tensor) -> Tensor:
    q = x.unsqueeze(1)
    return F.scaled_dot_product_attention(q, q * 0.5, q + 1, is_causal=True)


def normalised(x: Tensor) -> Tensor:
    return F.layer_norm(x, (8,)) + F.group_norm(x.transpose(1, 2), 2).transpose(1, 2)


PROGRAMS: dict[str, tuple[Program, Callable[[int, int], tuple[Tensor, ...]]]] = {
    "chunk": (lambda x: x.chunk(2, -1)[0] * x.chunk(2, -1)[1].sigmoid(), batch),
    "full": (lambda x: torch.full((x.shape[1], 3), 2.0) * x.shape[0] + x.sum(), batch),
    "cat": (lambda x: torch.cat([x, x * 2, x[:, :1]], 1), batch),
    "stack": (lambda x: torch.stack([x, x.exp()], 1), batch),
    "split": (split_in_two, batch),
    "pooling": (lambda x: F.avg_pool2d(x, 2) + F.max_pool2d(x, 2), image),
    "adaptive_pooling": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), image),
    "attention": (attention, batch),
    "norms": (normalised, batch),
    "reshape": (lambda x: x.reshape(x.shape[0] * x.shape[1], -1).t().contiguous() + 1, batch),
    "arange": (lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None], batch),
    "pad": (lambda x: F.pad(x, (0, 0, 1, 2), value=3.0).relu(), batch),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest") * 2, image),
    "embedding": (lambda i: F.embedding(i, TABLE).sum(1), tokens),
    "cumsum": (lambda x: x.cumsum(1) + 1, batch),
    "softmax": (lambda x: torch.softmax(x, 1) @ SQUARE, batch),
    "matmul": (lambda x: F.gelu(F.linear(x, WIDE)), batch),
    "conv": (lambda x: F.conv2d(x, FILTER, padding=1).relu(), image),
    "expand": (lambda x: x[:, :1].expand(-1, x.shape[1], -1) - x, batch),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0).amax(1), batch),
    "topk": (lambda x: x.topk(3, 1)[0].mean(1), batch),
    "var": (lambda x: x.var(1) + x.std((0, 2)).sum(), batch),
}


@pytest.fixture(autouse=True)
def unguarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Assert that no step of litz adds a guard or narrows the range of a symbol."""
    run, kept = Compilation.run, []

    def counted(self: Compilation) -> Compiled:
        env = shape_env(self.gm)
        before = knowledge(env)
        compiled = run(self)
        kept.append(knowledge(env) == before)
        return compiled

    monkeypatch.setattr(Compilation, "run", counted)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=60), litz.config.patch(fallback="warn", cache=False):
        yield
    assert kept, "litz compiled something"
    assert all(kept)


def knowledge(env: ShapeEnv | None) -> object:
    """Return the guards, replacements and ranges that a shape environment has so far."""
    return env and (len(env.guards), dict(env.replacements), dict(env.var_to_range))


def graphs(
    program: Program, calls: Sequence[tuple[Tensor, ...]], backend: str, dynamic: bool | None
) -> tuple[int, list[Any]]:
    """Return the number of graphs compiled for the calls, and their results."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(program, backend=backend, dynamic=dynamic, fullgraph=True)
    results = [compiled(*arguments) for arguments in calls]
    return torch._dynamo.utils.counters["stats"]["unique_graphs"], results


def compare(name: str, shapes: Shapes, dynamic: bool | None, caplog: pytest.LogCaptureFixture) -> int:
    program, build = PROGRAMS[name]
    calls = [build(b, n) for b, n in shapes]
    least, expected = graphs(program, calls, "eager", dynamic)
    count, found = graphs(program, calls, "litz", dynamic)
    assert not [record for record in caplog.records if record.name == "litz"], "it did not run as ATen"
    assert count <= least
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
    return count


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_fifty_shapes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert compare(name, SHAPES, True, caplog) <= 3


@pytest.mark.parametrize("name", ["cat", "norms", "softmax"])
def test_a_second_shape_makes_the_graph_dynamic(name: str, caplog: pytest.LogCaptureFixture) -> None:
    shapes = [(3, 5), (4, 5), (4, 7), (6, 9), (9, 12)]
    assert compare(name, shapes, None, caplog) <= 3


@pytest.mark.parametrize("name", ["cat", "norms", "pad", "masked_fill"])
def test_sizes_zero_and_one(name: str, caplog: pytest.LogCaptureFixture) -> None:
    lengths = (0, 1, 5) if name != "masked_fill" else (1, 5)
    shapes = [(b, n) for b in (3, 1, 0) for n in lengths]
    compare(name, shapes, True, caplog)


@pytest.mark.parametrize("mark", [torch._dynamo.mark_dynamic, torch._dynamo.decorators.mark_unbacked])
def test_marked_dimensions_are_one_graph(mark: Callable[[Tensor, int], None]) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.softmax(x * 2, -1).sum(0) + 1

    compiled = torch.compile(program, backend="litz", fullgraph=True)
    torch._dynamo.utils.counters.clear()
    for size in (5, 9, 2, 1, 0) if mark is torch._dynamo.decorators.mark_unbacked else (5, 9, 2):
        x = torch.linspace(-1, 1, size * 6).reshape(size, 6)
        mark(x, 0)
        torch.testing.assert_close(compiled(x), program(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def shape_env(gm: GraphModule) -> ShapeEnv | None:
    """Return the shape environment of a graph; None for a static graph."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return value.node.shape_env
    return None
