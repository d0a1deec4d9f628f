"""``mode=`` and ``options=`` of ``torch.compile`` as litz options, and what is told of Inductor's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from litz.notices import log_once
from litz.settings import Config
from litz_ir.errors import ConfigError

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""The modes that record what is launched on a GPU."""

AUTOTUNE_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
"""The modes that tune kernels."""


AUTOTUNE_OPTIONS = frozenset({"max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning"})
"""Inductor's names for what ``autotune`` does."""

MAPPED: Mapping[str, str] = MappingProxyType(
    {
        "fallback_random": "it sets litz's rng",
        "triton.cudagraphs": "it sets litz's cuda_graphs",
        **dict.fromkeys(AUTOTUNE_OPTIONS, "it sets litz's autotune"),
    }
)
"""Options that set one of litz's."""

IGNORED: Mapping[str, str] = MappingProxyType(
    {
        "alignment_asserts": "kernels are built anew for addresses that lie otherwise",
        "assert_indirect_indexing": "indices are always checked, as in eager",
        "combo_kernels": "small independent loops always share launches on a GPU",
        "cpp_wrapper": "a run of kernels is always one native call",
        "deterministic": "torch.use_deterministic_algorithms is followed",
        "emulate_precision_casts": "numerics='eager', the default, rounds where eager does",
        "epilogue_fusion": "what fuses is fused unless fuse=False",
        "graph_partition": "with cuda_graphs, the parts between what cannot be recorded are recorded",
        "implicit_fallbacks": "what has no lowering runs as ATen, and fallback='error' raises",
        "keep_output_stride": "results always have eager's strides",
        "layout_optimization": "layouts are always chosen by what they cost",
        "max_autotune_gemm": "autotune tunes products too",
        "max_autotune_gemm_backends": "autotune compares generated products with the library's",
        "memory_planning": "memory is always planned",
        "reorder_for_compute_comm_overlap": "communication stays in the program's order",
        "reorder_for_peak_memory": "the order of least modelled peak memory is always chosen",
        "shape_padding": "force='pad_leading_dimension=1' pads rows of matrices on a GPU",
        "size_asserts": "what operators return is always held to the sizes that their meta kernels promise",
        "trace.enabled": "litz.explain shows graphs and kernels",
        "trace.graph_diagram": "litz.explain shows graphs and kernels",
        "triton.cudagraph_skip_dynamic_graphs": "graphs of dynamic sizes are never recorded",
        "triton.unique_kernel_names": "kernels are always named by what they compute",
    }
)
"""Options for which litz has nothing to switch."""

PREFIX = "TORCHINDUCTOR_"

_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "CUDAGRAPHS": "LITZ_CUDA_GRAPHS sets what litz records",
        "FREEZING": "LITZ_FREEZING sets what litz freezes",
        "FX_GRAPH_CACHE": "LITZ_CACHE turns litz's cache off",
        "NAN_ASSERTS": "LITZ_NAN_ASSERTS makes litz look for NaN",
        **{name.upper(): "LITZ_AUTOTUNE sets whether litz tunes" for name in AUTOTUNE_OPTIONS},
    }
)
"""What speaks for some of Inductor's variables, by what follows their prefix."""

_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "TORCH_COMPILE_DEBUG": "of litz's work nothing is written there; litz.explain shows it",
        "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS": "litz.config holds litz's options",
    }
)
"""Variables of torch's that have no effect on litz. Most ``TORCH_COMPILE_`` ones are Dynamo's and hold here too."""

_SILENT = frozenset({"CACHE_DIR", "FORCE_DISABLE_CACHES", "ERROR_ON_CUSTOM_OP_ALIASING", "WINDOWS_TESTS"})
"""Not told: torch sets the first by itself; the others hold whatever the backend, as those of AOTAutograd do."""

_AUTOGRAD = "AUTOGRAD_"


def config_from(base: Config, mode: str | None, options: Mapping[str, Any] | None) -> Config:
    """``base`` with the changes that a call of ``torch.compile`` asks for; raises :class:`ConfigError`.

    What becomes of Inductor's options is told once in a process.
    """
    if mode is not None and mode not in MODES:
        near = difflib.get_close_matches(mode, MODES, n=1) or MODES
        raise ConfigError(f"unknown mode {mode!r}", hint=f"did you mean {near[0]!r}?")
    switched = {"cuda_graphs": mode in CUDA_GRAPH_MODES, "autotune": mode in AUTOTUNE_MODES}
    changes: dict[str, Any] = {name: True for name, on in switched.items() if on}
    for name, value in (options or {}).items():
        if name == "fallback_random":
            changes["rng"] = "eager" if value else base.rng
        elif name == "triton.cudagraphs":
            changes["cuda_graphs"] = bool(value)
        elif name in AUTOTUNE_OPTIONS:
            changes["autotune"] = bool(value) or changes.get("autotune", base.autotune)
        elif name not in IGNORED:
            changes[name] = value
    changed = base.replaced(changes)
    for name in options or {}:
        if name in MAPPED or name in IGNORED:
            log_once(option_notice(name))
    return changed


def option_notice(name: str) -> str:
    """The line that tells what becomes of an option of :data:`MAPPED` or :data:`IGNORED`."""
    if name in MAPPED:
        return f"litz: the option {name!r} is Inductor's: {MAPPED[name]}"
    return f"litz: the option {name!r} is Inductor's and is ignored: {IGNORED[name]}"


def variable_notices(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each variable in the environment that is Inductor's and does nothing here."""
    return tuple(
        f"litz: {name} in the environment is Inductor's and is ignored: {instead}"
        for name in sorted(environment)
        if environment[name] not in ("", "0") and (instead := _instead(name))
    )


def _instead(variable: str) -> str:
    """What litz does instead of a variable; empty for one that is not Inductor's alone."""
    name = variable.removeprefix(PREFIX)
    if name == variable:
        return _OTHERS.get(variable, "")
    if name in _SILENT or name.startswith(_AUTOGRAD):
        return ""
    return (
        _VARIABLES.get(name)
        or IGNORED.get(name.lower())
        or "litz's variables are LITZ_..., one for each option"
    )
