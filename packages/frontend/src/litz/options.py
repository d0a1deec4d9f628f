"""``mode=`` and ``options=`` of ``torch.compile`` as litz options."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from litz.settings import Config
from litz_ir.errors import ConfigError

log = logging.getLogger("litz")

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")

RECORDED = ("reduce-overhead", "max-autotune")
"""The modes that record what is launched on a GPU."""

TUNED = ("max-autotune", "max-autotune-no-cudagraphs")
"""The modes that tune kernels."""

TUNING = frozenset({"max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning"})
"""The peer's names for that."""

# Names that scripts written for the peer pass. litz has nothing for them to switch: said once, then ignored.
FOREIGN = frozenset(
    {
        "max_autotune_gemm", "epilogue_fusion", "shape_padding", "triton.unique_kernel_names", "trace.enabled",
        "trace.graph_diagram",
        "cpp_wrapper", "layout_optimization", "keep_output_stride", "size_asserts", "nan_asserts",
        "alignment_asserts", "assert_indirect_indexing", "combo_kernels", "memory_planning", "deterministic",
        "reorder_for_peak_memory", "max_autotune_gemm_backends", "emulate_precision_casts", "implicit_fallbacks",
        "triton.cudagraph_skip_dynamic_graphs", "graph_partition", "reorder_for_compute_comm_overlap",
    }
)  # fmt: skip


def config_from(base: Config, mode: str | None, options: Mapping[str, Any] | None) -> Config:
    """``base`` with the changes that a call of ``torch.compile`` asks for; raises :class:`ConfigError`."""
    if mode is not None and mode not in MODES:
        near = difflib.get_close_matches(mode, MODES, n=1) or MODES
        raise ConfigError(f"unknown mode {mode!r}", hint=f"did you mean {near[0]!r}?")
    switched = {"cuda_graphs": mode in RECORDED, "autotune": mode in TUNED}
    changes: dict[str, Any] = {name: True for name, on in switched.items() if on}
    ignored: list[str] = []
    for name, value in (options or {}).items():
        if name == "fallback_random":
            changes["rng"] = "eager" if value else base.rng
        elif name == "triton.cudagraphs":
            changes["cuda_graphs"] = bool(value)
        elif name in TUNING:
            changes["autotune"] = bool(value) or changes.get("autotune", base.autotune)
        elif name in FOREIGN:
            ignored.append(name)
        else:
            changes[name] = value
    if ignored:
        log.info("litz has no use for the options %s", ", ".join(sorted(ignored)))
    return base.replaced(changes)
