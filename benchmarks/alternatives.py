"""Alternatives to the cost model's decisions: each row forces one decision one way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ANY_SIZE = 1 << 40  # more bytes, operations or adds than anything here has


@dataclass(frozen=True, slots=True)
class Alternative:
    """One decision forced one way.

    `force` sets options of the scheduler (`litz_scheduler.SchedulerOptions`), by name; `prepack_weights` is litz's own.
    """

    name: str
    decision: str
    force: str = ""
    prepack_weights: bool = True

    def options(self) -> dict[str, Any]:
        """Return the options of litz that force the decision."""
        return {"force": self.force, "prepack_weights": self.prepack_weights}


CHOSEN = Alternative("chosen", "none")

ALTERNATIVES: tuple[Alternative, ...] = (
    Alternative("no fusion", "fusion", "fuse=0"),
    Alternative("siblings apart", "fusion of siblings", "siblings=0"),
    Alternative("siblings together", "fusion of siblings", f"siblings=64 sibling_bytes={ANY_SIZE}"),
    Alternative("fused though threads idle", "points left to threads", "min_parallel_points=0"),
    Alternative("computed once", "computing again", "inline_cost=0 inline_loads=0"),
    Alternative("computed again", "computing again", "inline_cost=64 inline_loads=4"),
    Alternative("no scratch", "scratch between phases", f"scratch_cost={ANY_SIZE}"),
    Alternative("more scratch", "scratch between phases", "scratch_cost=0"),
    Alternative("never read back", "reading back", f"reload_cost={ANY_SIZE}"),
    Alternative("always read back", "reading back", "reload_cost=0"),
    Alternative("reductions whole", "splitting of reductions", f"cpu_split_bytes={ANY_SIZE}"),
    Alternative("reductions in more parts", "splitting of reductions", "cpu_split_bytes=1024"),
    Alternative("loops as written", "order of loops", "order_loops=0"),
    Alternative("no lanes", "lanes", "lanes=none"),
    Alternative("lanes inside", "lanes", "lanes=inner"),
    Alternative("lanes outside", "lanes", "lanes=outer"),
    Alternative("two registers", "independent accumulators", "unroll=2"),
    Alternative("four registers", "independent accumulators", "unroll=4"),
    Alternative("one thread", "threads", f"serial_bytes={ANY_SIZE}"),
    Alternative("threads early", "threads", "serial_bytes=4096"),
    Alternative("matmul by ATen", "library for matmul", "linear_flops=0"),
    Alternative("matmul by linear", "library for matmul", "linear_flops=1"),
    Alternative("convolutions by ATen", "library for convolutions", "prepack_convolutions=0"),
    Alternative("images as in eager", "layout of images", "channels_last=0"),
    Alternative("weights as they are", "prepacked weights", prepack_weights=False),
)
