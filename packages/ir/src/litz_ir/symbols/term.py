"""The index term language: integer sizes and indices over named symbols.

A `Size` is a plain int or a `Term`. Terms are immutable, interned and simplified on construction by rules that hold
for every value of the symbols; rules that need value ranges are in `litz_ir.symbols.simplification`. `//` and `%` are
Python's: the quotient is floored and the remainder has the divisor's sign. A term that divides by zero has no value,
so a rule may give a wrong result only where the divisor is zero.

Sums are kept expanded (`i*(a + b)` becomes `i*a + i*b`), so two equal polynomials are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import gcd
from typing import Any, ClassVar, Self, TypeAlias
from weakref import ref

from litz_ir.errors import SymbolError

Factors: TypeAlias = "tuple[Term, ...]"
Memo: TypeAlias = "dict[Term, Size]"

_MAX_KEY = 96
"""Characters of a sort key above which it is a digest."""

_MAX_EXPANDED_TERMS = 64
"""Most terms of a product of sums that is expanded, and most steps of a division of polynomials."""

# Binding strength of a text form, weakest first: a part weaker than its context is parenthesised.
_SUM, _PRODUCT, _ATOM = 0, 1, 2


class _TermRef(ref["Term"]):
    """A weak reference with its key in the intern table, to remove the entry of a collected term."""

    __slots__ = ("slot",)
    slot: tuple[Any, ...]


_interned: dict[tuple[Any, ...], _TermRef] = {}


def _forget(dead: ref[Term]) -> None:
    assert isinstance(dead, _TermRef)
    if _interned.get(dead.slot) is dead:
        _interned.pop(dead.slot, None)


def _bounded(text: str) -> str:
    """`text`, or a digest of it if it is long, so that sort keys do not grow with the term."""
    if len(text) <= _MAX_KEY:
        return text
    return "~#" + blake2b(text.encode(), digest_size=16).hexdigest()


class Term:
    """A non-constant integer expression, built with operators or the functions of this module."""

    __slots__ = ("__weakref__", "_atoms", "_free_symbols", "_hash", "_key", "is_polynomial")

    is_polynomial: bool
    """True if the term contains no floor division, remainder, minimum, maximum or atom."""
    _hash: int
    _key: str
    _free_symbols: frozenset[str]
    _atoms: tuple[Atom, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set '{name}'")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Term)
        return self._hash == other._hash and self._fields() == other._fields()

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return _rebuild, (type(self), self._fields())

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

    def map_atoms(self, visit: Callable[[Atom], Size]) -> Size:
        """The term with every atom replaced by `visit(atom)`, simplified again."""
        atoms = self.atoms()
        return _substituted(self, {}, {atom: visit(atom) for atom in atoms}) if atoms else self

    def __str__(self) -> str:
        return self._text(_SUM)

    def __repr__(self) -> str:
        return f"<{self._text(_SUM)}>"

    def __add__(self, other: Size) -> Size:
        if type(other) is int:
            return _shifted(self, other)
        return add(self, other) if isinstance(other, (int, Term)) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        if type(other) is int:
            return _shifted(self, -other)
        return add(self, mul(other, -1)) if isinstance(other, (int, Term)) else NotImplemented

    def __rsub__(self, other: Size) -> Size:
        return add(mul(self, -1), other) if isinstance(other, (int, Term)) else NotImplemented

    def __neg__(self) -> Size:
        return mul(self, -1)

    def __mul__(self, other: Size) -> Size:
        return _multiply(self, other) if isinstance(other, (int, Term)) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return floordiv(self, other) if isinstance(other, (int, Term)) else NotImplemented

    def __rfloordiv__(self, other: Size) -> Size:
        return floordiv(other, self) if isinstance(other, (int, Term)) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        return mod(self, other) if isinstance(other, (int, Term)) else NotImplemented

    def __rmod__(self, other: Size) -> Size:
        return mod(other, self) if isinstance(other, (int, Term)) else NotImplemented

    def _fields(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _make_key(self) -> str:
        raise NotImplementedError

    def _text(self, strength: int) -> str:
        raise NotImplementedError

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
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
    name: str

    def _fields(self) -> tuple[Any, ...]:
        return (self.name,)

    def _make_key(self) -> str:
        return self.name

    @property
    def free_symbols(self) -> frozenset[str]:
        return self._free_symbols

    def _text(self, strength: int) -> str:
        return self.name

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        return mapping.get(self.name, self)

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

    @classmethod
    def _intern(cls, **fields: object) -> Self:
        """The one instance with these fields."""
        slot = (cls, *fields.values())
        term: Self | None = _known(slot)
        if term is None:
            term = object.__new__(cls)
            for name, value in fields.items():
                object.__setattr__(term, name, value)
            _enter(slot, term, False)
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

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        return self.substitute_atom(mapping)

    def _evaluate(self, env: Mapping[str, int]) -> int:
        return self.evaluate_atom(env)


class Sum(Term):
    """`terms[0][0]*terms[0][1] + … + constant`; the terms are not sums and are sorted by key."""

    __slots__ = ("constant", "terms")
    terms: tuple[tuple[Term, int], ...]
    constant: int

    def _fields(self) -> tuple[Any, ...]:
        return (self.terms, self.constant)

    def _make_key(self) -> str:
        return "~s" + "+".join([f"{term.key}*{factor}" for term, factor in self.terms]) + f"+{self.constant}"

    def children(self) -> Iterable[Term]:
        return [term for term, _ in self.terms]

    def _text(self, strength: int) -> str:
        constant = self.constant
        # `63 - i0` reads better than `-i0 + 63`.
        parts = [str(constant)] if constant > 0 and self.terms[0][1] < 0 else []
        tail = [] if parts or not constant else [f" {'-' if constant < 0 else '+'} {abs(constant)}"]
        for term, factor in self.terms:
            size = abs(factor)
            bare = size == 1 and (factor > 0 or bool(parts))
            text = term._text(_SUM if bare else _PRODUCT) + ("" if size == 1 else f"*{size}")
            sign = "-" if factor < 0 else "+"
            parts.append(f" {sign} {text}" if parts else text if factor > 0 else f"-{text}")
        text = "".join(parts + tail)
        if strength == _SUM:
            return text
        single = len(self.terms) == 1 and not constant and self.terms[0][1] > 0
        return text if single and strength == _PRODUCT else f"({text})"

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        gathered: dict[Term, int] = {}
        constant = self.constant
        for term, factor in self.terms:
            constant += _gather(gathered, _substituted(term, mapping, memo), factor)
        return _sum(gathered, constant)

    def _evaluate(self, env: Mapping[str, int]) -> int:
        total = self.constant
        for term, factor in self.terms:
            total += term._evaluate(env) * factor
        return total


class Product(Term):
    """The product of two or more factors, sorted by key; a constant factor belongs to the enclosing sum."""

    __slots__ = ("factors",)
    factors: Factors

    def _fields(self) -> tuple[Any, ...]:
        return (self.factors,)

    def _make_key(self) -> str:
        return "~p" + "*".join([factor.key for factor in self.factors])

    def children(self) -> Iterable[Term]:
        return self.factors

    def _text(self, strength: int) -> str:
        text = "*".join([factor._text(_ATOM) for factor in self.factors])
        return f"({text})" if strength == _ATOM else text

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        return mul(*[_substituted(factor, mapping, memo) for factor in self.factors])

    def _evaluate(self, env: Mapping[str, int]) -> int:
        result = 1
        for factor in self.factors:
            result *= factor._evaluate(env)
        return result


class _Quotient(Term):
    """Base of floor division and remainder."""

    __slots__ = ("dividend", "divisor")
    dividend: Size
    divisor: Size
    sign: ClassVar[str]

    def _fields(self) -> tuple[Any, ...]:
        return (self.dividend, self.divisor)

    def _make_key(self) -> str:
        return f"~{self.sign}({_key_of(self.dividend)},{_key_of(self.divisor)})"

    def children(self) -> Iterable[Term]:
        return [part for part in (self.dividend, self.divisor) if isinstance(part, Term)]

    def _text(self, strength: int) -> str:
        # `//` and `%` associate to the left as `*` does; parentheses make that explicit.
        text = f"{_text_of(self.dividend, _ATOM)}{self.sign}{_text_of(self.divisor, _ATOM)}"
        return text if strength == _SUM else f"({text})"


class FloorDiv(_Quotient):
    """`dividend // divisor`, rounded down."""

    __slots__ = ()
    sign = "//"

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        return floordiv(_substituted(self.dividend, mapping, memo), _substituted(self.divisor, mapping, memo))

    def _evaluate(self, env: Mapping[str, int]) -> int:
        divisor = evaluate(self.divisor, env)
        if divisor == 0:
            raise SymbolError(f"division by zero in '{self}': the divisor '{self.divisor}' is 0")
        return evaluate(self.dividend, env) // divisor


class Mod(_Quotient):
    """`dividend % divisor`, with the divisor's sign."""

    __slots__ = ()
    sign = " % "

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        return mod(_substituted(self.dividend, mapping, memo), _substituted(self.divisor, mapping, memo))

    def _evaluate(self, env: Mapping[str, int]) -> int:
        divisor = evaluate(self.divisor, env)
        if divisor == 0:
            raise SymbolError(f"remainder by zero in '{self}': the divisor '{self.divisor}' is 0")
        return evaluate(self.dividend, env) % divisor


