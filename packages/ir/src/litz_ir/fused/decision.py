"""Decisions of the compiler: the choice, its reason, and the bytes at stake."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.symbols.term import Size


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason for decisions. A package lists its own as constants, and the data that refers to one carries its
    sentence, so that reports need no table.
    """

    key: str
    """Its name in the text form, such as ``fuse.producer``."""
    sentence: str
    """The explanation that users read: a complete sentence about the subject, without a full stop."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice of the compiler about one subject, with its reason."""

    stage: str
    """Pass or stage that decided."""
    subject: str
    """A value, a group, or two groups as ``"g0 + g1"``."""
    verdict: str
    """The choice, such as ``fuse`` or ``inline``."""
    reason: Reason
    """The reason for the choice."""
    bytes: Size = 0
    """Memory traffic at stake in one call, in bytes."""
    note: str = ""
    """Details of this case that the reason does not say."""

    def describe(self) -> str:
        """The decision as one line of text."""
        stake = f" ({self.bytes} B)" if self.bytes != 0 else ""
        note = f"; {self.note}" if self.note else ""
        return f"{self.stage}: {self.verdict} {self.subject}: {self.reason.sentence}{stake}{note}"
