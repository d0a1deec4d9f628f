"""Lowerings of installed packages, loaded once in a process, before the first compilation."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint
from types import ModuleType

from litz_ir.errors import UnsupportedOperation
from litz_ir.target import extension_entries

GROUP = "litz.lowerings"
"""Group of the entry points of lowerings."""


@functools.cache
def load_installed() -> tuple[UnsupportedOperation, ...]:
    """Load the lowerings of installed packages; return an error for each entry point that failed.

    The operators of a package that failed run as they are, which costs speed alone.
    """
    problems = (_loaded(name, entry) for name, entry in sorted(extension_entries(GROUP).items()))
    return tuple(each for each in problems if each is not None)


def _loaded(name: str, entry: EntryPoint) -> UnsupportedOperation | None:
    """Import the module of an entry point, or call its function; return the error where that fails."""
    try:
        found = entry.load()
        if not isinstance(found, ModuleType):
            found()
    except Exception as error:
        owner = entry.dist.name if entry.dist is not None else entry.value
        return UnsupportedOperation(
            f"the lowerings {name} of {owner} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"mend or uninstall {owner}",
        )
    return None
