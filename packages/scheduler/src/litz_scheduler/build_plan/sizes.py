"""Symbols that no argument defines, solved from the sizes and strides of tensors."""

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
    """The symbols that are ``bound`` to a value so far."""

    def __init__(self, inputs: tuple[Input, ...]) -> None:
        self.bound = {each.symbol or each.name for each in inputs if isinstance(each, ScalarInput)}

    def of(self, value: Value) -> Iterator[DefineStep]:
        """Yield definitions of the symbols that the sizes and strides of an input or call result determine."""
        for dim, term in enumerate(value.type.shape):
            yield from self._solved(term, ("size", value.name, dim))
        for dim, term in enumerate(value.type.layout.strides):
            yield from self._solved(term, ("stride", value.name, dim))

    def _solved(self, term: Size, source: SymbolSource) -> Iterator[DefineStep]:
        """Yield definitions of the single unknown symbol of ``term``, whose value ``source`` is.

        A linear term is solved for the symbol; no other term defines one.
        """
        unknown = [name for name in free_symbols(term) if name not in self.bound]
        if len(unknown) != 1:
            return
        name = unknown[0]
        if isinstance(term, Symbol):
            yield DefineStep(name, source)
        else:
            scale = coefficient(term, name)
            if not isinstance(scale, int) or scale == 0:
                return
            measured = f"{name}_{source[0]}"
            yield DefineStep(measured, source)
            rest = substitute(term, {name: 0})
            yield DefineStep(name, Index(floordiv(add(symbol(measured), mul(rest, -1)), scale)))
        self.bound.add(name)


def symbols_of(value: Value) -> set[str]:
    """Return the symbols in the sizes and strides of a value."""
    terms = (*value.type.shape, *value.type.layout.strides)
    return set[str]().union(*map(free_symbols, terms))
