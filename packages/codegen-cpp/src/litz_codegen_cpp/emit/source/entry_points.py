"""Exported symbols of kernels, and the names that emitted text uses: the part of emission that loading needs."""

from __future__ import annotations

import hashlib

from litz_codegen_cpp.emit.source.ops_table import SPELLINGS
from litz_codegen_cpp.emit.source.spelling import identifier
from litz_ir.dtypes import ALL

_NARROW_CALLED = frozenset(
    f"{stem}{dtype.name}"
    for dtype in ALL
    if dtype.is_low_precision
    for stem in ("", "round_", "widen_", "narrow_", "nextafter_")
)
CALLED = frozenset(SPELLINGS).union(
    _NARROW_CALLED,
    """load load_partial load_masked load_strided load_strided_partial load_scalar gather gather_partial gather_masked
    store store_partial store_masked store_scalar scatter scatter_partial scatter_masked select broadcast
    broadcast_mask iota first_lanes any_true lane convert to_mask from_mask bits_as wrap_index clamp_index
    checked_index in_range nearest_index collapse parallel_for parallel_range report vec mask reg b1 wide low high join
    transpose_tile load_reversed store_reversed lanes_behind last_lane scan_steps running by
    prefetch_stream bf16_pairs load_adjacent load_consecutive join_adjacent join_consecutive add_products
    look_up load_run load_run_masked load_run_partial load_turning_run load_turning_run_masked load_turning_run_partial
    begin end error idle saturated add_wrapping sub_wrapping mul_wrapping
    LITZ_LANES main abs index select read write signal time""".split(),
)
"""Names that the emitted text uses, which no variable may have."""
LIBRARY = "c++ library"
"""The language of a source with routines that units link, instead of kernels with entry points."""


def entry_point(kernel: str) -> str:
    """Return the exported symbol of a kernel; a name that C++ does not allow or uses itself gets a digest."""
    name = identifier(kernel)
    if name == kernel and name not in CALLED:
        return name
    return f"{name}_{hashlib.sha256(kernel.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
