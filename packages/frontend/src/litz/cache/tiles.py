"""What tuning found for a kernel, as a file of JSON."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from litz.artifact import TunedTiles
from litz.cache.store import Store
from litz_ir.errors import ParseError

log = logging.getLogger(__name__)

FILE = "choice.json"

TEXT = "litz_ir.text"
"""The module of the text form, loaded where a choice is kept or found: programs that tune nothing do not need it."""

VERSION = 4
"""Raised when the meaning of what is stored changes: entries of another version are not read."""


@dataclass(slots=True)
class TileChoices:
    """Choices by key: those of this process and, where there is a ``store``, of those before it."""

    store: Store | None = None
    known: dict[str, TunedTiles] = field(default_factory=dict)

    def read(self, key: str) -> TunedTiles | None:
        """The choice of a key, or ``None``."""
        if key not in self.known and self.store is not None:
            files = self.store.read(key)
            found = None if files is None else _choice(key, files.get(FILE, b""))
            if found is not None:
                self.known[key] = found
        return self.known.get(key)

    def write(self, key: str, choice: TunedTiles) -> None:
        """Keep a choice; one that another process kept meanwhile stands for later ones."""
        self.known[key] = choice
        if self.store is not None:
            self.store.write(key, {FILE: json.dumps(_data(choice), sort_keys=True).encode()})


def _data(choice: TunedTiles) -> dict[str, Any]:
    print_schedule = import_module(TEXT).print_schedule
    return {
        "version": VERSION,
        "schedules": list(map(print_schedule, choice.schedules)),
        "seconds": choice.seconds,
        "before": choice.before,
        "first": list(map(print_schedule, choice.first)),
    }


def _choice(key: str, text: bytes) -> TunedTiles | None:
    try:
        parse_schedule, data = import_module(TEXT).parse_schedule, json.loads(text)
        if data["version"] != VERSION:
            return None
        schedules, first = (tuple(map(parse_schedule, data[each])) for each in ("schedules", "first"))
        return TunedTiles(schedules, float(data["seconds"]), float(data["before"]), first)
    except (KeyError, TypeError, ValueError, ParseError) as error:
        log.warning("cache entry %s cannot be used and is taken for a miss: %s", key, error)
        return None
