"""Symbols that no argument binds, read off the sizes and strides of values from outside."""

from __future__ import annotations

from collections.abc import Iterator

from litz_ir.loops import Input, ScalarInput, Value
from litz_ir.plan import DefineStep, SymbolSource
from litz_ir.scalar import Index
from litz_ir.symbols import (
    Size,
    Symbol,
    add,
    coefficient,
    floordiv,
    free_symbols,
    mul,
    substitute,
    symbol,
)


class Sizes:
    """The symbols that are ``bound`` so far."""

    def __init__(self, inputs: tuple[Input, ...]) -> None:
        self.bound = {each.symbol or each.name for each in inputs if isinstance(each, ScalarInput)}

    def of(self, value: Value) -> Iterator[DefineStep]:
        """Definitions of the symbols that the sizes and strides of ``value``, which came from outside, settle."""
        for dim, term in enumerate(value.type.shape):
            yield from self._settled(term, ("size", value.name, dim))
        for dim, term in enumerate(value.type.layout.strides):
            yield from self._settled(term, ("stride", value.name, dim))

    def _settled(self, term: Size, source: SymbolSource) -> Iterator[DefineStep]:
        """Definitions of the one unknown of ``term``, which is what ``source`` measures; a linear term is solved for
        it."""
        unknown = [name for name in free_symbols(term) if name not in self.bound]
        if len(unknown) != 1:
            return
        name = unknown[0]
        if isinstance(term, Symbol):
            yield DefineStep(name, source)
        else:
            slope = coefficient(term, name)
            if not isinstance(slope, int) or slope == 0:
                return
            measured = f"{name}_{source[0]}"
            yield DefineStep(measured, source)
            rest = substitute(term, {name: 0})
            yield DefineStep(name, Index(floordiv(add(symbol(measured), mul(rest, -1)), slope)))
        self.bound.add(name)


def symbols_of(value: Value) -> set[str]:
    """The symbols in a value's sizes and strides."""
    terms = (*value.type.shape, *value.type.layout.strides)
    return set[str]().union(*map(free_symbols, terms))
