"""The schedule of a decoupled look-back scan."""

from __future__ import annotations

from litz_ir.plan import LookbackScan, TileRequest

WARPS = 8
"""Warps of a thread block: one thread for each word of a look-back window
(:data:`litz_ir.plan.lookback_scan.LOOKBACK_WINDOW`)."""


def schedule_lookback_scan(request: TileRequest) -> LookbackScan:
    """Schedule a scan whose thread blocks have the requested segment of a row each."""
    return LookbackScan(request.segment, WARPS)
