"""Tensors that travel beside the graph: named once each, or inlined where they are tiny."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from litz_ir.loops import Layout, TensorType, Value
from litz_lowering.devices import Devices
from litz_lowering.torch_types import litz_dtype

INLINE_ELEMENTS = 4
"""Constants of at most so many elements become literals."""


@dataclass(slots=True)
class Constants:
    """The constants of one graph, which is over ``devices``. The same memory under the same type is kept once."""

    devices: Devices
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    _known: dict[tuple[object, ...], Value] = field(default_factory=dict)

    def inner(self) -> Constants:
        """The constants of a subgraph: its own values, among the same tensors."""
        return Constants(self.devices, self.tensors)

    def add(self, name: str, tensor: torch.Tensor) -> Value:
        """The value that stands for ``tensor``, or its pairs where it is complex; ``name`` is used when it is new."""
        tensor = tensor.detach().resolve_neg()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        kind = TensorType(
            litz_dtype(tensor.dtype),
            tuple(tensor.shape),
            Layout(tuple(tensor.stride()), 0, fixed=True),
            self.devices.of(tensor.device),
        )
        key = (tensor.device, tensor.untyped_storage()._cdata, tensor.storage_offset(), kind)
        found = self._known.get(key)
        if found is None:
            while name in self.tensors:
                name = f"{name}_inner"
            found = self._known[key] = Value(name, kind)
            self.values.append(found)
            self.tensors[name] = tensor
        return found


def literal_elements(tensor: torch.Tensor) -> list[int | float | bool] | None:
    """The elements of a tiny tensor in row-major order; None when it is to stay a tensor.

    Parameters stay: their values may change between calls. So does what lives on another device: reading it would wait.
    """
    tiny = tensor.numel() <= INLINE_ELEMENTS and tensor.device.type == "cpu"
    if not tiny or isinstance(tensor, torch.nn.Parameter) or tensor.is_complex():
        return None
    return [element.item() for element in tensor.detach().reshape(-1)]
