"""Binary operators, dtypes and kinds of second operand, compiled together and compared with eager.

``python tests/binary_operands.py [operator ...] [--dtypes f16,bf16] [--shapes n,1,0-d]`` compares all combinations and
prints a line for each difference; all of one dtype and shape take some minutes.
"""

from __future__ import annotations

import argparse
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product

import torch
import torch.nn.functional as F

import litz

Operator = Callable[..., torch.Tensor]
Number = bool | int | float
Operand = Number | torch.Tensor
Firsts = dict[tuple[str, str], torch.Tensor]

DTYPES = {
    "b8": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
}  # fmt: skip

EXACT: dict[str, Operator] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "add alpha": partial(torch.add, alpha=3),
    "sub alpha": partial(torch.sub, alpha=3),
    "rsub": torch.rsub,
    "div trunc": partial(torch.div, rounding_mode="trunc"),
    "div floor": partial(torch.div, rounding_mode="floor"),
    "fmod": torch.fmod,
    "copysign": torch.copysign,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "gcd": torch.gcd,
    "lcm": torch.lcm,
    "heaviside": torch.heaviside,
    "nextafter": torch.nextafter,
    "clamp min": lambda x, y: torch.clamp(x, min=y),
    "clamp max": lambda x, y: torch.clamp(x, max=y),
    "where": lambda x, y: torch.where(x != 0, x, y),
    "masked_fill": lambda x, y: torch.masked_fill(x, x != 0, y),
    "lerp": lambda x, y: torch.lerp(x, x + 1, y),
    "addcmul": lambda x, y: torch.addcmul(x, x, x, value=y),
    "addcmul of a tensor": lambda x, y: torch.addcmul(x, y, x),
    "threshold": lambda x, y: F.threshold(x, y, y),
    "in-place +": lambda x, y: x.clone().add_(y),
    "in-place *": lambda x, y: x.clone().mul_(y),
    "in-place //": lambda x, y: x.clone().floor_divide_(y),
    "in-place %": lambda x, y: x.clone().remainder_(y),
    "foreach +": lambda x, y: torch._foreach_add([x], y)[0],
    "foreach -": lambda x, y: torch._foreach_sub([x], y)[0],
    "foreach *": lambda x, y: torch._foreach_mul([x], y)[0],
    "foreach /": lambda x, y: torch._foreach_div([x], y)[0],
}
"""Operators of IEEE arithmetic, comparisons and selections."""

ROUNDED: dict[str, Operator] = {
    "**": operator.pow,
    "float_power": torch.float_power,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "ldexp": torch.ldexp,
    "zeta": torch.special.zeta,
}
"""Operators that may differ from eager in the last places, or in the sign of zero."""

NUMBERS: tuple[Number, ...] = (
    3, 0, 300, True, 0.1, -7.3, 0.0, -0.0, 1.0, 65519.0, 1e300, 1e-30, float("inf"), float("nan"),
)  # fmt: skip
SCALARS: tuple[Number, ...] = (0.1, -7.3, 1e5)
"""Values of 0-d tensors, cast to each dtype."""


@dataclass(frozen=True)
class Case:
    """One application of an operator."""

    name: str
    dtype: str
    kind: str
    """Form of the other operand: ``number``, ``0-d f64``, ``1 f32``, ``n i8``."""
    operand: Operand
    swapped: bool = False
    """True where the other operand comes first."""
    shape: str = "n"
    """Shape of the tensor: ``n`` elements, ``0-d`` or ``1``."""

    def __str__(self) -> str:
        value = self.operand
        if isinstance(value, torch.Tensor):
            value = value.flatten()[0].item()
        pair = [f"{self.dtype}[{self.shape}]", f"{value!r} ({self.kind})"]
        return f"{self.name}: {', '.join(reversed(pair) if self.swapped else pair)}"

    def first(self) -> torch.Tensor:
        return elements(DTYPES[self.dtype], self.shape)

    def __call__(self, first: torch.Tensor, operand: Operand) -> torch.Tensor:
        op = EXACT.get(self.name) or ROUNDED[self.name]
        return op(operand, first) if self.swapped else op(first, operand)


def elements(dtype: torch.dtype, shape: str = "n") -> torch.Tensor:
    """Return 64 elements of a dtype, with zeros, halves and extremes, or the 21st of them."""
    generator = torch.Generator().manual_seed(7)
    drawn = torch.randn(64, generator=generator).double() * torch.logspace(-2, 3, 64).double()
    drawn[:8] = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 7.0, -21.0], dtype=torch.float64)
    if dtype.is_floating_point:
        drawn[8:12] = torch.tensor([float("inf"), float("-inf"), float("nan"), 3e4], dtype=torch.float64)
    if dtype == torch.bool:
        result = drawn > 0
    elif not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        result = drawn.round().clamp(max(info.min, -4000), min(info.max, 4000)).to(dtype)
        result[-2:] = torch.tensor([info.min, info.max], dtype=dtype)
    else:
        result = drawn.to(dtype)
    return {"n": result, "1": result[20:21].clone(), "0-d": result[20].clone()}[shape]


