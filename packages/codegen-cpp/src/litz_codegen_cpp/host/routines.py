"""The routines that host programs call, by the names that plans have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from litz_ir.loops import TensorType
from litz_ir.plan import CallStep, Plan
from litz_ir.symbols import Size


class CallSite(Protocol):
    """The host program around a call."""

    def term(self, size: Size) -> str:
        """Return an index term as C++."""

    def type(self, name: str) -> TensorType:
        """Return the type of a buffer or input."""

    def data(self, name: str) -> str:
        """Return the first element of a buffer, as a ``char*``."""

    def packed(self, name: str, form: str, nbytes: str, fill: Callable[[str], str]) -> str | None:
        """Return the pointer to the packed form of a buffer, which ``fill(pointer)`` writes once, when the model is
        opened; ``None`` for a buffer that is no constant."""


@dataclass(frozen=True, slots=True)
class Routine:
    """A row of the table: which calls the library runs, and their text."""

    refuses: Callable[[Plan, CallStep], str]
    """Returns the reason against a call; empty for one that the library runs."""
    emit: Callable[[CallSite, CallStep], tuple[list[str], str | None]]
    """Returns the lines of a call, and the bytes of scratch that it takes, as C++."""
    result_bytes: Callable[[Plan, CallStep], str] | None = None
    """Returns the bytes of a result that only routines read, as C++; ``None`` where results have their type's."""


ROUTINES: Mapping[str, Routine] = MappingProxyType({})
"""The table."""