class _Extremum(Term):
    """Base of minimum and maximum."""

    __slots__ = ("args",)
    args: tuple[Size, ...]
    function: ClassVar[str]

    def _fields(self) -> tuple[Any, ...]:
        return (self.args,)

    def _make_key(self) -> str:
        return f"~{self.function}(" + ",".join([_key_of(arg) for arg in self.args]) + ")"

    def children(self) -> Iterable[Term]:
        return [arg for arg in self.args if isinstance(arg, Term)]

    def _text(self, strength: int) -> str:
        return f"{self.function}(" + ", ".join([_text_of(arg, _SUM) for arg in self.args]) + ")"


class Min(_Extremum):
    """The least of two or more sizes."""

    __slots__ = ()
    function = "min"

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        return minimum(*[_substituted(arg, mapping, memo) for arg in self.args])

    def _evaluate(self, env: Mapping[str, int]) -> int:
        return min([evaluate(arg, env) for arg in self.args])


class Max(_Extremum):
    """The greatest of two or more sizes."""

    __slots__ = ()
    function = "max"

    def _substitute(self, mapping: Mapping[str, Size], memo: Memo) -> Size:
        return maximum(*[_substituted(arg, mapping, memo) for arg in self.args])

    def _evaluate(self, env: Mapping[str, int]) -> int:
        return max([evaluate(arg, env) for arg in self.args])


