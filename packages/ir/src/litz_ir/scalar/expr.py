"""Loop bodies: a hash-consed DAG of scalar expressions, by kind of node, and its traversal.

The constructors here do not simplify; those of ``litz_ir.scalar.build`` check dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from litz_ir.dtypes import DType, b1, f32, f64, i64
from litz_ir.errors import GraphError
from litz_ir.scalar.node import Expr, ExprAtom, field_key, field_property, nodes_of
from litz_ir.symbols.ranges import Range, extent
from litz_ir.symbols.substitution import map_atoms, substitute
from litz_ir.symbols.term import Size, Term, free_symbols

BoundsCheck = Literal["assumed", "clamped", "raised"]
"""Treatment of an indirect index outside its dimension: assumed not to occur, clamped, or raised as an error."""


class Const(Expr):
    """A literal. Floats are compared by their bits: ``0.0``, ``-0.0`` and NaN are distinct, and none equals an
    integer.
    """

    __slots__ = ()

    def __new__(cls, value: int | float | bool, dtype: DType) -> Const:
        if dtype.is_bool:
            return cls._make(dtype, bool(value))
        if dtype.is_float:
            return cls._make(dtype, float(value).hex())
        return cls._make(dtype, int(value))

    @property
    def value(self) -> int | float | bool:
        """The value as a Python number."""
        raw = self.fields[0]
        if isinstance(raw, str):
            return float.fromhex(raw)
        assert isinstance(raw, int)
        return raw


class Index(Expr):
    """The value of an index term as ``i64``."""

    __slots__ = ()

    term: Size = field_property(0)
    """The index term."""

    def __new__(cls, term: Size) -> Index:
        return cls._make(i64, term)

    @property
    def terms(self) -> tuple[Size, ...]:
        return (self.term,)

    def rebuild(self, children: tuple[Expr, ...], terms: tuple[Size, ...]) -> Expr:
        return Index(terms[0])


class Scalar(Expr):
    """A float or bool symbol, or a result of an earlier phase of the kernel, read by name."""

    __slots__ = ()

    name: str = field_property(0)
    """Name of the symbol, or of the result of an earlier phase."""

    def __new__(cls, name: str, dtype: DType) -> Scalar:
        return cls._make(dtype, name)


class Param(Expr):
    """The ``position``-th argument of a user-given combiner; it occurs in combiner bodies only."""

    __slots__ = ()

    position: int = field_property(0)
    """Number of the argument, from 0."""

    def __new__(cls, position: int, dtype: DType) -> Param:
        return cls._make(dtype, position)


class Load(Expr):
    """An element of a buffer.

    In a loop graph ``index`` has one term for each dimension; in a kernel it is one term, the element offset from the
    buffer's start.
    """

    __slots__ = ()

    buffer: str = field_property(0)
    """Name of the buffer."""
    index: tuple[Size, ...] = field_property(1)
    """One index for each dimension in a loop graph, the element offset alone in a kernel."""

    def __new__(cls, buffer: str, index: tuple[Size, ...], dtype: DType) -> Load:
        return cls._make(dtype, buffer, index)

    @property
    def terms(self) -> tuple[Size, ...]:
        return self.index

    def rebuild(self, children: tuple[Expr, ...], terms: tuple[Size, ...]) -> Expr:
        return Load(self.buffer, terms, self.dtype)


class Op(Expr):
    """The application of a scalar operation of the table."""

    __slots__ = ()

    name: str = field_property(0)
    """Name of the row of :data:`litz_ir.scalar.OPS`."""
    args: tuple[Expr, ...] = field_property(1)
    """Operands, as many as the row's arity says."""

    def __new__(cls, name: str, args: tuple[Expr, ...], dtype: DType) -> Op:
        return cls._make(dtype, name, args)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def rebuild(self, children: tuple[Expr, ...], terms: tuple[Size, ...]) -> Expr:
        return Op(self.name, children, self.dtype)


class Masked(Expr):
    """``body`` where ``cond`` holds, else ``other``. Lazy: ``body`` loads nothing where ``cond`` is false."""

    __slots__ = ()

    cond: Expr = field_property(0)
    """Condition, a ``b1``."""
    body: Expr = field_property(1)
    """Value where the condition holds, evaluated only there."""
    other: Expr = field_property(2)
    """Value elsewhere, of the same dtype."""

    def __new__(cls, cond: Expr, body: Expr, other: Expr) -> Masked:
        if cond.dtype != b1 or body.dtype != other.dtype:
            raise GraphError(f"masked takes (b1, T, T), got ({cond.dtype}, {body.dtype}, {other.dtype})")
        return cls._make(body.dtype, cond, body, other)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.body, self.other)

    def rebuild(self, children: tuple[Expr, ...], terms: tuple[Size, ...]) -> Expr:
        return Masked(*children)


