"""Counts of a judge over some inputs: as the C struct, as data, and summed."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

COUNTS = ("inputs", "above_1", "above_2", "wrong_nan", "wrong_inf", "wrong_zero")


class TallyStruct(ctypes.Structure):
    """``struct tally`` of ``reference.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in COUNTS),
        ("worst", ctypes.c_double),
        ("worst_at", ctypes.c_double * 2),
        ("special_at", ctypes.c_double * 2),
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of ``inputs`` whose results differ by more than 1 and 2 units in the last place from the exact ones.

    ``worst`` is the largest distance, found at ``worst_at``, two numbers in C's hexadecimal form (equal where the
    function takes one argument). ``wrong_nan``, ``wrong_inf`` and ``wrong_zero`` count results of which one alone is
    NaN, or infinite, and zeros of the other sign; ``special_at`` is the first of them, if any.
    """

    inputs: int = 0
    above_1: int = 0
    above_2: int = 0
    wrong_nan: int = 0
    wrong_inf: int = 0
    wrong_zero: int = 0
    worst: float = 0.0
    worst_at: tuple[str, ...] = ()
    special_at: tuple[str, ...] = ()

    @property
    def specials(self) -> int:
        """Wrong NaNs, infinities and zeros in all."""
        return self.wrong_nan + self.wrong_inf + self.wrong_zero

    @staticmethod
    def of(struct: TallyStruct) -> Tally:
        """Return the struct as data."""
        counts = {name: getattr(struct, name) for name in COUNTS}
        worst_at = tuple(float(x).hex() for x in struct.worst_at) if struct.worst else ()
        found = Tally(**counts, worst=struct.worst, worst_at=worst_at)
        if not found.specials:
            return found
        return replace(found, special_at=tuple(float(x).hex() for x in struct.special_at))

    @staticmethod
    def read(row: dict[str, Any]) -> Tally:
        """The inverse of ``dataclasses.asdict`` after JSON, which knows no tuples."""
        positions = {name: tuple(row[name]) for name in ("worst_at", "special_at")}
        return Tally(**{**row, **positions})


def added(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    total = Tally()
    for each in tallies:
        worse = each if each.worst > total.worst else total
        counts = {name: getattr(total, name) + getattr(each, name) for name in COUNTS}
        special_at = total.special_at or each.special_at
        total = Tally(**counts, worst=worse.worst, worst_at=worse.worst_at, special_at=special_at)
    return total
