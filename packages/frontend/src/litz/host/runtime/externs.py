"""Routines that plans call by name: ATen overloads, and a few of litz's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch

from litz.host.runtime.onednn import ONEDNN
from litz.host.runtime.torch_memory import strided
from litz_ir.errors import ExternNotFound
from litz_ir.target import FailureCallback, raise_failure


def _sort(
    source: torch.Tensor, dimension: int, descending: bool, stable: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort along a dimension; return values and indices."""
    ordered: tuple[torch.Tensor, torch.Tensor] = torch.ops.aten.sort.stable(
        source, stable=stable, dim=dimension, descending=descending
    )
    return ordered


def _copy_with_strides(source: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Return a copy with these strides, which may leave gaps; elements that share memory have equal values."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(source.shape, strides))
    fresh = torch.empty(reach if source.numel() else 0, dtype=source.dtype, device=source.device)
    once = [slice(None) if stride else slice(1) for stride in strides]
    fresh.as_strided(source.shape, strides)[tuple(once)].copy_(source[tuple(once)])
    return fresh.as_strided(source.shape, strides)


def _strided_scatter(
    x: torch.Tensor, source: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """Return a copy of the memory of ``x``, with ``source`` written from element ``offset`` on."""
    return torch.as_strided_scatter(x, source, shape, strides, x.storage_offset() + offset)


def _triton_kernel(
    kernel_idx: int, constant_args_idx: int, grid: Sequence[Sequence[int]], /, **kwargs: Any
) -> None:
    """Launch a user's Triton kernel."""
    torch.ops.higher_order.triton_kernel_wrapper_mutation(
        kernel_idx=kernel_idx,
        constant_args_idx=constant_args_idx,
        grid=[tuple(each) for each in grid],
        tma_descriptor_metadata={},
        kwargs=kwargs,
    )


def _draw_from(operator: str, /, *args: Any, rng_state: torch.Generator, **kwargs: Any) -> Any:
    """Call a random operator with the generator ``rng_state``."""
    draw = torch.ops.higher_order.graphsafe_run_with_rng_state
    return draw(resolve(operator), *args, rng_state=rng_state, **kwargs)


_OWN: dict[str, Callable[..., Any]] = {
    "sort": _sort,
    "matmul": torch.matmul,
    "copy_with_strides": _copy_with_strides,
    "strided": strided,
    "strided_scatter": _strided_scatter,
    "triton_kernel": _triton_kernel,
    "draw_from": _draw_from,
    "torch.random.get_rng_state": torch.random.get_rng_state,
    "torch.random.set_rng_state": torch.random.set_rng_state,
}


_FUNCTIONS = frozenset(
    {
        "mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_cudnn_attention",
    }
)  # fmt: skip
"""Operators that are called often, for which torch's Python function takes half the call overhead."""


_CUDNN, _CUDNN_ROUTINES = "litz.host.runtime.cudnn", frozenset({"convolution_relu"})
"""Module of cuDNN's routines, imported where a plan calls one, and their names."""

NO_ROUTINES: Mapping[str, Callable[..., Any]] = MappingProxyType({})
"""The functions of a plan that calls none of this process."""


def resolve(
    target: str,
    routines: Mapping[str, Callable[..., Any]] = NO_ROUTINES,
    report: FailureCallback = raise_failure,
) -> Callable[..., Any]:
    """Return the function of an extern: ``aten.mm.default``, ``mylib.op.default`` or one of litz's own names.

    ``report`` receives failures inside calls that have a fallback. Raises :class:`ExternNotFound`.
    """
    if target in routines:
        return routines[target]
    if target in ONEDNN:
        return ONEDNN[target](report)
    if target in _CUDNN_ROUTINES:
        of_cudnn: Callable[..., Any] = import_module(_CUDNN).CUDNN[target](report)
        return of_cudnn
    if target in _OWN:
        return _OWN[target]
    parts = target.split(".")
    if len(parts) >= 3:
        namespace, name, overload = parts[0], ".".join(parts[1:-1]), parts[-1]
        packet = getattr(getattr(torch.ops, namespace), name, None)
        found: Callable[..., Any] | None = getattr(packet, overload, None)
        if (namespace, overload) == ("aten", "default") and name in _FUNCTIONS:
            quick: Callable[..., Any] | None = getattr(torch._C._VariableFunctions, name, None)
            found = found if quick is None else quick
        if found is not None:
            return found
    higher: Callable[..., Any] | None = getattr(
        torch.ops.higher_order, target.removeprefix("higher_order."), None
    )
    if higher is not None:
        return higher
    raise ExternNotFound(
        f"no operator is registered under {target!r}", hint="import the library that registers it first"
    )
