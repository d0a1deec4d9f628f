"""Sorts of rows inside kernels, on devices that support them."""

from __future__ import annotations

from litz.settings import Config
from litz.stage_options import lowering_options
from litz.targets import targets_for


def test_rows_are_sorted_where_the_option_is_on_and_a_device_can() -> None:
    assert Config().sort_rows
    cpu, gpu = targets_for(("cpu",), Config()), targets_for(("cpu", "cuda"), Config())
    for targets, asked, longest in ((gpu, False, 0), (cpu, True, 0), (gpu, True, 512)):
        options = lowering_options(Config(sort_rows=asked), targets, frozenset())
        assert options.max_sorted_row == longest
