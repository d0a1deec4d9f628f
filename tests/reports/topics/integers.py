"""Integers, bools and conversions between dtypes."""

from __future__ import annotations

import torch

from reports.table import Compile, attempt, counted, report

BYTES = torch.tensor([0, 1, 127, 128, 200, 255], dtype=torch.uint8)
FLOATS = torch.tensor([1.5, -0.3, -2.7, 0.6, -1.1, 7.9, 100.2, -100.7])


@report("pytorch#105264", "the sum of bytes is not wrapped before it is converted to a wider dtype")
def sum_of_bytes(compiled: Compile) -> object:
    return compiled(lambda x: ((x + x).to(torch.int16), (x * 3).int(), (x - 201).float()))(BYTES)


@report("pytorch#113016", "the negative of a byte is negative")
def negative_bytes(compiled: Compile) -> object:
    return compiled(lambda x: ((x + x).neg().to(torch.int32), (~x).int(), (-x).double() / 2))(BYTES)


@report("pytorch#187018", "abs of a byte is computed in a wider signed type")
def abs_of_bytes(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = -x.abs()
        return torch.cat((y, y)).sum()

    return compiled(program)(torch.tensor([200, 200, 3], dtype=torch.uint8))


@report(
    "pytorch#190764", "sums, differences and multiplications of int32 do not wrap before they are widened"
)
def overflow_before_widening(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            (x + y).long(),
            (x - y * 2).long(),
            (x * y).long(),
            (-x).long(),
            x.abs().long(),
            (x + y).double(),
        )

    big = 2**31 - 1
    x = torch.tensor([big, -big - 1, 70_000, -1, 5] * 5, dtype=torch.int32)
    return compiled(program)(x, torch.tensor([1, -1, 70_000, -big - 1, big] * 5, dtype=torch.int32))


@report("pytorch#143566", "shifts by negative distances, or by the width of the dtype and more")
def shifts_out_of_range(compiled: Compile) -> object:
    def program(x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.bitwise_left_shift(x, by), torch.bitwise_right_shift(x, by), x << 1, x >> 70

    by = torch.tensor([0, 1, 7, 8, 31, 32, 63, 64, 100, -1])
    results = []
    for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8):
        x = torch.tensor([1, -1, 100, 77, -77, 3, 5, -2, 9, 6]).to(dtype)
        shift = by.clamp(0, 8) if dtype in (torch.int8, torch.uint8) else by
        results.append(compiled(lambda a, b: program(a, b)[:2])(x, shift.to(dtype)))
    return results


@report("pytorch#156788", "negative floats become zero as uint8")
def floats_to_bytes(compiled: Compile) -> object:
    return compiled(lambda x: (x.to(torch.uint8), (x * 1).byte().int(), x.to(torch.int8)))(FLOATS)


@report("pytorch#196794", "floats outside a narrow integer's range saturate instead of wrapping")
def floats_to_narrow_integers(compiled: Compile) -> object:
    x = torch.tensor([300.7, -300.2, 40_000.0, -70_000.5, 65_536.0, 2.0**30] * 3)
    return compiled(lambda t: ((t + 0).char(), (t + 0).byte(), (t + 0).short(), (t + 0).int()))(x)


@report("pytorch#198071", "clamp of int8 by numbers that int8 cannot hold wraps them")
def clamp_by_large_numbers(compiled: Compile) -> object:
    x = torch.tensor([-128, -3, 0, 5, 127], dtype=torch.int8)
    programs = (
        lambda t: torch.clamp(t, -1000, 1000),
        lambda t: torch.clamp(t, max=300),
        lambda t: torch.clamp_min(t, -400),
        lambda t: torch.clamp(t, -5, 5),
    )
    return [attempt(compiled(each), x) for each in programs]


@report("pytorch#98149", "a power of bytes is not wrapped before its cosine")
def power_of_bytes(compiled: Compile) -> object:
    return compiled(lambda x: (torch.cos(x.pow(5)), torch.sigmoid(x * x), torch.sin(x + 253)))(BYTES)


@report("pytorch#197105", "lerp of bools by a tensor without dimensions does not compile")
def lerp_of_bools(compiled: Compile) -> object:
    a = torch.tensor([True, False, True])
    return attempt(compiled(lambda x, w: torch.lerp(x, ~x, w)), a, torch.tensor(0.3))


@report("pytorch#145929", "bucketize of bytes by negative int8 boundaries compares them as bytes")
def bucketize_of_bytes(compiled: Compile) -> object:
    boundaries = torch.tensor([-10, -7, -3, 4], dtype=torch.int8)
    return compiled(torch.bucketize)(torch.tensor([2, 5, 200], dtype=torch.uint8), boundaries)


@report("pytorch#188231", "any, where and isclose of constants of bool do not compile")
def constants_of_bool(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        a = torch.any(torch.full((2, 3), 0.75), 1)
        return torch.isclose(torch.where(a, a, ~a), a), a.float() - 1

    return compiled(program)()


@report("pytorch#184406", "the smallest int32 divided by -1 ends the process")
def smallest_integer_divided(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.remainder(x, y), torch.div(x, 2, rounding_mode="trunc"), torch.fmod(x, 3)

    x = torch.tensor([-(2**31), -7, 7], dtype=torch.int32)
    return compiled(program)(x, torch.tensor([-1, 3, -3], dtype=torch.int32))


@report("pytorch#183610", "an integer modulo zero ends the process")
def modulo_zero(compiled: Compile) -> object:
    a, b = torch.tensor([15, -8, 22]), torch.tensor([4, 0, 1])
    programs = (lambda x, y: x % y, lambda x, y: x // y, torch.fmod, lambda x, y: 5 % y)
    return [attempt(compiled(each), a, b) for each in programs]


@report("pytorch#186164", "floor division of negative integers by a tensor without dimensions truncates")
def floor_division_by_a_scalar_tensor(compiled: Compile) -> object:
    def program(x: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // d, x % d, torch.div(x, d), torch.div(x, -d, rounding_mode="floor"), x // -3

    return compiled(program)(torch.arange(-7, 8), torch.tensor(3))


@report("pytorch#197895", "1.0 // 0.1 is 10")
def floor_division_of_floats(compiled: Compile) -> object:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a // b, torch.div(a, b, rounding_mode="floor"), a % b, a // 0.1, torch.fmod(a, b)

    a, b = [1.0, 0.5, 6.0, 1.0, -1.0, 7.0], [0.1, 0.1, 0.2, 1 / 3, 0.1, 0.0]
    return [
        compiled(program)(torch.tensor(a).to(t), torch.tensor(b).to(t))
        for t in (torch.float32, torch.float64)
    ]


@report("pytorch#190566", "floor division of a number by a tensor does not compile")
def number_divided_by_a_tensor(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.div(5.0, x, rounding_mode="floor"), 5 // x, 7.5 % x, 2**x, 3.0 - x

    return compiled(program)(torch.tensor([0.3, -2.0, 4.5]))


@report("pytorch#175966", "an arange of int64 is multiplied in 32 bits")
def large_multiples_of_an_arange(compiled: Compile) -> object:
    return compiled(lambda x: torch.arange(0, 11, dtype=torch.int64) * x)(torch.tensor([10**9]))


@report("pytorch#126824", "minima, maxima and sums of bools")
def arithmetic_of_bools(compiled: Compile) -> object:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.maximum(a, b), a + b, a * b, a.sum(), a.cumsum(0), a.prod(),
            a.long() - b.long(), torch.logical_xor(a, b), a & ~b, a.float().mean(), a.max(), b.int().argmax(),
            a == b, a < b, a.any(), a.all(),
        )  # fmt: skip

    return compiled(program)(
        torch.tensor([True, False, True, True]), torch.tensor([False, False, True, False])
    )


@report("pytorch#189533", "cumsum of a constant loses the dtype that was asked for")
def dtype_of_a_constants_cumsum(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        ones = torch.ones(2, 5, dtype=torch.bool)
        return (
            ones.cumsum(1, dtype=torch.bfloat16),
            ones.cumsum(0),
            torch.full((4,), 2.5).cumsum(0, dtype=torch.int32),
        )

    return compiled(program)()


@report("pytorch#144188", "fill of an unsigned dtype with a negative number")
def negative_fill_of_unsigned(compiled: Compile) -> object:
    x = torch.zeros(3, dtype=torch.uint8)
    return attempt(compiled(lambda t: torch.fill(t, -90)), x), compiled(lambda t: t.fill_(7) + 250)(x), x


@report("pytorch#143729", "arithmetic of integers of different widths, and of floats with integers")
def promotion_of_dtypes(compiled: Compile) -> object:
    def program(i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        w, f, h = i.long() * 3, i.float() / 3, i.half()
        return (
            i * w,
            i + f,
            h * i,
            h + f,
            i / 2,
            i * 2.5,
            i + True,
            w * torch.tensor(0.5),
            h + torch.tensor(2.0),
            i**2,
        )

    return [compiled(program)(torch.arange(-2, 4).to(d)) for d in (torch.int32, torch.int8, torch.int16)]


@report("pytorch#109925", "cumulative sums of integers and of bools have their dtypes")
def scans_of_integers(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.cumsum(0),
            x.cumprod(0),
            x.sum(),
            x.prod(),
            x.cummax(0).indices,
            x.cumsum(0, dtype=torch.int8),
        )

    return compiled(program)(torch.tensor([100, 100, 100, -3], dtype=torch.int8))


@report("pytorch#93784", "clamp_min of integers by a float does not change the dtype")
def clamp_of_integers_by_floats(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.clamp_min(x, 0.5),
            torch.clamp(x, -1.5, 1.5),
            torch.maximum(x, torch.tensor(0.5)),
            x.clamp(max=2),
        )

    return compiled(program)(torch.arange(-2, 4))


@report("", "comparisons of integers beyond 2**53 with floats and numbers")
def large_integers_compared(compiled: Compile) -> object:
    x = torch.tensor([2**53, 2**53 + 1, -(2**62), 2**62 + 1])
    return compiled(lambda t: (t == 2**53 + 1, t > 2**62, t.double(), t.float(), t + 1, (t * 4)))(x)


@report("", "bitwise operations of mixed dtypes, and of numbers that need 64 bits")
def bitwise_operations(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x & y, x | 0x80, x ^ y, ~x, (x & 0xFF) << 24, x.bitwise_not() & 1

    return compiled(program)(torch.arange(-4, 4), torch.arange(8, dtype=torch.int32) * 37)


@report("", "triu and tril of bools, bytes and integers, of wide and tall matrices")
def triangles(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.triu(1), x.tril(-1), x.t().triu(-2), torch.tril_indices(3, 5, -1), x.tril(9), x.triu(-9)

    source = counted(3, 5, start=1)
    return [
        compiled(program)(source.to(dtype))
        for dtype in (torch.bool, torch.uint8, torch.int16, torch.bfloat16)
    ]
