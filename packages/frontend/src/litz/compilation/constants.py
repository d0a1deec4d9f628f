"""Constants of cached graphs, attributes of the captured module, of which entries contain positions and no data.

A key contains the content of each attribute, so that the module of another process has equal tensors at the same
positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

import torch
from torch.fx import GraphModule

from litz.artifact import AttributePosition


def attribute_positions(
    gm: GraphModule, constants: Mapping[str, torch.Tensor]
) -> tuple[AttributePosition, ...] | None:
    """Return the position of the attribute behind each constant; ``None`` where one is a tensor made by lowering."""
    known = {_identity(tensor): position for position, tensor in reversed(list(_attributes(gm)))}
    found = [(name, known.get(_identity(tensor))) for name, tensor in constants.items()]
    positions = tuple((name, position) for name, position in found if position is not None)
    return positions if len(positions) == len(found) else None


def constants_at(gm: GraphModule, positions: Sequence[AttributePosition]) -> dict[str, torch.Tensor]:
    """Return the constants of a graph by name; raise ``KeyError`` where the module has no tensor at a position."""
    known = dict(_attributes(gm))
    return {name: known[position] for name, position in positions}


def _attributes(
    gm: GraphModule, before: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Yield the tensors that a graph and its subgraphs read as attributes, as lowering passes them on, by position."""
    for number, node in enumerate(gm.graph.nodes):
        if node.op != "get_attr":
            continue
        value, position = attrgetter(str(node.target))(gm), (*before, number)
        if isinstance(value, GraphModule):
            yield from _attributes(value, position)
        elif isinstance(value, torch.Tensor) and not (value.is_conj() or value.is_neg()):
            yield position, torch.view_as_real(value.detach()) if value.is_complex() else value.detach()


def _identity(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return the memory and geometry of a tensor."""
    memory = (tensor.device, tensor.untyped_storage()._cdata, tensor.storage_offset())
    return (*memory, tensor.dtype, tuple(tensor.shape), tensor.stride())
