"""Programs on complex tensors compiled by litz against eager: values, dtypes, strides, aliasing, mutation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import litz

Program = Callable[..., Any]
INF, NAN = float("inf"), float("nan")


def leaves(value: Any) -> list[Any]:
    return list(torch.utils._pytree.tree_leaves(value))


def compiled(function: Program, dynamic: bool | None = False) -> Program:
    torch._dynamo.reset()

    def call(*args: Any) -> Any:
        with litz.config.patch(fallback="error"):
            return made(*args)

    made = torch.compile(function, backend="litz", dynamic=dynamic, fullgraph=True)
    return call


def check(function: Program, *args: Any, dynamic: bool | None = False) -> None:
    """Assert that compiled and eager agree on results and written arguments, twice."""
    call = compiled(function, dynamic)
    mine, theirs = ([a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
    for _ in range(2):
        compare(leaves(call(*mine)), leaves(function(*theirs)))
        compare(mine, theirs)


def compare(got: list[Any], want: list[Any]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.stride() == b.stride(), (a.stride(), b.stride())
        double = b.dtype in (torch.float64, torch.complex128)
        tolerance = 1e-12 if double else 2e-5
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def c(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, dtype=dtype, generator=generator)


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7 * sum(shape) + len(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def rotary(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    rotated = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.view_as_real(rotated).flatten(-2)


def spectral(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft2(x)
    mixed = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :3, :3], weight)
    padded = torch.zeros(x.shape[0], weight.shape[1], *spectrum.shape[2:], dtype=spectrum.dtype)
    padded[:, :, :3, :3] = mixed
    return torch.fft.irfft2(padded, s=x.shape[-2:])


def scatters(z: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    wide = index[:, None].expand(-1, z.shape[1])
    return (
        z.scatter(0, wide, z[: len(index)] * 2),
        z.scatter_add(0, wide, z[: len(index)]),
        z.index_put((index,), z[: len(index)]),
        z.index_put((index,), z[: len(index)], accumulate=True),
        z.index_add(0, index, z[: len(index)]),
        z.index_add(0, index, z[: len(index)], alpha=2j),
        z.index_copy(0, index, z[: len(index)]),
        z.index_fill(0, index, 2),
    )


I3 = torch.tensor([3, 0, 2])

PROGRAMS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "arithmetic": (lambda a, b: (a + b, a - b, a * b, a / b, -a, a.conj() * b, 2 / a), (c(4, 5), c(5))),
    "numbers": (
        lambda a: (a * 2, a + 1j, a / (2 - 1j), 1j - a, torch.add(a, a, alpha=2j), torch.sub(a, 1, alpha=3)),
        (c(4, 5),),
    ),
    "mixed_with_real": (lambda a, x, n: (a * x, x - a, a / n, x * 1j, n + 2j), (c(4, 5), r(5), torch.arange(5))),
    "widened": (lambda a, x: (a * x, a + x.double()), (c(4, 5), r(5, dtype=torch.float64))),
    "zero_dim": (lambda a, b: (a * b, b.abs(), b * 2j), (c(4, dtype=torch.complex128), c())),
    "components": (lambda a: (a.real, a.imag, a.abs(), a.angle(), torch.view_as_real(a), a.sgn()), (c(4, 5),)),
    "made": (lambda x, y: (torch.complex(x, y), torch.polar(x.abs(), y)), (r(4, 5), r(4, 5))),
    "exponentials": (lambda a: (a.exp(), a.log(), a.sqrt(), a.rsqrt(), a.exp2(), a.log10(), a.sigmoid()), (c(4, 5),)),
    "trigonometry": (lambda a: (a.sin(), a.cos(), a.tan(), a.sinh(), a.cosh(), a.tanh()), (c(4, 5),)),
    "inverse_trigonometry": (
        lambda a: (a.asin(), a.acos(), a.atan(), a.asinh(), a.acosh(), a.atanh()),
        (c(4, 5),),
    ),
    "powers": (
        lambda a, b: (a**2, a**-1, a**0.5, a**2.5, a**b, 2**a, a**1j, a.square(), a.reciprocal()),
        (c(4, 5), c(5)),
    ),
    "comparisons": (
        lambda a, b: (a == b, a != b, a == 1j, a.isnan(), a.isinf(), a.isfinite(), ~a.bool()),
        (c(4), c(4)),
    ),
    "choices": (
        lambda a, b, m: (torch.where(m > 0, a, b), torch.where(m > 0, a, 1.0), a.masked_fill(m > 0, 2j)),
        (c(4, 5), c(4, 5), r(4, 5)),
    ),
    "combined": (
        lambda a, b, d: (torch.lerp(a, b, 0.25), torch.addcmul(a, b, d, value=2), torch.addcdiv(a, b, d)),
        (c(4, 5), c(4, 5), c(4, 5)),
    ),
    "views": (
        lambda a: (a.t() * 2, a[1:, ::2] + 1, a.reshape(5, 4) * 1, a.unsqueeze(-1) * 1, a.expand(2, 4, 5) * 1, a[-1]),
        (c(4, 5),),
    ),
    "as_strided": (lambda a: a.as_strided((3, 2), (1, 5), 1) * 2, (c(4, 5),)),
    "reordered": (lambda a: (a.roll(1, 0), a.flip(-1), a.roll(3), a.repeat(2, 1), a.tril(), a.rot90()), (c(4, 5),)),
    "joined": (
        lambda a, b, x: (torch.cat([a, b], -1), torch.stack([a, a], -1), torch.cat([a, x])),
        (c(4, 5), c(4, 2), r(3, 5)),
    ),
    "padded": (lambda a: (F.pad(a, (1, 2)), F.pad(a, (1, 0), value=3.0)), (c(4, 5),)),
    "indexed": (lambda a, i: (a[i], a[:, i], a.gather(0, i[:, None]), a.index_select(1, i), a.take(i)), (c(4, 5), I3)),
    "scattered": (scatters, (c(4, 5), I3)),
    "factories": (
        lambda a: (
            torch.full((3,), 2 + 1j), torch.zeros_like(a) + a, torch.ones(2, dtype=torch.complex128),
            torch.full_like(a, 1j), a.new_full((2,), 3), torch.tensor(2j) * a,
        ),
        (c(4, 5),),
    ),
    "casts": (lambda a, x, i: (a.to(torch.complex128), x.cfloat(), i.to(torch.complex64), a.bool()), (c(4), r(4), I3)),
    "sums": (lambda a: (a.sum(), a.sum(0), a.sum(-1, keepdim=True), a.mean(1), a.mean(), a.cumsum(-1)), (c(4, 5),)),
    "products": (lambda a: (a.prod(), a.prod(-1), a.prod(0, keepdim=True), a.cumprod(0)), (c(4, 5),)),
    "spreads": (lambda a: (a.var(), a.std(-1), a.norm(), a.norm(dim=0), torch.linalg.vector_norm(a, 1)), (c(4, 5),)),
    "spreads_with_means": (lambda a: (*torch.var_mean(a, 0), *torch.std_mean(a), F.silu(a)), (c(4, 5),)),
    "truths": (lambda a: (a.any(), a.all(-1), torch.count_nonzero(a), torch.logical_not(a)), (c(4, 5),)),
    "real_summed_as_complex": (lambda x: x.sum(0, dtype=torch.complex64), (r(4, 5),)),
    "nan_to_num": (lambda a: torch.nan_to_num(a, 1.0), (torch.tensor([complex(NAN, 1), complex(INF, -INF)]),)),
    "linear": (lambda x, w, b: F.linear(x, w, b).tanh(), (c(6, 5), c(3, 5), c(3))),
    "products_of_matrices": (
        lambda a, b: (a @ b, (a.conj() @ b).abs(), a.mH @ a, torch.vdot(a[0], a[1])),
        (c(4, 5), c(5, 4)),
    ),
    "batched": (lambda a, b: torch.bmm(a, b.mT) + 1j, (c(2, 4, 5), c(2, 3, 5))),
    "convolution": (lambda x, w: F.conv1d(x, w).abs(), (c(2, 3, 8), c(4, 3, 3))),
    "rotary": (rotary, (r(2, 3, 8), r(3, 4))),
    "spectral": (spectral, (r(2, 3, 8, 8), c(3, 2, 3, 3))),
    "fft": (
        lambda x: (torch.fft.fft(x), torch.fft.fftshift(torch.fft.fft2(x)), torch.fft.ifft(x * 1j).real),
        (c(4, 6),),
    ),
    "rfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.shape[-1]), (r(4, 6),)),
    "stft": (lambda x: torch.stft(x, 8, window=torch.ones(8), return_complex=True).abs(), (r(64),)),
    "foreach": (lambda a, b: torch._foreach_mul([a, b], 2j) + torch._foreach_add([a, b], [b, a]), (c(4), c(4))),
    "empty": (lambda a: (a * 2, a.sum(0), a.t()), (c(0, 3),)),
    "high_precision": (lambda a, b: ((a * b).exp().sum(0), a.tanh() / b), (c(4, 5, dtype=torch.complex128),) * 2),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    function, args = PROGRAMS[name]
    check(function, *args)


@pytest.mark.parametrize(
    "name", ["arithmetic", "views", "joined", "sums", "products", "indexed", "spectral", "rotary"]
)
def test_programs_with_symbolic_shapes(name: str) -> None:
    function, args = PROGRAMS[name]
    check(function, *args, dynamic=True)


def test_special_values() -> None:
    """At infinities, NaN and zeros of either sign, in every combination of parts."""
    parts = (0.0, -0.0, 1.0, -2.0, 30.0, -100.0, 1e20, INF, -INF, NAN)
    z = torch.tensor([complex(a, b) for a in parts for b in parts])

    def everything(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            z.exp(), z.log(), z.sqrt(), z.rsqrt(), z.reciprocal(), z.cosh(), z.sinh(), z.tanh(), z.cos(), z.tan(),
            z.asin(), z.acos(), z.atan(), z.asinh(), z.acosh(), z.atanh(), z.abs(), z.angle(), z.sigmoid(), z.sgn(),
            (1 + 2j) / z, z * z, z.isinf(), z == z,
        )  # fmt: skip

    def components_of(results: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        return [torch.view_as_real(t) if t.is_complex() else t for t in results]

    compare(components_of(compiled(everything)(z)), components_of(everything(z)))


# --- views of memory, bits, mutation ----------------------------------------


def test_conjugate_bits_of_arguments_are_worked_in() -> None:
    z = c(4, 5)
    call = compiled(lambda a: (a * 2j, a.abs(), a.real + 1))
    for given in (z.conj(), z.t().conj(), torch._neg_view(z), z[:, ::2].conj(), z[:1].conj().expand(3, 5)):
        compare(list(call(given)), [given * 2j, given.abs(), given.real + 1])


def test_negative_bits_of_real_arguments_are_worked_in() -> None:
    z = c(4, 5)
    given = z.conj().imag
    assert given.is_neg()
    compare([compiled(lambda x: x.exp())(given)], [given.exp()])


def test_conjugates_are_returned_as_eager_returns_them() -> None:
    def function(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.conj(), (a * 2).conj(), a.mH, a.conj().imag

    z = c(4, 5)
    got, want = compiled(function)(z), function(z)
    compare(list(got), list(want))
    assert got[0].untyped_storage().data_ptr() == z.untyped_storage().data_ptr()


def conjugated(a: torch.Tensor) -> torch.Tensor:
    return (a * 2).conj()


def conjugated_slice(a: torch.Tensor) -> torch.Tensor:
    return (a * 2).mH[1:, ::2]


def negated(a: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(a * 2)


def imaginary(a: torch.Tensor) -> torch.Tensor:
    return (a * 2).conj().imag


def twice(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = a.exp()
    return y.conj(), y.conj().conj()


def negated_next_to_its_base(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = a.abs()
    return torch._neg_view(y)[1:], y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    "function",
    [conjugated, conjugated_slice, negated, imaginary, twice, negated_next_to_its_base],
)
def test_results_have_the_bits_of_eager(function: Program, gradient: bool, dynamic: bool) -> None:
    z = c(4, 5).requires_grad_(gradient)
    got, want = compiled(function, dynamic=dynamic)(z), function(z)
    for mine, theirs in zip(
        *(each if isinstance(each, tuple) else (each,) for each in (got, want)), strict=True
    ):
        compare([mine], [theirs])
        assert (mine.is_conj(), mine.is_neg()) == (theirs.is_conj(), theirs.is_neg())
        if gradient:
            own, eager = (
                torch.autograd.grad(each.abs().sum(), z, retain_graph=True) for each in (mine, theirs)
            )
            compare(list(own), list(eager))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x.floor_(), x * 2)[1],
        lambda x, w: (x[1:].add_(1), x.sum())[1],
        lambda x, w: (x.mul_(w), w.add_(1), x.exp())[2],
        lambda x, w: x.copy_(w),
    ],
    ids=["unary", "slice", "two", "returned"],
)
def test_negated_arguments_are_written_in_place(function: Program, dynamic: bool) -> None:
    def arguments() -> tuple[torch.Tensor, torch.Tensor]:
        return torch._neg_view(torch.arange(5.0) + 0.5), torch.full((5,), 3.0)

    mine, theirs = arguments(), arguments()
    got, want = compiled(function, dynamic=dynamic)(*mine), function(*theirs)
    compare([got, *mine], [want, *theirs])
    assert mine[0].is_neg() and got.is_neg() == want.is_neg()


def test_results_share_memory_with_arguments_as_in_eager() -> None:
    def function(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a, a.t(), torch.view_as_real(a), a.real, a * 2

    z = c(4, 5)
    got, want = compiled(function)(z), function(z)
    compare(list(got), list(want))
    for mine, theirs in zip(got, want, strict=True):
        assert mine.data_ptr() == theirs.data_ptr() or theirs is want[-1]
    assert got[-1]._base is None


@pytest.mark.parametrize("turn", [lambda z: z, torch.conj, torch.t], ids=["plain", "conjugate", "transposed"])
def test_mutation_reaches_the_caller(turn: Program) -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        a.mul_(2j)
        a[0].add_(1)
        a[:, 1].conj().mul_(1 + 1j)
        return a.sum()

    mine, theirs = turn(c(4, 4).clone()), turn(c(4, 4).clone())
    compare([compiled(function)(mine), mine], [function(theirs), theirs])


def test_mutation_through_real_and_complex_views() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.view_as_complex(x).mul_(1j)
        return x * 2

    check(function, r(4, 2))


def test_results_may_be_changed_in_place_afterwards() -> None:
    z = c(4)
    got = compiled(lambda a: a * 2)(z)
    got.add_(1)
    compare([got], [z * 2 + 1])


def test_discarded_parts_are_warned_of() -> None:
    call = compiled(lambda a: a.to(torch.float32))
    # It is tracing that warns: a graph that is found in the cache was warned of before.
    with litz.config.patch(cache=False), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = call(c(4))
    compare([got], [c(4).real.clone()])
    assert any("discards the imaginary part" in str(w.message) for w in caught)


def test_constants_may_be_complex() -> None:
    table = c(5)
    check(lambda a: a * torch.tensor([1j, 2, 3 - 1j, 0, 1]) + table, c(4, 5))


def test_calls_without_a_rule_get_and_give_complex_tensors() -> None:
    torch._dynamo.reset()
    with litz.config.patch(fallback="silent"):
        call = torch.compile(
            lambda a: torch.linalg.inv(a * 2) @ a + torch.linalg.eigvals(a).sum(),
            backend="litz",
            fullgraph=True,
        )
        z = c(4, 4)
        got = call(z)
    torch.testing.assert_close(
        got, torch.linalg.inv(z * 2) @ z + torch.linalg.eigvals(z).sum(), rtol=1e-4, atol=1e-4
    )


# --- gradients ----------------------------------------


def gradients(function: Program, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    own = [a.detach().clone().requires_grad_() for a in args]
    result = function(*own)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(result.shape, dtype=result.dtype, generator=generator)
    (result * weights).sum().abs().backward()
    return [result.detach(), *(a.grad for a in own)]


GRADIENTS: dict[str, tuple[Program, tuple[torch.Tensor, ...]]] = {
    "arithmetic": (lambda a, b: a * b / (a + 3) - b.conj(), (c(4, 5), c(5))),
    "functions": (lambda a: (a.exp() + a.tanh() * a.sin()).abs(), (c(4, 5),)),
    "components": (lambda a: a.real * a.imag + a.angle(), (c(4, 5),)),
    "linear": (lambda x, w, b: F.linear(x, w, b).tanh(), (c(6, 5), c(3, 5), c(3))),
    "rotary": (rotary, (r(2, 3, 8), r(3, 4))),
    "spectral": (spectral, (r(2, 3, 8, 8), c(3, 2, 3, 3))),
    "reductions": (lambda a: a.prod(-1) + a.sum(-1) * a.mean() + a.norm(), (c(4, 5),)),
    "structure": (lambda a: torch.cat([a.t()[1:], a[:, :4].conj()]).roll(1, 0)[:, I3] * 2j, (c(4, 5),)),
    "fft": (lambda x: torch.fft.ifft(torch.fft.fft(x) * 2).abs(), (r(4, 6),)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    function, args = GRADIENTS[name]
    compare(gradients(compiled(function), args), gradients(function, args))


@pytest.mark.parametrize("name", ["arithmetic", "linear", "structure"])
def test_gradients_with_symbolic_shapes(name: str) -> None:
    function, args = GRADIENTS[name]
    compare(gradients(compiled(function, dynamic=True), args), gradients(function, args))


def test_gradients_that_come_with_a_conjugate_bit() -> None:
    def run(function: Program) -> list[torch.Tensor]:
        z = c(4, 5).requires_grad_()
        function(z).backward(c(4, 5).conj())
        assert z.grad is not None
        return [z.grad]

    program: Program = lambda a: a * a.exp()  # noqa: E731
    compare(run(compiled(program)), run(program))


def test_powers_lose_nothing_to_the_logarithm() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(500, dtype=torch.complex64, generator=generator) * 5 for _ in range(2))
    found = torch.compile(torch.pow, backend="litz")(x, y)
    exact = x.to(torch.complex128) ** y.to(torch.complex128)
    assert ((found - exact).abs() <= 2**-23 * exact.abs()).all()
