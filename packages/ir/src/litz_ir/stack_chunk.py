"""Long work that begins deep in a program, in a chunk of the interpreter's stack of its own.

CPython keeps frames in chunks of 16 KB, of about 100 frames. It maps a chunk when a call needs one, and unmaps it when
that call returns: where a chunk ends among the frames of a hot loop, every call costs two system calls and a page
fault. A compilation begins some hundred frames deep, and took 2 to 4 times as long where it met such an end.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar, cast

T = TypeVar("T")

_WORDS = 40_000
"""Size of the frame that is called first, in words: the chunk that it needs is larger by 200 KB, of 1,000 frames."""


def _call(work: Callable[[], T]) -> T:
    return work()


_CALL = cast(
    Callable[[Callable[[], T]], T], FunctionType(_call.__code__.replace(co_stacksize=_WORDS), globals())
)


def in_own_chunk(work: Callable[[], T]) -> T:
    """Call a function in a chunk of the interpreter's stack that fits what it calls; return its result."""
    return _CALL(work)
