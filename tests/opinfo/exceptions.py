"""The one table of exceptions, each with its reason.

Only two kinds may stand here: operators whose values nothing defines (their kind is still compared), and what
fails in the same way without litz, under `backend="aot_eager"`, where the run cannot find that out by itself.
"""

from __future__ import annotations

from types import MappingProxyType

UNDEFINED_VALUES = MappingProxyType(
    {
        "empty": "memory as it was found",
        "empty_like": "memory as it was found",
        "empty_permuted": "memory as it was found",
        "empty_strided": "memory as it was found",
        "new_empty": "memory as it was found",
        "new_empty_strided": "memory as it was found",
    }
)
"""Entries whose results are uninitialised memory."""

ENDS_PROCESS = frozenset({"_segment_reduce.offsets"})
"""Entries whose eager kernel ends the process where arguments have no elements."""
