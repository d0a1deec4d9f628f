"""Replacement of the symbols and atoms of a term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.polynomials import gather, mul, sum_of
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Atom, Size, Symbol, Term

Memo: TypeAlias = "dict[Term, Size]"


def substitute(x: Size, mapping: Mapping[str, Size], known: Memo | None = None) -> Size:
    """`x` with the symbols in `mapping` replaced simultaneously, simplified again.

    `known` holds terms whose replacement is known already.
    """
    return x if isinstance(x, int) else _substituted(x, mapping, {} if known is None else known)


def map_atoms(x: Term, visit: Callable[[Atom], Size]) -> Size:
    """`x` with every atom replaced by `visit(atom)`, simplified again."""
    atoms = x.atoms()
    return _substituted(x, {}, {atom: visit(atom) for atom in atoms}) if atoms else x


def _substituted(x: Size, mapping: Mapping[str, Size], memo: Memo) -> Size:
    if isinstance(x, int):
        return x
    if type(x) is Symbol:
        return mapping.get(x.name, x)
    done = memo.get(x)
    if done is None:
        touched = any(name in mapping for name in x.free_symbols) or x.atoms()
        done = memo[x] = _rebuilt(x, mapping, memo) if touched else x
    return done


def _rebuilt(x: Term, mapping: Mapping[str, Size], memo: Memo) -> Size:
    """The term made again of its substituted parts."""
    if isinstance(x, Sum):
        gathered: dict[Term, int] = {}
        constant = x.constant
        for term, factor in x.terms:
            constant += gather(gathered, _substituted(term, mapping, memo), factor)
        return sum_of(gathered, constant)
    if isinstance(x, Product):
        return mul(*[_substituted(factor, mapping, memo) for factor in x.factors])
    if isinstance(x, FloorDiv):
        return floordiv(_substituted(x.dividend, mapping, memo), _substituted(x.divisor, mapping, memo))
    if isinstance(x, Mod):
        return mod(_substituted(x.dividend, mapping, memo), _substituted(x.divisor, mapping, memo))
    if isinstance(x, Min):
        return minimum(*[_substituted(arg, mapping, memo) for arg in x.args])
    if isinstance(x, Max):
        return maximum(*[_substituted(arg, mapping, memo) for arg in x.args])
    assert isinstance(x, Atom), "a symbol has no parts"
    return x.substitute_atom(mapping)
