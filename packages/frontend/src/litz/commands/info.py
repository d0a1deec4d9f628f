"""``litz info``: installed targets, their capabilities and the folder of the cache."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from litz.configuration import config
from litz_ir.errors import LitzError
from litz_ir.target import Capabilities, load_target, target_entries


def info(console: Console) -> int:
    """Print installed targets, their capabilities and the cache folder; return 0."""
    table = Table("target", "capabilities")
    for name in sorted(target_entries()):
        try:
            text = _summary(load_target(name).capabilities())
        except LitzError as error:
            text = error.message
        table.add_row(name, text)
    console.print(table)
    console.print(f"cache: {config.current().cache_root()}", markup=False, soft_wrap=True)
    return 0


def _summary(known: Capabilities) -> str:
    """Return the facts about a device that differ from machine to machine, as text."""
    model = known.model
    units = (
        f"{model.sm_count} SMs"
        if known.is_gpu
        else f"{model.threads} threads, {model.vector_bytes}-byte vectors"
    )
    rates = f"{model.memory_rate / 1e9:.0f} GB/s, {model.flop_rate / 1e9:.0f} GFLOP/s in f32"
    return f"{known.name}: {units}, {model.l2_bytes / 2**20:.0f} MiB of L2, assumed {rates}"
