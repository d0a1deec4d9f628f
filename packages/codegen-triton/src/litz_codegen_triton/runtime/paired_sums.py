"""Workaround for ``add.s16x2`` in PTX, which ``ptxas`` 12.8 and 13.1 assemble wrongly for ``sm_90`` and later.

If one half of the result is used and one summand is a constant, ``ptxas`` writes ``VIADD.16x2`` with the constant 0.
LLVM vectorises additions of neighbouring elements to ``add.s16x2``, also of 32-bit indices that it knows to be small.
"""

from __future__ import annotations

import re

_PAIR = re.compile(r"\badd\.s16x2\s+(%\w+),\s*(%\w+),\s*(%\w+);")
_HALVES = (
    r"{ .reg .b16 %a0, %a1, %b0, %b1; mov.b32 {%a0, %a1}, \2; mov.b32 {%b0, %b1}, \3; "
    r"add.s16 %a0, %a0, %b0; add.s16 %a1, %a1, %b1; mov.b32 \1, {%a0, %a1}; }"
)


def without_paired_sums(ptx: str) -> str:
    """Return ``ptx`` with each ``add.s16x2`` replaced by two ``add.s16``."""
    return _PAIR.sub(_HALVES, ptx)
