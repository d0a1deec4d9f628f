"""Operations with a meaning of their own: loops, views, mutations, and computations of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from litz_ir.loops.combiners import Combiner
from litz_ir.loops.values import Axis, Value
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.scalar.expr import indirects_in, loads
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size

ScatterMode = Literal["set", "add", "mul", "min", "max"]
"""Combination of a scattered element with the one in memory; ``set`` overwrites it."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Base of all operations of a loop graph."""

    results: tuple[Value, ...]
    """Values that the operation defines."""
    origin: Origin = field(default=UNKNOWN, compare=False)
    """Source of the operation in the user's program."""
    token: str = ""
    """Name of the order that the operation keeps with others of the same token; empty for none."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers read, each once, in order of appearance."""
        return ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every token that orders the operation: its own, and for regions those of the operations inside."""
        return (self.token,) if self.token else ()

    @property
    def name(self) -> str:
        """The first result's name, which identifies the operation in a graph."""
        return self.results[0].name if self.results else f"<{type(self).__name__.lower()}>"


def load_names(bodies: tuple[Expr, ...]) -> tuple[str, ...]:
    """Names of the buffers that bodies load from, each once, in order of appearance."""
    return tuple(dict.fromkeys(load.buffer for load in loads(*bodies)))


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operation):
    """``results[k][axes] = bodies[k]``, for every point of the axes."""

    axes: tuple[Axis, ...]
    """Axes of the loop, which are the dimensions of the results."""
    bodies: tuple[Expr, ...]
    """One body for each result."""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Reduction(Operation):
    """``results[k][axes] = combine over reduce_axes of bodies``; the identity if there is no point.

    A result may have one element along an axis that none of its combined bodies depends on, such as the maximum of a
    ``softmax_sum`` along axes that the score does not use.
    """

    axes: tuple[Axis, ...]
    """Axes of the results."""
    reduce_axes: tuple[Axis, ...]
    """Axes that are reduced over."""
    combiner: Combiner
    """Combiner of the bodies."""
    bodies: tuple[Expr, ...]
    """One body for each value that the combiner takes."""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Scan(Operation):
    """``results[k][axes, scan_axis] = combine over the points up to and including this one along scan_axis``.

    With the combiner ``sort`` the results are the points along ``scan_axis``, sorted in descending order.
    """

    axes: tuple[Axis, ...]
    """Axes of the results other than the scanned one."""
    scan_axis: Axis
    """Axis along which values are combined."""
    dimension: int
    """Position of the scanned axis among the dimensions of the results; the others are ``axes``."""
    combiner: Combiner
    """Combiner of the bodies."""
    bodies: tuple[Expr, ...]
    """One body for each value that the combiner takes."""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Scatter(Operation):
    """A copy of ``base`` into whose elements ``index`` the body is combined, for every point of the axes.

    Points are visited in row-major order, so the last write wins under ``set``.
    """

    base: str
    """Buffer that is copied."""
    axes: tuple[Axis, ...]
    """Axes of the loop over scattered elements."""
    index: tuple[Size, ...]
    """Logical index of the result."""
    body: Expr
    """Value of each scattered element."""
    mode: ScatterMode = "set"
    """Combination with the element of the base."""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.base, *load_names((self.body,)), *index_reads(self.index))))

    @property
    def bodies(self) -> tuple[Expr, ...]:
        """The body alone."""
        return (self.body,)


@dataclass(frozen=True, kw_only=True)
class Sort(Operation):
    """The sorted values of ``source`` along ``dimension``, and their ``i64`` positions."""

    source: str
    """Buffer that is sorted."""
    dimension: int
    """Dimension that is sorted along."""
    descending: bool = False
    """True for descending order."""
    stable: bool = True
    """True if equal values keep their order."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True)
class View(Operation):
    """``result[axes] = base[index]``: the elements of a base under another index.

    A result of another dtype of the same width has the same bits.
    """

    base: str
    """Buffer that is viewed."""
    axes: tuple[Axis, ...]
    """Axes of the result."""
    index: tuple[Size, ...]
    """Logical index of the base, over the axes."""
    aliases: bool = True
    """True if eager's result shares memory with the base; False for a copy, such as ``reshape`` of a tensor that has
    no view.
    """
    base_strides: tuple[Size, ...] | None = None
    """Strides of the base under which an element's offset is linear in the axes, so that the result has its type's
    strides.

    Needed if symbolic sizes hide this; ``None`` if the index alone shows it.
    """

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.base,)


@dataclass(frozen=True, kw_only=True)
class Mutation(Operation):
    """Overwrite ``target`` with ``source`` of the same shape and dtype; the result is the target's next version."""

    target: str
    """Version that is overwritten."""
    source: str
    """Buffer of the new contents."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.target, self.source)


AssertedError = Literal["RuntimeError", "IndexError", "AssertionError"]
"""Exception class that eager raises for a failed assertion."""


@dataclass(frozen=True, kw_only=True)
class Assert(Operation):
    """Raise ``message`` unless ``condition``, a 0-d ``b1`` body, holds; ordered by the token ``assert``."""

    condition: Expr
    """Body of the condition."""
    message: str
    """Message of the exception."""
    error: AssertedError = "RuntimeError"
    """Exception class of Python that eager raises."""

    @property
    def reads(self) -> tuple[str, ...]:
        return load_names((self.condition,))


@dataclass(frozen=True, kw_only=True)
class HostScalar(Operation):
    """Define ``symbol`` once per call from a 0-d body: data (``item``), or a number that index terms cannot
    express.
    """

    symbol: str
    """Symbol that is defined."""
    body: Expr
    """Body that gives its value."""

    @property
    def reads(self) -> tuple[str, ...]:
        return load_names((self.body,))

    @property
    def name(self) -> str:
        return self.symbol


def index_reads(terms: tuple[Size, ...]) -> Iterator[str]:
    """Yield the buffers that the indirect indices in ``terms`` load from."""
    for term in terms:
        for atom in indirects_in(term):
            yield from load_names((atom.value,))
