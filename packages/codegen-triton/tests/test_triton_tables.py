"""Tables of measured numbers: which chip has which, and that schedules follow them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litz_codegen_triton.capabilities import DEFAULT_CHIP, chip_capabilities
from litz_codegen_triton.schedule.tile_loops import schedule_tile_loops
from litz_codegen_triton.tables import Chip, chip_of
from litz_codegen_triton.tables.hopper import HOPPER
from litz_ir.plan import InnerTile, TileRequest
from litz_ir.text import parse_kernel

ROW = """
kernel row_sum(in %x: f32, out %o: f32) {
  schedule tile_request
  outer [i0: 4096]
  phase [r0: {length}] {
    $s: f32 = reduce.sum { %x[i0*{length} + r0] };
  }
  phase [] {
    %o[i0] = $s;
  }
}
"""


@pytest.mark.parametrize(("chip", "measured"), [("sm_90", True), ("sm_80", False), ("sm_100", False)])
def test_a_table_says_whether_its_chip_was_measured(chip: str, measured: bool) -> None:
    found = chip_of(chip_capabilities(chip))
    assert found.model == chip_capabilities(chip).model
    assert (found.tiles is HOPPER) == measured
    assert ("no GPU" in found.tiles.measured_on) != measured


@pytest.mark.parametrize("block", [512, 4096])
def test_a_loop_over_a_row_has_the_tile_of_the_table(block: int) -> None:
    loops = replace(HOPPER.loops, looped_row=block)
    chip = Chip(chip_capabilities(DEFAULT_CHIP).model, replace(HOPPER, loops=loops))
    kernel = parse_kernel(ROW.replace("{length}", str(2 * HOPPER.loops.persistent_row)).strip())
    schedule = schedule_tile_loops(kernel, TileRequest(), chip)
    assert [tile for tile in schedule.inner if tile is not None] == [InnerTile(("r0",), block)]
