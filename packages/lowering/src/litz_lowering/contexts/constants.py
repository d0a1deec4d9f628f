"""Constant tensors of a graph, each named once; tiny ones become literals."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from litz_ir.loops import Layout, TensorType, Value
from litz_lowering.types.devices import Devices
from litz_lowering.types.torch_types import litz_dtype

_INLINE_ELEMENTS = 4
"""Largest number of elements of a constant that becomes literals."""


@dataclass(slots=True)
class Constants:
    """Constants of one graph; equal memory of equal type is stored once."""

    devices: Devices
    """Devices of the graph."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensor of each name, shared with subgraphs."""
    values: list[Value] = field(default_factory=list)
    """Values of this graph, in order of their first use."""
    _known: dict[tuple[object, ...], Value] = field(default_factory=dict)

    def inner(self) -> Constants:
        """Constants of a subgraph: values of its own over the same tensors."""
        return Constants(self.devices, self.tensors)

    def add(self, name: str, tensor: torch.Tensor) -> Value:
        """Value that stands for ``tensor``, named ``name`` if it is new; a complex tensor is stored as pairs."""
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
    """Elements of a tiny CPU tensor in row-major order; None when the tensor has to stay a constant.

    Parameters stay constants because their values may change between calls, and GPU tensors because reading them
    would synchronise.
    """
    tiny = tensor.numel() <= _INLINE_ELEMENTS and tensor.device.type == "cpu"
    if not tiny or isinstance(tensor, torch.nn.Parameter) or tensor.is_complex():
        return None
    return [element.item() for element in tensor.detach().reshape(-1)]
