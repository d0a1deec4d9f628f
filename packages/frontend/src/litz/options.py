"""Translation of the ``mode`` and ``options`` of ``torch.compile`` to litz options, with warnings about Inductor's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from litz.notices import log_once
from litz.passes import Passes
from litz.settings import Config
from litz_ir.errors import ConfigError

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")
"""Names that ``torch.compile`` accepts for ``mode``."""

_CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Modes that turn ``cuda_graphs`` on."""

_AUTOTUNE_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
"""Modes that turn ``autotune`` on."""


_AUTOTUNE_OPTIONS = frozenset({"max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning"})
"""Inductor's options that set ``autotune``."""

_PASSES: Mapping[str, str] = MappingProxyType(
    {
        "pre_grad_custom_pass": "pre_grad",
        "joint_custom_pre_pass": "joint_before",
        "joint_custom_post_pass": "joint_after",
        "post_grad_custom_pre_pass": "post_grad_before",
        "post_grad_custom_post_pass": "post_grad_after",
    }
)
"""Inductor's options that hold a pass, with the stage of :class:`litz.passes.Passes` that it is added to."""

_ROUNDING = frozenset(
    {
        "eager_numerics.disable_ftz",
        "eager_numerics.division_rounding",
        "eager_numerics.use_pytorch_libdevice",
        "emulate_precision_casts",
    }
)
"""Inductor's options for eager's rounding, each of which ``numerics='eager'`` includes."""

_MAPPED: Mapping[str, str] = MappingProxyType(
    {
        **{name: f"it adds to litz's passes, at the stage {stage}" for name, stage in _PASSES.items()},
        "fallback_random": "it sets litz's rng",
        "trace.enabled": "it sets litz's debug_files",
        "triton.cudagraphs": "it sets litz's cuda_graphs",
        **dict.fromkeys(_AUTOTUNE_OPTIONS, "it sets litz's autotune"),
        **dict.fromkeys(_ROUNDING, "it sets litz's numerics to 'eager', the default, where that is 'fast'"),
    }
)
"""Inductor's options that set one of litz's, with the text of their warning."""

_NOT_CAPTURED = "graphs of dynamic sizes are never captured"

_IGNORED: Mapping[str, str] = MappingProxyType(
    {
        "assert_indirect_indexing": "indices are always checked, as in eager",
        "benchmark_kernel": "litz.explain(..., measure=True) times each kernel",
        "combo_kernels": "small independent loops are always fused horizontally on a GPU",
        "cpp.simdlen": "vectors are as long as the CPU's instructions allow",
        "cpp.threads": "torch.set_num_threads is followed",
        "cpp_wrapper": "consecutive kernels are always launched by one native call",
        "epilogue_fusion": "epilogues are always fused unless fuse=False",
        "graph_partition": "with cuda_graphs, graphs are always partitioned at operations that cannot be captured",
        "implicit_fallbacks": "operations without a lowering fall back to ATen, and fallback='error' raises",
        "keep_output_stride": "results always have eager's strides",
        "layout_optimization": "layouts are always chosen by their cost",
        "max_autotune_gemm": "autotune tunes matmuls too",
        "max_autotune_gemm_backends": "autotune compares generated matmuls with the library's",
        "memory_planning": "memory is always planned",
        "reorder_for_compute_comm_overlap": "collectives stay in program order",
        "reorder_for_peak_memory": "the order of least modelled peak memory is always chosen",
        "shape_padding": "matmuls on a GPU are padded where their cost model finds that faster",
        "trace.graph_diagram": "litz.explain shows graphs and kernels",
        "triton.cudagraph_capture_sizes": _NOT_CAPTURED,
        "triton.cudagraph_skip_dynamic_graphs": _NOT_CAPTURED,
        "triton.unique_kernel_names": "kernels are always named after their operations",
    }
)
"""Inductor's options that have no effect, each with litz's behaviour, which their warning gives."""

_AHEAD = "aot_inductor."
"""Prefix of Inductor's options for packages that are compiled ahead of time."""

_AHEAD_HINT = "litz.aot_compile(program, path=..., weights=..., isas=...) writes packages"
"""Hint for these options: the arguments of ``aot_compile`` take their place."""

_LATE_PASS = "a pass over loop graphs or plans does the same: litz.passes.Passes(loops=..., plan=...)"

_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "_post_fusion_custom_pass": _LATE_PASS,
        "_pre_fusion_custom_pass": _LATE_PASS,
        "custom_partitioner_fn": "torch._functorch.config.activation_memory_budget bounds what a forward saves",
    }
)
"""Inductor's options without which a program means something else, each with the hint of its error."""

_PREFIX = "TORCHINDUCTOR_"
"""Prefix of Inductor's environment variables."""

_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "CUDAGRAPHS": "LITZ_CUDA_GRAPHS sets whether litz captures CUDA graphs",
        "FX_GRAPH_CACHE": "LITZ_CACHE turns litz's cache off",
        "PROFILE": "torch.profiler and litz.explain(..., measure=True) show each kernel",
        "UNIQUE_KERNEL_NAMES": _IGNORED["triton.unique_kernel_names"],
        **{name.upper(): "LITZ_AUTOTUNE sets whether litz tunes" for name in _AUTOTUNE_OPTIONS},
    }
)
"""Litz's counterparts of some of Inductor's environment variables, by the name after the prefix."""

