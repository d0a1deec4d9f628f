"""Inputs that eager refuses raise the same class of error, and compiled functions still work afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, tensor

import litz

Function = Callable[..., Any]
Arguments = tuple[Any, ...]

ROWS = torch.linspace(-1, 1, 20).reshape(4, 5)
LINE = torch.linspace(-1, 1, 5)
CUBE = torch.linspace(-1, 1, 60).reshape(3, 4, 5)
TABLE = torch.linspace(-1, 1, 18).reshape(6, 3)
FEW, FAR, BEFORE, FAR_BEFORE = tensor([0, 1]), tensor([0, 7]), tensor([0, -1]), tensor([0, -21])
ALONG, ALONG_FAR, ALONG_BEFORE = tensor([[0, 1]]), tensor([[0, 9]]), tensor([[0, -1]])
CLASSES, CLASSES_FAR = tensor([0, 1, 2, 3]), tensor([0, 1, 2, 5])
ONES, ONE, ZERO = torch.ones(4, 5), tensor([7, 2]), tensor([7, 0])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="silent"):
        yield


def outcome(function: Function, arguments: Arguments) -> Any:
    """Return the result, or the error."""
    try:
        return function(*(a.clone() if isinstance(a, Tensor) else a for a in arguments))
    except Exception as error:
        return error


def check(function: Function, bad: Arguments, good: Arguments | None = None) -> None:
    """Assert eager's class of error, and eager's results for ``good`` arguments before and after it."""
    expected = outcome(function, bad)
    assert isinstance(expected, Exception), "eager takes it"
    compiled = torch.compile(function, backend="litz")
    if good is not None:
        torch.testing.assert_close(compiled(*good), function(*good))
    found = outcome(compiled, bad)
    assert isinstance(found, type(expected)), f"{found!r} instead of {expected!r}"
    if good is not None:
        torch.testing.assert_close(compiled(*good), function(*good))


def taken(name: str, dim: int, *more: Any) -> Function:
    """Return a function that calls ``x.name(dim, index, …)``."""
    return lambda x, index: getattr(x, name)(dim, index, *more)


INDICES: dict[str, tuple[Function, Arguments, Arguments]] = {
    "gather": (taken("gather", 1), (ROWS, ALONG_FAR), (ROWS, ALONG)),
    "gather_negative": (taken("gather", 1), (ROWS, ALONG_BEFORE), (ROWS, ALONG)),
    "gather_line": (taken("gather", 0), (LINE, FAR), (LINE, FEW)),
    "embedding": (F.embedding, (FAR, TABLE), (FEW, TABLE)),
    "embedding_negative": (F.embedding, (BEFORE, TABLE), (FEW, TABLE)),
    "embedding_reduced": (lambda i, w: F.embedding(i, w).relu().sum(), (FAR, TABLE), (FEW, TABLE)),
    "embedding_sliced": (lambda i, w: F.embedding(i, w)[:1] * 2, (FAR, TABLE), (FEW, TABLE)),
    "embedding_padded": (lambda i, w: F.pad(F.embedding(i, w)[:1], (1, 1)), (FAR, TABLE), (FEW, TABLE)),
    "embedding_bag": (lambda i, w: F.embedding_bag(i[None], w), (FAR, TABLE), (FEW, TABLE)),
    "embedding_bag_max": (lambda i, w: F.embedding_bag(i[None], w, mode="max"), (FAR, TABLE), (FEW, TABLE)),
    "embedding_bag_offsets": (lambda o, w: F.embedding_bag(o * 0, w, o), (FAR, TABLE), (FEW, TABLE)),
    "index_select": (taken("index_select", 0), (ROWS, FAR), (ROWS, FEW)),
    "index_select_columns": (taken("index_select", 1), (ROWS, FAR), (ROWS, FEW)),
    "index_select_last": (taken("index_select", 2), (CUBE, BEFORE), (CUBE, FEW)),
    "index": (lambda x, i: x[i], (ROWS, FAR), (ROWS, BEFORE)),
    "index_far_negative": (lambda x, i: x[i], (ROWS, FAR_BEFORE), (ROWS, BEFORE)),
    "index_both": (lambda x, i: x[i, i], (ROWS, FAR), (ROWS, FEW)),
    "index_of_nothing": (lambda x, i: x[i], (torch.zeros(0, 3), FEW), (torch.zeros(2, 3), FEW)),
    "index_put": (lambda x, i: x.index_put((i,), tensor(1.0)), (ROWS, FAR), (ROWS, BEFORE)),
    "index_put_added": (lambda x, i: x.index_put((i,), tensor(1.0), True), (ROWS, FAR), (ROWS, FEW)),
    "index_put_in_place": (lambda x, i: x.clone().index_put_((i,), tensor(1.0)), (ROWS, FAR), (ROWS, FEW)),
    "index_add": (taken("index_add", 0, ONES[:2]), (ROWS, FAR), (ROWS, FEW)),
    "index_add_negative": (taken("index_add", 0, ONES[:2]), (ROWS, BEFORE), (ROWS, FEW)),
    "index_add_line": (taken("index_add", 0, ONES[0, :2]), (LINE, FAR), (LINE, FEW)),
    "index_add_middle": (taken("index_add", 1, CUBE[:, :2]), (CUBE, FAR), (CUBE, FEW)),
    "index_copy": (taken("index_copy", 0, ONES[:2]), (ROWS, BEFORE), (ROWS, FEW)),
    "index_fill": (taken("index_fill", 0, 2.0), (ROWS, FAR), (ROWS, BEFORE)),
    "index_reduce": (taken("index_reduce", 0, ONES[:2], "amax"), (ROWS, FAR), (ROWS, FEW)),
    "scatter": (taken("scatter", 1, 1.0), (ROWS, ALONG_FAR), (ROWS, ALONG)),
    "scatter_negative": (taken("scatter", 1, 1.0), (ROWS, ALONG_BEFORE), (ROWS, ALONG)),
    "scatter_source": (taken("scatter", 1, ONES), (ROWS, ALONG_FAR), (ROWS, ALONG)),
    "scatter_one_hot": (
        lambda i: torch.zeros(4, 5).scatter(1, i, 1.0), (CLASSES_FAR[:, None],), (CLASSES[:, None],),
    ),
    "scatter_add": (taken("scatter_add", 1, ONES), (ROWS, ALONG_FAR), (ROWS, ALONG)),
    "scatter_reduce": (taken("scatter_reduce", 1, ONES, "amax"), (ROWS, ALONG_FAR), (ROWS, ALONG)),
    "take": (torch.take, (ROWS, tensor([0, 20])), (ROWS, BEFORE)),
    "put": (lambda x, i: torch.put(x, i, ONES[0, :2]), (ROWS, FAR_BEFORE), (ROWS, BEFORE)),
    "nll_loss": (F.nll_loss, (ROWS, CLASSES_FAR), (ROWS, CLASSES)),
    "nll_loss_ignored": (F.nll_loss, (ROWS, tensor([0, 1, 2, -1])), (ROWS, tensor([0, 1, 2, -100]))),
    "nll_loss_unreduced": (lambda x, t: F.nll_loss(x, t, reduction="none"), (ROWS, CLASSES_FAR), (ROWS, CLASSES)),
    "cross_entropy": (F.cross_entropy, (ROWS, CLASSES_FAR), (ROWS, CLASSES)),
    "multi_margin_loss": (F.multi_margin_loss, (ROWS, CLASSES_FAR), (ROWS, CLASSES)),
    "one_hot": (lambda i: F.one_hot(i, 4), (CLASSES_FAR,), (CLASSES,)),
    "max_unpool": (
        lambda x, i: F.max_unpool2d(x, i, 2), (torch.ones(1, 1, 1, 2), tensor([[[[0, 9]]]])),
        (torch.ones(1, 1, 1, 2), tensor([[[[0, 7]]]])),
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", INDICES)
def test_an_index_out_of_range(name: str) -> None:
    check(*INDICES[name])


VALUES: dict[str, tuple[Function, Arguments, Arguments]] = {
    "floor_divide": (lambda a, b: a // b, (ONE, ZERO), (ONE, ONE)),
    "remainder": (lambda a, b: a % b, (ONE, ZERO), (ONE, ONE)),
    "fmod": (torch.fmod, (ONE, ZERO), (ONE, ONE)),
    "trunc_divide": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (ONE, ZERO), (ONE, ONE)),
    "narrow": (lambda a, b: a.to(torch.int8) // b.to(torch.int8), (ONE, ZERO), (ONE, ONE)),
    "sliced": (lambda a, b: (a // b)[:1] + 1, (ONE, ZERO), (ONE, ONE)),
    "in_one_branch": (lambda a, b: torch.where(b == 0, 0, a // b), (ONE, ZERO), (ONE, ONE)),
    "binary_cross_entropy": (
        F.binary_cross_entropy, (tensor([0.5, 2.0]), torch.zeros(2)), (tensor([0.5, 1.0]), torch.ones(2)),
    ),
    "cholesky": (torch.linalg.cholesky, (-torch.eye(3),), (torch.eye(3),)),
    "inverse": (torch.linalg.inv, (torch.zeros(3, 3),), (torch.eye(3),)),
    "masked_scatter": (
        lambda x, y: x.masked_scatter(x > -9, y), (ROWS, torch.ones(3)), (ROWS, torch.ones(20)),
    ),
    "bernoulli": (lambda p: torch.bernoulli(p) * 0, (tensor([0.5, 2.0]),), (tensor([0.5, 1.0]),)),
    "bincount": (torch.bincount, (tensor([-1, 2]),), (tensor([1, 2]),)),
    "histc": (torch.histc, (tensor([1.0, float("nan")]),), (ONE.double(),)),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_an_operator_does_not_take(name: str) -> None:
    check(*VALUES[name])


def put(x: Tensor, mask: Tensor, index: Tensor, values: Tensor) -> Tensor:
    return x.index_put((mask, index), values)


PUTS_BY_MASK = {
    "counts_that_do_not_broadcast": (tensor([True, False, True, True]), tensor([0, 1]), torch.ones(())),
    "nothing_and_several": (tensor([False] * 4), tensor([0, 1, 2]), torch.ones(())),
    "values_that_do_not_broadcast": (tensor([True, False, True, True]), tensor([0, 1, 2]), torch.ones(2)),
    "an_index_out_of_range": (tensor([True, False, True, True]), tensor([0, 1, 5]), torch.ones(3)),
    "a_mask_of_another_shape": (tensor([True] * 3), tensor([0, 1, 2]), torch.ones(3)),
    "an_index_of_another_dtype": (tensor([1, 0, 1, 1], dtype=torch.int8), tensor([0, 1, 2]), torch.ones(3)),
}


@pytest.mark.parametrize("name", PUTS_BY_MASK)
def test_values_put_by_a_mask_and_an_index_tensor(name: str) -> None:
    mask = tensor([True, False, True, True])
    check(put, (ROWS, *PUTS_BY_MASK[name]), (ROWS, mask, tensor([0, 4, -2]), torch.ones(3)))


REFUSED: dict[str, tuple[Function, Arguments]] = {
    "floor_divide_by_literal": (lambda a: a // 0, (ONE,)),
    "remainder_by_literal": (lambda a: a % 0, (ONE,)),
    "integer_to_negative_power": (lambda a: a**-1, (ONE,)),
    "matmul": (lambda a: a @ a, (ROWS,)),
    "add": (lambda a, b: a + b, (ROWS, LINE[:3])),
    "cat": (lambda a, b: torch.cat([a, b]), (ROWS, TABLE)),
    "stack": (lambda a, b: torch.stack([a, b]), (ROWS, TABLE)),
    "reshape": (lambda a: a.reshape(3, 7), (ROWS,)),
    "view": (lambda a: a.t().view(20), (ROWS,)),
    "expand": (lambda a: a.expand(4, 6), (ROWS,)),
    "sum_dimension": (lambda a: a.sum(5), (ROWS,)),
    "softmax_dimension": (lambda a: torch.softmax(a, 3), (ROWS,)),
    "negative_size": (lambda a: torch.zeros(-1) + a, (ROWS,)),
    "negative_size_full": (lambda a: torch.full((2, -3), 1.0) + a.sum(), (ROWS,)),
    "bitwise_float": (lambda a: a & a, (ROWS,)),
    "gather_by_float": (lambda x, i: x.gather(1, i), (ROWS, ALONG.float())),
    "embedding_by_float": (F.embedding, (FEW.float(), TABLE)),
    "subtract_bool": (lambda a: a - a, (tensor([True]),)),
    "mean_of_integers": (lambda a: a.mean(), (ONE,)),
    "matmul_dtypes": (lambda a: a @ a.double().t(), (ROWS,)),
    "linear": (F.linear, (ROWS, TABLE)),
    "conv2d": (F.conv2d, (torch.ones(1, 3, 5, 5), torch.ones(2, 4, 3, 3))),
    "max_pool2d": (lambda a: F.max_pool2d(a, 9), (torch.ones(1, 3, 5, 5),)),
    "pad": (lambda a: F.pad(a, (9, 9), mode="reflect"), (torch.ones(1, 3, 5),)),
    "max_of_nothing": (lambda a: a.max(), (torch.zeros(0),)),
    "max_of_no_rows": (lambda a: a.max(0)[0], (torch.zeros(0, 3),)),
    "split": (lambda a: a.split([1, 2]), (ROWS,)),
    "narrow": (lambda a: a.narrow(0, 2, 9), (ROWS,)),
    "select": (lambda a: a.select(0, 9), (ROWS,)),
    "topk": (lambda a: a.topk(9), (ROWS,)),
    "layer_norm": (lambda a: F.layer_norm(a, (9,)), (ROWS,)),
    "item_of_several": (lambda a: a.item(), (ROWS,)),
    "view_as_complex": (torch.view_as_complex, (CUBE,)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_is_wrong_whatever_the_values(name: str) -> None:
    check(*REFUSED[name])


WRAPPED: dict[str, tuple[Function, Arguments]] = {
    "index_by_float": (lambda x, i: x[i], (ROWS, FEW.float())),
    "argmax_of_nothing": (lambda a: a.argmax(), (torch.zeros(0),)),
    "dropout": (lambda a: F.dropout(a, 2.0), (ROWS,)),
    "batch_norm": (lambda a: F.batch_norm(a, None, None, training=True), (torch.ones(1, 3),)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_an_error_that_dynamo_wraps_comes_out_as_without_a_backend(name: str) -> None:
    function, arguments = WRAPPED[name]
    found = []
    for backend in ("eager", "litz"):
        torch._dynamo.reset()
        found.append(type(outcome(torch.compile(function, backend=backend), arguments)))
    assert found[0] is found[1]
    assert issubclass(found[0], Exception)


def test_an_error_names_the_kernel_and_what_to_do() -> None:
    with pytest.raises(IndexError, match=r"index out of range in self\n  operation: .*embedding") as found:
        torch.compile(F.embedding, backend="litz")(FAR, TABLE)
    assert "next: check the values of the index tensor" in str(found.value)


class LooksUpBackward(torch.autograd.Function):
    """A function whose gradient reads a table by an index that the forward only saves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]  # as torch documents it
        (index,) = ctx.saved_tensors
        return grad.gather(0, index), None