def _scalar(value: Number, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype == torch.bool:
        return torch.tensor(value, dtype=dtype)
    info = torch.iinfo(dtype)
    return torch.tensor(min(max(int(value), info.min), info.max), dtype=dtype)


def operands() -> Iterator[tuple[str, Operand]]:
    """Yield second operands with their kinds."""
    for number in NUMBERS:
        yield "number", number
    for name, dtype in DTYPES.items():
        yield from ((f"0-d {name}", _scalar(value, dtype)) for value in SCALARS)
        if dtype.itemsize == 2 and dtype.is_floating_point:
            yield f"1 {name}", _scalar(-7.3, dtype)[None]
        yield f"n {name}", elements(dtype).flip(0).contiguous()


def cases(
    names: Iterable[str], dtypes: Iterable[str], shapes: Sequence[str] = ("n", "1", "0-d")
) -> Iterator[Case]:
    """Yield all combinations of operators, dtypes, shapes and other operands."""
    for name, dtype, shape in product(names, dtypes, shapes):
        for (kind, operand), swapped in product(operands(), (False, True)):
            yield Case(name, dtype, kind, operand, swapped, shape)


def _expected(case: Case) -> torch.Tensor | None:
    try:
        result = case(case.first(), case.operand)
    except (RuntimeError, TypeError, NotImplementedError, ValueError, OverflowError):
        return None
    return result if isinstance(result, torch.Tensor) else None


def is_same(actual: torch.Tensor, expected: torch.Tensor, exact: bool) -> bool:
    """Report whether dtypes, shapes and values are equal, signs of zeros too where ``exact``; all NaN are equal."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if not exact and expected.is_floating_point():
        rtol = 4 * torch.finfo(expected.dtype).eps
        return torch.allclose(actual, expected, rtol=rtol, atol=0, equal_nan=True)
    equal = (actual == expected) & (torch.signbit(actual) == torch.signbit(expected))
    return bool((equal | ((expected != expected) & (actual != actual))).all())


def differences(drawn: Iterable[Case], together: int = 128, dynamic: bool = False) -> Iterator[str]:
    """Compile cases, many in one program, and yield a line for each whose result differs from eager's."""
    remaining = iter(drawn)
    while group := list(islice(remaining, together)):
        pairs = [(case, result) for case in group if (result := _expected(case)) is not None]
        if pairs:
            yield from _compare([case for case, _ in pairs], [result for _, result in pairs], dynamic)


def _compare(called: list[Case], expected: list[torch.Tensor], dynamic: bool) -> Iterator[str]:
    firsts = {(case.dtype, case.shape): case.first() for case in called}
    others = [case.operand for case in called]

    def program(firsts: Firsts, others: list[Operand]) -> list[torch.Tensor]:
        pairs = zip(called, others, strict=True)
        return [case(firsts[case.dtype, case.shape], operand) for case, operand in pairs]

    torch._dynamo.reset()
    try:
        with litz.config.patch(fallback="error"):
            results = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(firsts, others)
    except Exception as error:
        if len(called) == 1:
            yield f"{called[0]}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            return
        half = len(called) // 2
        yield from _compare(called[:half], expected[:half], dynamic)
        yield from _compare(called[half:], expected[half:], dynamic)
        return
    for case, actual, reference in zip(called, results, expected, strict=True):
        if not is_same(actual, reference, case.name in EXACT):
            yield f"{case}: {_first_difference(case, actual, reference)}"


def _first_difference(case: Case, actual: torch.Tensor, expected: torch.Tensor) -> str:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype} {tuple(actual.shape)} for {expected.dtype} {tuple(expected.shape)}"
    pairs = list(zip(actual.flatten(), expected.flatten(), strict=True))
    wrong = [k for k, (a, e) in enumerate(pairs) if not is_same(a, e, case.name in EXACT)]
    given = case.first().expand(expected.shape).flatten()[wrong[0]].item()
    a, e = (each.item() for each in pairs[wrong[0]])
    return f"{len(wrong)} of {len(pairs)}, at {given!r}: {a!r} for {e!r}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--shapes", default="n,1,0-d")
    parser.add_argument("--dynamic", action="store_true", help="numbers are symbols")
    chosen = parser.parse_args()
    names = chosen.names or [*EXACT, *ROUNDED]
    drawn = cases(names, chosen.dtypes.split(","), chosen.shapes.split(","))
    for line in differences(drawn, dynamic=chosen.dynamic):
        print(line, flush=True)


if __name__ == "__main__":
    main()
