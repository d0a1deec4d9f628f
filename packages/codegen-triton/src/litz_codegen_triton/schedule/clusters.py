"""The check that a cluster's thread blocks have points."""

from __future__ import annotations

from litz_codegen_triton.emit.loops.tiles import tiling
from litz_ir.errors import CodegenError
from litz_ir.plan import Kernel


def check_clusters(kernel: Kernel) -> None:
    """Check that every thread block of a cluster has points, and holds them all. Raises ``CodegenError``."""
    for inner in tiling(kernel).inner:
        if inner is None or not inner.persistent or inner.cluster_size == 1:
            continue
        assert isinstance(inner.points_per_cta, int) and isinstance(inner.size, int), (
            "a persistent tile has a static size"
        )
        if (
            inner.points_per_cta > inner.block
            or inner.points_per_cta * (inner.cluster_size - 1) >= inner.size
        ):
            raise CodegenError(
                f"a cluster of {inner.cluster_size} thread blocks cannot reduce {inner.size} points of {kernel.name}",
                hint="each thread block needs at least one point, and a tile that holds all of its points",
            )