# Setters of the slots: terms forbid assignment, and these are the fastest way to fill one in.
_set_hash: Callable[[Term, int], None] = Term.__dict__["_hash"].__set__
_set_key: Callable[[Term, str], None] = Term.__dict__["_key"].__set__
_set_free_symbols: Callable[[Term, frozenset[str]], None] = Term.__dict__["_free_symbols"].__set__
_set_atoms: Callable[[Term, tuple[Atom, ...]], None] = Term.__dict__["_atoms"].__set__
_set_polynomial: Callable[[Term, bool], None] = Term.__dict__["is_polynomial"].__set__
_set_name: Callable[[Symbol, str], None] = Symbol.__dict__["name"].__set__
_set_terms: Callable[[Sum, tuple[tuple[Term, int], ...]], None] = Sum.__dict__["terms"].__set__
_set_constant: Callable[[Sum, int], None] = Sum.__dict__["constant"].__set__
_set_factors: Callable[[Product, Factors], None] = Product.__dict__["factors"].__set__
_set_dividend: Callable[[_Quotient, Size], None] = _Quotient.__dict__["dividend"].__set__
_set_divisor: Callable[[_Quotient, Size], None] = _Quotient.__dict__["divisor"].__set__
_set_args: Callable[[_Extremum, tuple[Size, ...]], None] = _Extremum.__dict__["args"].__set__


def _enter(slot: tuple[Any, ...], fresh: Term, is_polynomial: bool) -> None:
    """Complete a term whose fields are set, and enter it in the intern table under `slot`."""
    _set_hash(fresh, hash(slot))
    _set_polynomial(fresh, is_polynomial)
    reference = _TermRef(fresh, _forget)
    reference.slot = slot
    _interned[slot] = reference


def _known(slot: tuple[Any, ...]) -> Any:
    reference = _interned.get(slot)
    return None if reference is None else reference()


