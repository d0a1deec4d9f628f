"""Sets of names by graph key, as JSON files: matmuls that are faster generated, and demoted operations."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

from litz.cache.store import Entries

log = logging.getLogger(__name__)

MATMULS, DEMOTIONS = "matmuls.json", "demotions.json"


@dataclass(slots=True)
class NameSets:
    """Sets of names by graph key: those of this process and, where there is a ``store``, of earlier ones."""

    store: Entries | None = None
    """Folder of the entries; ``None`` to keep them in memory alone."""

    file: str = MATMULS
    """Name of the file of an entry."""

    known: dict[str, frozenset[str]] = field(default_factory=dict)
    """Sets read or written so far, by key."""

    def read(self, key: str) -> frozenset[str] | None:
        """Return the names of a graph; ``None`` where none are stored."""
        if key not in self.known and self.store is not None:
            files = self.store.read(key)
            found = None if files is None else _names(key, files.get(self.file, b""))
            if found is not None:
                self.known[key] = found
        return self.known.get(key)

    def write(self, key: str, names: frozenset[str]) -> None:
        """Replace the stored names of a graph."""
        self.known[key] = names
        if self.store is not None:
            self.store.drop(key)
            self.store.write(key, {self.file: json.dumps(sorted(names)).encode()})

    def add(self, key: str, names: frozenset[str]) -> None:
        """Add names to those stored, which another process may have changed."""
        self.known.pop(key, None)
        self.write(key, names | (self.read(key) or frozenset()))


def _names(key: str, text: bytes) -> frozenset[str] | None:
    """Return the names in a file, or ``None`` where it cannot be read."""
    try:
        names = json.loads(text)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("not a list of names")
        return frozenset(names)
    except ValueError as error:
        log.warning("cache entry %s cannot be used and counts as a cache miss: %s", key, error)
        return None
