"""Index terms over a plan's symbols as C++ expressions of 64-bit integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from litz_ir.errors import CodegenError
from litz_ir.symbols import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol

Names = Mapping[str, str]
"""The C++ variable of each symbol of a plan."""


def term_text(term: Size, names: Names, *, checked: bool = False) -> str:
    """Return a term as C++, in brackets unless it is one word.

    A ``checked`` one sets the variable ``overflow`` of its function where a sum or product has more than 64 bits.
    Raises :class:`CodegenError` for a term without a C++ form, and for a symbol that ``names`` lacks.
    """
    if isinstance(term, int):
        return str(int(term)) if abs(term) < 2**31 else f"int64_t({int(term)})"
    spelled = partial(term_text, names=names, checked=checked)
    match term:
        case Symbol():
            if term.name in names:
                return names[term.name]
            raise CodegenError(f"the symbol {term.name!r} has no value before the program runs")
        case Sum():
            parts = [_joined("*", (spelled(each), str(factor)), checked) for each, factor in term.terms]
            return _joined("+", (*parts, str(term.constant)), checked)
        case Product():
            return _joined("*", [spelled(each) for each in term.factors], checked)
        case FloorDiv():
            return f"floor_div<int64_t>({spelled(term.dividend)}, {spelled(term.divisor)})"
        case Mod():
            return f"remainder<int64_t>({spelled(term.dividend)}, {spelled(term.divisor)})"
        case Min() | Max():
            name = "minimum" if isinstance(term, Min) else "maximum"
            texts = [spelled(each) for each in term.args]
            return reduce(lambda one, other: f"{name}<int64_t>({one}, {other})", texts)
    raise CodegenError(f"no C++ form for the index term {term}")


def _joined(operator: str, texts: Sequence[str], checked: bool) -> str:
    """Return a sum or product."""
    if not checked:
        return f"({f' {operator} '.join(texts)})"
    name = "checked_sum" if operator == "+" else "checked_product"
    return reduce(lambda one, other: f"{name}({one}, {other}, overflow)", texts)
