"""litz's target of the device: kernels by the generator of plain C, launched on the device's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from litz_device_toy import KIND
from litz_device_toy._C import host_address
from litz_ir.device import Device
from litz_ir.plan import Kernel
from litz_ir.target import Capabilities, LaunchFunction, SourceUnit
from litz_target_c.build import CModule
from litz_target_c.ops_table import SPELLINGS
from litz_target_c.target import CAPABILITIES as OF_C
from litz_target_c.target import CTarget

CAPABILITIES = replace(
    OF_C,
    name="toy-c99",
    device=Device(KIND),
    operations=frozenset(SPELLINGS) | {"cast"},  # random numbers are torch's
)


class ToyTarget(CTarget):
    """The C target, for another kind of device."""

    name = KIND

    def capabilities(self) -> Capabilities:
        """Return the capabilities: those of the C target, without random numbers."""
        return CAPABILITIES

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> ToyModule:
        """Load built units; raises ``ToolchainError``."""
        return ToyModule(binaries, kernels)


class ToyModule(CModule):
    """Loaded kernels of the device."""

    def function(self, kernel: str) -> LaunchFunction:
        """Return the launcher of a kernel, which runs it on the current device; raises ``KeyError``.

        The launcher raises ``ValueError`` for memory that is not the current device's. A device that runs
        asynchronously would put the launch into torch's current stream of the device here.
        """
        run = super().function(kernel)

        def launch(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
            run([host_address(each) for each in addresses], symbols)

        return launch
