"""Parser of any level."""

from __future__ import annotations

from collections.abc import Callable

from litz_ir.fused.group import FusedGraph
from litz_ir.loops.nodes import LoopGraph
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.text.lexer import Stream, read_whole
from litz_ir.text.parsing.fused import fused
from litz_ir.text.parsing.kernel import kernel
from litz_ir.text.parsing.loops import graph
from litz_ir.text.parsing.plan import plan

Level = LoopGraph | FusedGraph | Plan | Kernel
"""Data of any level that has a text form."""
_LEVELS: dict[str, Callable[[Stream], Level]] = {
    "graph": graph,
    "fused": fused,
    "plan": plan,
    "kernel": kernel,
}


def from_text(text: str) -> Level:
    """Parse any text form, chosen by its first word; raises :class:`ParseError` with line and column."""
    return read_whole(text, _level)


def _level(stream: Stream) -> Level:
    rule = _LEVELS.get(stream.token.text) if stream.token.kind == "name" else None
    if rule is None:
        stream.expected(f"one of {', '.join(_LEVELS)}")
    return rule(stream)
