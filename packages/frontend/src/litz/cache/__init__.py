"""The cache: compiled graphs on disk as JSON, sources and binaries, never as pickles.

``litz.cache`` also has the operations on cache folders (``docs/caches.md``). Each is imported when it is first used:

- ``stats()`` returns the lookups and writes of this process, by kind and tier.
- ``entries(folder=None)`` returns the entries of a cache folder.
- ``verify(folder=None)`` reads every entry, and deletes damaged ones.
- ``merge(into, *folders)`` adds the entries of folders to a folder.
- ``export(file, folder=None)`` writes the entries of a folder to one file, ``import_(file, folder=None)`` adds them.
- ``gc(quota="", folder=None)`` deletes the entries used least recently.
- ``clear(folder=None)`` deletes every entry.
- ``why_miss(key="", folder=None)`` returns what differs between a graph's key and that of the nearest entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_ir.deferred import deferred

_LAZY: Mapping[str, str] = MappingProxyType(
    {
        "stats": "litz.cache.counts",
        **dict.fromkeys(
            ("entries", "verify", "merge", "gc", "clear", "why_miss"), "litz.cache_tools.folders"
        ),
        **dict.fromkeys(("export", "import_"), "litz.cache_tools.archive"),
    }
)
"""Modules of the operations."""

__getattr__, __dir__ = deferred(__name__, _LAZY)
