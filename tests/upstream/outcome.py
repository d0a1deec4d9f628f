"""Outcomes of a test under one compiler, as data and as JSON lines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LITZ, PEERS = "litz", ("aot_eager", "inductor")
"""Names of the compilers: the one under test, then those that tell whether a test can pass in this version of torch."""

PASSED, SKIPPED, SET_ASIDE, FELL_BACK = "pass", "skipped", "set aside", "fell back"
GOOD = (PASSED, SKIPPED, SET_ASIDE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test under one compiler.

    `verdict` is `pass`; `skipped` (by PyTorch's own conditions, or expected to fail); `set aside` (by a rule of
    `upstream.set_aside`); `fell back` (passes, but litz left the graph to ATen after an error); `wrong` (an assertion
    of the test fails); `raises`; `crash`; `timeout`. `seconds` is the time of the test.
    """

    suite: str
    test: str
    backend: str
    verdict: str
    reason: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the suite, the test and the compiler."""
        return self.suite, self.test, self.backend

    def to_line(self) -> str:
        """Return a line of JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


Outcomes = dict[tuple[str, str, str], Outcome]


def read(paths: Iterable[Path]) -> Outcomes:
    """Read files of JSON lines; of several lines for a test and compiler the last one counts."""
    outcomes: Outcomes = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            outcome = Outcome(**json.loads(line))
            outcomes[outcome.key] = outcome
    return outcomes
