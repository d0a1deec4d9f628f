"""Sets of names by the key of a graph, as files of JSON: matmuls better generated than called, operations demoted."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

from litz.cache.store import Store

log = logging.getLogger(__name__)

MATMULS, DEMOTIONS = "matmuls.json", "demotions.json"


@dataclass(slots=True)
class NameSets:
    """Sets of names by the key of their graph: those of this process and, where there is a ``store``, of those before
    it, in a ``file`` of each entry."""

    store: Store | None = None
    file: str = MATMULS
    known: dict[str, frozenset[str]] = field(default_factory=dict)

    def read(self, key: str) -> frozenset[str] | None:
        """The names of a graph; ``None`` where there are none on record."""
        if key not in self.known and self.store is not None:
            files = self.store.read(key)
            found = None if files is None else _names(key, files.get(self.file, b""))
            if found is not None:
                self.known[key] = found
        return self.known.get(key)

    def write(self, key: str, names: frozenset[str]) -> None:
        """Keep the names of a graph instead of those on record."""
        self.known[key] = names
        if self.store is not None:
            self.store.drop(key)
            self.store.write(key, {self.file: json.dumps(sorted(names)).encode()})

    def add(self, key: str, names: frozenset[str]) -> None:
        """Keep names beside those on record, by now by another process too."""
        self.known.pop(key, None)
        self.write(key, names | (self.read(key) or frozenset()))


def _names(key: str, text: bytes) -> frozenset[str] | None:
    try:
        names = json.loads(text)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("not a list of names")
        return frozenset(names)
    except ValueError as error:
        log.warning("cache entry %s cannot be used and is taken for a miss: %s", key, error)
        return None
