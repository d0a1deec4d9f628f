"""The kinds of reductions: one row for each, which defines it by scalar expressions.

A kind combines *states*, tuples of components: each element has an initial state, and two states merge into one.
Merging is associative and commutative, and the identity changes no state, up to rounding. So any kind can reduce or
scan, and its elements may be divided among lanes, threads and kernels. The results are the components of the last
state; what else is computed from them is a loop of its own, which fuses.

The interpreter, the scheduler and the code generators derive all that they do from the row. Each may have a row of its
own for a kind that it computes or spells better than by the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from litz_ir.dtypes import DType, b1, extreme_value
from litz_ir.errors import DTypeError, GraphError
from litz_ir.scalar.build import cast, const, op, where
from litz_ir.scalar.expr import Param
from litz_ir.scalar.node import Expr

DTypes = tuple[DType, ...]
State = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class StateDefinition:
    """The states of a reduction over elements of given dtypes, of ``n`` components."""

    identity: State
    """``n`` literals: the state of no element."""
    initial: State
    """``n`` expressions over ``Param(k)``, the values of an element: its state."""
    merge: State
    """``n`` expressions over ``Param(0..n-1)`` and ``Param(n..2n-1)``: the merge of two states."""

    @property
    def dtypes(self) -> DTypes:
        """The dtypes of the components."""
        return tuple(each.dtype for each in self.identity)

    @property
    def components(self) -> State:
        """The components of a state, as parameters."""
        return _parameters(self.dtypes)


@dataclass(frozen=True, slots=True)
class ReductionKind:
    """A row of the table of reductions."""

    name: str
    """Name of the kind."""
    define: Callable[[DTypes], StateDefinition] | None
    """Function from the dtypes of an element's values to the definition; raises ``DTypeError`` for dtypes that the
    kind does not accept. ``None`` for ``sort``, which is not a combination of elements."""
    inputs: int = 1
    """Number of values of an element."""
    results: int = 1
    """Number of results, and of components of a state."""
    merges_states: bool = False
    """True if the initial state of a state is that state, so that the kind itself merges partial results."""

    @property
    def combines(self) -> bool:
        """True if the results are a combination of elements: all but a sort."""
        return self.define is not None

    def definition(self, dtypes: DTypes) -> StateDefinition:
        """The definition over elements of these dtypes.

        Raises :class:`DTypeError` for dtypes that the kind does not accept, :class:`GraphError` for a sort.
        """
        return _definition(self, dtypes)


@cache
def _definition(kind: ReductionKind, dtypes: DTypes) -> StateDefinition:
    if kind.define is None:
        raise GraphError(
            f"a reduction cannot {kind.name}: its results are not a combination of elements",
            hint="sort by the operation Sort (GraphBuilder.sort), or by a scan of integers",
        )
    return kind.define(dtypes)


def _parameters(dtypes: DTypes, first: int = 0) -> State:
    return tuple(Param(first + k, dtype) for k, dtype in enumerate(dtypes))


def _defined(identity: State, initial: State, merge: Callable[[State, State], State]) -> StateDefinition:
    dtypes = tuple(each.dtype for each in identity)
    return StateDefinition(
        identity, initial, merge(_parameters(dtypes), _parameters(dtypes, first=len(dtypes)))
    )


def _one_component(initial: Expr, operation: str, identity: int | float | bool) -> StateDefinition:
    """The definition of a kind that merges states of one component by a scalar operation."""
    return _defined((const(identity, initial.dtype),), (initial,), lambda a, b: (op(operation, a[0], b[0]),))


def _sum(dtypes: DTypes) -> StateDefinition:
    """The sum, modulo the width of integers; of bools their disjunction."""
    (x,) = _parameters(dtypes)
    if x.dtype.is_bool:
        return _one_component(x, "bit_or", False)
    # A sum starts at positive zero, so that the sum of a negative zero is positive.
    return _one_component(op("add", x, const(0, x.dtype)) if x.dtype.is_float else x, "add", 0)


def _prod(dtypes: DTypes) -> StateDefinition:
    """The product, modulo the width of integers; of bools their conjunction."""
    (x,) = _parameters(dtypes)
    return _one_component(x, "bit_and" if x.dtype.is_bool else "mul", 1)


def _min(dtypes: DTypes) -> StateDefinition:
    """The minimum; NaN if an element is NaN."""
    (x,) = _parameters(dtypes)
    return _one_component(x, "minimum", extreme_value(x.dtype, largest=True))


def _max(dtypes: DTypes) -> StateDefinition:
    """The maximum; NaN if an element is NaN."""
    (x,) = _parameters(dtypes)
    return _one_component(x, "maximum", extreme_value(x.dtype, largest=False))


def _any(dtypes: DTypes) -> StateDefinition:
    """True if an element differs from zero, as ``b1``."""
    (x,) = _parameters(dtypes)
    return _one_component(cast(x, b1), "bit_or", False)


def _all(dtypes: DTypes) -> StateDefinition:
    """True if all elements differ from zero, as ``b1``."""
    (x,) = _parameters(dtypes)
    return _one_component(cast(x, b1), "bit_and", True)


def _xor(dtypes: DTypes) -> StateDefinition:
    """The exclusive disjunction of bits, or of bools."""
    (x,) = _parameters(dtypes)
    return _one_component(x, "bit_xor", 0)


def _position(better: str) -> Callable[[DTypes], StateDefinition]:
    """(value, index) of the best element: the least index among equals; NaN wins over numbers."""

    def define(dtypes: DTypes) -> StateDefinition:
        value, index = _parameters(dtypes)
        if not index.dtype.is_integer:
            raise DTypeError(f"an index is an integer, got {index.dtype}")

        def merge(a: State, b: State) -> State:
            wins, ties = op(better, a[0], b[0]), op("eq", a[0], b[0])
            if value.dtype.is_float:
                nan_a, nan_b = op("isnan", a[0]), op("isnan", b[0])
                wins = op("bit_or", wins, op("bit_and", nan_a, op("bit_not", nan_b)))
                ties = op("bit_or", ties, op("bit_and", nan_a, nan_b))
            first = op("bit_or", wins, op("bit_and", ties, op("le", a[1], b[1])))
            return where(first, a[0], b[0]), where(first, a[1], b[1])

        worst = const(extreme_value(value.dtype, largest=better == "lt"), value.dtype)
        last = const(extreme_value(index.dtype, largest=True), index.dtype)
        return _defined((worst, last), (value, index), merge)

    return define


def _welford(dtypes: DTypes) -> StateDefinition:
    """(mean, sum of squared differences from it, count); merged after Chan, Golub and LeVeque (1979)."""
    (x,) = _parameters(dtypes)
    zero, one = const(0, x.dtype), const(1, x.dtype)

    def merge(a: State, b: State) -> State:
        count = op("add", a[2], b[2])
        share = op("div", b[2], where(op("eq", count, zero), one, count))
        difference = op("sub", b[0], a[0])
        correction = op("mul", op("mul", difference, difference), op("mul", a[2], share))
        mean = op("add", a[0], op("mul", difference, share))
        return mean, op("add", op("add", a[1], b[1]), correction), count

    # The difference of a value with itself stands for zero: it is NaN for a value that is not finite.
    difference = op("sub", x, x)
    return _defined((zero,) * 3, (x, op("mul", difference, difference), one), merge)


def _online_softmax(dtypes: DTypes) -> StateDefinition:
    """(maximum, sum of exponentials relative to it). The sum is 0 if no element is above minus infinity."""
    (x,) = _parameters(dtypes)
    return _relative_sums(x, ())


def _softmax_sum(dtypes: DTypes) -> StateDefinition:
    """(maximum score, sum of exponentials relative to it, sum of these times the values), of (score, value).

    The sums are 0 if no score is above minus infinity.
    """
    score, value = _parameters(dtypes)
    return _relative_sums(score, (value,))


def _relative_sums(x: Expr, values: State) -> StateDefinition:
    """(maximum, sum of exponentials relative to it), and the sums of these times each value."""
    lowest, zero = const(extreme_value(x.dtype, largest=False), x.dtype), const(0, x.dtype)

    def weight(of: Expr, maximum: Expr) -> Expr:
        # Where the maximum is minus infinity all sums are zero.
        return op("exp", op("sub", of, where(op("eq", maximum, lowest), zero, maximum)))

    def merge(a: State, b: State) -> State:
        maximum = op("maximum", a[0], b[0])
        scale_a, scale_b = weight(a[0], maximum), weight(b[0], maximum)
        sums = (op("add", op("mul", c, scale_a), op("mul", d, scale_b)) for c, d in zip(a[1:], b[1:]))
        return maximum, *sums

    own = weight(x, x)
    initial = (x, own, *(op("mul", own, value) for value in values))
    return _defined((lowest, zero, *(zero for _ in values)), initial, merge)


_ROWS = (
    ReductionKind("sum", _sum, merges_states=True),
    ReductionKind("prod", _prod, merges_states=True),
    ReductionKind("min", _min, merges_states=True),
    ReductionKind("max", _max, merges_states=True),
    ReductionKind("any", _any, merges_states=True),
    ReductionKind("all", _all, merges_states=True),
    ReductionKind("xor", _xor, merges_states=True),
    ReductionKind("argmin", _position("lt"), inputs=2, results=2, merges_states=True),
    ReductionKind("argmax", _position("gt"), inputs=2, results=2, merges_states=True),
    ReductionKind("welford", _welford, results=3),
    ReductionKind("online_softmax", _online_softmax, results=2),
    ReductionKind("softmax_sum", _softmax_sum, inputs=2, results=3),
    # in scans of integers only: the k-th result is the k-th largest of all elements along the axis
    ReductionKind("sort", None),
)

_TABLE = {row.name: row for row in _ROWS}

BUILT_IN = frozenset(_TABLE)
"""Names of litz's own rows."""

REDUCTION_KINDS: Mapping[str, ReductionKind] = MappingProxyType(_TABLE)
"""The rows by name: litz's own, and those that other packages registered."""


def add_kind(kind: ReductionKind) -> None:
    """Add a row to the table; :func:`litz_ir.extension.register_reduction` checks it first."""
    _TABLE[kind.name] = kind
