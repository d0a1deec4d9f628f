"""Discovery of targets, and of other extensions, by entry point; two with one name are an error."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from litz_ir.errors import TargetError
from litz_ir.target.protocol import Target, missing_members

_GROUP = "litz.targets"
"""Group of the entry points."""


def target_entries() -> dict[str, EntryPoint]:
    """Installed targets by name; raises :class:`TargetError` with both owners if two have one name."""
    return extension_entries(_GROUP)


def extension_entries(group: str) -> dict[str, EntryPoint]:
    """Installed entry points of a group by name; raises :class:`TargetError` with both owners if two have one name.

    All installed packages are searched once, which takes some milliseconds, for all groups; and again where the path
    of imports has changed.
    """
    found: dict[str, EntryPoint] = {}
    installed: EntryPoints = _installed(tuple(sys.path)).select(group=group)
    for entry in installed:
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            owners = " and ".join(_owner(e) for e in (other, entry))
            raise TargetError(
                f"two entry points of {group} are named {entry.name!r}: {owners}",
                hint="uninstall one of them",
            )
        found[entry.name] = entry
    return found


@functools.lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> Any:
    """The entry points of all packages on this path of imports; their type differs between Python 3.11 and 3.12."""
    return entry_points()


def load_target(name: str, options: Mapping[str, object] | None = None) -> Target:
    """The target called ``name``; raises :class:`TargetError` if it is not installed or not a target.

    ``options`` are passed to its constructor by keyword, as far as it has such parameters.
    """
    return made_target(find_target(name), options)


def find_target(name: str) -> EntryPoint:
    """The entry point of the target called ``name``; raises :class:`TargetError` if it is not installed."""
    entries = target_entries()
    entry = entries.get(name)
    if entry is None:
        known = ", ".join(sorted(entries)) or "none"
        raise TargetError(
            f"no target named {name!r} is installed", hint=f"installed: {known}; pip install its package"
        )
    return entry


def made_target(entry: EntryPoint, options: Mapping[str, object] | None = None) -> Target:
    """A target of an entry point, as :func:`load_target` makes it."""
    factory = entry.load()
    accepted = inspect.signature(factory).parameters
    target = factory(**{key: value for key, value in (options or {}).items() if key in accepted})
    lacks = missing_members(target)
    if lacks or not isinstance(target, Target):
        raise TargetError(
            f"{_owner(entry)} offers {entry.value}, which is not a Target: it lacks {', '.join(lacks)}",
            hint="see litz_ir.target.Target",
        )
    return target


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