def test_an_index_out_of_range_in_the_backward() -> None:
    def step(x: Tensor, index: Tensor) -> Tensor:
        return LooksUpBackward.apply(x, index).sin().sum()

    compiled = torch.compile(step, backend="litz")
    for index, fails in (
        (tensor([4, 3, 2, 1, 0]), False),
        (tensor([4, 3, 9, 1, 0]), True),
        (tensor([0] * 5), False),
    ):
        x, y = LINE.clone().requires_grad_(), LINE.clone().requires_grad_()
        if fails:
            with pytest.raises(RuntimeError, match="out of bounds"):
                step(x, index).backward()
            with pytest.raises(RuntimeError, match="out of bounds"):
                compiled(y, index).backward()
            assert y.grad is None
            continue
        step(x, index).backward()
        compiled(y, index).backward()
        torch.testing.assert_close(y.grad, x.grad)


def test_an_error_in_a_training_step_leaves_the_next_one_alone() -> None:
    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(x * 2, target)

    compiled = torch.compile(loss, backend="litz")
    for target in (CLASSES, CLASSES_FAR, CLASSES):
        x, y = ROWS.clone().requires_grad_(), ROWS.clone().requires_grad_()
        if target is CLASSES_FAR:
            with pytest.raises(IndexError, match="Target is out of bounds"):
                compiled(y, target)
            continue
        loss(x, target).backward()
        compiled(y, target).backward()
        torch.testing.assert_close(y.grad, x.grad)
