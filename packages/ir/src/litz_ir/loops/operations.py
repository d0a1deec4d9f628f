"""Operations whose meaning is written out: loops, views, mutations, and what the host computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from litz_ir.loops.combiners import Combiner
from litz_ir.loops.values import Axis, Value
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.scalar.expr import Expr, indirects_in, loads
from litz_ir.symbols.term import Size

ScatterMode = Literal["set", "add", "mul", "min", "max"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Base of all operations. ``results`` are the values it defines; ``token`` orders it among others of that token."""

    results: tuple[Value, ...]
    origin: Origin = field(default=UNKNOWN, compare=False)
    token: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the values read, each once, in order of appearance."""
        return ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every token that orders it: its own, and for control flow those of what happens inside."""
        return (self.token,) if self.token else ()

    @property
    def name(self) -> str:
        """The first result's name, which identifies the operation in a graph."""
        return self.results[0].name if self.results else f"<{type(self).__name__.lower()}>"


def load_names(bodies: tuple[Expr, ...]) -> tuple[str, ...]:
    """The buffers that bodies read, each once, in order of appearance."""
    return tuple(dict.fromkeys(load.buffer for load in loads(*bodies)))


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operation):
    """``results[k][axes] = bodies[k]``, for every point of the axes."""

    axes: tuple[Axis, ...]
    bodies: tuple[Expr, ...]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Reduction(Operation):
    """``results[k][axes] = combine over reduce_axes of bodies``; over no point it is the identity.

    A result may have one element along an axis that nothing knows which it is combined from: the maximum of a
    ``softmax_sum``, say, along those that the score does not know.
    """

    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    combiner: Combiner
    bodies: tuple[Expr, ...]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Scan(Operation):
    """``results[k][axes, scan_axis] = combine over the points up to and including this one along scan_axis``.

    The results' dimensions are ``axes`` with the scanned one at position ``dimension``. With the combiner ``sort`` they
    are the points along scan_axis in order, the largest first.
    """

    axes: tuple[Axis, ...]
    scan_axis: Axis
    dimension: int
    combiner: Combiner
    bodies: tuple[Expr, ...]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Scatter(Operation):
    """A copy of ``base`` in which ``body`` is combined into element ``index`` for every point of the axes, in row-major
    order of the points (so the last write wins under ``set``). ``index`` is a logical index of the result."""

    base: str
    axes: tuple[Axis, ...]
    index: tuple[Size, ...]
    body: Expr
    mode: ScatterMode = "set"

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.base, *load_names((self.body,)), *index_reads(self.index))))


@dataclass(frozen=True, kw_only=True)
class Sort(Operation):
    """(sorted values, their positions) of ``source`` along ``dimension``; positions are ``i64``."""

    source: str
    dimension: int
    descending: bool = False
    stable: bool = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True)
class View(Operation):
    """``result[axes] = base[index]``: the same elements under another index. Eager's result shares memory with the
    base; ``aliases`` is false where it is a copy (``reshape`` of what cannot be viewed). A result of another dtype of
    the same width shows the same bits.

    ``base_strides`` says what symbolic sizes leave unproven: where the base has these strides, the place of an element
    is linear in the axes, and the result has the strides of its type. None where the index alone tells it.
    """

    base: str
    axes: tuple[Axis, ...]
    index: tuple[Size, ...]
    aliases: bool = True
    base_strides: tuple[Size, ...] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.base,)


@dataclass(frozen=True, kw_only=True)
class Mutation(Operation):
    """Overwrite ``target`` with ``source`` (same shape and dtype): the result is the target's next version."""

    target: str
    source: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.target, self.source)


AssertedError = Literal["RuntimeError", "IndexError", "AssertionError"]


@dataclass(frozen=True, kw_only=True)
class Assert(Operation):
    """Raise ``message`` unless ``condition`` (a 0-d ``b1`` body) holds; it carries the token ``assert``.

    ``error`` is the class of Python's that eager raises.
    """

    condition: Expr
    message: str
    error: AssertedError = "RuntimeError"

    @property
    def reads(self) -> tuple[str, ...]:
        return load_names((self.condition,))


@dataclass(frozen=True, kw_only=True)
class HostScalar(Operation):
    """Define ``symbol`` once per call from a 0-d body: what index terms cannot express, or data (``item``)."""

    symbol: str
    body: Expr

    @property
    def reads(self) -> tuple[str, ...]:
        return load_names((self.body,))

    @property
    def name(self) -> str:
        return self.symbol


def index_reads(terms: tuple[Size, ...]) -> Iterator[str]:
    """The buffers read by the indirect indices in ``terms``."""
    for term in terms:
        for atom in indirects_in(term):
            yield from load_names((atom.value,))
