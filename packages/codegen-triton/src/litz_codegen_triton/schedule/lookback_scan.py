"""The schedule of a decoupled look-back scan."""

from __future__ import annotations

from litz_ir.plan import LOOKBACK_WINDOW, LookbackScan, TileRequest
from litz_ir.target import DeviceModel


def schedule_lookback_scan(request: TileRequest, model: DeviceModel) -> LookbackScan:
    """Schedule a scan whose thread blocks have the requested segment of a row each, and a thread for each word of a
    look-back window."""
    return LookbackScan(request.segment, LOOKBACK_WINDOW // model.warp_size)
