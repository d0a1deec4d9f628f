"""The results of a run, as a table for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from maths.functions import UNFUSED, DType, Function
from maths.inputs import ALL_CHUNKS, CHUNK
from maths.rows import Row
from maths.tally import Tally, added

HEADER = """\
| function | dtype | inputs | worst, ulp | at | above 1 | above 2 | wrong specials | unlike eager's | eager's worst |
|---|---|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class Line:
    """The results of a function over all its inputs; ``kinds`` counts special values that differ from eager's."""

    function: str
    dtype: DType
    isa: str
    bound: float
    every_input: bool
    litz: Tally
    eager: Tally
    kinds: Tally
    seconds: float

    @property
    def good(self) -> bool:
        """True within the bound, where every special value is that of the exact function or of eager."""
        return self.litz.worst <= self.bound and not (self.litz.specials and self.kinds.specials)


def summary(function: Function, dtype: DType, isa: str, rows: Sequence[Row]) -> Line:
    """A function's rows as one."""
    litz, eager, kinds = (
        added(tallies) for tallies in zip(*((row.litz, row.eager, row.kinds) for row in rows))
    )
    every_input = function.arity == 1 and dtype == "f32" and litz.inputs == ALL_CHUNKS * CHUNK
    seconds = sum(row.seconds for row in rows)
    bound = function.bound(dtype, fused=isa not in UNFUSED) or 0.0
    return Line(function.name, dtype, isa, bound, every_input, litz, eager, kinds, round(seconds, 1))


def _count(inputs: int) -> str:
    """A number of inputs, as a power of two where it is one."""
    return f"2^{inputs.bit_length() - 1}" if inputs & (inputs - 1) == 0 else f"{inputs:,}"


def _position(at: tuple[str, ...]) -> str:
    if not at:
        return ""
    numbers = [f"{float.fromhex(text):.9g}" for text in at]
    return numbers[0] if numbers[0] == numbers[1] else ", ".join(numbers)


def as_table(lines: Sequence[Line]) -> str:
    """The rows of Markdown that stand under :data:`HEADER`."""
    rows = []
    for line in lines:
        litz = line.litz
        specials = f"{litz.specials:,} ({_position(litz.special_at)})" if litz.specials else "0"
        kinds = (
            f"{line.kinds.specials:,} ({_position(line.kinds.special_at)})" if line.kinds.specials else "0"
        )
        inputs = "all 2^32" if line.every_input else _count(litz.inputs)
        cells = (
            line.function, line.dtype, inputs, f"{litz.worst:.3f}", _position(litz.worst_at), f"{litz.above_1:,}",
            f"{litz.above_2:,}", specials, kinds, f"{line.eager.worst:.3g}",
        )  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def write_results(path: Path, lines: Sequence[Line]) -> None:
    """All lines as JSON."""
    path.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n", encoding="utf-8")
