"""The passes of one compilation: of its options and of installed packages, and their identity."""

from __future__ import annotations

import functools
import logging
from dataclasses import fields
from importlib.metadata import EntryPoint

from litz.notices import log_once
from litz.passes import LOOP_STAGES, NO_PASSES, Passes, pass_name
from litz_ir.errors import ConfigError, LitzError, UserPassError
from litz_ir.target import extension_entries

GROUP = "litz.passes"
"""Group of the entry points of passes."""

STAGES = tuple(each.name for each in fields(Passes))
"""Names of the stages."""


def passes_in_force(given: Passes, disabled: str) -> Passes:
    """Return the ``given`` passes after those of installed packages, without the ``disabled`` ones.

    ``disabled`` holds names with spaces or commas between them; a name that no pass has is logged. Raises
    :class:`~litz_ir.errors.ConfigError` for an entry point that is no pass, for one that cannot be loaded, and for two
    passes over loop graphs and plans with one name.
    """
    installed = installed_passes()
    if installed is None and not given and not disabled:
        return NO_PASSES
    names = frozenset(disabled.replace(",", " ").split())
    found = (installed or NO_PASSES) + given
    unknown = names.difference(pass_name(item) for _, item in found.by_stage())
    for name in sorted(unknown):
        log_once(f"litz: disable_passes names {name}, but no pass is called so", logging.INFO)
    kept = {
        stage: tuple(item for item in getattr(found, stage) if pass_name(item) not in names)
        for stage in STAGES
    }
    twice = [item.name for stage in LOOP_STAGES for item in kept[stage]]
    for name in twice:
        if twice.count(name) > 1:
            raise ConfigError(f"two passes are called {name!r}", hint="give one of them another name")
    return Passes(**kept)


@functools.cache
def installed_passes() -> Passes | None:
    """Return the passes of installed packages, ``None`` where there are none; they do not change in a process."""
    found: Passes | None = None
    for name, entry in sorted(extension_entries(GROUP).items()):
        found = (found or NO_PASSES) + _loaded(name, entry)
    return found


def _loaded(name: str, entry: EntryPoint) -> Passes:
    """Return the pass of an entry point; raise ``ConfigError`` where there is none."""
    owner = entry.dist.name if entry.dist is not None else entry.value
    try:
        item = entry.load()
    except Exception as error:
        raise ConfigError(
            f"the pass {name} of {owner} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"mend or uninstall {owner}",
        ) from error
    item = item() if isinstance(item, type) else item
    stage = getattr(item, "stage", None)
    if stage not in STAGES:
        raise ConfigError(
            f"the pass {name} of {owner} has the stage {stage!r:.60}", hint=f"stages are {', '.join(STAGES)}"
        )
    if not isinstance(getattr(item, "name", None), str) or not callable(getattr(item, "uuid", None)):
        raise ConfigError(f"the pass {name} of {owner} has no name or no uuid()", hint="see litz.passes")
    return Passes(**{str(stage): (item,)})


def pass_facts(passes: Passes) -> tuple[tuple[str, ...], str]:
    """Return the passes with their identifiers as facts for cache keys, or the reason that one has none.

    Raises :class:`~litz_ir.errors.UserPassError` where ``uuid`` of a pass raises.
    """
    facts = []
    for position, (stage, item) in enumerate(passes.by_stage()):
        name = pass_name(item)
        uuid = getattr(item, "uuid", None)
        if uuid is None:
            return (), f"the pass {name} of the stage {stage} has no uuid()"
        try:
            given = uuid()
        except LitzError:
            raise
        except Exception as error:
            raise UserPassError(
                f"uuid() of the pass {name} failed: {type(error).__name__}: {error}", hint="mend the pass"
            ) from error
        if given is None:
            return (), f"uuid() of the pass {name} of the stage {stage} is None"
        text = _spelled(given)
        if text is None:
            why = f"is a {type(given).__name__}, which other processes cannot compare"
            return (), f"uuid() of the pass {name} of the stage {stage} {why}"
        before = getattr(item, "before", "") if stage in LOOP_STAGES else ""
        facts.append(f"pass {position} {stage} {name} {before} {text}")
    return tuple(facts), ""


def _spelled(value: object) -> str | None:
    """Return an identifier as text that is equal in every process, ``None`` for values without one."""
    if isinstance(value, str | bytes | bool | int | float):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, tuple | list):
        parts = [_spelled(each) for each in value]
        return None if None in parts else f"({','.join(filter(None, parts))})"
    return None