class Checked(Expr):
    """``body`` with a condition whose violation is reported after the kernel.

    ``fault`` is a name in :mod:`litz_ir.faults`.
    """

    __slots__ = ()

    cond: Expr = field_property(0)
    """Condition, a ``b1``."""
    body: Expr = field_property(1)
    """The value."""
    fault: str = field_property(2)
    """Name of the row of :data:`litz_ir.faults.FAULTS` that is reported where the condition does not hold."""

    def __new__(cls, cond: Expr, body: Expr, fault: str) -> Checked:
        if cond.dtype != b1:
            raise GraphError(f"checked takes a b1 condition, got {cond.dtype}")
        return cls._make(body.dtype, cond, body, fault)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.body)

    def rebuild(self, children: tuple[Expr, ...], terms: tuple[Size, ...]) -> Expr:
        cond, body = children
        return Checked(cond, body, self.fault)


class NestedReduction(Expr):
    """The sum of ``body``, ``f32`` or ``f64``, over every point of ``axes`` (names and sizes), inside a loop body.

    The names of the axes are bound here and differ from all other axes and symbols in scope.
    """

    __slots__ = ()

    axes: tuple[tuple[str, Size], ...] = field_property(0)
    """Name and size of each summed axis."""
    body: Expr = field_property(1)
    """The summand, which may refer to the axes."""

    def __new__(cls, axes: tuple[tuple[str, Size], ...], body: Expr) -> NestedReduction:
        if body.dtype not in (f32, f64):
            raise GraphError(f"a nested reduction sums f32 or f64, got {body.dtype}", hint="cast the body")
        return cls._make(body.dtype, axes, body)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.body,)

    @property
    def terms(self) -> tuple[Size, ...]:
        return tuple(size for _, size in self.axes)

    @property
    def bound(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.axes)

    def rebuild(self, children: tuple[Expr, ...], terms: tuple[Size, ...]) -> Expr:
        names = (name for name, _ in self.axes)
        return NestedReduction(tuple(zip(names, terms, strict=True)), children[0])


class Indirect(ExprAtom):
    """An index loaded from memory: the only way from a body's value into an index term."""

    __slots__ = ("check", "fault", "size", "value", "wrap")

    value: Expr
    """Integer expression."""
    size: Size
    """Size of the indexed dimension."""
    wrap: bool
    """True if ``size`` is added to negative values."""
    check: BoundsCheck
    """Treatment of a value outside ``[0, size)`` after wrapping."""
    fault: str
    """Name in :mod:`litz_ir.faults` of the error that ``raised`` reports after the kernel."""

    def __new__(
        cls, value: Expr, size: Size, wrap: bool = False, check: BoundsCheck = "raised", fault: str = "index"
    ) -> Indirect:
        if not value.dtype.is_integer:
            raise GraphError(f"an indirect index must be an integer, got {value.dtype}")
        return cls._intern(value=value, size=size, wrap=wrap, check=check, fault=fault)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return Indirect, (self.value, self.size, self.wrap, self.check, self.fault)

    @property
    def atom_key(self) -> str:
        """A digest of the index, as of other atoms."""
        return f"indirect({self.value.key},{field_key(self.size)},{int(self.wrap)},{self.check},{self.fault})"

    def atom_free_symbols(self) -> frozenset[str]:
        """Symbols of the value and the size."""
        return self.value.free_symbols | free_symbols(self.size)

    def bounds(self) -> Range | None:
        """The range ``[0, size)``."""
        return extent(self.size)

    def of(self, value: Expr) -> Indirect:
        """The same index with another value."""
        return Indirect(value, self.size, self.wrap, self.check, self.fault)

    def substitute_atom(self, mapping: Mapping[str, Size]) -> Size:
        """The index with symbols replaced in its value and size."""
        value, size = substitute_expr(self.value, mapping), substitute(self.size, mapping)
        return Indirect(value, size, self.wrap, self.check, self.fault)


def indirects_in(term: Size) -> tuple[Indirect, ...]:
    """The outermost indirect indices in a term, each once."""
    if not isinstance(term, Term):
        return ()
    return tuple(atom for atom in term.atoms() if isinstance(atom, Indirect))


