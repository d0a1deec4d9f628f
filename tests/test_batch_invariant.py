"""`batch_invariant`: a row's result is the same, bit by bit, in a batch of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

import litz

WEIGHT, BIAS = torch.linspace(-1, 1, 70 * 300).sin().view(70, 300), torch.linspace(0, 1, 70)
ROWS = (1, 3, 16)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"), torch.no_grad():
        yield
    torch._dynamo.reset()


def _attention(x: Tensor) -> Tensor:
    return torch.softmax(x @ x.transpose(-1, -2) / 4 + torch.ones(33, 33).tril(), -1) @ x


PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "softmax": (lambda x: torch.softmax(x * 2, -1), (777,)),
    "softmax of columns": (lambda x: torch.log_softmax(x, 1), (30, 20)),
    "layer norm": (lambda x: F.layer_norm(x, (300,), BIAS.repeat(5)[:300], None) + 1, (5, 300)),
    "rms norm": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), (5, 100)),
    "group norm": (lambda x: F.group_norm(x, 4), (8, 9, 10)),
    "long sum": (lambda x: x.sum(-1), (100_000,)),
    "sum of three": (lambda x: x.sum(-1).exp(), (3,)),
    "sum of columns": (lambda x: (x * 3).sum(1), (3000, 8)),
    "variance": (lambda x: x.var((1, 2)), (30, 40)),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), (50,)),
    "running sum": (lambda x: x.cumsum(-1), (50,)),
    "elements": (lambda x: F.gelu(x) + torch.exp(x), (2,)),
    "matmul": (lambda x: F.gelu(x @ WEIGHT.t()) @ WEIGHT + x, (300,)),
    "transposed": (lambda x: x @ WEIGHT, (70,)),
    "linear": (lambda x: F.linear(x, WEIGHT, BIAS), (7, 300)),
    "batched": (lambda x: torch.baddbmm(x, x, x.transpose(-1, -2)[..., :33]), (33, 33)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (4, 33, 16)),
    "causal attention": (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (2, 300, 16)),
    "written attention": (_attention, (4, 33, 16)),
}
"""Programs over a batch, each with the shape of a row."""


def of_batches(program: Callable[[Tensor], Tensor], rows: Tensor, dynamic: bool = False) -> list[Tensor]:
    """The results of the first rows of a batch, for batches of several sizes, compiled with the option."""
    found = []
    for n in ROWS:
        if not dynamic:
            torch._dynamo.reset()
        compiled = torch.compile(program, backend="litz", dynamic=dynamic, options={"batch_invariant": True})
        found.append(compiled(rows[:n].clone()))
    return found


def check(program: Callable[[Tensor], Tensor], rows: Tensor, dynamic: bool = False) -> None:
    found = of_batches(program, rows, dynamic)
    for n, part in zip(ROWS, found, strict=True):
        assert torch.equal(part, found[-1][:n]), f"rows of a batch of {n}"
    near = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (2e-2, 5e-2)}[rows.dtype]
    torch.testing.assert_close(found[-1], program(rows), rtol=near[0], atol=near[1])


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_row_does_not_depend_on_the_batch(name: str) -> None:
    torch.manual_seed(0)
    program, shape = PROGRAMS[name]
    check(program, torch.randn(ROWS[-1], *shape))


@pytest.mark.parametrize("name", ["softmax", "layer norm", "batched"])
def test_rows_of_bf16(name: str) -> None:
    torch.manual_seed(0)
    program, shape = PROGRAMS[name]
    check(lambda x: program(x.float()).bfloat16() if name == "layer norm" else program(x),
          torch.randn(ROWS[-1], *shape).bfloat16())  # fmt: skip


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_batches_of_symbolic_size(name: str) -> None:
    torch.manual_seed(0)
    program, shape = PROGRAMS[name]
    check(program, torch.randn(ROWS[-1], *shape), dynamic=True)


def test_a_gradient_of_a_row() -> None:
    torch.manual_seed(0)
    rows, gradients = torch.randn(16, 300), []
    with torch.enable_grad():
        for n in ROWS:
            torch._dynamo.reset()
            x = rows[:n].clone().requires_grad_()
            compiled = torch.compile(PROGRAMS["linear"][0], backend="litz", options={"batch_invariant": True})
            torch.softmax(compiled(x), -1)[:, 0].sum().backward()
            assert x.grad is not None
            gradients.append(x.grad)
    assert all(torch.equal(each, gradients[-1][: len(each)]) for each in gradients)


def test_explanations_name_the_matmuls_that_are_loops() -> None:
    x = torch.randn(4, 300)
    with litz.config.patch(batch_invariant=True):
        report = litz.explain(PROGRAMS["linear"][0], x)
    assert "options about results: batch_invariant" in str(report)
    (graph,) = report.graphs
    assert "library.invariant" in [each.reason.key for each in graph.decisions] and not graph.calls
    counters.clear()
    torch._dynamo.reset()
    torch.compile(PROGRAMS["linear"][0], backend="litz")(x)
    (other,) = litz.explain(PROGRAMS["linear"][0], x).graphs
    assert other.calls, "another graph in the cache: without the option the library computes it"
