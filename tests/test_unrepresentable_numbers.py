"""Python numbers that a dtype cannot represent: an error where eager raises, wrap-around where eager wraps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, tensor
from torch._dynamo.exc import BackendCompilerFailed

import litz

Function = Callable[..., Any]

LONG = tensor([1, -2, 3])
BYTE, SIGNED = LONG.abs().to(torch.uint8), LONG.to(torch.int8)
FLOAT = torch.linspace(-1, 1, 6)
HALF, TRUTH, FIRST = FLOAT.half(), FLOAT > 0, tensor([0])
HUGE, WIDE = 2**63, 1e60


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        yield


def outcome(function: Function, x: Tensor) -> Any:
    """Return the result, or the error."""
    try:
        return function(x.clone())
    except Exception as error:
        return error


REFUSED: dict[str, tuple[Function, Tensor]] = {
    "full_byte": (lambda x: torch.full((2,), 300, dtype=torch.uint8) + x[:2], BYTE),
    "full_byte_float": (lambda x: torch.full((2,), -1.0, dtype=torch.uint8) + x[:2], BYTE),
    "full_nan": (lambda x: torch.full((2,), float("nan"), dtype=torch.int64) + x[:2], LONG),
    "full_huge": (lambda x: torch.full((2,), HUGE) + x[:2], LONG),
    "full_wide": (lambda x: torch.full((2,), WIDE) + x[:2], FLOAT),
    "full_half": (lambda x: torch.full((2,), 1e6, dtype=torch.half) + x[:2], FLOAT),
    "full_like": (lambda x: torch.full_like(x, 300), BYTE),
    "new_full": (lambda x: x.new_full((2,), 300), BYTE),
    "scalar_tensor": (lambda x: x + torch.scalar_tensor(300, dtype=torch.uint8), BYTE),
    "fill": (lambda x: x.clone().fill_(-300), BYTE),
    "fill_diagonal": (lambda x: x.expand(3, 3).clone().fill_diagonal_(300), BYTE),
    "masked_fill": (lambda x: x.masked_fill(x > 1, -200), SIGNED),
    "masked_fill_half": (lambda x: x.masked_fill(x > 0, -1e9), HALF),
    "where": (lambda x: torch.where(x > 1, x, 300), BYTE),
    "where_huge": (lambda x: torch.where(x > 1, x, HUGE), LONG),
    "index_fill": (lambda x: x.index_fill(0, FIRST, 300), BYTE),
    "scatter": (lambda x: x.scatter(0, FIRST, 300), BYTE),
    "pad": (lambda x: F.pad(x, (1, 1), value=-1), BYTE),
    "clamp": (lambda x: x.clamp(-200, 200), SIGNED),
    "clamp_half": (lambda x: x.clamp(max=1e6), HALF),
    "clamp_list": (lambda x: torch._foreach_clamp_max([x], 300), BYTE),
    "hardtanh": (lambda x: F.hardtanh(x, -1, 300), SIGNED),
    "threshold": (lambda x: F.threshold(x, 1, 300), BYTE),
    "alpha": (lambda x: torch.add(x, x, alpha=300), BYTE),
    "alpha_wide": (lambda x: torch.sub(x, x, alpha=WIDE), FLOAT),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=300), BYTE),
    "lerp": (lambda x: torch.lerp(x, x + 1, WIDE), FLOAT),
    "power": (lambda x: x**300, BYTE),
    "power_huge": (lambda x: x**HUGE, LONG),
    "leaky_relu": (lambda x: F.leaky_relu(x, WIDE), FLOAT),
    "index_add": (lambda x: x.index_add(0, FIRST, x[:1], alpha=300), BYTE),
    "promotion": (lambda x: x + HUGE, TRUTH),
    "linspace": (lambda x: torch.linspace(0, 1e6, 3, dtype=torch.half) + x[0], FLOAT),
    "arange_step_of_zero": (lambda x: torch.arange(0, 5, 0) + x[0], LONG),
    "arange_step_away": (lambda x: torch.arange(0, 5, -1) + x[0], LONG),
    "arange_to_nan": (lambda x: torch.arange(0, float("nan")) + x[0], FLOAT),
    "arange_to_infinity": (lambda x: torch.arange(0, float("inf")) + x[0], FLOAT),
    "linspace_steps": (lambda x: torch.linspace(0, 1, -1) + x[0], FLOAT),
    "eye": (lambda x: torch.eye(-1) + x[0], FLOAT),
    "new_zeros": (lambda x: x.new_zeros((2, -3)) + 1, FLOAT),
    "new_empty": (lambda x: x.new_empty(-1) + 1, FLOAT),
    "repeat": (lambda x: x.repeat(-1), FLOAT),
    "repeat_interleave": (lambda x: x.repeat_interleave(-1), FLOAT),
    "unfold": (lambda x: x.unfold(0, 2, 0), FLOAT),
    "narrow_to_less_than_nothing": (lambda x: x.narrow(0, 0, -1), FLOAT),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REFUSED)
def test_a_number_that_eager_refuses(name: str) -> None:
    function, x = REFUSED[name]
    expected = outcome(function, x)
    assert isinstance(expected, Exception), "eager takes it"
    found = outcome(torch.compile(function, backend="litz"), x)
    assert isinstance(found, type(expected)), f"{found!r} instead of {expected!r}"
    assert not isinstance(found, BackendCompilerFailed), found


TAKEN: dict[str, tuple[Function, Tensor]] = {
    "sums": (lambda x: (x + 300, x - 300, 300 - x, x + HUGE, x + -1), BYTE),
    "multiplications": (lambda x: (x * 200, x * HUGE, x // 200, x % 200), SIGNED),
    "quotients": (lambda x: (x // 300, x % 300, torch.fmod(x, 300)), BYTE),
    "comparisons": (lambda x: (x < 300, x > -1, x == 257, x < HUGE, x != 1.5), BYTE),
    "bits": (lambda x: (x & 300, x | -1, x ^ 200), BYTE),
    "shifts": (lambda x: (x << 8, x >> 9, x << -1, x >> -1), SIGNED),
    "wide_shifts": (lambda x: (x << 64, x >> 64, x << -1, x >> -1), LONG),
    "negatives_that_wrap": (lambda x: (torch.full_like(x, -1), x.clamp(max=-1), x.clone().fill_(-2)), BYTE),
    "ranges_that_wrap": (lambda x: torch.arange(250, 260, dtype=torch.uint8) + x[0], BYTE),
    "rounded_to_infinity": (lambda x: (x + WIDE, x * 1e30, x == WIDE, x < WIDE), FLOAT),
    "halves": (lambda x: (x * 1e6, x / 1e-9, x + 1e6, (x / 0).nan_to_num(nan=1e6)), HALF),
    "infinities": (lambda x: (x.masked_fill(x > 0, float("-inf")), x.clamp(max=float("inf"))), HALF),
    "one_element": (lambda x: torch.full((1,), 1e6, dtype=torch.half) + x[:1], HALF),
    "fractions": (lambda x: (x.masked_fill(x > 1, 1.5), x.clone().fill_(2.5)), LONG),
    "computed_wide": (lambda x: (torch.addcmul(x, x, x, value=1e6), torch.lerp(x, x, 1e6)), HALF),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", TAKEN)
def test_a_number_that_eager_takes(name: str) -> None:
    function, x = TAKEN[name]
    found = torch.compile(function, backend="litz")(x)
    torch.testing.assert_close(found, function(x), rtol=0, atol=0, equal_nan=True)


def test_a_size_that_the_dtype_may_not_hold_is_checked_in_every_call() -> None:
    def function(x: Tensor) -> Tensor:
        return x.to(torch.uint8).clamp(max=x.shape[0])

    compiled = torch.compile(function, backend="litz", dynamic=True, fullgraph=True)
    for size in (3, 300, 200):
        x = torch.full((size,), 50.0)
        if size == 300:
            with pytest.raises(RuntimeError, match="without overflow"):
                function(x)
            with pytest.raises(RuntimeError, match="without overflow"):
                compiled(x)
            continue
        torch.testing.assert_close(compiled(x), function(x))


WRAPPED: dict[str, tuple[Function, Tensor]] = {
    "no_64_bits": (lambda x: x + 2**64, LONG),
    "clamp": (lambda x: x.clamp(max=10**20), LONG),
    "comparison": (lambda x: x == 10**20, LONG),
    "fill": (lambda x: x.clone().fill_(-(2**64)), LONG),
    "tensor": (lambda x: x + tensor(HUGE), LONG),
    "slice": (lambda x: x[::0], FLOAT),
    "shifted_float": (lambda x: x << 1, FLOAT),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_an_error_that_dynamo_wraps_comes_out_as_without_a_backend(name: str) -> None:
    function, x = WRAPPED[name]
    found = []
    for backend in ("eager", "litz"):
        torch._dynamo.reset()
        found.append(type(outcome(torch.compile(function, backend=backend), x)))
    assert found[0] is found[1]
    assert issubclass(found[0], Exception)
