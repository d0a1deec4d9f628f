"""Options of lowering and of the scheduler, derived from the user's options, the devices and the host's libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import litz_lowering
from litz.devices import is_gpu
from litz.host.runtime.gpus import ONE_GPU, Gpus
from litz.host.runtime.graph_devices import trains_on_gpu
from litz.host.runtime.libraries import (
    attention_width,
    few_rows_bytes,
    has_convolutions,
    linear_flops,
    narrow_attention_width,
)
from litz.host.runtime.precision import f32_convolution_precision, f32_matmul_precision
from litz.notices import log_once
from litz.settings import Config
from litz.targets import TargetSet
from litz_ir.device import CPU
from litz_lowering import LoweringOptions
from litz_scheduler import SchedulerOptions, parse_options

_CPU_ALONE = "litz: batch_invariant holds for operations on a CPU alone; this graph is on a GPU"


def traced_decompositions(config: Config, inputs: Sequence[Any]) -> dict[Any, Callable[..., Any]]:
    """Return the decompositions that a graph of these inputs is traced with."""
    if config.numerics == "strict":
        return {**litz_lowering.decompositions(strict=True)}
    return {**litz_lowering.decompositions(recomputed=trains_on_gpu(inputs))}


def lowering_options(config: Config, targets: TargetSet, forced: frozenset[str]) -> LoweringOptions:
    """Return the options of lowering for a graph's devices; nodes named in ``forced`` run as ATen."""
    devices = targets.capabilities()
    longest = max((known.max_sorted_row for known in devices.values()), default=0)
    return LoweringOptions(
        rng=config.rng,
        numerics=config.numerics,
        force_extern=forced,
        fallback=config.fallback,
        attention=config.attention and config.numerics != "strict" and not config.batch_invariant,
        deterministic=config.deterministic or torch.are_deterministic_algorithms_enabled(),
        nested_reductions=frozenset(
            device.kind for device, known in devices.items() if known.nested_reductions
        ),
        blocked_attention=frozenset(device.kind for device, known in devices.items() if not known.is_gpu),
        wide_matmuls=frozenset(
            device.kind for device, known in devices.items() if known.is_gpu and config.numerics == "fast"
        ),
        max_sorted_row=longest if config.sort_rows else 0,
    )


def scheduler_options(config: Config, targets: TargetSet) -> SchedulerOptions:
    """Return the options of the scheduler for this host; raise ``ConfigError`` for a wrong ``force``."""
    cpu, on_gpu = targets.capabilities().get(CPU), any(map(is_gpu, targets.by_kind))
    if config.batch_invariant and on_gpu:
        log_once(_CPU_ALONE)
    allowed: dict[str, Any] = {
        "fuse": config.fuse,
        "batch_invariant": config.batch_invariant,
        "exact": config.numerics == "strict",
        "linear_flops": 0 if config.batch_invariant else linear_flops(cpu),
        "few_rows_bytes": 0 if config.batch_invariant else few_rows_bytes(cpu),
        "attention_width": attention_width(cpu),
        "narrow_attention_width": narrow_attention_width(cpu),
        "prepack_matmuls": not config.batch_invariant,
        "prepack_convolutions": has_convolutions(cpu),
        "convolution_relu": on_gpu and torch.backends.cudnn.enabled and torch.backends.cudnn.is_available(),
        "matmul_precision": f32_matmul_precision() if on_gpu else "ieee",
        "convolution_precision": f32_convolution_precision() if on_gpu else "ieee",
    }
    return SchedulerOptions(**(allowed | parse_options(config.force)))


def chooses_matmuls(config: Config, targets: TargetSet, gpus: Gpus) -> bool:
    """Report whether matmuls are timed as calls and as loops: with ``autotune``, on one GPU, unless the options name
    them."""
    alone = targets.has_gpu() and gpus == ONE_GPU
    return config.autotune and alone and not scheduler_options(config, targets).generated_matmuls
