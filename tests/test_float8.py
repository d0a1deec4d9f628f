"""fp8 dtypes on a CPU: conversions in kernels are bit for bit eager's; eager's errors are raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import litz
from litz_ir import dtypes
from litz_ir.interp.encoding import decode, encode
from litz_lowering.types import compat
from litz_lowering.types.torch_types import litz_dtype

Program = Callable[..., Any]

FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
WIDE = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
MEMORY = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
in_formats = pytest.mark.parametrize("dtype", FORMATS, ids=str)


def codes(dtype: torch.dtype) -> torch.Tensor:
    """Return every value of an fp8 dtype."""
    return torch.arange(256, dtype=torch.uint8).view(dtype)


def numbers(dtype: torch.dtype, source: torch.dtype) -> torch.Tensor:
    """Return all bf16 or f16 values; of wider floats one f32 in 65,537, and the neighbours of all values that round to
    another code."""
    if source.itemsize == 2:
        return torch.arange(1 << 16).to(torch.int16).view(source)
    strided = np.arange(0, 1 << 32, 65537, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = codes(dtype).double().numpy()
    sizes = np.unique(np.abs(values[np.isfinite(values)]))
    beyond = sizes[-1] + (sizes[-1] - sizes[-2]) * np.array([0.5, 1, 1.5, 2])
    places = np.concatenate([sizes, (sizes[1:] + sizes[:-1]) / 2, beyond])
    kinds = (np.float32, np.float64) if source == torch.float64 else (np.float32,)
    near = [
        np.nextafter(places.astype(kind), kind(side)).astype(np.float64)
        for kind in kinds
        for side in (np.inf, -np.inf)
    ]
    near = np.concatenate([places, *near])
    return torch.cat(
        [torch.from_numpy(strided).to(source), torch.from_numpy(np.concatenate([near, -near])).to(source)]
    )


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(MEMORY[x.dtype.itemsize])


def agree(got: Any, want: Any) -> None:
    """Assert equal dtypes, strides and bits."""
    got, want = torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert torch.equal(bits(a), bits(b))


def check(function: Program, *args: torch.Tensor, calls: Sequence[str] = (), dynamic: bool = False) -> None:
    """Assert that results and arguments are bit for bit eager's, computed by kernels but for ``calls``."""
    torch._dynamo.reset()
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=dynamic)
    with litz.config.patch(fallback="error"):
        for _ in range(2):
            agree(compiled(*mine), function(*theirs))
            agree(mine, theirs)
        report = litz.explain(function, *[a.clone() for a in args])
    assert [call.target for call in report.calls] == list(calls)
    assert report.kernels


@in_formats
def test_the_interpreter_converts_as_eager_does(dtype: torch.dtype) -> None:
    litz_type = litz_dtype(dtype)
    wide = codes(dtype).float()
    assert np.array_equal(decode(codes(dtype).view(torch.uint8).numpy(), litz_type), wide, equal_nan=True)
    for source in WIDE:
        x = numbers(dtype, source)
        values = decode(x.view(torch.uint16).numpy(), dtypes.bf16) if source == torch.bfloat16 else x.numpy()
        with np.errstate(invalid="ignore"):
            assert np.array_equal(encode(values, litz_type), bits(x.to(dtype)))


@in_formats
@pytest.mark.sampled
@pytest.mark.parametrize("source", WIDE, ids=str)
def test_casts_of_floats(dtype: torch.dtype, source: torch.dtype) -> None:
    check(lambda x: x.to(dtype), numbers(dtype, source))


@in_formats
def test_casts_of_integers(dtype: torch.dtype) -> None:
    small = torch.arange(-128, 128)
    large = torch.tensor([463, 464, 465, 7 << 13, 61440, 61439, 1 << 24, (1 << 24) + 1, -(1 << 62)])
    for kind in (torch.int8, torch.uint8, torch.bool):
        check(lambda x: x.to(dtype), small.to(kind))
    for kind in (torch.int16, torch.int32, torch.int64):
        check(lambda x: x.to(dtype), torch.cat([small, large]).to(kind))


@in_formats
def test_casts_to_other_dtypes(dtype: torch.dtype) -> None:
    def wide(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.float(), x.half(), x.bool()

    def others(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.double(), x.bfloat16(), *(x.to(other) for other in FORMATS), x.long(), x.int(), x.byte()

    x = codes(dtype)
    check(wide, x)
    check(
        others, x[~x.isnan()]
    )  # eager's NaN in bf16 has no sign, and that of some formats is the integer zero
    assert torch.compile(others, backend="litz")(x)[1].isnan().equal(x.isnan())


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * (448 / x.abs().amax())).to(torch.float8_e4m3fn)


def scaled_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12).float() / 57344
    return (x / scale).to(torch.float8_e5m2), scale


