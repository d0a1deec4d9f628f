"""Schedules found by autotuning, as JSON files."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from litz.artifact import TunedTiles
from litz.cache.store import Entries
from litz_ir.errors import ParseError

log = logging.getLogger(__name__)

FILE = "choice.json"
"""Name of the file of an entry."""

_TEXT = "litz_ir.text"
"""Module of the text form; imported where a choice is read or written, since other programs do not need it."""

_VERSION = 5
"""Version of the stored data; entries of another version are not read."""


@dataclass(slots=True)
class TileChoices:
    """Tuned schedules by key: those of this process and, where there is a ``store``, of earlier ones."""

    store: Entries | None = None
    """Folder of the entries; ``None`` to keep them in memory alone."""

    known: dict[str, TunedTiles] = field(default_factory=dict)
    """Choices read or written so far, by key."""

    def read(self, key: str) -> TunedTiles | None:
        """Return the choice of a key, or ``None``."""
        if key not in self.known and self.store is not None:
            files = self.store.read(key)
            found = None if files is None else _choice(key, files.get(FILE, b""))
            if found is not None:
                self.known[key] = found
        return self.known.get(key)

    def write(self, key: str, choice: TunedTiles) -> None:
        """Store a choice; where another process stored one meanwhile, that is the one that later processes read."""
        self.known[key] = choice
        if self.store is not None:
            self.store.write(key, {FILE: json.dumps(_data(choice), sort_keys=True).encode()})


def _data(choice: TunedTiles) -> dict[str, Any]:
    """Return a choice as JSON data."""
    print_schedule = import_module(_TEXT).print_schedule
    return {
        "version": _VERSION,
        "schedules": list(map(print_schedule, choice.schedules)),
        "seconds": choice.seconds,
        "before": choice.before,
        "first": list(map(print_schedule, choice.first)),
    }


def _choice(key: str, text: bytes) -> TunedTiles | None:
    """Return the choice in a file, or ``None`` where it cannot be read."""
    try:
        parse_schedule, data = import_module(_TEXT).parse_schedule, json.loads(text)
        if data["version"] != _VERSION:
            return None
        schedules, first = (tuple(map(parse_schedule, data[each])) for each in ("schedules", "first"))
        return TunedTiles(schedules, float(data["seconds"]), float(data["before"]), first)
    except (KeyError, TypeError, ValueError, ParseError) as error:
        log.warning("cache entry %s cannot be used and counts as a cache miss: %s", key, error)
        return None
