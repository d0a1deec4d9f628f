"""What nodes hold that depend on no input of the graph: masks made of ranges and triangles, numbers in tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn import Module
from torch.utils._python_dispatch import _disable_current_modes

from litz_lowering.fx_passes.attention.forms import value_of
from litz_lowering.inputs import attribute

_LARGEST = 1 << 24
"""Tensors of more elements are not computed while compiling."""
_UNDEFINED = ("aten.empty.memory_format", "aten.empty_strided.default", "aten.new_empty.default")


class KnownTensors:
    """The tensors of one graph that are known when it is compiled."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[Node, torch.Tensor | None] = {}

    def tensor(self, node: Node) -> torch.Tensor | None:
        """What the node holds; None where inputs or chance decide that, or where it is large."""
        if node not in self._known:
            self._known[node] = self._computed(node)
        return self._known[node]

    def number(self, value: object) -> float | None:
        """A Python number, or the only element of a tensor that is known."""
        if isinstance(value, int | float):
            return float(value)
        held = self.tensor(value) if isinstance(value, Node) and _is_small(value, 1) else None
        return None if held is None or held.is_complex() else float(held.item())

    def _computed(self, node: Node) -> torch.Tensor | None:
        if not _is_small(node, _LARGEST):
            return None
        if node.op == "get_attr":
            held = attribute(self._module, str(node.target))
            return held if isinstance(held, torch.Tensor) and type(held) is torch.Tensor else None
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            return None
        if torch.Tag.nondeterministic_seeded in target.tags or str(target) in _UNDEFINED:
            return None
        sources = {source: self.tensor(source) for source in node.all_input_nodes}
        if any(held is None for held in sources.values()) or target._schema.is_mutable:
            return None
        return _run(node, sources)


def _run(node: Node, sources: Mapping[Node, torch.Tensor | None]) -> torch.Tensor | None:
    args, kwargs = map_arg((node.args, dict(node.kwargs)), sources.__getitem__)
    with _disable_current_modes(), torch.no_grad():
        found = node.target(*args, **kwargs)  # type: ignore[operator]  # an overload
    return found if isinstance(found, torch.Tensor) else None


def _is_small(node: Node, most: int) -> bool:
    """True for a tensor of the CPU with few elements, whose number is known."""
    value = value_of(node)
    if value is None or value.device.type != "cpu" or not all(type(size) is int for size in value.shape):
        return False
    return value.numel() <= most
