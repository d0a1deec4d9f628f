"""What tuning found for a kernel, as a file of JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from litz.artifact import TileChoice
from litz.cache.store import Store
from litz_ir.plan import Schedule

log = logging.getLogger(__name__)

FILE = "choice.json"

VERSION = 3
"""Raised when the meaning of what is stored changes: entries of another version are not read."""


@dataclass(slots=True)
class TileChoices:
    """Choices by key: those of this process and, where there is a ``store``, of those before it."""

    store: Store | None = None
    known: dict[str, TileChoice] = field(default_factory=dict)

    def read(self, key: str) -> TileChoice | None:
        """The choice of a key, or ``None``."""
        if key not in self.known and self.store is not None:
            files = self.store.read(key)
            found = None if files is None else _choice(key, files.get(FILE, b""))
            if found is not None:
                self.known[key] = found
        return self.known.get(key)

    def write(self, key: str, choice: TileChoice) -> None:
        """Keep a choice; one that another process kept meanwhile stands for later ones."""
        self.known[key] = choice
        if self.store is not None:
            self.store.write(key, {FILE: json.dumps(_data(choice), sort_keys=True).encode()})


def _data(choice: TileChoice) -> dict[str, Any]:
    return {
        "version": VERSION,
        "schedules": [asdict(each) for each in choice.schedules],
        "seconds": choice.seconds,
        "before": choice.before,
    }


def _choice(key: str, text: bytes) -> TileChoice | None:
    try:
        data = json.loads(text)
        if data["version"] != VERSION:
            return None
        schedules = tuple(map(_schedule, data["schedules"]))
        return TileChoice(schedules, float(data["seconds"]), float(data["before"]))
    except (KeyError, TypeError, ValueError) as error:
        log.warning("cache entry %s cannot be used and is taken for a miss: %s", key, error)
        return None


def _schedule(given: Mapping[str, Any]) -> Schedule:
    return Schedule(
        parallel=tuple(map(str, given["parallel"])),
        vector=None if given["vector"] is None else str(given["vector"]),
        lanes=int(given["lanes"]),
        unroll=int(given["unroll"]),
        grain=int(given["grain"]),
        blocks=tuple((str(axis), int(block)) for axis, block in given["blocks"]),
        persistent=bool(given["persistent"]),
        warps=int(given["warps"]),
        stages=int(given["stages"]),
        shared=int(given["shared"]),
        relay=int(given["relay"]),
        programs=int(given["programs"]),
        descriptors=bool(given["descriptors"]),
    )
