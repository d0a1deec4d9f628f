"""The outcome of a case, as data and as JSON lines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.cases import LIBRARIES, Case
from zoo.execution import MODES

PASSED, ELSEWHERE = "pass", "differs without litz"
GOOD = (PASSED, ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one mode of a case, and what litz made for it.

    `verdict` is `pass`; `differs without litz` (in the same way under `aot_eager`); `wrong`; `raises`; `fell back`
    (right, because litz failed and left a graph or an operation to ATen); `crash`; `timeout`. `fallbacks` counts the
    operations that ran as their ATen routine by reason, `seconds` is the first call's time. Where the reference was
    single precision, `single` says in what double precision took another way; where gradients are right only with the
    signs of ReLUs fixed, `free_signs` says in what they differ with signs free.
    """

    verdict: str
    reason: str = ""
    graphs: int = 0
    kernels: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    single: str = ""
    free_signs: str = ""


@dataclass(slots=True)
class Row:
    """A case: its model's name, and an outcome for each mode, or the error with which eager refuses it."""

    case: Case
    title: str = ""
    parameters: int = 0
    eager_error: str = ""
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def passed(self) -> bool:
        """Report that litz is at fault in no mode."""
        return all(outcome.verdict in GOOD for outcome in self.outcomes.values())

    def receive(self, message: tuple[Any, ...]) -> None:
        """Note `("built", title, parameters)`, `(mode, outcome)` or `("eager", error)`."""
        if message[0] == "eager":
            self.eager_error = message[1]
        elif message[0] == "built":
            self.title, self.parameters = message[1:]
        else:
            self.outcomes[message[0]] = message[1]

    def lost(self, verdict: str, reason: str) -> None:
        """Give the verdict to the running mode; before the first the failure is eager's."""
        if not self.title:
            self.eager_error = f"{verdict}: {reason}"
            return
        mode = next(mode for mode in MODES if mode not in self.outcomes)
        self.outcomes[mode] = Outcome(verdict, reason)

    def to_line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @staticmethod
    def from_line(line: str) -> Row:
        """Read what :meth:`to_line` wrote."""
        data: dict[str, Any] = json.loads(line)
        data["case"] = Case(**data["case"])
        data["outcomes"] = {mode: Outcome(**outcome) for mode, outcome in data["outcomes"].items()}
        return Row(**data)


def read(path: Path) -> dict[Case, Row]:
    """Read a file of rows; of several for a case the last one holds."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row.case: row for row in map(Row.from_line, lines)}


def ordered(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows by library and name."""
    yield from sorted(rows, key=lambda row: (LIBRARIES.index(row.case.library), row.case.name.lower()))
