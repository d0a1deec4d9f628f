"""The library functions by name, and the text of those that a kernel needs.

The library has operations that Triton lacks, for both forms of a kernel, and replacements for libdevice and for
conversions that Triton's interpreter gets wrong, for the interpreted form alone. The latter compute in ``float64`` and
round once: the interpreter serves correctness, not speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from litz_codegen_triton.emit.library import (
    approximate,
    arithmetic,
    bits,
    cluster,
    combine,
    lookback,
    narrow_floats,
    order,
    portable_angles,
    portable_exponentials,
    portable_special,
    random,
    recurrences,
    special,
)


def _split(*texts: str) -> dict[str, str]:
    functions: dict[str, str] = {}
    for text in texts:
        for part in text.strip().split("\n\n\n"):
            functions[part.split("def ", 1)[1].split("(", 1)[0]] = part
    return functions


FUNCTIONS: Mapping[str, str] = MappingProxyType(
    _split(
        combine.SOURCE,
        arithmetic.SOURCE,
        bits.SOURCE,
        approximate.SOURCE,
        special.SOURCE,
        recurrences.SOURCE,
        random.SOURCE,
        narrow_floats.SOURCE,
        portable_exponentials.SOURCE,
        portable_angles.SOURCE,
        portable_special.SOURCE,
        cluster.SOURCE,
        lookback.SOURCE,
        order.SOURCE,
    )
)
"""The source of each function by name, its ``@triton.jit`` included."""

COMPILED_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "litz_fmod": "@triton.jit\ndef litz_fmod(x, y):\n    return libdevice.fmod(x, y)",
        **arithmetic.COMPILED,
        **approximate.COMPILED,
        **order.COMPILED,
    }
)
"""Sources of the compiled form that replace the function of the same name in ``FUNCTIONS``."""

_CALL = re.compile(r"\blitz_\w+")


def called(text: str) -> tuple[str, ...]:
    """Return the names of the library functions that ``text`` calls, each once, in order of appearance."""
    return tuple(dict.fromkeys(name for name in _CALL.findall(text) if name in FUNCTIONS))


def library_source(names: Iterable[str], *, compiled: bool) -> tuple[str, ...]:
    """Return the sources of functions and of all that they call, callees first, in an order set by ``names`` alone."""
    done: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in done:
            return
        text = COMPILED_FUNCTIONS.get(name, FUNCTIONS[name]) if compiled else FUNCTIONS[name]
        for other in called(text):
            if other != name:
                visit(other)
        done[name] = text

    for name in sorted(names):
        visit(name)
    return tuple(done.values())
