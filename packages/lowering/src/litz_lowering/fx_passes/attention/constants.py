"""Tensors of a graph that are known at compile time, such as masks from ``arange`` and ``triu``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn import Module
from torch.utils._python_dispatch import _disable_current_modes

from litz_lowering.contexts.inputs import attribute
from litz_lowering.fx_passes.attention.forms import value_of

_LARGEST = 1 << 24
"""Largest number of elements of a tensor that is computed at compile time."""
_UNDEFINED = ("aten.empty.memory_format", "aten.empty_strided.default", "aten.new_empty.default")


class KnownTensors:
    """Tensors of one graph that are known at compile time."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[Node, torch.Tensor | None] = {}

    def tensor(self, node: Node) -> torch.Tensor | None:
        """Elements of a node; None where they depend on inputs or random numbers, or are too many."""
        if node not in self._known:
            self._known[node] = self._computed(node)
        return self._known[node]

    def number(self, value: object) -> float | None:
        """Value of a Python number or of a known one-element tensor; None for others."""
        if isinstance(value, int | float):
            return float(value)
        element = self.tensor(value) if isinstance(value, Node) and _is_small(value, 1) else None
        return None if element is None or element.is_complex() else float(element.item())

    def _computed(self, node: Node) -> torch.Tensor | None:
        if not _is_small(node, _LARGEST):
            return None
        if node.op == "get_attr":
            constant = attribute(self._module, str(node.target))
            return constant if isinstance(constant, torch.Tensor) and type(constant) is torch.Tensor else None
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            return None
        if torch.Tag.nondeterministic_seeded in target.tags or str(target) in _UNDEFINED:
            return None
        sources = {source: self.tensor(source) for source in node.all_input_nodes}
        if any(constant is None for constant in sources.values()) or target._schema.is_mutable:
            return None
        return _run(node, sources)


def _run(node: Node, sources: Mapping[Node, torch.Tensor | None]) -> torch.Tensor | None:
    args, kwargs = map_arg((node.args, dict(node.kwargs)), sources.__getitem__)
    with _disable_current_modes(), torch.no_grad():
        found = node.target(*args, **kwargs)  # type: ignore[operator]  # an overload
    return found if isinstance(found, torch.Tensor) else None


def _is_small(node: Node, limit: int) -> bool:
    """True for a CPU tensor of static shape with at most ``limit`` elements."""
    value = value_of(node)
    if value is None or value.device.type != "cpu" or not all(type(size) is int for size in value.shape):
        return False
    return value.numel() <= limit