def symbol(name: str) -> Symbol:
    """The symbol called `name`, which must be an identifier; dots are allowed. Raises SymbolError for other names."""
    slot = (name,)
    term: Symbol | None = _known(slot)
    if term is None:
        if not isinstance(name, str) or not name.replace(".", "_").isidentifier():
            raise SymbolError(f"{name!r} is not a symbol's name; use letters, digits, '_' and '.'")
        term = Symbol.__new__(Symbol)
        _set_name(term, name)
        _set_free_symbols(term, frozenset((name,)))
        _enter(slot, term, True)
    return term


def _sum(gathered: dict[Term, int], constant: int) -> Size:
    """The sum of `term*factor` over the mapping (zero factors allowed) and a constant."""
    items = [item for item in gathered.items() if item[1]]
    if len(items) > 1:
        items.sort(key=_item_key)
    return _ordered_sum(tuple(items), constant)


def _ordered_sum(terms: tuple[tuple[Term, int], ...], constant: int) -> Size:
    """The sum of `term*factor` and a constant; the terms are sorted, distinct, and no factor is zero."""
    if not constant and (not terms or (len(terms) == 1 and terms[0][1] == 1)):
        return terms[0][0] if terms else 0
    if not terms:
        return constant
    slot = (terms, constant)
    result: Sum | None = _known(slot)
    if result is None:
        result = Sum.__new__(Sum)
        _set_terms(result, terms)
        _set_constant(result, constant)
        _enter(slot, result, all(term.is_polynomial for term, _ in terms))
    return result


def _item_key(item: tuple[Term, int]) -> str:
    return item[0].key


def _gather(gathered: dict[Term, int], x: Size, factor: int) -> int:
    """Add `x*factor` to the mapping and return its constant part."""
    if isinstance(x, int):
        return x * factor
    if type(x) is Sum:
        for term, own in x.terms:
            gathered[term] = gathered.get(term, 0) + own * factor
        return x.constant * factor
    gathered[x] = gathered.get(x, 0) + factor
    return 0


def _shifted(x: Term, by: int) -> Size:
    """`x + by`."""
    if type(x) is Sum:
        return _ordered_sum(x.terms, x.constant + by)
    return _ordered_sum(((x, 1),), by)


def add(*xs: Size) -> Size:
    """The sum of the arguments; 0 for none."""
    gathered: dict[Term, int] = {}
    constant = 0
    for x in xs:
        constant += _gather(gathered, x, 1)
    return _sum(gathered, constant)


def mul(*xs: Size) -> Size:
    """The product of the arguments; 1 for none."""
    result: Size = 1
    for x in xs:
        result = _multiply(result, x)
    return result


def product(sizes: Iterable[Size]) -> Size:
    """The product of the sizes; 1 for none."""
    return mul(*sizes)


def _multiply(a: Size, b: Size) -> Size:
    if isinstance(a, int):
        return a * b if isinstance(b, int) else _scale(b, a)
    if isinstance(b, int):
        return _scale(a, b)
    if type(a) is not Sum and type(b) is not Sum:
        return monomial(factors_of(a) + factors_of(b))
    left, right = addends(a), addends(b)
    if len(left) * len(right) > _MAX_EXPANDED_TERMS:
        return monomial(factors_of(a) + factors_of(b))
    gathered: dict[Term, int] = {}
    constant = 0
    for term, factor in left:
        for other, own in right:
            constant += _gather(gathered, monomial(term + other), factor * own)
    return _sum(gathered, constant)


def _scale(term: Term, by: int) -> Size:
    if by == 1 or by == 0:
        return term if by else 0
    if type(term) is Sum:
        return _ordered_sum(tuple([(part, factor * by) for part, factor in term.terms]), term.constant * by)
    return _ordered_sum(((term, by),), 0)


def factors_of(term: Term) -> Factors:
    """The factors of a product; any other term is its own only factor."""
    return term.factors if type(term) is Product else (term,)


def addends(x: Size) -> list[tuple[Factors, int]]:
    """`x` as a list of (factors, coefficient); a constant has no factors and comes last."""
    if isinstance(x, int):
        return [((), x)] if x else []
    if type(x) is not Sum:
        return [(factors_of(x), 1)]
    parts = [(factors_of(term), factor) for term, factor in x.terms]
    if x.constant:
        parts.append(((), x.constant))
    return parts


