"""Dynamic sizes and data-dependent sizes, against eager, compiled as one graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, tensor

import litz

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A program and the arguments of its calls, in order, by one compiled function."""

    run: Callable[..., Any]
    calls: tuple[Arguments, ...]


BACKED: dict[str, Case] = {}
DATA: dict[str, Case] = {}


def backed(*calls: Arguments) -> Callable[[Callable[..., Any]], None]:
    """Register a program whose sizes and numbers are arguments."""
    return lambda run: BACKED.update({run.__name__: Case(run, calls)})


def data(*calls: Arguments) -> Callable[[Callable[..., Any]], None]:
    """Register a program whose sizes are read from tensors."""
    return lambda run: DATA.update({run.__name__: Case(run, calls)})


def waves(*shape: int) -> Tensor:
    """Return numbers between -1 and 1."""
    return torch.arange(math.prod(shape), dtype=torch.float32).add(len(shape)).sin().reshape(shape)


X, Y = waves(5, 7), waves(3, 4)
LONG = waves(4000)


@pytest.fixture(autouse=True)
def captured(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Capture sizes and scalars as symbols, and assert that no graph falls back."""
    torch._dynamo.reset()
    with (
        torch._dynamo.config.patch(
            capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True, specialize_float=False
        ),
        litz.config.patch(fallback="warn"),
    ):
        yield
    assert not [record for record in caplog.records if record.name == "litz"]


def outcome(run: Callable[..., Any], arguments: Arguments) -> Any:
    """Return the results, the arguments after the call and their gradients; or the error."""
    given = [
        a.clone() if isinstance(a, Tensor) and a.is_contiguous() and not a.storage_offset() else a
        for a in arguments
    ]
    leaves = [a.detach().requires_grad_() if isinstance(a, Tensor) and a.requires_grad else a for a in given]
    try:
        result = run(*leaves)
        if any(isinstance(a, Tensor) and a.requires_grad for a in leaves):
            result.backward()
    except Exception as error:
        return error
    return result, [(a, a.grad) if isinstance(a, Tensor) else a for a in leaves]


def check(case: Case, *, dynamic: bool | None = None) -> None:
    compiled = torch.compile(case.run, backend="litz", fullgraph=True, dynamic=dynamic)
    for arguments in case.calls:
        expected, found = outcome(case.run, arguments), outcome(compiled, arguments)
        if isinstance(expected, Exception):
            assert isinstance(found, type(expected)), f"{found!r} instead of {expected!r}"
        else:
            assert not isinstance(found, Exception), found
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


# --- sizes and numbers that are arguments ----------------------------------------


@backed((X, 0.5), (X, 1.25), (Y, 2.0))
def float_arguments(x: Tensor, s: float) -> Any:
    return x * math.sqrt(s) + math.sin(s) * max(s, 1.0), torch.full((3,), s), x / (1 - s / 9), s * 2


@backed((X, waves(7, 5).t(), 0.1), (X, waves(7, 5).t(), 0.01))
def float_arguments_of_operators(x: Tensor, g: Tensor, lr: float) -> Any:
    stepped = x.add(g, alpha=-lr), x.addcdiv(x, g + 2, value=-lr), torch.lerp(x, g, lr)
    return *stepped, x.clamp(-lr, lr), F.leaky_relu(x, lr)


@backed((X, 5), (X, 9), (Y, 9), (X, 33), (X, 0))
def ranges_by_floats(x: Tensor, n: int) -> Any:
    halves, tenths = torch.arange(0, n, 0.5), torch.arange(0, n, 0.1)
    started = torch.arange(0.5, n + 1, 0.3, dtype=torch.float64)
    outer = halves[:, None] * torch.arange(n, 0, -0.75)
    joined = torch.cat([halves, x.flatten()])[1:]
    return tenths.cos(), started.sum(), outer, joined, torch.arange(0, n, x.shape[0] / 7), x * tenths.shape[0]


@backed((X, 5), (X, 9), (X, 0))
def integer_ranges_by_floats(x: Tensor, n: int) -> Any:
    kinds = (torch.int32, torch.uint8, torch.int64)
    return x + n, *(torch.arange(1.5, n + 2, 1.5, dtype=kind) + 1 for kind in kinds)


@backed((X.clone().requires_grad_(), 5), (X.clone().requires_grad_(), 9))
def gradient_through_a_range(x: Tensor, n: int) -> Tensor:
    return (torch.arange(0, n, 0.5) * x.mean()).sin().sum()


@backed((waves(1, 2, 4, 6), 1.5), (waves(1, 2, 4, 6), 2.0), (waves(1, 2, 5, 7), 1.7))
def sizes_from_a_float(x: Tensor, s: float) -> Tensor:
    return F.interpolate(x, scale_factor=s, mode="bilinear")


@backed((X, 2), (X, 3), (X, 7), (X, 0), (X, 1), (X, -3))
def integer_arguments(x: Tensor, n: int) -> Tensor:
    return x * n + n // 2


@backed((waves(9, 3), 2), (waves(9, 3), 5), (waves(9, 3), -3), (waves(9, 3), -4))
def slices_by_an_argument(x: Tensor, n: int) -> Any:
    return x[n:] * 2, x[:n] + 1


@backed((X, 2), (X, 3), (X, 7))
def sizes_by_an_argument(x: Tensor, n: int) -> Any:
    return torch.zeros(n, x.shape[1]) + x[0], x.repeat(n, 1)


@backed((X,), (waves(9, 3),), (waves(12, 3),))
def truth_of_sizes(x: Tensor) -> Tensor:
    return x * (x.shape[0] * 2 > 8)


@backed((X,), (Y,))
def sizes_returned(x: Tensor) -> Any:
    return x.shape[0] * 2, x.numel() / 3, x.stride(0), x / x.shape[0] + x.shape[1] ** 0.5


@backed((LONG[1:41].view(5, 8),), (LONG[3:66].view(7, 9),), (LONG[1:2049].view(2, 1024),))
def unaligned(x: Tensor) -> Any:
    return (
        F.gelu(x) + x.sum(-1, keepdim=True),
        torch.softmax(x, -1),
        x.t().contiguous(),
        x.argmax(-1),
        x.cumsum(0),
    )


@backed((LONG.bfloat16()[1:2049].view(2, 1024),), (LONG.bfloat16()[7:307].view(3, 100),))
def unaligned_bf16(x: Tensor) -> Any:
    return torch.softmax(x, -1) * 2, x.sum(-1)


@backed(
    (torch.arange(2050, dtype=torch.int8)[1:2049].view(2, 1024),),
    (torch.arange(307, dtype=torch.int8)[7:].view(3, 100),),
)
def unaligned_bytes(x: Tensor) -> Any:
    return x * 2 + 1, x.sum(-1)


def last(*shape: int) -> Tensor:
    return waves(*shape).contiguous(memory_format=torch.channels_last)


@backed((last(2, 3, 4, 5),), (last(3, 3, 6, 5),), (last(2, 4, 7, 7),))
def channels_last(x: Tensor) -> Any:
    return F.relu(x) * 2, x.mean((2, 3)), F.max_pool2d(x, 2), x + x.mean(1, keepdim=True)


@backed((waves(4, 5, 6).permute(2, 0, 1),), (waves(3, 7, 8).permute(2, 0, 1),))
def permuted(x: Tensor) -> Any:
    return x * 2, x.sum(1), x.reshape(-1) + 1, x.contiguous()


@backed((waves(10, 12)[::2, 1::3],), (waves(8, 30)[::2, 1::3],), (waves(1, 6).expand(4, 6),))
def strided(x: Tensor) -> Any:
    return x * 2, x.sum(1), torch.softmax(x, 0)


@backed((tensor(3.0), X), (tensor(2.0), Y))
def no_dimension(s: Tensor, x: Tensor) -> Any:
    return s * x, s + 1, s.expand(3)


@backed((waves(5, 6),), (waves(7, 8),))
def written_to(x: Tensor) -> Tensor:
    x.mul_(2).add_(x.shape[0])
    x[1:].mul_(3)
    return x.sum(1)


@backed((waves(6, 5).requires_grad_(),), (waves(7, 5).requires_grad_(),))
def differentiated(x: Tensor) -> Tensor:
    return (x.t()[1:].sin() * 2).sum() + F.layer_norm(x, (5,)).pow(2).sum()


@backed((waves(6, 8),), (waves(12, 9),))
def regrouped(x: Tensor) -> Any:
    return x.unflatten(0, (-1, 3)) * 2, x.view(x.shape[0] // 3, -1), x.roll(2, 0), x.diagonal() * 2


@backed((waves(1, 2, 6, 8),), (waves(1, 2, 7, 9),))
def resampled(x: Tensor) -> Any:
    padded = F.pad(x, (1, 2, 1, 1), mode="reflect"), F.pad(x, (1, 2, 1, 1), mode="circular")
    return *padded, F.interpolate(x, size=(5, 7), mode="bilinear"), F.adaptive_avg_pool2d(x, 3)


@backed((waves(4, 4),), (waves(6, 6),))
def reversed_axes_of_matrices(x: Tensor) -> Any:
    """Reversed rows and columns, which no strides of torch express, read by a library."""
    return x.flip(0) @ x, x.flip(1) @ x, x.rot90() @ x, F.linear(x[::2].flip(0), x)


@pytest.mark.sampled
@pytest.mark.parametrize("name", BACKED)
def test_sizes_that_are_arguments(name: str) -> None:
    check(BACKED[name], dynamic=True)


# --- data-dependent sizes ----------------------------------------


@data((X,), (Y,), (X - 9,))
def positions(x: Tensor) -> Any:
    i, j = torch.where(x > 0)
    return torch.nonzero(x > 0).float().sum(1) * 2, x[i, j] + i


@data((X,), (Y,), (X - 9,))
def chosen(x: Tensor) -> Any:
    picked = x[x > 0]
    return picked + 1, picked.sum(), picked.mean(), picked.cumsum(0), torch.masked_select(x, x < 0.5).exp()


@data((X,), (Y,), (X - 9,))
def chosen_rows(x: Tensor) -> Any:
    rows = x[x[:, 0] > 0]
    both = torch.cat([rows, x[x[:, 0] <= 0] * 2, torch.ones(1, x.shape[1])])
    return both, torch.stack([rows, rows * 2]), F.layer_norm(rows, (x.shape[1],)), torch.softmax(rows, 1)


@data((X,), (X - 9,))
def largest_chosen(x: Tensor) -> Tensor:
    return x[x > 0].max()


@data((X, waves(7, 3)), (waves(6, 7), waves(7, 3)))
def chosen_rows_multiplied(x: Tensor, w: Tensor) -> Any:
    rows = x[x[:, 0] > -0.5]
    return (rows @ w).relu(), F.linear(rows, w.t()) + 1


@data((tensor([1, 3, 1, 2]),), (tensor([1, 1]),))
def distinct(x: Tensor) -> Any:
    return [t + 1 for t in torch.unique(x, return_inverse=True, return_counts=True)]


@data((X, tensor([1, 2, 0, 3, 1])), (X, tensor([1, 1, 1, 0, 0])), (X, tensor([1, 1, -1, 0, 0])))
def repeated(x: Tensor, n: Tensor) -> Any:
    return torch.repeat_interleave(x, n, 0) * 2, torch.repeat_interleave(n) + 1


@data((tensor(3), X), (tensor(4), X))
def integer_read(n: Tensor, x: Tensor) -> Any:
    k = n.item()
    return x * (k / 2) + float(k) ** 0.5 + k // 2 + k % 3, k + 1


@data((tensor(3.5), X), (tensor(7.25), X))
def float_read(n: Tensor, x: Tensor) -> Any:
    k = n.item()
    return x * (k / 2 + 1) - math.sqrt(k) + max(k, 4.0), k * 2, torch.ones(int(k)) + 1


@data((tensor(True), X), (tensor(False), X))
def truth_read(n: Tensor, x: Tensor) -> Tensor:
    return x * n.item()


@data((tensor(3),), (tensor(6),), (tensor(0),), (tensor(1),), (tensor(-2),))
def sized_by_value(n: Tensor) -> Any:
    k = n.item()
    return torch.full((k,), 2.0) + 1, torch.zeros(k, 4) + torch.arange(4), torch.arange(k) * 2


@data((tensor(2), X), (tensor(4), X), (tensor(0), X), (tensor(6), X), (tensor(-1), X))
def narrowed(n: Tensor, x: Tensor) -> Any:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return x[:k] * 2, x[k:] + 1, x.narrow(0, 0, k).sum(0)


@data((tensor(2), X), (tensor(4), X), (tensor(9), X), (tensor(-2), X), (tensor(-9), X))
def sliced_anywhere(n: Tensor, x: Tensor) -> Any:
    return x[: n.item()] * 2


@data((tensor(2), X), (tensor(4), X), (tensor(-1), X), (tensor(5), X), (tensor(-6), X))
def selected_anywhere(n: Tensor, x: Tensor) -> Tensor:
    return x[n.item()] * 2


@data((tensor([1, 4]), X), (tensor([3, 2]), X))
def split_by_values(n: Tensor, x: Tensor) -> Any:
    return [part * 2 for part in x.split(n.tolist())]


@data((tensor(3), waves(24)), (tensor(4), waves(24)), (tensor(5), waves(24)))
def reshaped(n: Tensor, x: Tensor) -> Tensor:
    k = n.item()
    torch._check(k >= 0)
    torch._check(24 % k == 0)
    return x.view(k, 24 // k).sum(1)


@data((tensor(3), X), (tensor(-7), X))
def asserted(n: Tensor, x: Tensor) -> Tensor:
    k = n.item()
    torch._check(k > 0, lambda: "it must be positive")
    return x + k


@data((tensor(3), X), (tensor(4), X))
def asserted_equal(n: Tensor, x: Tensor) -> Tensor:
    k = n.item()
    torch._check(k == 3)
    return x + k


@data((tensor(3), X), (tensor(4), X))
def asserted_of_a_tensor(n: Tensor, x: Tensor) -> Tensor:
    torch.ops.aten._assert_async.msg(n == 3, "it must be three")
    return x + 1


@data((tensor(3), tensor(3)), (tensor(2), tensor(3)))
def equal_sizes(a: Tensor, b: Tensor) -> Tensor:
    return torch.ones(a.item()) + torch.zeros(b.item())


@data((X,), (waves(6, 7),))
def scattered(x: Tensor) -> Any:
    i = torch.nonzero(x[:, 0] > 0).squeeze(1)
    return x.index_add(0, i, torch.ones(i.shape[0], x.shape[1])), x.index_fill(0, i, 1.0)


@data((tensor(2), X.clone().requires_grad_()), (tensor(3), waves(6, 7).requires_grad_()))
def differentiated_part(n: Tensor, x: Tensor) -> Tensor:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return (x[:k] ** 2).sum() + (x[x[:, 0] > 0] ** 3).sum()


@data((waves(7, 3), tensor([1, 2, 5])), (waves(7, 3), tensor([2, 2, 6])))
def split_at_places_that_are_data(x: Tensor, places: Tensor) -> Any:
    return torch.tensor_split(x, places)


@pytest.mark.sampled
@pytest.mark.parametrize("name", DATA)
def test_data_dependent_sizes(name: str) -> None:
    check(DATA[name])


def test_a_roll_has_the_memory_format_of_its_input_where_all_dimensions_move() -> None:
    def program(x: Tensor, n: int) -> Any:
        return x.roll(2, 2), x.roll((n, 1), (2, 3))

    compiled = torch.compile(
        program, backend="litz", fullgraph=True, dynamic=True, options={"fallback": "error"}
    )
    for rows, n in ((4, 3), (2, 3), (6, 6)):
        x = waves(2, 3, rows, 5).contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(compiled(x, n), program(x, n), rtol=0, atol=0, check_stride=True)


def test_gradients_of_tensors_with_unbacked_strides_are_compiled() -> None:
    def program(x: Tensor, n: int) -> Tensor:
        rows = x[-n:]
        return torch.outer(rows[:, 0], rows[0])

    compiled = torch.compile(program, backend="litz", fullgraph=True, options={"fallback": "error"})
    for shape, n in (((9, 6), 3), ((5, 7), 3)):
        leaf = waves(*shape).requires_grad_()
        (expected,) = torch.autograd.grad(program(leaf, n).sin().sum(), leaf)
        for d in (0, 1):
            torch._dynamo.decorators.mark_unbacked(leaf, d)
        torch.testing.assert_close(torch.autograd.grad(compiled(leaf, n).sin().sum(), leaf)[0], expected)


def test_written_views_overlap_at_some_sizes() -> None:
    def program(x: Tensor, n: int) -> Any:
        rows = x.as_strided((3, n), (3, 1))  # no overlap for n = 2, which is the first call
        return torch.select_scatter(rows, torch.zeros(n), 0, 1) + 1, rows.slice_scatter(
            torch.ones(1, n), 0, 1, 2
        ) + 0

    compiled = torch.compile(
        program, backend="litz", fullgraph=True, dynamic=True, options={"fallback": "silent"}
    )
    for n in (2, 4, 5):
        x = torch.arange(1.0, 20)
        torch.testing.assert_close(compiled(x, n), program(x, n), rtol=0, atol=0)


class AsksBackward(torch.autograd.Function):
    """A function whose backward alone has an assertion, on the incoming gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]  # as torch documents it
        torch.ops.aten._assert_async.msg((grad < 4).all(), "asked in the backward")
        return grad * 2


def test_an_assertion_that_is_new_in_the_backward_is_raised_there() -> None:
    def step(x: Tensor, n: Tensor) -> Tensor:
        torch.ops.aten._assert_async.msg(n > 0, "asked in the forward")
        return AsksBackward.apply(x).sum() * n

    compiled = torch.compile(step, backend="litz", fullgraph=True)
    x = X.clone().requires_grad_()
    compiled(x, tensor(3)).backward()
    torch.testing.assert_close(x.grad, torch.full_like(X, 6.0))
    with pytest.raises(RuntimeError, match="asked in the forward"):
        compiled(x, tensor(-1))
    late = compiled(x, tensor(5))
    with pytest.raises(RuntimeError, match="asked in the backward"):
        late.backward()
