"""Calls of the host's routines: resolution of their arguments, and the error for an unknown routine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from litz_ir.errors import ExternNotFound, SymbolError
from litz_ir.interp.pairs import as_complex
from litz_ir.loops.nodes import Argument, Attributes, ComplexRef, Ref, ScalarRef, StridedRef
from litz_ir.symbols.term import Term, evaluate

Externs = Mapping[str, Callable[..., Any]]
"""Routines by name.

A routine takes a call's arguments in order and its attributes by keyword: buffers as tensors of the memory in use,
sequences as tuples, terms as ints, complex references as complex arrays. ``Keyword``, ``DType`` and ``Device`` are
passed as they are.
"""
Lookup = Callable[[str], Any]
"""A function that returns the value of a name."""
OpenStridedRef = Callable[[StridedRef], Any]
"""A function that returns the tensor of a strided view of a buffer's memory."""


def find_extern(externs: Externs, name: str) -> Callable[..., Any]:
    """The routine called ``name``; raises :class:`ExternNotFound` with similar names."""
    if name in externs:
        return externs[name]
    near = get_close_matches(name, list(externs), n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"the table has {len(externs)} routines, none with a similar name"
    )
    raise ExternNotFound(f"no routine named {name!r}", hint=hint)


def resolve(
    argument: Argument, lookup: Lookup, open_strided: OpenStridedRef, symbols: Mapping[str, Any]
) -> Any:
    """The value that a routine receives for an argument."""
    if isinstance(argument, ComplexRef):
        return as_complex(lookup(argument.name))
    if isinstance(argument, Ref):
        return lookup(argument.name)
    if isinstance(argument, StridedRef):
        return open_strided(argument)
    if isinstance(argument, ScalarRef):
        if argument.name not in symbols:
            raise SymbolError(f"'{argument.name}' has no value")
        return symbols[argument.name]
    if isinstance(argument, Term):
        return evaluate(argument, symbols)
    if isinstance(argument, tuple):
        return tuple(resolve(item, lookup, open_strided, symbols) for item in argument)
    return argument


def call(
    externs: Externs,
    target: str,
    arguments: tuple[Argument, ...],
    attributes: Attributes,
    lookup: Lookup,
    open_strided: OpenStridedRef,
    symbols: Mapping[str, Any],
) -> Any:
    """Call the routine ``target`` with resolved arguments."""
    routine = find_extern(externs, target)
    positional = [resolve(argument, lookup, open_strided, symbols) for argument in arguments]
    named = {name: resolve(value, lookup, open_strided, symbols) for name, value in attributes}
    return routine(*positional, **named)
