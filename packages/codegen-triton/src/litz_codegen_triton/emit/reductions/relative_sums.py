"""Sums of exponentials relative to the maximum of the same values, by exponentials that are flushed to zero.

The maximum itself adds 1, to which nothing below the smallest normal number adds a bit.
"""

from __future__ import annotations

from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.indexing.statements import values_of
from litz_codegen_triton.emit.reductions.reduction import ReductionEmitter
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import f32
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, Kernel
from litz_ir.scalar import Expr, Op, Scalar, walk

_MAXIMUM, _SUM = NamedCombiner("max"), NamedCombiner("sum")


def relative_sums(kernel: Kernel) -> frozenset[str]:
    """Return the names of a kernel's sums of exponentials relative to a maximum, which nothing else reads."""
    statements = [each for phase in kernel.phases for each in phase.statements]
    sums = [each for each in statements if isinstance(each, Accumulate)]
    maxima = {each.results[0][0]: each.values[0] for each in sums if each.combiner == _MAXIMUM}
    found = set()
    for each in sums:
        if each.combiner == _SUM and _is_relative(each.values[0], maxima):
            others = (value for other in statements if other is not each for value in values_of(other))
            if each.values[0] not in walk(*others):
                found.add(each.results[0][0])
    return frozenset(found)


def _is_relative(value: Expr, maxima: dict[str, Expr]) -> bool:
    match value:
        case Op(name="exp", args=(Op(name="sub", args=(element, Scalar(name=name))),)):
            return value.dtype == f32 and maxima.get(name) == element
    return False


class RelativeSumEmitter(ReductionEmitter):
    """Writer of a sum that :func:`relative_sums` names."""

    def tiles(self) -> tuple[EmittedValue, ...]:
        (value,) = self.statement.values
        assert isinstance(value, Op), "the summand is an exponential"
        difference = self.body.value(value.args[0])
        power = f"litz_exp_flushed({typed(difference, f32)})"
        return (self._named(self.tile(EmittedValue(power, difference.dims, difference.depth), 0), "tile"),)
