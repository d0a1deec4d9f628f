"""The base of loop body expressions: immutable, hash-consed nodes.

Equal nodes are usually one object, by a weak intern table. Equality is structural with a cached hash, so a body can be
printed, compared, hashed and shared.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeVar

from litz_ir.dtypes import DType
from litz_ir.errors import GraphError
from litz_ir.symbols.term import Atom, Size, Term, free_symbols

E = TypeVar("E", bound="Expr")


class Expr:
    """Base of all body nodes: immutable, interned by the constructors of its subclasses."""

    __slots__ = ("__weakref__", "_below", "_found", "_free", "_hash", "_key", "dtype", "fields")

    dtype: DType
    """Dtype of the value."""
    fields: tuple[Hashable, ...]
    """Constructor arguments of the subclass."""
    _hash: int
    _free: frozenset[str] | None
    _key: str | None
    _below: tuple[Expr, ...] | None
    _found: dict[Any, Any] | None
    """Nodes of some classes among those from this one down, by class: passes ask for them again and again."""
    _table: ClassVar[weakref.WeakValueDictionary[tuple[Hashable, ...], Any]] = weakref.WeakValueDictionary()
    """Nodes by class, dtype and fields, so that a node found under a key is of the class in it."""

    @classmethod
    def _make(cls: type[E], dtype: DType, *fields: Hashable) -> E:
        kind: Any = cls
        key: tuple[Hashable, ...] = (kind, dtype, *fields)
        try:
            found: E | None = Expr._table.get(key)
        except TypeError as error:
            unhashable = [each for each in fields if not isinstance(each, Hashable)] or fields
            raise GraphError(
                f"{kind.__name__} has immutable fields, got {unhashable[0]!r:.60}: {error}",
                hint="give tuples for lists",
            ) from None
        if found is not None:
            return found
        self = object.__new__(cls)
        put = object.__setattr__
        put(self, "dtype", dtype)
        put(self, "fields", fields)
        put(self, "_hash", hash(key))
        put(self, "_free", None)
        put(self, "_key", None)
        put(self, "_below", None)
        put(self, "_found", None)
        interned: E = Expr._table.setdefault(key, self)
        return interned

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[Any, ...]]:
        """The function that makes the node, and its arguments."""
        return _made, (type(self), self.dtype, *self.fields)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or not isinstance(other, Expr) or self._hash != other._hash:
            return False
        return self.dtype == other.dtype and self.fields == other.fields

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.fields))}: {self.dtype})"

    @property
    def children(self) -> tuple[Expr, ...]:
        """Sub-expressions in order."""
        return ()

    @property
    def terms(self) -> tuple[Size, ...]:
        """Index terms in order."""
        return ()

    @property
    def bound(self) -> frozenset[str]:
        """Names of axes that this node defines for its children."""
        return frozenset()

    @property
    def below(self) -> tuple[Expr, ...]:
        """All nodes directly below this one: its children, and the expressions inside its terms."""
        if self._below is None:
            atoms = (atom for term in self.terms if isinstance(term, Term) for atom in term.atoms())
            values = (atom.value for atom in atoms if isinstance(atom, ExprAtom))
            object.__setattr__(self, "_below", (*self.children, *values))
        assert self._below is not None
        return self._below

    @property
    def free_symbols(self) -> frozenset[str]:
        """Axes and symbols that the value depends on, including those in index terms and indirect indices."""
        stack: list[Expr] = [] if self._free is not None else [self]
        while stack:
            node = stack[-1]
            missing = [child for child in node.children if child._free is None]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            names = [free_symbols(term) for term in node.terms]
            inside = [child._free for child in node.children if child._free]
            free = frozenset[str]().union(*inside) - node.bound
            object.__setattr__(node, "_free", free.union(*names))
        assert self._free is not None
        return self._free

    @property
    def key(self) -> str:
        """A digest of the structure: equal in every process, of fixed size, usable as a sort key."""
        if self._key is None:
            parts = [type(self).__name__, self.dtype.name]
            for field in self.fields:
                parts.append(field.key if isinstance(field, Expr) else field_key(field))
            object.__setattr__(self, "_key", blake2b("\0".join(parts).encode(), digest_size=12).hexdigest())
        assert self._key is not None
        return self._key

    def rebuild(self, children: tuple[Expr, ...], terms: tuple[Size, ...]) -> Expr:
        """The same node with other children and terms."""
        return self


def _made(cls: type[Expr], dtype: DType, *fields: Hashable) -> Expr:
    """Return the node of a class with these fields, which :meth:`Expr.__reduce__` names."""
    return cls._make(dtype, *fields)


def walk(*roots: Expr) -> Iterator[Expr]:
    """Yield every distinct node once; children and the values of indirect indices come before their parents."""
    visited: set[Expr] = set()
    stack: list[Expr | None] = [*reversed(roots)]
    while stack:
        node = stack.pop()
        if node is None:  # all nodes below the next one have been yielded
            ready = stack.pop()
            assert ready is not None
            yield ready
        elif node not in visited:
            visited.add(node)
            if node.below:
                stack += (node, None, *reversed(node.below))
            else:
                yield node


def nodes_of(kind: type[E], roots: tuple[Expr, ...]) -> tuple[E, ...]:
    """All distinct nodes of a class, in the order of :func:`walk`; those below one root are kept with it."""
    root = roots[0] if len(roots) == 1 else None
    if root is None or isinstance(root, kind):  # a node that refers to itself would not be freed
        return tuple(node for node in walk(*roots) if isinstance(node, kind))
    if root._found is None:
        object.__setattr__(root, "_found", {})
    assert root._found is not None
    if kind not in root._found:
        root._found[kind] = tuple(node for node in walk(root) if isinstance(node, kind))
    found: tuple[E, ...] = root._found[kind]
    return found


class ExprAtom(Atom):
    """Base of atoms of index terms that contain an expression."""

    __slots__ = ()

    value: Expr
    """The expression."""


def field_key(field: Hashable) -> str:
    """A digest or spelling of a field, equal in every process."""
    if isinstance(field, tuple):
        return "(" + ",".join(f.key if isinstance(f, Expr) else field_key(f) for f in field) + ")"
    if isinstance(field, Term):
        return str(field.key)
    return repr(field)


def field_property(position: int) -> Any:
    """A property for the field at a position, of the type that the class declares."""
    return property(lambda node: node.fields[position])
