"""Python's operators on symbolic ints, floats and bools: all compile, to eager's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs

X = torch.linspace(-2, 2, 6)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "cache"), fallback="error"):
        yield


def check(program: Callable[..., Any], *calls: tuple[Any, ...], graphs: int = 1) -> None:
    """Assert that a program has eager's results in each call, with so many graphs for all of them."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("litz")
    compiled = torch.compile(program, backend=counter, fullgraph=True, dynamic=True)
    for call in calls:
        mine, theirs = compiled(*call), program(*call)
        assert_close(mine, theirs, equal_nan=True)
        if isinstance(theirs, list):
            assert [type(each) for each in mine] == [type(each) for each in theirs]
    assert counter.frame_count == graphs


def integers(x: Tensor, n: int, m: int) -> list[Any]:
    values = [
        n & 1, n & ~7, n | 1, n ^ 5, n & m, n | m, n ^ m, n << 2, n << m, 1 << m, n >> 1, n >> m, -n // 4, -n // m,
        -n % 4, -n % m, n**2, 2**m, abs(-n), -n, +n, min(n, 5), max(n, m), sum([n, m, 2]), n - m, n * m,
        round(n / 2), round(n / m), int(n / 2), math.floor(-n / 2), math.ceil(-n / 2), math.trunc(-n / 2),
    ]  # fmt: skip
    return [x * value for value in values] + values


def floats(x: Tensor, n: int, s: float) -> list[Any]:
    values = [
        n / 3, -n % 2.5, -n // 2.5, 2.5 % -n, n**-1, n**0.5, 2.5**n, s**2, s % 0.7, -s % 0.7, s // 0.3, abs(-s), -s,
        min(s, 0.7), max(n / 2, s), float(n), n * s, n - s, round(n / 3, 1), round(n / 2 * 123.4567, 0), round(s, 3),
        round(s * 1000, -2), math.sqrt(n), math.sin(s), math.cos(s), math.tan(s), math.asin(s / 9), math.acos(s / 9),
        math.atan(s), math.sinh(s), math.cosh(s), math.tanh(s), math.log2(n), math.sqrt(s),
    ]  # fmt: skip
    return (
        [x * value for value in values]
        + values
        + [x * math.floor(s * 7), x * round(s * 7), x * int(s * 7), x.abs() ** math.floor(s)]
    )


def bools(x: Tensor, n: int, s: float) -> list[Any]:
    a, b = torch.sym_not(n > 5), s > 0.4
    values = [n > 5, n >= 5, n < 5, n <= 5, s > 0.5, s <= 0.5, a, (n > 5) & b, (n > 5) | b, n != 4]
    return [torch.where(x > 0, x, value) for value in values] + [x * value for value in values]


def test_operators_on_integers() -> None:
    check(integers, *((X, n, m) for n, m in ((7, 3), (4, 2), (12, 5), (21, 4))))


def test_operators_on_floats() -> None:
    check(floats, *((X, n, s) for n, s in ((7, 0.3), (4, 0.75), (12, 1.125), (3, 2.675))))


def test_operators_on_bools() -> None:
    check(bools, *((X, n, s) for n, s in ((7, 0.3), (3, 0.75), (12, 0.45))))


def test_bits_of_sizes_are_sizes() -> None:
    def program(x: Tensor) -> list[Tensor]:
        padded = F.pad(x, (0, -x.shape[1] & 7))
        return [
            x[:, : x.shape[1] & ~7] * 2,
            padded,
            padded.sum(1),
            x.new_ones(x.shape[1] ^ 5),
            x * (x.shape[1] | 1),
        ]

    # torch traces again where nothing is padded
    check(program, *((torch.arange(2.0 * n).reshape(2, n),) for n in (16, 21, 9, 30)), graphs=2)


def test_bits_of_sizes_in_training() -> None:
    def program(x: Tensor) -> Tensor:
        return (x[:, : x.shape[1] & ~7].sin() * (x.shape[1] & 5)).sum(0)

    def gradient(run: Callable[[Tensor], Tensor], n: int) -> Tensor:
        x = torch.arange(2.0 * n).reshape(2, n).requires_grad_()
        run(x).square().sum().backward()
        assert x.grad is not None
        return x.grad

    compiled = torch.compile(program, backend="litz", fullgraph=True, dynamic=True)
    for n in (17, 21, 13, 30):
        assert_close(gradient(compiled, n), gradient(program, n))


HARD = (
    0.5, 1.5, 2.5, 0.25, 0.35, 2.675, 1.005, 0.045, -0.045, -0.04, 1e-9, 5e-324, 123456789.125, 4503599627370495.5,
    4503599627370497.5, 9007199254740993.0, 1e17, 1.7e308, -2.5, 1250.0, 1350.0, -1250.0, 99950.0, 1e22, 50.0, 150.0,
)  # fmt: skip


def rounded(x: Tensor, s: float) -> tuple[Any, ...]:
    return x + 1, round(s, 0), round(s, 1), round(s, 2), round(s, 5), round(s, -1), round(s, -2), round(s, -3)


def test_decimal_rounding_is_exact() -> None:
    compiled = torch.compile(rounded, backend="litz", fullgraph=True, dynamic=True)
    for s in (*HARD, *(k / 8 + 0.0625 for k in range(12)), *(k * 0.005 for k in range(30))):
        mine, theirs = compiled(X, s)[1:], rounded(X, s)[1:]
        assert mine == theirs and [math.copysign(1, a) for a in mine] == [
            math.copysign(1, b) for b in theirs
        ], s


def test_bools_that_are_added_to_numbers() -> None:
    def program(x: Tensor, n: int, flag: bool) -> list[Any]:
        return [x.new_full((3,), n), n + flag]

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="litz")
    for n, flag in ((2, True), (5, True), (3, False), (7, False)):
        assert_close(compiled(X, n, flag), program(X, n, flag))


@pytest.mark.parametrize("number", [3.14, 3, True])
def test_vmap_takes_numbers(number: float) -> None:
    program = torch.vmap(torch.mul, in_dims=(0, None))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, s: program(x, s), backend="litz", fullgraph=True, dynamic=False)
    for value in (number, number * 2, number * 3):
        assert_close(compiled(X, value), program(X, value))


def test_an_operator_that_fails_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with litz.config.patch(fallback="warn"):
        compiled = torch.compile(lambda x, s: x * round(s, 30), backend="litz", dynamic=True)
        assert_close(compiled(X, 0.3), X * 0.3)
    assert "round to 30 decimal digits" in caplog.text and "force_extern" not in caplog.text
