"""Reasons for decisions of users' passes, a row each."""

from __future__ import annotations

from litz_ir.fused import Reason

CHANGED = Reason("passes.changed", "it changed the program")
UNCHANGED = Reason("passes.unchanged", "it found nothing to change")

MATCHED = Reason("passes.matched", "it computes what the pattern of a rewrite does")
ESCAPES = Reason(
    "passes.escapes", "another operation reads a value between, which the replacement does not compute"
)
WRITTEN = Reason("passes.written", "an operation between writes to memory")
ORDER = Reason("passes.order", "one of its inputs is computed after a result is read")
CHECK = Reason("passes.check", "the condition of the rewrite does not hold for it")