def dequantised(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) * scale


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    narrow = (x * 3).to(torch.float8_e4m3fn)
    return narrow, x - narrow.to(x.dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_scaling_by_the_largest(dtype: torch.dtype, dynamic: bool) -> None:
    for shape in ((64, 48), (5, 7)):
        x = torch.randn(shape, dtype=torch.float64).to(dtype)
        check(scaled, x, dynamic=dynamic)
        check(scaled_rows, x, dynamic=dynamic)
        check(rounded, x, dynamic=dynamic)


@in_formats
@pytest.mark.parametrize("dynamic", [False, True])
def test_scaling_back(dtype: torch.dtype, dynamic: bool) -> None:
    for rows in (64, 3):
        x = (torch.randn(rows, 40) * 20).to(dtype)
        check(dequantised, x, torch.rand(rows, 1), dynamic=dynamic)
        check(lambda x: (x.float().relu() * 0.5).to(x.dtype), x.t(), dynamic=dynamic)


@in_formats
def test_copies_keep_every_bit(dtype: torch.dtype) -> None:
    x, y = codes(dtype), codes(dtype)[torch.arange(255, -1, -1)]
    keep, at = torch.arange(256) % 3 == 0, torch.arange(0, 256, 5)
    row = x.view(16, 16)
    check(lambda x: x.clone(), x)
    check(lambda x: x.t().contiguous(), row)
    check(lambda x, y, keep: torch.where(keep, x, y), x, y, keep)
    check(lambda x, y: torch.cat([x, y, x[3:]]), x, y)
    check(lambda x: torch.stack([x, x]), x)
    check(lambda x, at: x[at], x, at)
    check(lambda x: torch.nn.functional.pad(x, (1, 2)), row)
    check(lambda x: x.roll(3), x)
    check(lambda x: x.repeat(2, 3), row)
    check(lambda x: x.view(torch.uint8) + 1, x)
    check(lambda x: (x.view(torch.uint8) ^ 1).view(x.dtype), x)
    check(lambda x, y: (x == y, x != y, x.isnan()), x, y)
    check(lambda x: torch.full_like(x, 1.3), x)


@in_formats
def test_writes(dtype: torch.dtype) -> None:
    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[1:3] = y
        x[0].fill_(0.3)
        return x.float() + 1

    def copied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.copy_(y * 2)

    def placed(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[at] = y.to(x.dtype)
        return x

    x, y = (torch.randn(6, 8) * 30).to(dtype), torch.randn(2, 8)
    check(rows, x, y)
    check(copied, x, torch.randn(6, 8))
    check(placed, x, torch.tensor([4, 0]), y)


REFUSED: dict[str, Program] = {
    "add": lambda x: x + x,
    "add_number": lambda x: x + 1,
    "mul": lambda x: x * 2,
    "div": lambda x: x / x,
    "neg": lambda x: -x,
    "exp": lambda x: x.exp(),
    "relu": lambda x: x.relu(),
    "gelu": torch.nn.functional.gelu,
    "clamp": lambda x: x.clamp(min=0),
    "maximum": lambda x: torch.maximum(x, x),
    "lt": lambda x: x < 1,
    "sum": lambda x: x.sum(),
    "amax": lambda x: x.amax(),
    "argmax": lambda x: x.argmax(),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(),
    "softmax": lambda x: x.softmax(-1),
    "cumsum": lambda x: x.cumsum(0),
    "masked_fill": lambda x: x.masked_fill(x.isnan(), 0.0),
    "flip": lambda x: x.flip(1),
    "gather": lambda x: x.gather(0, torch.zeros(1, 4, dtype=torch.int64)),
    "tril": lambda x: x.tril(),
    "add_": lambda x: x.add_(1),
    "arange": lambda x: torch.arange(4, dtype=x.dtype),
}
TAKEN_APART: dict[str, Program] = {
    "glu": torch.nn.functional.glu,
    "mse_loss": lambda x: torch.nn.functional.mse_loss(x, x),
    "std": lambda x: x.std(0),
}


def refusals(function: Program, dtype: torch.dtype) -> tuple[str, str]:
    """Return the messages of the error that eager and the compiled function both raise."""
    torch._dynamo.reset()
    x = torch.randn(6, 4).to(dtype)
    with pytest.raises(RuntimeError) as eager:
        function(x.clone())
    with pytest.raises(type(eager.value)) as compiled:
        torch.compile(function, backend="litz")(x.clone())
    return str(eager.value).splitlines()[0], str(compiled.value).splitlines()[0]


@in_formats
@pytest.mark.sampled
@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused(dtype: torch.dtype, name: str) -> None:
    eager, compiled = refusals(REFUSED[name], dtype)
    assert compiled == eager


@in_formats
@pytest.mark.parametrize("name", TAKEN_APART)
def test_a_part_of_what_eager_refuses_is_refused(dtype: torch.dtype, name: str) -> None:
    for message in refusals(TAKEN_APART[name], dtype):
        assert "not implemented for 'Float8" in message


def test_sums_of_repeated_writes_round_each_time() -> None:
    """Intermediate roundings are eager's: a sum in f32 that is rounded once would be 33."""
    x = torch.zeros(2).to(torch.float8_e4m3fn)
    at, y = torch.zeros(33, dtype=torch.int64), torch.ones(33).to(torch.float8_e4m3fn)

    def added(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_put((at,), y, accumulate=True)

    agree(torch.compile(added, backend="litz")(x, at, y), added(x, at, y))


def test_fallbacks_to_aten_are_told() -> None:
    report = litz.explain(lambda x: x.abs().float() * 2, codes(torch.float8_e5m2))
    assert [call.target for call in report.calls] == ["aten.abs.default"]
    assert "8-bit floats" in report.calls[0].reason
    assert [kernel.operations for kernel in report.kernels] == [("_to_copy", "mul")]


def test_what_is_beyond_the_largest_is_nan_where_torch_has_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversions for torch 2.11, which saturates nowhere, are written out as loops."""
    monkeypatch.setattr(compat, "saturates", lambda: False)
    x = torch.tensor([448.0, 464.0, 464.00003, 480.0, 1e9, torch.inf, torch.nan, -464.0, -500.0])
    torch._dynamo.reset()
    with litz.config.patch(cache=False, fallback="error"):
        made = torch.compile(lambda x: (x * 1).to(torch.float8_e4m3fn), backend="litz")(x)
    assert made.float().isnan().tolist() == [False, False, *[True] * 5, False, True]
    assert made.float()[[0, 1, 7]].tolist() == [448.0, 448.0, -448.0]
