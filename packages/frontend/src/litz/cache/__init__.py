"""The cache: compiled graphs on disk as JSON, sources and binaries, never as pickles.

``litz.cache`` also has the operations on cache folders (``docs/caches.md``): ``stats``, ``entries``, ``verify``,
``merge``, ``export``, ``import_``, ``gc``, ``clear`` and ``why_miss``. Each is imported when it is first used.
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
