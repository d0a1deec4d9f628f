"""Pointwise operators at the values where they break: NaN, infinities, zeros of both signs, the ends of each dtype.

Every operator runs over the whole grid of its dtype, compiled by litz, and is compared with eager: NaN where eager has
NaN, infinities and zeros with eager's signs, integers and bools exactly, other numbers within a few roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import litz

Function = Callable[..., Any]
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13, torch.bfloat16: 8e-3, torch.float16: 1e-3}


CANCELLING = ("logaddexp2",)
"""Operators that eager computes as a difference: near their zeros only the absolute error is bounded."""


def grid(dtype: torch.dtype) -> torch.Tensor:
    """Return the grid of a dtype: 32 floats or 16 integers."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        positive = [
            0.0,
            0.5,
            1.0,
            1.5,
            2.0,
            2.5,
            3.0,
            7.0,
            0.3,
            31.0,
            300.0,
            info.tiny,
            info.max,
            info.eps,
            math.inf,
        ]
        return torch.tensor([*positive, *(-value for value in positive), math.nan, -math.nan], dtype=dtype)
    info = torch.iinfo(dtype)
    small = [0, 1, 2, 3, 5, 7, 31, 63, 64, 100, info.max, info.max - 1]
    negative = [info.min, info.min + 1, -1, -2, -3, -7, -64] if info.min else [8, 16, 128, 254]
    return torch.tensor(small + negative, dtype=dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return every pair of values."""
    one = grid(dtype)
    left, right = torch.meshgrid(one, one, indexing="ij")
    return left.contiguous(), right.contiguous()


def run(functions: dict[str, Function], *args: torch.Tensor) -> dict[str, Any]:
    """Return the results of the functions, compiled as one graph."""
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(
            lambda *a: [f(*a) for f in functions.values()], backend="litz", fullgraph=True
        )
        return dict(zip(functions, compiled(*args), strict=True))


def check(functions: dict[str, Function], *args: torch.Tensor) -> None:
    """Compare all functions in one graph with eager; name every operator and value that differs."""
    found = run(functions, *args)
    wrong = []
    for name, function in functions.items():
        wrong += differences(name, found[name], function(*args), args)
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:200])


def differences(
    name: str, got: torch.Tensor, want: torch.Tensor, args: tuple[torch.Tensor, ...]
) -> list[str]:
    """Yield a line for each element that differs from eager's."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return [f"{name}: {got.dtype} {tuple(got.shape)}, eager {want.dtype} {tuple(want.shape)}"]
    same = got == want
    if want.dtype.is_floating_point:
        tiny, cancels = torch.finfo(want.dtype).tiny, name in CANCELLING
        near = (got - want).abs() <= TOLERANCE[want.dtype] * want.abs().clamp(min=1.0 if cancels else tiny)
        near |= (got.abs() <= 2 * tiny) & (want.abs() <= 2 * tiny)
        same = (same | near) & ((want != 0) | (got.signbit() == want.signbit()) | (got != 0) | cancels)
        same = same & (got.isinf() == want.isinf()) | (got.isnan() & want.isnan())
    places = (~same).nonzero()
    lines = []
    for place in places[:6]:
        at = tuple(place.tolist())
        values = ", ".join(str(a[at].item() if a.dim() else a.item()) for a in args)
        lines.append(
            f"{name}({values}) [{args[0].dtype}]: {got[at].item()}, eager {want[at].item()} ({len(places)} in all)"
        )
    return lines


def named(names: str, module: Any = torch) -> dict[str, Function]:
    return {name: getattr(module, name) for name in names.split()}


UNARY = {
    **named(
        "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh "
        "atanh erf erfc erfinv lgamma digamma reciprocal square sinc logit isnan isinf isposinf isneginf isfinite "
        "signbit logical_not sign sgn abs neg positive floor ceil trunc round deg2rad rad2deg nan_to_num angle"
    ),
    **named("ndtr entr", torch.special),
}
FLOAT_UNARY = {
    "frac": torch.frac,
    "round_2": lambda x: torch.round(x, decimals=2),
    "round_minus_1": lambda x: torch.round(x, decimals=-1),
    "relu": torch.relu,
    "hardtanh": torch.nn.functional.hardtanh,
    "relu6": torch.nn.functional.relu6,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "nan_to_num_given": lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0),
    "pow_-1": lambda x: x**-1,
    "pow_2.5": lambda x: x**2.5,
    "rpow_2": lambda x: 2**x,
}
NOT_OF_BOOLS = ("neg", "abs", "sign", "positive", "floor", "ceil", "trunc", "round")


