"""Operators that are left to ATen on purpose, each with its reason: sorts, and results whose size is data."""

from __future__ import annotations

from typing import Any

from litz_lowering.context import Declined, LoweringContext
from litz_lowering.registry import REGISTRY, Result

SORTS = "a sort along a dimension is no loop nest"
SIZES = "the size of the result is data"

LEFT: dict[str, tuple[str, ...]] = {
    SORTS: (
        "sort.default", "sort.stable", "argsort.default", "argsort.stable", "msort.default", "topk.default",
        "kthvalue.default", "median.default", "median.dim", "nanmedian.default", "nanmedian.dim", "mode.default",
    ),
    SIZES: (
        "nonzero.default", "unique_dim.default", "_unique2.default",
        "unique_consecutive.default", "unique_dim_consecutive.default",
    ),
}  # fmt: skip


def _left(reason: str) -> Any:
    def decline(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Result:
        """Nothing is generated for it."""
        return Declined(reason)

    return decline


for _reason, _names in LEFT.items():
    REGISTRY.add(_left(_reason), *(f"aten.{name}" for name in _names), how="left")
