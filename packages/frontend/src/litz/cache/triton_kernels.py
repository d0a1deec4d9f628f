"""Triton kernels of the program that graphs launch, identified by content.

torch passes kernels and their constants by indices in a table of the process. Keys have digests in place of indices,
and so have the plans of entries: a process that finds one launches its own kernel of the same digest.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch.fx import GraphModule, Node

from litz.cache.key import LAUNCH
from litz_ir.plan import CallStep, Plan

Indices = tuple[int, int]
"""Indices of a kernel and of its constant arguments in torch's table."""

_ROUTINE = "triton_kernel"
"""Routine of a plan that launches a kernel; its first arguments are the indices."""

_LITERALS = (int, float, bool, str, torch.dtype, type(None))


def is_launch(node: Node) -> bool:
    """Report whether a node launches a kernel of the program."""
    return LAUNCH in str(node.target)


def launch_digest(node: Node) -> str | None:
    """Return the digest of a launch's kernel and constant arguments; ``None`` where one has no identity."""
    return _digest(_indices(node))


def launched_kernels(gm: GraphModule) -> dict[str, Indices]:
    """Return the indices of the kernels that a graph and its subgraphs launch, by digest; without those that have no
    identity."""
    found = {_digest(each): each for each in map(_indices, _launches(gm))}
    return {digest: indices for digest, indices in found.items() if digest is not None}


def with_digests(plan: Plan) -> Plan:
    """Return a plan with digests in place of indices; kernels without identity keep theirs."""

    def digests(kernel: Any, constants: Any) -> tuple[Any, Any]:
        digest = _digest((kernel, constants))
        return (kernel, constants) if digest is None else (digest, 0)

    return _replaced(plan, digests)


def with_indices(plan: Plan, gm: GraphModule) -> Plan:
    """Return a plan with the indices of the kernels that ``gm`` launches; raise ``KeyError`` for one that it lacks."""
    known = launched_kernels(gm)
    return _replaced(
        plan, lambda kernel, constants: known[kernel] if type(kernel) is str else (kernel, constants)
    )


def _replaced(plan: Plan, change: Callable[[Any, Any], tuple[Any, Any]]) -> Plan:
    """Return a plan with other first arguments of launches, in its subplans too."""
    steps = []
    for step in plan.steps:
        if isinstance(step, CallStep) and step.target == _ROUTINE:
            kernel, constants, *others = step.arguments
            step = replace(step, arguments=(*change(kernel, constants), *others))
        steps.append(step)
    subplans = tuple(_replaced(each, change) for each in plan.subplans)
    return replace(plan, steps=tuple(steps), subplans=subplans)


def _launches(gm: GraphModule) -> Iterator[Node]:
    """Yield the launches of a graph and its subgraphs."""
    for module in gm.modules():
        if isinstance(module, GraphModule):
            yield from filter(is_launch, module.graph.nodes)


def _indices(node: Node) -> Indices:
    """Return the indices of a launch."""
    kernel, constants = node.kwargs["kernel_idx"], node.kwargs["constant_args_idx"]
    assert isinstance(kernel, int) and isinstance(constants, int)
    return kernel, constants


def _digest(indices: Indices) -> str | None:
    """Return the digest of a kernel and its constant arguments; ``None`` where one has no identity."""
    try:
        kernel = _described(kernel_side_table.get_kernel(indices[0]))
        constants = kernel_side_table.get_constant_args(indices[1])
        texts = [f"{name}={_spelled(value)}" for name, value in constants.items()]
    except Exception:  # Triton parses the source, which may be missing
        return None
    triton = getattr(sys.modules.get("triton"), "__version__", "")
    return hashlib.sha256("\0".join((triton, kernel, *texts)).encode()).hexdigest()


def _described(kernel: Any) -> str:
    """Return the content of a kernel as text; raise ``ValueError`` and others for one of another kind."""
    match type(kernel).__name__:
        case "JITFunction":
            # Triton's key has the source, that of functions that it calls, and constants of the module.
            known = (kernel.cache_key, kernel.__module__, kernel.__qualname__)
            globals_ = {name: value for (name, _), (value, _) in kernel.used_global_vals.items()}
            numbers = [
                f"{name}={value!r}" for name, value in globals_.items() if isinstance(value, _LITERALS)
            ]
            return " ".join((*known, *numbers, *(str(each.is_constexpr) for each in kernel.params)))
        case "Autotuner" if not (kernel.user_defined_pre_hook or kernel.user_defined_post_hook):
            hooks = [each.pre_hook for each in kernel.configs]
            if any(hooks):
                raise ValueError("a function runs before each launch")
            settings = (kernel.keys, kernel.reset_to_zero, kernel.restore_value, *map(str, kernel.configs))
            return f"{_described(kernel.fn)} {settings}"
    raise ValueError(f"{type(kernel).__name__} is no kernel whose content is known")


def _spelled(value: Any) -> str:
    """Return a constant as text; raise ``ValueError`` for one that no text determines."""
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({','.join(map(_spelled, value))})"
    if not isinstance(value, _LITERALS) and not type(value).__module__.startswith("triton.language"):
        raise ValueError(f"{value!r} is no literal")
    return f"{type(value).__name__}:{value!r}"
