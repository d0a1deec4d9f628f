"""Index terms over a plan's symbols as C++ expressions of 64-bit integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from litz_ir.errors import CodegenError
from litz_ir.symbols import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol

Names = Mapping[str, str]
"""The C++ variable of each symbol of a plan."""


def term_text(term: Size, names: Names) -> str:
    """Return a term as C++, in brackets unless it is one word.

    Raises :class:`CodegenError` for a term without a C++ form, and for a symbol that ``names`` lacks.
    """
    if isinstance(term, int):
        return str(int(term)) if abs(term) < 2**31 else f"int64_t({int(term)})"
    match term:
        case Symbol():
            if term.name in names:
                return names[term.name]
            raise CodegenError(f"the symbol {term.name!r} has no value before the program runs")
        case Sum():
            parts = [f"{term_text(each, names)} * {factor}" for each, factor in term.terms]
            return f"({' + '.join((*parts, str(term.constant)))})"
        case Product():
            return f"({' * '.join(term_text(each, names) for each in term.factors)})"
        case FloorDiv():
            return f"floor_div<int64_t>({term_text(term.dividend, names)}, {term_text(term.divisor, names)})"
        case Mod():
            return f"remainder<int64_t>({term_text(term.dividend, names)}, {term_text(term.divisor, names)})"
        case Min() | Max():
            name = "minimum" if isinstance(term, Min) else "maximum"
            texts = [term_text(each, names) for each in term.args]
            return reduce(lambda one, other: f"{name}<int64_t>({one}, {other})", texts)
    raise CodegenError(f"no C++ form for the index term {term}")


def terms_text(terms: Sequence[Size], names: Names) -> str:
    """Return terms as a list for an initialiser."""
    return ", ".join(term_text(term, names) for term in terms)
