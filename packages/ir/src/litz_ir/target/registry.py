"""Targets are found by entry point; two with one name are refused."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from litz_ir.errors import TargetError
from litz_ir.target.protocol import Target

GROUP = "litz.targets"


def target_entries() -> dict[str, EntryPoint]:
    """Installed targets by name; raises :class:`TargetError` naming both owners when two share a name."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            owners = " and ".join(_owner(e) for e in (other, entry))
            raise TargetError(f"two targets are named {entry.name!r}: {owners}", hint="uninstall one of them")
        found[entry.name] = entry
    return found


def load_target(name: str, options: Mapping[str, object] | None = None) -> Target:
    """The target of that name; raises :class:`TargetError` when it is not installed or is no target.

    ``options`` go to its constructor by keyword, as far as that has a parameter of the name.
    """
    return made_target(find_target(name), options)


def find_target(name: str) -> EntryPoint:
    """Where the target of that name is; raises :class:`TargetError` when it is not installed.

    Every installed package is asked, which takes some milliseconds.
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
    """A target from where it was found, as :func:`load_target` makes it."""
    factory = entry.load()
    accepted = inspect.signature(factory).parameters
    target = factory(**{key: value for key, value in (options or {}).items() if key in accepted})
    if not isinstance(target, Target):
        raise TargetError(
            f"{_owner(entry)} offers {entry.value}, which is no Target", hint="see litz_ir.target.protocol"
        )
    return target


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