def monomial(factors: Factors) -> Size:
    """The product of factors that are neither products nor sums to be expanded; 1 for none."""
    if not factors:
        return 1
    if len(factors) == 1:
        return factors[0]
    ordered = tuple(sorted(factors, key=_key_of))
    slot = ("*", ordered)
    result: Product | None = _known(slot)
    if result is None:
        result = Product.__new__(Product)
        _set_factors(result, ordered)
        _enter(slot, result, all(factor.is_polynomial for factor in ordered))
    return result


def without(factors: Factors, part: Factors) -> Factors | None:
    """`factors` without those of `part`, or None if some are missing."""
    if not part:
        return factors
    rest = list(factors)
    for factor in part:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def divide(a: Size, b: Size) -> tuple[Size, Size]:
    """Polynomials `(q, r)` with `a == q*b + r` for all values of the symbols, and no visible multiple of `b` in `r`.

    This is long division of polynomials with integer coefficients; the value of `r` may exceed that of `b`. If the
    division would make the dividend longer (`a` over a sum), the result is `(0, a)`. Raises ValueError if `b` is the
    constant 0.
    """
    if isinstance(b, int):
        if b == 0:
            raise ValueError(f"division of '{a}' by zero")
        return divmod(a, b) if isinstance(a, int) else _divide_by_int(a, b)
    if isinstance(a, int):
        return 0, a
    divisor = addends(b)
    if len(divisor) > 1:
        return _long_division(a, b, divisor)
    lead, scale = divisor[0]
    quotient: dict[Term, int] = {}
    rest: dict[Term, int] = {}
    whole = constant = 0
    for factors, coefficient in addends(a):
        if coefficient % scale or (reduced := without(factors, lead)) is None:
            constant += _gather(rest, monomial(factors), coefficient)
        else:
            whole += _gather(quotient, monomial(reduced), coefficient // scale)
    return _sum(quotient, whole), _sum(rest, constant)


def _divide_by_int(a: Term, b: int) -> tuple[Size, Size]:
    if type(a) is not Sum:
        return (mul(a, b), 0) if b in (1, -1) else (0, a)
    whole, constant = divmod(a.constant, b)
    shares = tuple([(term, factor // b) for term, factor in a.terms if not factor % b])
    if not shares and not whole:
        return 0, a
    rest = tuple([item for item in a.terms if item[1] % b])
    return _ordered_sum(shares, whole), _ordered_sum(rest, constant)


def _long_division(a: Size, b: Size, divisor: list[tuple[Factors, int]]) -> tuple[Size, Size]:
    """`divide` by a sum: cancel its leading monomial (graded, then by key) wherever it divides."""
    lead, scale = min(divisor, key=lambda part: (-len(part[0]), [factor.key for factor in part[0]]))
    quotient: Size = 0
    rest = a
    for _ in range(_MAX_EXPANDED_TERMS):
        for factors, coefficient in addends(rest):
            reduced = without(factors, lead)
            if reduced is not None and coefficient % scale == 0:
                share = _multiply(monomial(reduced), coefficient // scale)
                break
        else:
            break
        quotient = add(quotient, share)
        rest = add(rest, mul(share, b, -1))
    return (quotient, rest) if len(addends(rest)) < len(addends(a)) else (0, a)


def common_factor(a: Size, b: Size) -> Size:
    """The greatest monomial, with a positive coefficient, that divides all addends of both; 1 for zeros."""
    scale = 0
    shared: Factors | None = None
    for factors, coefficient in addends(a) + addends(b):
        scale = gcd(scale, coefficient)
        if shared is None:
            shared = factors
        elif shared:
            common = []
            rest = list(factors)
            for factor in shared:
                if factor in rest:
                    rest.remove(factor)
                    common.append(factor)
            shared = tuple(common)
        if scale == 1 and not shared:
            return 1
    return _multiply(scale or 1, monomial(shared or ()))


def _quotient_term(kind: type[_Quotient], dividend: Size, divisor: Size) -> Term:
    slot = (kind.sign, dividend, divisor)
    result: _Quotient | None = _known(slot)
    if result is None:
        result = kind.__new__(kind)
        _set_dividend(result, dividend)
        _set_divisor(result, divisor)
        _enter(slot, result, False)
    return result


def floordiv(a: Size, b: Size) -> Size:
    """`a // b`, rounded down; raises ValueError if `b` is the constant 0."""
    if isinstance(b, int):
        if isinstance(a, int):
            if b == 0:
                raise ValueError(f"division of {a} by zero")
            return a // b
        if b < 0:
            return floordiv(mul(a, -1), -b)
        if b == 1:
            return a
    whole, rest = divide(a, b)
    return add(whole, _floordiv_rest(rest, b)) if whole != 0 else _floordiv_rest(rest, b)


def _floordiv_rest(a: Size, b: Size) -> Size:
    """`a // b` where `a` has no addend that `b` divides; a constant `b` is at least 2."""
    if isinstance(a, int):
        if a == 0 or isinstance(b, int):
            return a // b if isinstance(b, int) else 0
        return _quotient_term(FloorDiv, a, b)
    if isinstance(b, int):
        return _floordiv_int(a, b)
    shared = common_factor(a, b)
    if shared != 1:
        return floordiv(divide(a, shared)[0], divide(b, shared)[0])
    return _quotient_term(FloorDiv, a, b)


def _floordiv_int(a: Term, b: int) -> Size:
    """`a // b` for a constant `b >= 2` that divides no addend of `a`, whose constant is in `[0, b)`."""
    inner, constant = a, 0
    if type(a) is Sum:
        constant = a.constant
        shared = gcd(b, *[factor for _, factor in a.terms])
        if shared != 1:
            # floor((g*x + c) / (g*m)) = floor((x + floor(c/g)) / m) for g > 0
            shares = tuple([(term, factor // shared) for term, factor in a.terms])
            return floordiv(_ordered_sum(shares, constant // shared), b // shared)
        if len(a.terms) == 1 and a.terms[0][1] == 1:
            inner = a.terms[0][0]
    if type(inner) is FloorDiv and isinstance(inner.divisor, int):
        return floordiv(add(inner.dividend, constant * inner.divisor), inner.divisor * b)
    if type(a) is Mod and isinstance(a.divisor, int) and a.divisor % b == 0:
        return mod(floordiv(a.dividend, b), a.divisor // b)
    return _quotient_term(FloorDiv, a, b)


def mod(a: Size, b: Size) -> Size:
    """`a % b`, with the sign of `b`; raises ValueError if `b` is the constant 0."""
    if isinstance(b, int):
        if b == 0:
            raise ValueError(f"remainder of '{a}' by zero")
        if isinstance(a, int):
            return a % b
        if b < 0:
            return mul(mod(mul(a, -1), -b), -1)
        return _mod_int(_without_inner_mods(a, b), b)
    rest = divide(_without_inner_mods(a, b), b)[1]
    if rest == 0:
        return 0
    shared = common_factor(rest, b)
    if shared != 1:
        return mul(mod(divide(rest, shared)[0], divide(b, shared)[0]), shared)
    return _quotient_term(Mod, rest, b)


def _without_inner_mods(a: Size, b: Size) -> Size:
    """A size that is congruent to `a` modulo `b`: `(x % m)*c` is `x*c` where `b` divides `m*c`."""
    if isinstance(a, int) or a.is_polynomial:
        return a
    gathered: dict[Term, int] = {}
    constant = 0
    changed = False
    for factors, coefficient in addends(a):
        reduced_addend = _multiply(monomial(factors), coefficient)
        for factor in factors:
            if type(factor) is Mod:
                others = _multiply(monomial(without(factors, (factor,)) or ()), coefficient)
                if divide(mul(others, factor.divisor), b)[1] == 0:
                    reduced_addend = mul(others, factor.dividend)
                    changed = True
                    break
        constant += _gather(gathered, reduced_addend, 1)
    return _without_inner_mods(_sum(gathered, constant), b) if changed else a


def _mod_int(a: Size, b: int) -> Size:
    """`a % b` for a constant `b >= 1`."""
    if isinstance(a, int) or b == 1:
        return a % b if isinstance(a, int) else 0
    if type(a) is not Sum:
        return _quotient_term(Mod, a, b)
    constant = a.constant % b
    # Coefficients shrink but keep their sign, so that `s - i` stays recognisable as a difference.
    small = [(term, factor % b if factor > 0 else -(-factor % b)) for term, factor in a.terms]
    rest = tuple([item for item in small if item[1]])
    shared = gcd(b, *[factor for _, factor in rest])
    if not rest or shared == 1:
        remaining = _ordered_sum(rest, constant)
        return remaining if isinstance(remaining, int) else _quotient_term(Mod, remaining, b)
    # (g*x + g*q + r) % (g*m) = g*((x + q) % m) + r for 0 <= r < g
    shares = tuple([(term, factor // shared) for term, factor in rest])
    inner = _mod_int(_ordered_sum(shares, constant // shared), b // shared)
    return add(mul(inner, shared), constant % shared)


def _extremum(kind: type[Min] | type[Max], pick: Callable[[int, int], int], xs: tuple[Size, ...]) -> Size:
    """A minimum or maximum, flattened; of arguments that differ by a constant only one remains."""
    best: dict[Size, int] = {}
    pending = list(reversed(xs))
    while pending:
        x = pending.pop()
        if type(x) is kind:
            pending.extend(reversed(x.args))
            continue
        constant = x if isinstance(x, int) else x.constant if type(x) is Sum else 0
        base = x if not constant else add(x, -constant)
        best[base] = pick(best[base], constant) if base in best else constant
    args = [add(base, constant) for base, constant in best.items()]
    if not args:
        raise SymbolError(f"{kind.function}() needs at least one argument")
    if len(args) == 1:
        return args[0]
    ordered = tuple(sorted(args, key=_key_of))
    slot = (kind.function, ordered)
    result: _Extremum | None = _known(slot)
    if result is None:
        result = kind.__new__(kind)
        _set_args(result, ordered)
        _enter(slot, result, False)
    return result


def minimum(*xs: Size) -> Size:
    """The least of one or more arguments."""
    return _extremum(Min, min, xs)


def maximum(*xs: Size) -> Size:
    """The greatest of one or more arguments."""
    return _extremum(Max, max, xs)


def cdiv(a: Size, b: Size) -> Size:
    """`a / b` rounded up, for positive `b`: `(a + b - 1) // b`."""
    return floordiv(add(a, b, -1), b)


def free_symbols(x: Size) -> frozenset[str]:
    """Names of the symbols in `x`; none for an int."""
    return frozenset() if isinstance(x, int) else x.free_symbols


def substitute(x: Size, mapping: Mapping[str, Size], known: Memo | None = None) -> Size:
    """`x` with the symbols in `mapping` replaced simultaneously, simplified again.

    `known` holds terms whose replacement is known already.
    """
    return x if isinstance(x, int) else _substituted(x, mapping, {} if known is None else known)


def _substituted(x: Size, mapping: Mapping[str, Size], memo: Memo) -> Size:
    if isinstance(x, int):
        return x
    if type(x) is Symbol:
        return mapping.get(x.name, x)
    done = memo.get(x)
    if done is None:
        touched = any(name in mapping for name in x.free_symbols) or x.atoms()
        done = memo[x] = x._substitute(mapping, memo) if touched else x
    return done


def evaluate(x: Size, env: Mapping[str, int]) -> int:
    """The value of `x` in the environment `env`; raises SymbolError for an unbound symbol or a division by zero."""
    return x if isinstance(x, int) else x._evaluate(env)


def coefficient(x: Size, name: str) -> Size | None:
    """The coefficient of a symbol in `x` as a linear function of it; 0 if absent, None if `x` is not linear."""
    if isinstance(x, int) or name not in x.free_symbols:
        return 0
    total: Size = 0
    for factors, scale in addends(x):
        touched = [factor for factor in factors if name in factor.free_symbols]
        if not touched:
            continue
        if len(touched) > 1 or type(touched[0]) is not Symbol:
            return None
        total = add(total, _multiply(monomial(without(factors, (touched[0],)) or ()), scale))
    return total


def _key_of(x: Size) -> str:
    return str(x) if isinstance(x, int) else x.key


def _text_of(x: Size, strength: int) -> str:
    if isinstance(x, int):
        return f"({x})" if x < 0 and strength == _ATOM else str(x)
    return x._text(strength)


def _rebuild(kind: type[Term], fields: tuple[Any, ...]) -> Size:
    """Construct an unpickled or copied term by the interning constructors."""
    if kind is Symbol:
        return symbol(*fields)
    if kind is Sum:
        return _sum(dict(fields[0]), fields[1])
    if kind is Product:
        return monomial(*fields)
    if issubclass(kind, _Quotient):
        return _quotient_term(kind, *fields)
    return minimum(*fields[0]) if kind is Min else maximum(*fields[0])
