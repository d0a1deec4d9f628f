"""Calls of the host's routines: what their arguments become, and what is said when one is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from litz_ir.errors import ExternNotFound, SymbolError
from litz_ir.interp.pairs import as_complex
from litz_ir.loops.nodes import Argument, Attributes, ComplexRef, Ref, ScalarRef, StridedRef
from litz_ir.symbols.term import Term, evaluate

Externs = Mapping[str, Callable[..., Any]]
"""Routines by name. They take a call's arguments in order and its attributes by keyword: tensors are what the memory at
hand makes of them, sequences are tuples, terms are ints, pairs that
are passed as complex tensors are complex arrays; ``Keyword``, ``DType`` and ``Device`` are passed as such."""
Lookup = Callable[[str], Any]
"""Gives the value of a name."""
OpenStridedRef = Callable[[StridedRef], Any]
"""Gives the tensor over part of a value's memory."""


def find_extern(externs: Externs, name: str) -> Callable[..., Any]:
    """The routine of that name; raises :class:`ExternNotFound` naming near matches."""
    if name in externs:
        return externs[name]
    near = get_close_matches(name, list(externs), n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"the table holds {len(externs)} routines, none like it"
    )
    raise ExternNotFound(f"no routine named {name!r}", hint=hint)


def resolve(
    argument: Argument, lookup: Lookup, open_window: OpenStridedRef, symbols: Mapping[str, Any]
) -> Any:
    """What a routine receives for an argument."""
    if isinstance(argument, ComplexRef):
        return as_complex(lookup(argument.name))
    if isinstance(argument, Ref):
        return lookup(argument.name)
    if isinstance(argument, StridedRef):
        return open_window(argument)
    if isinstance(argument, ScalarRef):
        if argument.name not in symbols:
            raise SymbolError(f"'{argument.name}' is bound nowhere")
        return symbols[argument.name]
    if isinstance(argument, Term):
        return evaluate(argument, symbols)
    if isinstance(argument, tuple):
        return tuple(resolve(item, lookup, open_window, symbols) for item in argument)
    return argument


def call(
    externs: Externs,
    target: str,
    arguments: tuple[Argument, ...],
    attributes: Attributes,
    lookup: Lookup,
    open_window: OpenStridedRef,
    symbols: Mapping[str, Any],
) -> Any:
    """Call the routine ``target``."""
    routine = find_extern(externs, target)
    positional = [resolve(argument, lookup, open_window, symbols) for argument in arguments]
    named = {name: resolve(value, lookup, open_window, symbols) for name, value in attributes}
    return routine(*positional, **named)
