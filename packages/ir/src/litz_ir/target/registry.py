"""Discovery of targets by entry point; two targets with one name are an error."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from litz_ir.errors import TargetError
from litz_ir.target.protocol import Target, missing_members

_GROUP = "litz.targets"
"""Group of the entry points."""


def target_entries() -> dict[str, EntryPoint]:
    """Installed targets by name; raises :class:`TargetError` with both owners if two have one name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=_GROUP):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            owners = " and ".join(_owner(e) for e in (other, entry))
            raise TargetError(f"two targets are named {entry.name!r}: {owners}", hint="uninstall one of them")
        found[entry.name] = entry
    return found


def load_target(name: str, options: Mapping[str, object] | None = None) -> Target:
    """The target called ``name``; raises :class:`TargetError` if it is not installed or not a target.

    ``options`` are passed to its constructor by keyword, as far as it has such parameters.
    """
    return made_target(find_target(name), options)


def find_target(name: str) -> EntryPoint:
    """The entry point of the target called ``name``; raises :class:`TargetError` if it is not installed.

    All installed packages are searched, which takes some milliseconds.
    """
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
