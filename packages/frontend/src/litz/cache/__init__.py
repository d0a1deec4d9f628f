"""The cache: compiled graphs on disk as JSON, sources and binaries, never as pickles.

``litz.cache`` also has the operations on cache folders (``docs/caches.md``): ``stats``, ``entries``, ``verify``,
``merge``, ``export``, ``import_``, ``gc``, ``clear`` and ``why_miss``. Each is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

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


def __getattr__(name: str) -> Any:
    """Import an operation from the module that defines it."""
    if name not in _LAZY:
        raise AttributeError(f"module 'litz.cache' has no attribute {name!r}; it has {', '.join(_LAZY)}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """List the names of the module, those that are not imported yet included."""
    return sorted({*globals(), *_LAZY})
