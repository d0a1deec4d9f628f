"""The index term language: integer sizes and indices over named symbols.

A `Size` is a plain int or a `Term`. Terms are immutable, interned and simplified on construction by rules that hold
for every value of the symbols; rules that need value ranges are in `litz_ir.symbols.simplification`. `//` and `%` are
Python's: the quotient is floored and the remainder has the divisor's sign. A term that divides by zero has no value,
so a rule may give a wrong result only where the divisor is zero.

This module has what all terms have in common, and the leaves. The other kinds are in `litz_ir.symbols.nodes`; the
rules that make them are in `polynomials`, `quotients` and `extrema`, the functions behind the operators among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias

from litz_ir.errors import SymbolError
from litz_ir.symbols.interning import Interned, enter, interned

_MAX_KEY = 96
"""Characters of a sort key above which it is a digest."""

SUM, PRODUCT, ATOM = 0, 1, 2
"""Binding strength of a text form, weakest first: a part weaker than its context is parenthesised."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The functions behind the operators of terms."""

    add: Callable[[Size, Size], Size]
    """`a + b`."""
    shift: Callable[[Term, int], Size]
    """`a + b` for a constant `b`."""
    subtract: Callable[[Size, Size], Size]
    """`a - b`."""
    multiply: Callable[[Size, Size], Size]
    """`a * b`."""
    floordiv: Callable[[Size, Size], Size]
    """`a // b`."""
    mod: Callable[[Size, Size], Size]
    """`a % b`."""


class Term(Interned):
    """A non-constant integer expression, built with operators or functions."""

    __slots__ = ("_atoms", "_free_symbols", "_key")

    is_polynomial: bool
    """True if the term contains no floor division, remainder, minimum, maximum or atom."""
    _key: str
    _free_symbols: frozenset[str]
    _atoms: tuple[Atom, ...]
    arithmetic: ClassVar[Arithmetic]
    """The functions behind the operators, set by the package, since they depend on all kinds of terms."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        """The function that makes the term, and its arguments."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """A sort key of bounded length that is the same in every process; symbols sort before other terms."""
        try:
            return self._key
        except AttributeError:
            key = _bounded(self._make_key())
            _set_key(self, key)
            return key

    @property
    def free_symbols(self) -> frozenset[str]:
        """Names of the symbols that occur in the term."""
        try:
            return self._free_symbols
        except AttributeError:
            names = frozenset[str]().union(*(child.free_symbols for child in self.children()))
            _set_free_symbols(self, names)
            return names

    def children(self) -> Iterable[Term]:
        """The direct sub-terms."""
        return ()

    def atoms(self) -> tuple[Atom, ...]:
        """The distinct atoms in the term, in order of occurrence."""
        if self.is_polynomial:
            return ()
        try:
            return self._atoms
        except AttributeError:
            found = tuple(dict.fromkeys([atom for child in self.children() for atom in child.atoms()]))
            _set_atoms(self, found)
            return found

    def __str__(self) -> str:
        return self._text(SUM)

    def __repr__(self) -> str:
        return f"<{self._text(SUM)}>"

    def __bool__(self) -> bool:
        raise SymbolError(
            f"the term {self} has no truth value: its symbols have no values",
            hint="compare it with 0, prove a relation by litz_ir.symbols.proofs, or evaluate it",
        )

    def __add__(self, other: Size) -> Size:
        if type(other) is int:
            return self.arithmetic.shift(self, other)
        return self.arithmetic.add(self, other) if isinstance(other, (int, Term)) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        if type(other) is int:
            return self.arithmetic.shift(self, -other)
        return self.arithmetic.subtract(self, other) if isinstance(other, (int, Term)) else NotImplemented

    def __rsub__(self, other: Size) -> Size:
        return self.arithmetic.subtract(other, self) if isinstance(other, (int, Term)) else NotImplemented

    def __neg__(self) -> Size:
        return self.arithmetic.multiply(self, -1)

    def __mul__(self, other: Size) -> Size:
        return self.arithmetic.multiply(self, other) if isinstance(other, (int, Term)) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return self.arithmetic.floordiv(self, other) if isinstance(other, (int, Term)) else NotImplemented

    def __rfloordiv__(self, other: Size) -> Size:
        return self.arithmetic.floordiv(other, self) if isinstance(other, (int, Term)) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        return self.arithmetic.mod(self, other) if isinstance(other, (int, Term)) else NotImplemented

    def __rmod__(self, other: Size) -> Size:
        return self.arithmetic.mod(other, self) if isinstance(other, (int, Term)) else NotImplemented

    def _make_key(self) -> str:
        raise NotImplementedError

    def _text(self, strength: int) -> str:
        raise NotImplementedError

    def _evaluate(self, env: Mapping[str, int]) -> int:
        raise NotImplementedError


Size: TypeAlias = int | Term
"""A size or an index: a plain int, or a `Term` over symbols."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values that an integer may take: `low <= value <= high`, and `value < below` if given.

    `None` leaves an end open. `below` is a limit that is a term: the loop index of an axis of size `s0` has `Range(0,
    None, s0)`. A range holds where the value exists, so `Range(0, None, s0)` implies that `s0` is at least 1.
    """

    low: int | None = None
    """Lowest value; None for an open end."""
    high: int | None = None
    """Highest value; None for an open end."""
    below: Term | None = None
    """Exclusive upper bound that is a term; None without one."""


class Symbol(Term):
    """A named integer."""

    __slots__ = ("name",)
    is_polynomial = True
    name: str
    """The name."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return symbol, (self.name,)

    def _fields(self) -> tuple[Any, ...]:
        return (self.name,)

    def _make_key(self) -> str:
        return self.name

    @property
    def free_symbols(self) -> frozenset[str]:
        return self._free_symbols

    def _text(self, strength: int) -> str:
        return self.name

    def _evaluate(self, env: Mapping[str, int]) -> int:
        try:
            return env[self.name]
        except KeyError:
            raise SymbolError(
                f"no value for symbol '{self.name}'; bound symbols: {', '.join(sorted(env)) or 'none'}"
            ) from None


