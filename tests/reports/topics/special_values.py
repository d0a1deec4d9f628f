"""NaN, infinities, negative zeros, denormals, and where rounding decides."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from reports.table import Compile, attempt, bits, counted, drawn, report

NAN, INF = float("nan"), float("inf")
ZEROS = torch.tensor([0.0, -0.0, 1.0, -1.0, -0.0, 0.0, INF, -INF, NAN] * 3)


@report("pytorch#118266", "argmax does not find NaN")
def argmax_of_nan(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.log1p(x)
        return y.argmax(1), y.argmin(1), y.max(1).indices, y.min(), y.amax(0), torch.aminmax(y).max

    return compiled(program)(torch.tensor([[-2.0, 100.0, 3.0], [1.0, 2.0, -5.0], [0.5, 0.5, 0.25]]))


@report("pytorch#183082", "argmax of the transposed result of a write in place counts in the order of memory")
def argmax_of_a_transpose(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        y.sin_()
        return y.t().argmax(), y.t().argmin(), y.flatten().argmax()

    return compiled(program)(drawn(5, 7))


@report("pytorch#189799", "sums, elu and roots lose the sign of zero")
def signs_of_zero(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x + 0.0, x + -0.0, F.elu(x), torch.sqrt(x), x * 0.5, x - x, x.round(), x.trunc(),
            F.leaky_relu(x), x / 2, F.hardtanh(x), x.ceil(), torch.asinh(x), torch.expm1(x), -x, x.abs(),
            F.softsign(x), torch.sin(x), F.relu6(x),
        )  # fmt: skip

    return [torch.signbit(each) & (each == 0) for each in compiled(program)(ZEROS)]


@report("pytorch#187935", "signbit of -0.0 is False in doubles")
def signbit_of_negative_zero(compiled: Compile) -> object:
    return [
        compiled(torch.signbit)(ZEROS[:6].to(t))
        for t in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    ]


@report("pytorch#174172", "copysign with -0.0 as a number takes its sign for plus")
def copysign_of_a_number(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.copysign(x, -0.0),
            torch.copysign(x, 0.0),
            torch.copysign(x, -2),
            torch.copysign(x.abs(), x),
        )

    return [bits(each) for each in compiled(program)(ZEROS[:8])]


@report("pytorch#185610", "the minimum of -0.0 and 0.0")
def minima_of_zeros(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.minimum(x, y).isnan(),
            torch.fmax(x, y),
            torch.maximum(x, y) == 0,
            torch.fmin(x, y).isinf(),
        )

    return [compiled(program)(ZEROS.to(t), ZEROS.flip(0).to(t)) for t in (torch.float32, torch.bfloat16)]


@report("pytorch#185696", "atan2(x, -x) of zero is zero")
def atan2_of_zeros(compiled: Compile) -> object:
    return compiled(lambda x: (torch.atan2(x, -x), torch.atan2(-x, x), torch.atan2(x, x * 0)))(ZEROS)


@report("pytorch#186281", "x * 0 is 0 where x is NaN or infinite")
def multiplied_by_zero(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x * 0,
            0 * x,
            x - x,
            x / x,
            (x * 0).sum(),
            x**0,
            torch.zeros_like(x) * x,
            x.masked_fill(x > 0, 0) * 0,
        )

    return compiled(program)(ZEROS)


@report(
    "pytorch#161150", "softmax of values that overflowed in the multiplication before is ones instead of NaN"
)
def softmax_after_an_overflow(compiled: Compile) -> object:
    return compiled(lambda x: torch.softmax(x * 1e30, -1))(drawn(2, 9) * 1e30)


@report("pytorch#163932", "softmax of large scaled values is NaN instead of one")
def softmax_of_large_values(compiled: Compile) -> object:
    def program(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.softmax(x * 1e14, -1), F.log_softmax(x * scale, 0), F.softmax(x.mul(-scale), 0)

    return compiled(program)(drawn(5, 5), torch.tensor([1.5e14]))


@report("pytorch#195675", "clamp by a bound beyond the dtype's range does not raise")
def clamp_by_a_bound_out_of_range(compiled: Compile) -> object:
    x = drawn(4)
    programs = (lambda t: torch.clamp(t, -3.4e39, 3.4e39), lambda t: torch.clamp_min(t, -3.4e39))
    return [attempt(compiled(each), x) for each in programs]


@report("pytorch#126848", "denormals are flushed to zero, even in eager afterwards")
def denormals(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2.0 ** (-127 + 3)

    x = torch.full((9,), 0.1875)
    return bits(compiled(program)(x)), bits(program(x)), bits(compiled(lambda t: t / 3 + 1e-42)(x * 1e-40))


@report("pytorch#188225", "acosh of a constant below one does not compile")
def constant_nan(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        x = torch.acosh(torch.log2(torch.atan2(torch.ones(2, 2), torch.ones(2, 2))))
        return torch.softmax(x, 1), torch.maximum(x, torch.ones(2, 2)), x.clamp(0, 1)

    return compiled(program)()


@report("pytorch#190421", "an infinite constant as an integer does not compile")
def infinite_constant_as_an_integer(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        top = torch.full((3,), INF)
        return torch.where(top > 5, x, 0).sum(), (top.isinf().int() + x).sum(), top.clamp(max=9).int().sum()

    return compiled(program)(torch.arange(3))


@report("torchdynamo#594", "clamp_min and maximum do not propagate NaN")
def clamp_of_nan(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.relu(x), x.clamp_min(0.5), x.clamp(-1, 1), torch.maximum(x, y), torch.minimum(y, x),
            torch.fmax(x, y), torch.clamp(x, y, y + 1), F.hardtanh(x), F.threshold(x, 0.1, 20), F.relu6(x),
            x.clamp(max=NAN),
        )  # fmt: skip

    x = torch.tensor([NAN, 1.0, -INF, INF, 0.0, -3.0, NAN])
    return [compiled(program)(x.to(t), x.roll(2).to(t)) for t in (torch.float32, torch.float16)]


@report("pytorch#198183", "erf and atanh of small numbers have no correct digit")
def functions_of_small_numbers(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = (
            torch.erf(x),
            torch.atanh(x),
            torch.tanh(x),
            torch.sinh(x),
            torch.asinh(x),
            torch.expm1(x),
            torch.log1p(x),
        )
        return tuple(each / x for each in found)

    return compiled(program)(torch.tensor([1e-8, -1e-7, 2e-7, 5e-6, 1e-5, -1e-4, 1e-3, 1e-30] * 3))


@report("pytorch#115260", "tan of half-precision values changes with a further result")
def further_result(compiled: Compile) -> object:
    x = (drawn(4, 9) * 3).half()
    only = compiled(lambda t: torch.tan(t * 1.1))(x)
    return only, compiled(lambda t: (torch.tan(t * 1.1), t * 1.1))(x)


@report("pytorch#168186", "casts between operations are left out in half precision")
def casts_between_operations(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.to(torch.bfloat16)
        return (
            ((y + 1) - y).float(),
            (y * y / y).float(),
            (y.float() * 1.001).to(torch.bfloat16),
            (y + 257).half(),
        )

    return [bits(each.float()) for each in compiled(program)(counted(40, start=1) * 1.7)]


@report("pytorch#150114", "a chain of atan and large powers overflows in one backend")
def chain_near_overflow(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.atan(x) * 40
        return y.exp().sum(), torch.logsumexp(y * 3, 0), torch.pow(y, 3).mean(), torch.cosh(y / 3)

    return compiled(program)(drawn(8).double())


@report("pytorch#189787", "the sum of a softmax becomes the constant one, and floor of it differs")
def sum_of_a_softmax(compiled: Compile) -> object:
    s = compiled(lambda x: torch.softmax(x, 1).sum(1))(drawn(6, 5))
    return (s - 1).abs() < 1e-6


@report("", "nan_to_num, isfinite and xlogy of special values, in each float dtype")
def predicates_of_special_values(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.nan_to_num(), x.nan_to_num(1.0, 2.0, 3.0), x.isfinite(), x.isnan() | x.isposinf(), x == x,
            x != x, x.sign(), torch.xlogy(x, x), torch.logaddexp(x, x.flip(0)), torch.hypot(x, x),
            torch.heaviside(x, x * 0 + 0.5),
        )  # fmt: skip

    return [compiled(program)(ZEROS[:9].to(t)) for t in (torch.float32, torch.float64, torch.bfloat16)]
