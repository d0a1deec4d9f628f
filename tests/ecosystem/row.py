"""The outcome of a case, as data and as JSON lines."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecosystem.catalogue import Case

LITZ, PLAIN, PEER = "litz", "aot_eager", "inductor"
PASSED, ELSEWHERE = "pass", "differs without litz"
GOOD = (PASSED, ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a program under one backend, and what was compiled for it.

    `verdict` is `pass`, `differs without litz` (of litz, in the same way under `aot_eager`), `wrong`, `raises`,
    `fell back` (right, because litz failed and ran a graph or an operation as ATen), `crash` or `timeout`. `graphs`,
    `breaks` and `recompiles` are Dynamo's counts. `fallbacks` counts the operations that litz ran as their ATen routine
    by target and reason. `first` is the time of the first step, `call` the shortest one of a later call, in seconds.
    """

    verdict: str
    reason: str = ""
    graphs: int = 0
    breaks: int = 0
    recompiles: int = 0
    kernels: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    first: float = 0.0
    call: float = 0.0


@dataclass(slots=True)
class Row:
    """A case with the version of its library, and an outcome for each backend, or the error that eager raises.

    `call` is the time of a call in eager, in seconds. Where the reference is not in double precision, `single` says in
    what double precision is another computation.
    """

    case: Case
    version: str = ""
    eager_error: str = ""
    single: str = ""
    call: float = 0.0
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    running: str = ""

    def receive(self, message: tuple[Any, ...]) -> None:
        """Note `("eager", error)`, `("reference", version, single, call)`, `("running", backend)` or
        `(backend, outcome)`."""
        match message:
            case ("eager", error):
                self.eager_error = error
            case ("reference", version, single, call):
                self.version, self.single, self.call = version, single, call
            case ("running", backend):
                self.running = backend
            case (backend, outcome):
                self.outcomes[backend] = outcome
                self.running = ""

    def lost(self, verdict: str, reason: str) -> None:
        """Give the verdict to the running backend; without one the failure is eager's."""
        if self.running:
            self.outcomes[self.running] = Outcome(verdict, reason)
        elif not self.outcomes:
            self.eager_error = f"{verdict}: {reason}"

    def passed(self) -> bool:
        """Report that litz is not at fault."""
        return LITZ not in self.outcomes or self.outcomes[LITZ].verdict in GOOD

    def to_line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @staticmethod
    def from_line(line: str) -> Row:
        """Read what :meth:`to_line` wrote."""
        data: dict[str, Any] = json.loads(line)
        data["case"] = Case(**data["case"])
        data["outcomes"] = {name: Outcome(**outcome) for name, outcome in data["outcomes"].items()}
        return Row(**data)


def read(path: Path) -> dict[Case, Row]:
    """Read a file of rows; of several for a case the last one holds."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row.case: row for row in map(Row.from_line, lines)}