_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS": "litz.config holds litz's options",
    }
)
"""Environment variables of torch that have no effect on litz. Most ``TORCH_COMPILE_`` variables are Dynamo's, and
these work with litz too."""

_INERT: Mapping[str, str] = MappingProxyType({f"{_PREFIX}FX_GRAPH_CACHE": "1"})
"""Values that change nothing, of the variables for which that is not 0."""

_SILENT = frozenset(
    {
        *("CACHE_DIR", "COMPILE_THREADS", "FX_GRAPH_REMOTE_CACHE", "REDIS_HOST", "REDIS_PORT"),
        *("FORCE_DISABLE_CACHES", "ERROR_ON_CUSTOM_OP_ALIASING", "WINDOWS_TESTS"),
    }
)
"""Inductor's variables without a warning: litz follows the first five, and the others work with every backend."""

_AUTOGRAD = "AUTOGRAD_"
"""Prefix of AOTAutograd's variables among Inductor's; they work with every backend."""


_OWN = frozenset(each.name for each in fields(Config))
"""Names of litz's options, some of which are Inductor's too."""


def config_from(base: Config, mode: str | None, options: Mapping[str, Any] | None) -> Config:
    """Return ``base`` with the changes that a call of ``torch.compile`` asks for; raise :class:`ConfigError` for
    others.

    Each of Inductor's options causes one warning in a process, which says how litz treats it.
    """
    changes, passes = _mode_changes(mode), Passes()
    for name, value in (options or {}).items():
        if name == "fallback_random":
            changes["rng"] = "eager" if value else base.rng
        elif name == "triton.cudagraphs":
            changes["cuda_graphs"] = bool(value)
        elif name == "trace.enabled":
            changes["debug_files"] = bool(value)
        elif name in _AUTOTUNE_OPTIONS:
            changes["autotune"] = bool(value) or changes.get("autotune", base.autotune)
        elif name in _ROUNDING:
            if value and changes.get("numerics", base.numerics) == "fast":
                changes["numerics"] = "eager"
        elif name in _PASSES:
            passes += Passes(**{_PASSES[name]: () if value is None else (value,)})
        elif name in _REFUSED or name.startswith(_AHEAD):
            if not value:
                continue
            hint = _REFUSED.get(name, _AHEAD_HINT)
            raise ConfigError(f"Inductor's option {name!r} is not supported", hint=hint)
        elif name not in _IGNORED:
            changes[name] = value
    changed = base.replaced(changes)
    if passes:
        changed = changed.replaced({"passes": changed.passes + passes})
    for name in options or {}:
        if name in _MAPPED or name in _IGNORED:
            log_once(_option_notice(name))
    return changed


def list_options() -> list[str]:
    """Return the names that the argument ``options`` of ``torch.compile`` takes, sorted: litz's, and Inductor's that
    are mapped or ignored."""
    return sorted({*(each.name for each in fields(Config)), *_MAPPED, *_IGNORED})


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Return the options that a mode sets, by name; without a mode those of every mode, by the mode's name.

    Raises :class:`ConfigError` for an unknown mode.
    """
    return {each: _mode_changes(each) for each in _MODES} if mode is None else _mode_changes(mode)


def _mode_changes(mode: str | None) -> dict[str, Any]:
    """Return the options that a mode sets; raises :class:`ConfigError` for an unknown one."""
    if mode is not None and mode not in _MODES:
        near = difflib.get_close_matches(mode, _MODES, n=1) or _MODES
        raise ConfigError(f"unknown mode {mode!r}", hint=f"did you mean {near[0]!r}?")
    switched = {"cuda_graphs": mode in _CUDA_GRAPH_MODES, "autotune": mode in _AUTOTUNE_MODES}
    return {name: True for name, on in switched.items() if on}


def _option_notice(name: str) -> str:
    """Return the warning about an option of :data:`_MAPPED` or :data:`_IGNORED`."""
    if name in _MAPPED:
        return f"litz: the option {name!r} is Inductor's: {_MAPPED[name]}"
    return f"litz: the option {name!r} is Inductor's and is ignored: {_IGNORED[name]}"


def variable_notices(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning for each environment variable that is Inductor's and has no effect on litz."""
    return tuple(
        f"litz: {name} in the environment is Inductor's and is ignored: {instead}"
        for name in sorted(environment)
        if environment[name] not in ("", _INERT.get(name, "0")) and (instead := _instead(name))
    )


def _instead(variable: str) -> str:
    """Return litz's counterpart of a variable; empty for one that is not Inductor's alone."""
    name = variable.removeprefix(_PREFIX)
    if name == variable:
        return _OTHERS.get(variable, "")
    if name in _SILENT or name.startswith(_AUTOGRAD):
        return ""
    return (
        _VARIABLES.get(name)
        or (f"LITZ_{name} sets litz's option of that name" if name.lower() in _OWN else "")
        or _IGNORED.get(name.lower())
        or "litz's variables are LITZ_..., one for each option"
    )