class Atom(Term):
    """Base of leaves that other modules define, such as an index loaded from a buffer.

    A subclass lists its fields as slots, makes its instances by `cls._intern(field=value, …)` with hashable values,
    and defines `atom_key`, `atom_free_symbols`, `bounds`, `substitute_atom` and `evaluate_atom`.
    """

    __slots__ = ()
    is_polynomial = False

    @classmethod
    def _intern(cls, **fields: object) -> Self:
        """The one instance with these fields."""
        slot = (cls, *fields.values())
        term: Self | None = interned(slot)
        if term is None:
            term = object.__new__(cls)
            for name, value in fields.items():
                object.__setattr__(term, name, value)
            enter(slot, term)
        return term

    @property
    def atom_key(self) -> str:
        """The text form of the atom, the same in every process; different atoms have different keys."""
        raise NotImplementedError

    def atoms(self) -> tuple[Atom, ...]:
        """The atom itself, without atoms inside it."""
        return (self,)

    def atom_free_symbols(self) -> frozenset[str]:
        """Names of the symbols that the atom depends on."""
        return frozenset()

    def bounds(self) -> Range | None:
        """The range of the atom's value, or None if unknown."""
        return None

    def substitute_atom(self, mapping: Mapping[str, Size]) -> Size:
        """The atom with its own symbols replaced."""
        return self

    def evaluate_atom(self, env: Mapping[str, int]) -> int:
        """The atom's value in an environment; raises SymbolError if it has none."""
        raise SymbolError(f"the index '{self.atom_key}' has no value outside its loop body")

    @property
    def free_symbols(self) -> frozenset[str]:
        try:
            return self._free_symbols
        except AttributeError:
            names = self.atom_free_symbols()
            _set_free_symbols(self, names)
            return names

    def _fields(self) -> tuple[Any, ...]:
        return (self.atom_key,)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        raise TypeError(f"{type(self).__name__} has no pickled form")

    def _make_key(self) -> str:
        return "~@" + self.atom_key

    def _text(self, strength: int) -> str:
        return self.atom_key

    def _evaluate(self, env: Mapping[str, int]) -> int:
        return self.evaluate_atom(env)


# Setters of the slots: terms forbid assignment, and these are the fastest way to fill one in.
_set_key: Callable[[Term, str], None] = Term.__dict__["_key"].__set__
_set_free_symbols: Callable[[Term, frozenset[str]], None] = Term.__dict__["_free_symbols"].__set__
_set_atoms: Callable[[Term, tuple[Atom, ...]], None] = Term.__dict__["_atoms"].__set__
_set_name: Callable[[Symbol, str], None] = Symbol.__dict__["name"].__set__


def symbol(name: str) -> Symbol:
    """The symbol called `name`, which must be an identifier; dots are allowed. Raises SymbolError for other names."""
    slot = (name,)
    term: Symbol | None = interned(slot)
    if term is None:
        if not isinstance(name, str) or not name.replace(".", "_").isidentifier():
            raise SymbolError(f"{name!r} is not a symbol's name; use letters, digits, '_' and '.'")
        term = Symbol.__new__(Symbol)
        _set_name(term, name)
        _set_free_symbols(term, frozenset((name,)))
        enter(slot, term)
    return term


def free_symbols(x: Size) -> frozenset[str]:
    """Names of the symbols in `x`; none for an int."""
    return frozenset() if isinstance(x, int) else x.free_symbols


def evaluate(x: Size, env: Mapping[str, int]) -> int:
    """The value of `x` in the environment `env`; raises SymbolError for an unbound symbol or a division by zero."""
    return x if isinstance(x, int) else x._evaluate(env)


def key_of(x: Size) -> str:
    """The sort key of a size."""
    return str(x) if isinstance(x, int) else x.key


def text_of(x: Size, strength: int) -> str:
    """The text of a size, in parentheses if it binds weaker than `strength`."""
    if isinstance(x, int):
        return f"({x})" if x < 0 and strength == ATOM else str(x)
    return x._text(strength)


def _bounded(text: str) -> str:
    """`text`, or a digest of it if it is long, so that sort keys do not grow with the term."""
    if len(text) <= _MAX_KEY:
        return text
    return "~#" + blake2b(text.encode(), digest_size=16).hexdigest()
