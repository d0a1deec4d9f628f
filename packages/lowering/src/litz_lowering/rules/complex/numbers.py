"""Complex numbers in formulas: pairs of real values with arithmetic, and operands in that form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litz_ir.dtypes import DType, b1, compute_dtype
from litz_ir.loops import TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term
from litz_lowering.contexts.context import Axes, Complex, LoweringContext, Tensor
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num


@dataclass(frozen=True, slots=True, eq=False)
class Cx:
    """A complex number; both parts have one dtype. Multiplication is by parts, as in eager."""

    re: Num
    im: Num

    def __add__(self, other: Cx) -> Cx:
        return Cx(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Cx) -> Cx:
        return Cx(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Cx) -> Cx:
        return Cx(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Cx) -> Cx:
        """Division by R. L. Smith's algorithm (1962), which scales by the larger part of the divisor."""
        size = f.absolute(other.re)
        steep = size < f.absolute(other.im)
        large, small = f.where(steep, other.im, other.re), f.where(steep, other.re, other.im)
        ratio = small / large
        scale = 1.0 / (large + small * ratio)
        real = f.where(steep, self.re * ratio + self.im, self.re + self.im * ratio) * scale
        imaginary = f.where(steep, self.im * ratio - self.re, self.im - self.re * ratio) * scale
        by_zero = size.eq(0) & other.im.eq(0)
        return choose(by_zero, Cx(self.re / size, self.im / size), Cx(real, imaginary))

    def __neg__(self) -> Cx:
        return Cx(-self.re, -self.im)

    @property
    def conjugate(self) -> Cx:
        """Complex conjugate."""
        return Cx(self.re, -self.im)

    @property
    def magnitude(self) -> Num:
        """Absolute value."""
        return f.binary("hypot")(self.re, self.im)

    @property
    def phase(self) -> Num:
        """Angle in radians."""
        return f.binary("atan2")(self.im, self.re)

    @property
    def is_nonzero(self) -> Num:
        """True where a part is nonzero."""
        return self.re.ne(0) | self.im.ne(0)

    def times(self, factor: Num | float) -> Cx:
        """Multiply both parts by a real number."""
        return Cx(self.re * factor, self.im * factor)

    def literal(self, value: complex) -> Cx:
        """Literal of the same dtype."""
        return Cx(self.re.like(value.real), self.re.like(value.imag))

    def to(self, dtype: DType) -> Cx:
        """Cast both parts."""
        return Cx(self.re.to(dtype), self.im.to(dtype))


def choose(cond: Num, a: Cx, b: Cx) -> Cx:
    """``a`` where ``cond`` is true, else ``b``."""
    return Cx(f.where(cond, a.re, b.re), f.where(cond, a.im, b.im))


def number(ctx: LoweringContext, value: Any, dtype: DType) -> Cx:
    """Convert a Python number, a size or a symbolic scalar to a complex number with parts of ``dtype``."""
    if isinstance(value, complex):
        return Cx(Num(build.const(value.real, dtype)), Num(build.const(value.imag, dtype)))
    return Cx(Num(ctx.number(value, dtype)), Num(build.const(0.0, dtype)))


def operand(ctx: LoweringContext, argument: Any, part: DType) -> Callable[[Axes], Cx]:
    """Operand at an index, promoted to complex with parts of dtype ``part``, in the dtype of computation."""
    wide = compute_dtype(part)

    def converted(value: Expr) -> Num:
        return Num(build.cast(build.cast(value, part), wide))

    if isinstance(argument, Complex):
        return lambda axes: Cx(converted(argument.at(axes, 0)), converted(argument.at(axes, 1)))
    if isinstance(argument, Tensor):
        return lambda axes: Cx(converted(argument.at(axes)), Num(build.const(0.0, wide)))
    literal = number(ctx, argument, wide)
    return lambda axes: literal


def either(part: Size, value: Cx, dtype: DType) -> Expr:
    """Select a part of a number (0: real, 1: imaginary), cast to ``dtype``."""
    real, imaginary = build.cast(value.re.expr, dtype), build.cast(value.im.expr, dtype)
    if isinstance(part, int):
        return imaginary if part else real
    return build.where(build.op("eq", build.index(part), build.index(0)), real, imaginary)


def complex_pointwise(
    ctx: LoweringContext, body: Callable[[Axes], Cx], type: TensorType | None = None, name: str = ""
) -> Complex:
    """Append ``result[i] = body(i)`` for every index of a complex tensor whose pairs have ``type``."""
    kind = type or ctx.output
    return Complex(ctx.pointwise(lambda axes: either(axes[-1], body(axes[:-1]), kind.dtype), kind, name))


def promoted_part(arguments: tuple[Any, ...]) -> DType:
    """Dtype of the parts to which eager promotes operands of which one is complex.

    Tensors with dimensions decide; without any, 0-d tensors do.
    """
    ranked: list[tuple[int, DType]] = []
    for argument in arguments:
        if isinstance(argument, Complex) or (isinstance(argument, Tensor) and argument.dtype.is_float):
            ranked.append((min(argument.rank, 1), argument.dtype))
    first = max((rank for rank, _ in ranked), default=0)
    return max((dtype for rank, dtype in ranked if rank == first), key=lambda dtype: dtype.bits)


def as_complex(ctx: LoweringContext, argument: Any, kind: TensorType, name: str = "complex") -> Complex:
    """Convert an operand to a complex tensor whose parts have the dtype of ``kind``."""
    if isinstance(argument, Complex) and argument.dtype == kind.dtype:
        return argument
    shape = argument.shape if isinstance(argument, Complex | Tensor) else ()
    pairs = ctx.temporary(kind.dtype, (*shape, 2))
    value = operand(ctx, argument, kind.dtype)
    return complex_pointwise(ctx, lambda axes: value(axes).to(kind.dtype), pairs, name)


def truth(ctx: LoweringContext, argument: Any) -> Callable[[Axes], Num]:
    """Condition that an operand is nonzero at an index."""
    if isinstance(argument, Complex):
        return lambda axes: Cx(Num(argument.at(axes, 0)), Num(argument.at(axes, 1))).is_nonzero
    if isinstance(argument, Tensor):
        return lambda axes: Num(build.cast(argument.at(axes), b1))
    if isinstance(argument, Expr | Term):
        scalar = Num(ctx.number(argument, b1))
        return lambda axes: scalar
    known = Num(build.const(bool(argument), b1))
    return lambda axes: known