POLYNOMIALS = (
    *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
)  # fmt: skip
SPECIAL = {
    **named("i0 i0e i1 i1e erfcx ndtri log_ndtr", torch.special),
    **{f"polygamma_{n}": (lambda x, n=n: torch.polygamma(n, x)) for n in (0, 1, 2, 5)},
    "zeta": lambda x: torch.special.zeta(3.5, x),
    "mvlgamma": lambda x: torch.mvlgamma(x.abs() + 2, 3),
    "mantissa": lambda x: torch.frexp(x).mantissa,
    "exponent": lambda x: torch.frexp(x).exponent,
}
WIDE = ("erfcx", "ndtri", "log_ndtr", "zeta")
FULL_WIDTH = {
    **named(
        "bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 "
        "modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai",
        torch.special,
    ),
    **{
        f"{name}_{n}": (lambda x, name=name, n=n: getattr(torch.special, name)(x, n))
        for name in POLYNOMIALS
        for n in (-1, 2, 9)
    },
}


def accurate(dtype: torch.dtype) -> torch.Tensor:
    """Return numbers in every branch, and the grid without NaN, for which eager's polynomials return noise."""
    smooth = torch.cat([torch.linspace(-30, 60, 271), torch.linspace(-1, 1, 61), torch.logspace(-8, 4, 40)])
    return torch.cat([smooth.to(dtype), grid(dtype)[:-2]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_functions(dtype: torch.dtype) -> None:
    """In every branch; eager too has lost digits where it cancels, so next to roots only the absolute error counts."""
    x = accurate(dtype)
    narrow = dtype in (torch.bfloat16, torch.float16)
    functions = (
        {name: f for name, f in SPECIAL.items() if name not in WIDE} if narrow else {**SPECIAL, **FULL_WIDTH}
    )
    found = run(functions, x)
    for name, function in functions.items():
        want, got = function(x), found[name]
        if name in ("polygamma_2", "polygamma_5", "zeta"):
            # Eager adds terms of both signs below zero; what cancels is lost.
            got, want = got[x >= 0], want[x >= 0]
        ulps = 4e3 if "polynomial" in name else 1e2
        tolerance = TOLERANCE[dtype] * 2 if narrow else ulps * torch.finfo(dtype).eps
        torch.testing.assert_close(
            got,
            want,
            rtol=tolerance,
            atol=tolerance / 10,
            equal_nan=True,
            msg=lambda text, n=name: f"{n}: {text}",
        )


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_polynomials_whose_degree_is_data(dtype: torch.dtype) -> None:
    """Fractions are cut off, degrees that fit no integer count as negative, and ends of the interval are exact."""
    points = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.3,
        0.999,
        1.01,
        -1.5,
        30.0,
        1e-10,
        1e30,
        math.inf,
        -math.inf,
        math.nan,
    ]
    degrees = [0.0, -0.5, -1.0, 1.0, 1.9, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 33.0, 128.0, 129.0, 513.0]
    degrees += [1e30, math.inf, -math.inf, math.nan]
    x, n = torch.meshgrid(
        torch.tensor(points, dtype=dtype), torch.tensor(degrees, dtype=dtype), indexing="ij"
    )
    functions = named(" ".join(POLYNOMIALS), torch.special)
    found = run(functions, x, n)
    # Eager multiplies a rounded angle by the degree.
    absolute = 600 * torch.finfo(dtype).eps
    for name, function in functions.items():
        message = lambda text, name=name: f"{name}: {text}"  # noqa: E731
        torch.testing.assert_close(
            found[name], function(x, n), rtol=2e-6, atol=absolute, equal_nan=True, msg=message
        )


def test_polynomials_take_integers_and_numbers() -> None:
    functions = {
        "integers": lambda x, n: torch.special.chebyshev_polynomial_u(n, n),
        "x_is_a_number": lambda x, n: torch.special.legendre_polynomial_p(0.25, n),
        "high_degree": lambda x, n: torch.special.laguerre_polynomial_l(x, 70),
        "beyond_the_limit": lambda x, n: torch.special.hermite_polynomial_h(x, 200),
    }
    for degree in (-math.inf, math.inf, math.nan, -0.5):
        functions[f"degree_{degree}"] = lambda x, n, d=degree: torch.special.chebyshev_polynomial_t(x, d)
    x, n = torch.linspace(-1, 3, 41), torch.arange(-2, 39)
    check(functions, x, n)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_incomplete_gamma_functions(dtype: torch.dtype) -> None:
    """In every branch: power series, fraction, expansion near a large first argument, and the ends."""
    ends = torch.cat(
        [grid(dtype), torch.tensor([1.05, 0.2, 20.0, 199.0, 201.0, 230.0, 1e4, 1.01e4], dtype=dtype)]
    )
    a, x = (part.flatten() for part in torch.meshgrid(ends, ends, indexing="ij"))
    large = torch.logspace(-2, 4, 200, dtype=torch.float64)
    spread = torch.linspace(-6, 6, 25, dtype=torch.float64)
    neighbours = (large[:, None] + spread * large.sqrt()[:, None]).abs()
    a = torch.cat([a, large.repeat_interleave(25).to(dtype)])
    x = torch.cat([x, neighbours.flatten().to(dtype)])
    # Eager's logarithm of the gamma function overflows at the largest number.
    kept = a != torch.finfo(dtype).max
    a, x = a[kept], x[kept]
    functions = named("igamma igammac")
    found = run(functions, a, x)
    for name, function in functions.items():
        message = lambda text, name=name: f"{name}: {text}"  # noqa: E731
        torch.testing.assert_close(found[name], function(a, x), equal_nan=True, msg=message)


def test_incomplete_gamma_functions_in_place() -> None:
    def step(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        a.igammac_(x)
        return a.add_(1).igamma_(x)

    a, x = torch.tensor([0.5, 2.0, 30.0]), torch.tensor([1.0, 3.0, 29.0])
    with litz.config.patch(fallback="error"):
        given = a.clone()
        found = torch.compile(step, backend="litz", fullgraph=True)(given, x)
    torch.testing.assert_close(found, step(a, x))
    torch.testing.assert_close(given, a)


def test_special_functions_of_integers() -> None:
    wide = {name: f for name, f in SPECIAL.items() if name not in ("mantissa", "exponent")}
    x = torch.arange(-6, 12)
    found = run(wide, x)
    for name, function in wide.items():
        message = lambda text, n=name: f"{n}: {text}"  # noqa: E731
        torch.testing.assert_close(
            found[name], function(x), rtol=1e-4, atol=1e-5, equal_nan=True, msg=message
        )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_of_floats(dtype: torch.dtype) -> None:
    check({**UNARY, **FLOAT_UNARY}, grid(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_unary_of_integers(dtype: torch.dtype) -> None:
    check({**UNARY, "bitwise_not": torch.bitwise_not}, grid(dtype))


def test_unary_of_bools() -> None:
    check({name: f for name, f in UNARY.items() if name not in NOT_OF_BOOLS}, grid(torch.bool))


ANY_BINARY = named(
    "add mul minimum maximum fmin fmax eq ne lt le gt ge logical_and logical_or logical_xor true_divide atan2 "
    "xlogy heaviside"
)
NUMBER_BINARY = {
    **named("sub"),
    "rsub_alpha": lambda x, y: torch.rsub(x, y, alpha=2),
    "add_alpha": lambda x, y: torch.add(x, y, alpha=3),
}
DIVISIONS = {
    **named("remainder fmod floor_divide"),
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}


def with_absolute(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` where it has an absolute value: with the least integer eager's ``lcm`` ends the process."""
    return torch.where((x == -x) & (x != 0), 1, x)


def divisor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return ``y`` where eager can divide by it: zero raises, and the least integer by -1 ends the process."""
    return torch.where((y == 0) | ((y == -1) & (x == -x)), 1, y)


FLOAT_BINARY = {
    **named("copysign nextafter hypot logaddexp logaddexp2 pow ldexp float_power isclose"),
    "xlog1py": torch.special.xlog1py,
    "clamp": lambda x, y: torch.clamp(x, y, y + 1),
    "clamp_min": lambda x, y: torch.clamp(x, min=y),
    "clamp_max": lambda x, y: torch.clamp(x, max=y),
    "clamp_numbers": lambda x, y: torch.clamp(x, -1.0, 2.0),
    "clamp_crossed": lambda x, y: torch.clamp(x, 2.0, -1.0),
    "clamp_nan": lambda x, y: torch.clamp(x, math.nan, 2.0),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "lerp_far": lambda x, y: torch.lerp(x, y, 0.75),
    "lerp_tensor": lambda x, y: torch.lerp(x, y, y),
    "where": lambda x, y: torch.where(x > y, x, y),
    "where_mixed": lambda x, y: torch.where(x > y, x, torch.tensor(3)),
    "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, y, value=0.5),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary_of_floats(dtype: torch.dtype) -> None:
    x, y = pairs(dtype)
    # Which of two zeros eager's loop for bf16 takes is its compiler's choice.
    extremes = named("fmin fmax") if dtype == torch.bfloat16 else {}
    zeros = {name: (lambda x, y, f=f: f(x, y) + 0.0) for name, f in extremes.items()}
    check({**ANY_BINARY, **NUMBER_BINARY, **FLOAT_BINARY, **zeros}, x, y)
    # Where the quotient overflows eager's vector loops give NaN and its scalar ones divide.
    check(DIVISIONS, x, torch.where((x / y).isinf() & (y != 0), 1.0, y).to(dtype))


INTEGER_BINARY = {
    **named("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift float_power"),
    "gcd": lambda x, y: torch.gcd(with_absolute(x), with_absolute(y)),
    "lcm": lambda x, y: torch.lcm(with_absolute(x), with_absolute(y)),
    "isclose": torch.isclose,
    "clamp": lambda x, y: torch.clamp(x, y, x),
    "clamp_numbers": lambda x, y: torch.clamp(x, 1, 5),
    "shift_left_3": lambda x, y: x << 3,
    "shift_left_100": lambda x, y: x << 100,
    "shift_right_100": lambda x, y: x >> 100,
    "pow_2": lambda x, y: x**2,
    "pow_5": lambda x, y: x**5,
    "floor_divide_3": lambda x, y: x // 3,
    "floor_divide_-3": lambda x, y: x // -3,
    "remainder_5": lambda x, y: x % 5,
    "fmod_5": lambda x, y: torch.fmod(x, 5),
    **{name: (lambda x, y, f=f: f(x, divisor(x, y))) for name, f in DIVISIONS.items()},
    "pow": lambda x, y: torch.pow(x, torch.where(y < 0, 0, y)),
    "where_mixed": lambda x, y: torch.where(x > y, x, torch.tensor(3.0)),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_binary_of_integers(dtype: torch.dtype) -> None:
    check({**ANY_BINARY, **NUMBER_BINARY, **INTEGER_BINARY}, *pairs(dtype))


def test_binary_of_bools() -> None:
    bits = named("bitwise_and bitwise_or bitwise_xor float_power")
    check({**ANY_BINARY, **bits}, *pairs(torch.bool))


CASTS = {str(d).removeprefix("torch."): (lambda x, d=d: x.to(d)) for d in (*FLOATS, *INTEGERS, torch.bool)}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_casts(dtype: torch.dtype) -> None:
    """Out of range too: what the conversion instructions give on this machine, as eager's vectorised loops do."""
    x = grid(dtype)
    if dtype.is_floating_point:
        edges = [
            127.5,
            128,
            255.5,
            256,
            32768,
            65504,
            2**31,
            2**31 + 4096,
            2**32,
            2**63,
            2**64,
            1e30,
            -128.5,
            -129,
        ]
        x = torch.cat([x, torch.tensor([*edges, *(-e for e in edges)], dtype=torch.float64).to(dtype)])
    check(CASTS, x)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_a_cast_to_integers_and_back_of_one_value_a_row(dtype: torch.dtype) -> None:
    """Regression: outside vectors the compiler took the two casts for a truncation, beyond the integers as well."""

    def through(integer: torch.dtype) -> Function:
        return lambda x: x.amax(-1, keepdim=True).to(integer).to(dtype) + x[:, 2:] * 0

    rows = torch.tensor(
        [[math.nan, 1, 0, 0], [math.inf, 1, 0, 0], [1e30, 1, 0, 0], [2.5, 1, 0, 0], [-1e30, -1e20, 0, 0]]
    )
    rows = torch.cat((rows, -rows.abs() - 1e20)).to(dtype)
    check({str(integer): through(integer) for integer in INTEGERS}, rows)


def shown_reversed(x: torch.Tensor) -> torch.Tensor:
    shown = x.view(torch.int16)
    shown.copy_(shown.flip(0))
    return shown


MOVES: dict[str, Function] = {
    "clone": lambda x: x.clone(),
    "flip": lambda x: x.flip(0),
    "transpose": lambda x: x.reshape(256, 256).t().contiguous(),
    "cat": lambda x: torch.cat([x[5:], x]),
    "pad": lambda x: torch.nn.functional.pad(x, (3, 1)),
    "where": lambda x: torch.where(torch.arange(x.numel()) % 3 == 0, x, x.flip(0)),
    "select": lambda x: torch.where(torch.arange(x.numel()) % 3 == 0, x, torch.ones(())),
    "index": lambda x: x[torch.arange(x.numel() - 1, -1, -7)],
    "every third": lambda x: x[::3].clone(),
    "negation": lambda x: -x,
    "magnitude": lambda x: x.abs(),
    "in place": lambda x: x.neg_(),
    "seen as integers": lambda x: x.view(torch.int16) + 1,
    "from integers": lambda x: (x.view(torch.int16) ^ 3).view(x.dtype),
    "as the other float": lambda x: x.view(OTHER[x.dtype]).flip(0),
    "reversed as integers": shown_reversed,
}
OTHER = {torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", OTHER, ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_what_is_only_moved_keeps_its_bits(name: str, dtype: torch.dtype) -> None:
    """Regression: copies went by way of ``float``, which makes a signalling NaN quiet (program 330123)."""
    torch._dynamo.reset()
    bits = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    mine, theirs = bits.clone().view(dtype), bits.clone().view(dtype)
    with litz.config.patch(fallback="error"):
        result = torch.compile(MOVES[name], backend="litz")(mine)
    expected = MOVES[name](theirs)
    assert torch.equal(result.view(torch.int16), expected.view(torch.int16))
    assert torch.equal(mine.view(torch.int16), theirs.view(torch.int16))


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int64, torch.int32, torch.uint8), ids=str)
def test_choices_between_constants_by_position(dtype: torch.dtype) -> None:
    """Regression: GCC 12 evaluated them wrongly where a row is as long as a register (program 341046)."""
    torch._dynamo.reset()

    def chosen() -> tuple[torch.Tensor, ...]:
        number, three = torch.arange(16), torch.tensor(3, dtype=dtype)
        below = [torch.where(number < n, three, torch.zeros((), dtype=dtype)) for n in range(17)]
        return (*below, torch.eye(16, dtype=dtype), torch.ones(16, 16, dtype=dtype).tril(-3))

    def filled(x: torch.Tensor) -> torch.Tensor:
        x.zero_()
        x[:, :15] = 3
        return x

    for a, b in zip(torch.compile(chosen, backend="litz")(), chosen(), strict=True):
        assert torch.equal(a, b)
    x = torch.ones(5, 16, dtype=dtype)
    assert torch.equal(torch.compile(filled, backend="litz")(x), filled(x.clone()))


@pytest.mark.parametrize("places", [[2, 3, 1], [2, 3, 3]], ids=["one each", "several"])
def test_negative_zeros_stay_where_nothing_is_added(places: list[int]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.neg().index_put((torch.tensor(places),), torch.full((3,), 2.5), accumulate=True)

    x = torch.tensor([0.0, 0.0, 1.0, 2.0])
    found = torch.compile(program, backend="litz")(x)
    assert torch.equal(found, program(x))
    assert torch.equal(torch.signbit(found), torch.signbit(program(x)))
