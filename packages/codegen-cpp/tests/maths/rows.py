"""One row of a run's file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from maths.functions import DType
from maths.tally import Tally


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one block of inputs: errors of litz and of eager against exact values, and differences of
    special values."""

    function: str
    dtype: DType
    isa: str
    code: str
    block: int
    chunks: int
    litz: Tally
    eager: Tally
    kinds: Tally
    seconds: float

    @staticmethod
    def read(line: str) -> Row:
        """The row that a line of JSON holds."""
        row: dict[str, Any] = json.loads(line)
        return Row(**{**row, **{name: Tally.read(row[name]) for name in ("litz", "eager", "kinds")}})
