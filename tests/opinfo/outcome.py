"""Outcomes of a sample and of a unit, as data and as JSON lines."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from opinfo.entries import Unit

PASSED, IN_PARTS, EXCEPTED = "pass", "in parts", "exception"
GOOD = (PASSED, IN_PARTS, EXCEPTED)
Place = tuple[str, int]
"""A sample of a unit: its mode and index."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one sample.

    `verdict` is `pass`; `in parts` (right, but no backend can have it as one graph); `exception` (fails without litz
    too); `fell back` (right, because litz failed and left it to ATen); `crash`; `timeout`; or the kind of the
    mismatch. `how` says who computed it: `generated`, `aten`, `both`, or `none` for views and constants; `calls`
    names the routines called.
    """

    mode: str
    index: int
    verdict: str
    reason: str = ""
    sample: str = ""
    how: str = ""
    calls: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def place(self) -> Place:
        """Return the mode and the index of the sample."""
        return self.mode, self.index


@dataclass(slots=True)
class UnitResult:
    """All outcomes of a unit; `limits` are those it ran under, so that a run with others runs it again."""

    unit: Unit
    limits: dict[str, int | None]
    outcomes: dict[Place, Outcome] = field(default_factory=dict)

    def to_line(self) -> str:
        """Return one line of JSON; empty fields are left out."""
        rows = [
            {key: value for key, value in dataclasses.asdict(outcome).items() if key == "index" or value}
            for outcome in self.outcomes.values()
        ]
        data = {**dataclasses.asdict(self.unit), "limits": self.limits, "outcomes": rows}
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def from_line(line: str) -> UnitResult:
        """Read what :meth:`to_line` wrote."""
        data: dict[str, Any] = json.loads(line)
        result = UnitResult(Unit(data["entry"], data["dtype"], data["device"]), data["limits"])
        for row in data["outcomes"]:
            outcome = Outcome(**row | {"calls": tuple(row.get("calls", ()))})
            result.outcomes[outcome.place] = outcome
        return result
