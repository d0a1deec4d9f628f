"""Reasons for decisions of users' passes, a row each."""

from __future__ import annotations

from litz_ir.fused import Reason

CHANGED = Reason("passes.changed", "it changed the program")
UNCHANGED = Reason("passes.unchanged", "it found nothing to change")
