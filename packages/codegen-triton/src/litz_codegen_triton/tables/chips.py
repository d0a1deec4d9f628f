"""The table of each chip. A chip without one has the numbers of ``sm_90``, and ``measured_on`` says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from litz_codegen_triton.tables.hopper import HOPPER
from litz_codegen_triton.tables.tiles import TileTable
from litz_ir.target import Capabilities, DeviceModel

_TABLES: Mapping[str, TileTable] = MappingProxyType({"sm_90": HOPPER})
_OTHERS = replace(HOPPER, measured_on="no GPU of this chip; the numbers are those of an H200")


@dataclass(frozen=True, slots=True)
class Chip:
    """The chip for which a kernel is scheduled."""

    model: DeviceModel
    """Numbers of the data sheet."""
    tiles: TileTable
    """Measured numbers."""


def chip_of(capabilities: Capabilities) -> Chip:
    """Return the chip of a GPU target's capabilities."""
    return Chip(capabilities.model, _TABLES.get(capabilities.name, _OTHERS))