def map_indirects(term: Size, change: Callable[[Indirect], Size]) -> Size:
    """The term with its outermost indirect indices replaced."""
    if not isinstance(term, Term):
        return term
    return map_atoms(term, lambda atom: change(atom) if isinstance(atom, Indirect) else atom)


def indirects(node: Expr) -> Iterator[Indirect]:
    """Yield the indirect indices in a node's own terms."""
    for term in node.terms:
        yield from indirects_in(term)


def loads(*roots: Expr) -> tuple[Load, ...]:
    """All distinct loads, including those inside indirect indices."""
    return nodes_of(Load, roots)


def nested_reductions(*roots: Expr) -> tuple[NestedReduction, ...]:
    """All distinct nested reductions, including those inside indirect indices."""
    return nodes_of(NestedReduction, roots)


def transform(
    root: Expr,
    node: Callable[[Expr], Expr],
    term: Callable[[Size], Size] | None = None,
    memo: dict[Any, Any] | None = None,
) -> Expr:
    """Rewrite an expression bottom-up: the children, then the terms by ``term``, then the node by ``node``.

    Values of indirect indices are rewritten before the terms. Calls with the same functions may share a ``memo``.
    """
    cache: dict[Any, Any] = {} if memo is None else memo
    rewriter = _TermRewriter(cache, term)
    for expr in _unvisited(root, cache):
        children, terms = expr.children, expr.terms
        new_children = tuple(cache[c] for c in children)
        new_terms = tuple(rewriter.rewrite(t) for t in terms)
        changed = new_children != children or new_terms != terms
        cache[expr] = node(expr.rebuild(new_children, new_terms) if changed else expr)
    result: Expr = cache[root]
    return result


class _TermRewriter:
    """Terms of an expression rewritten, with the values of indirect indices from a cache of `transform`.

    It is no pair of functions that call one another: those would be a cycle that waits for Python's collector.
    """

    __slots__ = ("_cache", "_term")

    def __init__(self, cache: dict[Any, Any], term: Callable[[Size], Size] | None) -> None:
        self._cache = cache
        self._term = term

    def rewrite(self, size: Size) -> Size:
        if not isinstance(size, Term):
            return size
        if size in self._cache:
            known: Size = self._cache[size]
            return known
        mapped = map_indirects(size, self._indirect)
        if self._term is not None:
            mapped = self._term(mapped)
        self._cache[size] = mapped
        return mapped

    def _indirect(self, atom: Indirect) -> Size:
        return Indirect(self._cache[atom.value], self.rewrite(atom.size), atom.wrap, atom.check, atom.fault)


def _unvisited(root: Expr, cache: Mapping[Any, Any]) -> Iterator[Expr]:
    """Yield the nodes from ``root`` down that are not in ``cache``, each after all nodes below it; the caller fills
    the cache.

    It does not recurse, since fused bodies may be deeper than Python's stack.
    """
    stack = [root]
    while stack:
        expr = stack[-1]
        if expr in cache:
            stack.pop()
        elif missing := [part for part in expr.below if part not in cache]:
            stack.extend(missing)
        else:
            yield stack.pop()


def substitute_expr(root: Expr, mapping: Mapping[str, Size], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Replace axes and symbols by terms, everywhere and simultaneously.

    Calls with the same mapping may share a ``memo``.
    """
    if not (root.free_symbols & mapping.keys()):
        return root
    cache: dict[Expr, Expr] = {} if memo is None else memo

    def change(atom: Indirect) -> Indirect:
        return Indirect(cache[atom.value], substitute(atom.size, mapping), atom.wrap, atom.check, atom.fault)

    for expr in _unvisited(root, cache):
        if not (expr.free_symbols & mapping.keys()):
            cache[expr] = expr
            continue
        children = tuple(cache[c] for c in expr.children)
        # Values of indirect indices are in the cache; recursion would visit nested ones once for each path.
        terms = tuple(substitute(t, mapping, {a: change(a) for a in indirects_in(t)}) for t in expr.terms)
        cache[expr] = expr.rebuild(children, terms)
    return cache[root]


def substitute_params(root: Expr, args: Sequence[Expr]) -> Expr:
    """Replace every ``Param(k)`` by ``args[k]``, simultaneously."""
    return transform(root, lambda node: args[node.position] if isinstance(node, Param) else node)
