"""Which products of a graph were found to be better generated than called, as a file of JSON."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

from litz.cache.store import Store

log = logging.getLogger(__name__)

FILE = "products.json"


@dataclass(slots=True)
class ProductChoices:
    """Products by the key of their graph: those of this process and, where there is a ``store``, of those before it."""

    store: Store | None = None
    known: dict[str, frozenset[str]] = field(default_factory=dict)

    def read(self, key: str) -> frozenset[str] | None:
        """The products of a graph that are generated; ``None`` where nobody has tried."""
        if key not in self.known and self.store is not None:
            files = self.store.read(key)
            found = None if files is None else _names(key, files.get(FILE, b""))
            if found is not None:
                self.known[key] = found
        return self.known.get(key)

    def write(self, key: str, products: frozenset[str]) -> None:
        """Keep what was found."""
        self.known[key] = products
        if self.store is not None:
            self.store.write(key, {FILE: json.dumps(sorted(products)).encode()})


def _names(key: str, text: bytes) -> frozenset[str] | None:
    try:
        names = json.loads(text)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("not a list of names")
        return frozenset(names)
    except ValueError as error:
        log.warning("cache entry %s cannot be used and is taken for a miss: %s", key, error)
        return None
