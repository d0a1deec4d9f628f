"""Conversion from and to sympy, in the only module of the package that imports it; the extra `sympy` installs it.

Torch's ShapeEnv uses function classes of its own; they are recognised by their class names, so torch is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

try:
    import sympy
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the conversion from and to sympy needs sympy: pip install 'litz-ir[sympy]'", name="sympy"
    ) from error

from litz_ir.errors import SymbolError
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.proofs import Predicate, PredicateKind
from litz_ir.symbols.quotients import cdiv, floordiv, mod
from litz_ir.symbols.term import Size, Symbol, Term, symbol

__all__ = ["from_sympy", "predicate_from_sympy", "to_sympy"]

_MAX_EXPONENT = 16
"""Largest power that is written as a product."""

_HINT = "give the size as integer arithmetic, or compute the value once per call as a host scalar"


def to_sympy(x: Size, symbols: Mapping[str, sympy.Symbol] | None = None) -> sympy.Expr:
    """`x` as a sympy expression over `symbols`; other symbols become integer symbols of the same name.

    Floor division becomes `floor(a/b)`, a remainder `Mod(a, b)`. Raises SymbolError for atoms.
    """
    known = symbols or {}
    if isinstance(x, int):
        return sympy.Integer(x)
    if isinstance(x, Symbol):
        return known[x.name] if x.name in known else sympy.Symbol(x.name, integer=True)
    if isinstance(x, Sum):
        return sympy.Add(x.constant, *[to_sympy(term, known) * factor for term, factor in x.terms])
    if isinstance(x, Product):
        return sympy.Mul(*[to_sympy(factor, known) for factor in x.factors])
    if isinstance(x, FloorDiv):
        return sympy.floor(to_sympy(x.dividend, known) / to_sympy(x.divisor, known))
    if isinstance(x, Mod):
        return sympy.Mod(to_sympy(x.dividend, known), to_sympy(x.divisor, known))
    if isinstance(x, (Min, Max)):
        head = sympy.Min if isinstance(x, Min) else sympy.Max
        return head(*[to_sympy(arg, known) for arg in x.args])
    raise SymbolError(f"the index '{x}' comes from a loaded value; sympy has no expression for it")


def from_sympy(expr: sympy.Basic) -> Size:
    """A sympy expression as a size.

    Accepts sums, products, natural powers, floor and ceiling of quotients, Mod, Min, Max, Abs, and torch's functions
    (FloorDiv, CleanDiv, Mod, PythonMod, ModularIndexing, CeilDiv, CeilToInt, FloorToInt, PowByNatural, LShift, RShift,
    Identity). Raises SymbolError, naming the offending part, for what terms cannot express.
    """
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        if expr.is_integer is False:
            raise _refusal(expr, f"symbol '{expr.name}' is not an integer")
        return symbol(expr.name)
    for kind in type(expr).__mro__:
        reader = _READERS.get(kind.__name__)
        if reader is not None:
            return reader(expr)
    raise _refusal(expr, f"'{type(expr).__name__}' has no counterpart among integer terms")


def predicate_from_sympy(expr: sympy.Basic) -> Predicate:
    """A relation between integers as a predicate; raises SymbolError for anything but a single relation."""
    relation = _RELATIONS.get(type(expr).__name__)
    if relation is None:
        raise _refusal(expr, f"'{type(expr).__name__}' is not a single relation")
    kind, swapped = relation
    left, right = (from_sympy(arg) for arg in expr.args)
    a, b = (right, left) if swapped else (left, right)
    if kind == "eq" and isinstance(a, Mod) and b == 0:
        return Predicate("divides", a.divisor, a.dividend)
    return Predicate(kind, a, b)


_RELATIONS: Mapping[str, tuple[PredicateKind, bool]] = {
    "Equality": ("eq", False),
    "Unequality": ("ne", False),
    "StrictLessThan": ("lt", False),
    "LessThan": ("le", False),
    "StrictGreaterThan": ("lt", True),
    "GreaterThan": ("le", True),
}


def _refusal(expr: sympy.Basic, reason: str) -> SymbolError:
    return SymbolError(f"{reason}, in the sympy expression '{expr}'", hint=_HINT)


def _args(expr: sympy.Basic, count: int) -> Sequence[Size]:
    if len(expr.args) != count:
        raise _refusal(expr, f"'{type(expr).__name__}' has {len(expr.args)} arguments instead of {count}")
    return [from_sympy(arg) for arg in expr.args]


def _binary(function: Callable[[Size, Size], Size]) -> Callable[[sympy.Basic], Size]:
    def read(expr: sympy.Basic) -> Size:
        left, right = _args(expr, 2)
        if right == 0 and function is not mul:
            raise _refusal(expr, "division by zero")
        return function(left, right)

    return read


def _variadic(function: Callable[..., Size]) -> Callable[[sympy.Basic], Size]:
    def read(expr: sympy.Basic) -> Size:
        return function(*[from_sympy(arg) for arg in expr.args])

    return read


def _ceildiv(a: Size, b: Size) -> Size:
    """`a / b` rounded up, for either sign of `b`."""
    return cdiv(a, b) if isinstance(b, int) and b > 0 else mul(floordiv(mul(a, -1), b), -1)


def _power(expr: sympy.Basic) -> Size:
    base, exponent = expr.args
    if not isinstance(exponent, sympy.Integer) or int(exponent) < 0:
        raise _refusal(expr, f"a power with the exponent '{exponent}' need not be an integer")
    if int(exponent) > _MAX_EXPONENT:
        raise _refusal(expr, f"the exponent {exponent} is above {_MAX_EXPONENT}")
    return mul(*[from_sympy(base)] * int(exponent))


def _number(expr: sympy.Basic) -> Size:
    raise _refusal(expr, f"'{expr}' is not an integer")


def _rounded(divide: Callable[[Size, Size], Size]) -> Callable[[sympy.Basic], Size]:
    """A reader of the floor or ceiling of a quotient, or of an integer."""

    def read(expr: sympy.Basic) -> Size:
        inner = expr.args[0]
        if type(inner).__name__ == "IntTrueDiv":
            above, below = inner.args
        else:
            above, below = sympy.fraction(sympy.together(inner))
        divisor = from_sympy(below)
        if divisor == 0:
            raise _refusal(expr, "division by zero")
        return divide(from_sympy(above), divisor)

    return read


def _modular_indexing(expr: sympy.Basic) -> Size:
    index, divisor, modulus = _args(expr, 3)
    return mod(floordiv(index, divisor), modulus)


def _absolute(expr: sympy.Basic) -> Size:
    (value,) = _args(expr, 1)
    return maximum(value, mul(value, -1))


def _identity(expr: sympy.Basic) -> Size:
    (value,) = _args(expr, 1)
    return value


def _shift(expr: sympy.Basic) -> tuple[Size, int]:
    value, bits = _args(expr, 2)
    if isinstance(bits, Term) or bits < 0:
        raise _refusal(expr, f"a shift by '{bits}' bits")
    return value, 2**bits


_READERS: Mapping[str, Callable[[sympy.Basic], Size]] = {
    "Add": _variadic(add),
    "Mul": _variadic(mul),
    "Pow": _power,
    "PowByNatural": _power,
    "Number": _number,
    "FloorDiv": _binary(floordiv),
    "CleanDiv": _binary(floordiv),
    "CeilDiv": _binary(_ceildiv),
    "Mod": _binary(mod),
    "PythonMod": _binary(mod),
    "ModularIndexing": _modular_indexing,
    "Min": _variadic(minimum),
    "Max": _variadic(maximum),
    "floor": _rounded(floordiv),
    "ceiling": _rounded(_ceildiv),
    "FloorToInt": _rounded(floordiv),
    "CeilToInt": _rounded(_ceildiv),
    "Abs": _absolute,
    "Identity": _identity,
    "LShift": lambda expr: mul(*_shift(expr)),
    "RShift": lambda expr: floordiv(*_shift(expr)),
}
