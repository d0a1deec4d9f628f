"""Programs compiled by litz against eager: values, dtypes, strides, aliasing, input mutation, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import litz

Program = Callable[..., Any]


def leaves(value: Any) -> list[Any]:
    return list(torch.utils._pytree.tree_leaves(value))


def check(
    function: Program, args: Sequence[Any], *, dynamic: bool | None = None, tolerance: float = 1e-5
) -> None:
    """Assert that compiled and eager agree on results and written arguments."""
    torch._dynamo.reset()
    mine = [a.clone() if isinstance(a, torch.Tensor) and not a.is_leaf else _copy(a) for a in args]
    theirs = [_copy(a) for a in args]
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(function, backend="litz", dynamic=dynamic, fullgraph=True)
        for _ in range(2):
            got, want = leaves(compiled(*mine)), leaves(function(*theirs))
            compare(got, want, tolerance)
            compare(
                [a for a in mine if isinstance(a, torch.Tensor)],
                [a for a in theirs if isinstance(a, torch.Tensor)],
                tolerance,
            )


def compare(got: list[Any], want: list[Any], tolerance: float) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.stride() == b.stride(), (a.stride(), b.stride())
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    shared = [(i, j) for i in range(len(want)) for j in range(i) if _share(want[i], want[j])]
    assert all(_share(got[i], got[j]) for i, j in shared), "results that alias in eager do not"


def _share(a: Any, b: Any) -> bool:
    tensors = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.numel() > 0 and b.numel() > 0
    return tensors and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    fresh = (
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        if _dense(value)
        else value.clone()
    )
    return fresh.copy_(value) if _dense(value) else fresh


def _dense(value: torch.Tensor) -> bool:
    return value.numel() == 0 or all(
        stride != 0 for stride, size in zip(value.stride(), value.shape, strict=True) if size > 1
    )


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


PROGRAMS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "softmax": (lambda x: F.softmax(x * 0.125, -1), (r(33, 65),)),
    "log_softmax_outer": (lambda x: F.log_softmax(x, 0), (r(40, 7),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (48,), w, b), (r(4, 6, 48), r(48), r(48))),
    "group_norm": (lambda x: F.group_norm(x, 4), (r(2, 8, 5, 5),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (32,), w), (r(5, 32), r(32))),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v.abs() + 1), (r(2, 6, 4, 4), r(6), r(6))),
    "gelu_chain": (lambda x, y: F.gelu(x * 1.7 + y).tanh() * torch.sigmoid(y) + x.abs().sqrt(), (r(17, 31), r(17, 31))),
    "silu_bf16": (lambda a, b: F.silu(a) * b, (r(9, 40, dtype=torch.bfloat16), r(9, 40, dtype=torch.bfloat16))),
    "var_mean": (lambda x: torch.var_mean(x, dim=(0, 2), keepdim=True), (r(3, 4, 5),)),
    "argmax": (lambda x: (x.argmax(1), x.max(0)), (r(12, 9),)),
    "argmax_as_index_in_lanes": (
        lambda x: torch.zeros_like(x).scatter(0, x.argmax(0, keepdim=True), 1.0),
        (r(5, 25),),
    ),
    "cat_split": (lambda x, y: torch.cat([x, y.t()], 1).split([3, 5], 1), (r(6, 4), r(4, 6))),
    "roll_flip_pad": (lambda x: F.pad(x.roll(2, 1).flip(0), (1, 2, 3, 0), value=2.5), (r(5, 6),)),
    "where_masked": (lambda x, m: torch.where(m > 0, x, -x).masked_fill(m < -1, 7.0), (r(8, 8), r(8, 8))),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, (r(11, 5), torch.tensor([[0, 3], [10, 1]]))),
    "index": (lambda x, i: x[:, i] + x[i].sum(), (r(7, 7), torch.tensor([0, -1, 3]))),
    "gather": (lambda x, i: x.gather(1, i), (r(4, 6), torch.randint(0, 6, (4, 3)))),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (r(2, 3, 9, 9),)),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), (r(2, 3, 8, 8),)),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), (r(1, 2, 4, 5),)),
    "bilinear": (lambda x: F.interpolate(x, size=(7, 9), mode="bilinear"), (r(1, 2, 4, 5),)),
    "cumsum": (lambda x: x.cumsum(1), (r(4, 33),)),
    "matmul": (lambda a, b: (a @ b).relu() + 1, (r(16, 24), r(24, 8))),
    "attention": (F.scaled_dot_product_attention, (r(1, 2, 8, 16), r(1, 2, 8, 16), r(1, 2, 8, 16))),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1).relu(), (r(1, 3, 8, 8), r(4, 3, 3, 3))),
    "int_ops": (lambda x: (x // 3, x % -4, x << 2, x ^ 5), (torch.arange(-10, 10),)),
    "bool_ops": (lambda x: ((x > 0) & (x < 1), (x > 0).sum(), (x > 5).any(), x.isnan()), (r(30),)),
    "casts": (lambda x: (x.to(torch.int32), x.half(), x.bool(), x.double()), (r(13) * 3,)),
    "factories": (lambda x: x + torch.arange(6) + torch.full((6,), 2) + torch.eye(6)[1], (r(6, 6),)),
    "tril": (lambda x: x.tril(1) + x.triu(-1), (r(6, 8),)),
    "norms": (lambda x: (x.norm(), x.norm(1, dim=0), torch.logsumexp(x, 1)), (r(6, 8),)),
    "channels_last": (lambda x: x.relu() + 1, (r(2, 4, 3, 3).to(memory_format=torch.channels_last),)),
    "transposed": (lambda x: x.t().exp(), (r(5, 9),)),
    "expanded": (lambda x: x.expand(4, 5) * 2, (r(1, 5),)),
    "foreach": (lambda a, b: torch._foreach_addcmul([a, b], [b, a], [a, a], value=0.5), (r(9), r(9))),
    "one_hot": (lambda i: F.one_hot(i, 5), (torch.tensor([1, 4, 0]),)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    function, args = PROGRAMS[name]
    check(function, args)


DYNAMIC = (
    "softmax",
    "layer_norm",
    "gelu_chain",
    "cat_split",
    "argmax",
    "matmul",
    "roll_flip_pad",
    "embedding",
    "norms",
)


@pytest.mark.parametrize("name", DYNAMIC)
def test_program_with_dynamic_shapes(name: str) -> None:
    function, args = PROGRAMS[name]
    if name == "cat_split":
        function = lambda x, y: torch.cat([x, y.t()], 1).chunk(2, 1)  # noqa: E731
    check(function, args, dynamic=True)


EDGES: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "empty": (lambda x: (x * 2).sum(0), (torch.empty(0, 4),)),
    "empty_reduce": (lambda x: x.sum(), (torch.empty(0),)),
    "zero_dim": (lambda x: x * 2 + 1, (torch.tensor(3.0),)),
    "size_one": (lambda x, y: x + y, (r(1, 5, 1), r(3, 1, 4))),
    "noncontiguous": (lambda x: x[::2, 1::3] * 2, (r(9, 10),)),
    "expanded_input": (lambda x: x.sum(1), (r(4, 1).expand(4, 6),)),
    "no_tensor_inputs": (lambda: torch.ones(3) * 2, ()),
    "output_is_input": (lambda x: (x, x + 1), (r(3),)),
    "duplicate_outputs": (lambda x: (lambda y: (y, y))(x * 2), (r(3),)),
    "view_of_input": (lambda x: x.view(6).unsqueeze(0), (r(2, 3),)),
    "view_of_result": (lambda x: (lambda y: (y, y.t()))(x * 2), (r(2, 3),)),
    "constants_only": (lambda x: (torch.zeros(2), 3, None), (r(2),)),
    "scalar_argument": (lambda x, k: x * k, (r(4), 2.5)),
    "unaligned": (lambda x: x[1:] * 2, (r(18),)),
}


@pytest.mark.parametrize("name", EDGES)
def test_edge(name: str) -> None:
    function, args = EDGES[name]
    check(function, args)


def _add_and_return(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def _flip_into(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x.flip(0))
    return x.sum()


def _view_chain(x: torch.Tensor) -> torch.Tensor:
    x.view(-1)[1:3].mul_(3)
    return x.t() + 1


def _clone_then_write(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.clone()
    x.mul_(2)
    return y, x + y


@pytest.mark.parametrize("function", [_add_and_return, _flip_into, _view_chain, _clone_then_write])
def test_input_mutation(function: Program) -> None:
    check(function, (r(4, 4),))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_of_a_max_pool_goes_to_the_last_nan_of_a_window(layout: torch.memory_format) -> None:
    def pooled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.max_pool2d(x, 3, 2, 1), F.adaptive_max_pool2d(x, 2), F.max_pool2d(x, 2)

    chance = torch.rand(2, 20, 12, 12, generator=torch.Generator().manual_seed(0))
    x = r(2, 20, 12, 12).masked_fill(chance < 0.4, torch.nan).contiguous(memory_format=layout)
    gradients = []
    for run in (pooled, torch.compile(pooled, backend="litz", fullgraph=True)):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        results = run(leaf)
        torch.autograd.backward(results, [torch.arange(float(y.numel())).view_as(y) for y in results])
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_updates_with_a_value_are_generated(dtype: torch.dtype) -> None:
    """In-place updates of optimisers, which Dynamo writes as multiply-adds of its own."""

    def step(weight: torch.Tensor, grad: torch.Tensor, square: torch.Tensor, rate: torch.Tensor) -> None:
        square.addcmul_(grad, grad, value=3)
        if dtype != torch.int64:
            weight.addcdiv_(grad, square.sqrt() + 1, value=-0.25)
        weight.add_(grad, alpha=rate)

    given = [(torch.arange(12.0).reshape(3, 4) % 5 - k).to(dtype) for k in (1, 2, 0)]
    rate = torch.tensor(2, dtype=dtype)
    check(step, [*given, rate], tolerance=1e-2 if dtype == torch.bfloat16 else 1e-6)
    assert litz.explain(step, *(each.clone() for each in given), rate).calls == ()


def test_batch_norm_statistics_are_updated() -> None:
    torch._dynamo.reset()
    mine, theirs = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    compiled = torch.compile(mine, backend="litz")
    x = r(4, 3, 5, 5)
    with torch.no_grad():
        compare([compiled(x)], [theirs(x)], 1e-5)
    compare(list(mine.buffers()), list(theirs.buffers()), 1e-5)


def test_training_step_matches_eager() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    mine = torch.nn.Sequential(
        torch.nn.Linear(12, 24), torch.nn.LayerNorm(24), torch.nn.GELU(), torch.nn.Linear(24, 5)
    )
    theirs = torch.nn.Sequential(
        torch.nn.Linear(12, 24), torch.nn.LayerNorm(24), torch.nn.GELU(), torch.nn.Linear(24, 5)
    )
    theirs.load_state_dict(mine.state_dict())
    x, y = r(10, 12), torch.arange(10) % 5
    compiled = torch.compile(mine, backend="litz")
    F.cross_entropy(compiled(x), y).backward()
    F.cross_entropy(theirs(x), y).backward()
    compare([p.grad for p in mine.parameters()], [p.grad for p in theirs.parameters()], 1e-5)


def test_gradients_where_a_check_leaves_a_token_among_the_outputs() -> None:
    torch._dynamo.reset()
    a, b = r(3, 5, 5).requires_grad_(), r(3, 5, 2).requires_grad_()
    compiled = torch.compile(torch.linalg.solve, backend="litz", fullgraph=True)
    found, expected = compiled(a, b), torch.linalg.solve(a, b)
    compare([found], [expected], 1e-5)
    weight = r(3, 5, 2)
    mine, theirs = (torch.autograd.grad(out, (a, b), weight) for out in (found, expected))
    compare(list(mine), list(theirs), 1e-4)


def test_dropout_draws_from_atens_stream() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.rand(8) * F.dropout(x, 0.25)

    x = r(8)
    compiled = torch.compile(function, backend="litz", fullgraph=True)
    torch.manual_seed(5)
    got = [compiled(x), compiled(x)]
    torch.manual_seed(5)
    compare(got, [function(x), function(x)], 1e-6)


def test_an_index_out_of_range_raises_as_eager_does() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda w, i: F.embedding(i, w) * 2, backend="litz")
    with pytest.raises(IndexError):
        compiled(r(4, 3), torch.tensor([1, 4]))
