"""Casts of weights that matmuls of a backward on a GPU pad: the backward casts the parameter, and pads at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg

_aten = torch.ops.aten

_MATMULS = (_aten.mm.default, _aten.addmm.default)
_TRANSPOSES = (_aten.t.default, _aten.transpose.int, _aten.permute.default)

_ALIGNMENT = 4
"""Elements. Matmuls with a size that is no multiple of it may be padded (``AlignedMatmul`` of the scheduler)."""

_LEAST_ELEMENTS = 1 << 20
"""The fewest elements of a cast that is repeated: the memory of smaller ones is not worth a launch."""


def repeat_weight_casts(graph: Graph, static_placeholders: Collection[int]) -> None:
    """Edit a joint graph in place so that matmuls of the backward read casts of their own of unaligned weights.

    These are ``mm`` and ``addmm`` that read the cast of a parameter, or its transpose. The cast is on a GPU, to bf16 or
    f16, a matrix of static sizes with ``_LEAST_ELEMENTS`` at least, and a size is no multiple of ``_ALIGNMENT``.

    The partitioner saves what a matmul reads, here the cast, and the backward would copy it once more, with zeros
    behind its rows or columns: two copies at the peak, where the gradient of logits is. A loop that casts can write the
    zeros as well, and reads the parameter, which is in memory anyway. ``static_placeholders`` are the positions of the
    placeholders that live as long as the model: parameters and buffers.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    known = {placeholders[k] for k in static_placeholders if k < len(placeholders)}
    late = {node for node in placeholders if str(node.target).startswith("tangents")}
    made: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if late.isdisjoint(node.all_input_nodes):
            continue
        late.add(node)
        if node.target not in _MATMULS:
            continue
        for operand in node.all_input_nodes:
            chain = _from_cast(operand, known)
            if operand not in late and chain:
                if operand not in made:
                    made[operand] = _repeated(graph, chain, node)
                node.replace_input_with(operand, made[operand])


def _from_cast(node: Node, parameters: Collection[Node]) -> list[Node]:
    """Return the nodes from the cast of a parameter to ``node``, which is that cast or a transpose of it; empty for
    other nodes, and for casts that are not repeated."""
    chain = [node]
    while node.target in _TRANSPOSES and isinstance(node.args[0], Node):
        node = node.args[0]
        chain.insert(0, node)
    value = node.meta.get("val")
    if node.target != _aten._to_copy.default or node.args[0] not in parameters:
        return []
    if not isinstance(value, Tensor) or value.device.type == "cpu" or value.dim() != 2:
        return []
    sizes = value.shape
    if not all(isinstance(size, int) for size in sizes) or value.numel() < _LEAST_ELEMENTS:
        return []
    narrow = value.dtype in (torch.bfloat16, torch.float16)
    return chain if narrow and any(size % _ALIGNMENT for size in sizes) else []


def _repeated(graph: Graph, chain: list[Node], reader: Node) -> Node:
    """Insert copies of the nodes of a chain before their reader, and return the last one."""
    copies: dict[Any, Node] = {}
    with graph.inserting_before(reader):
        for node in chain:
            own = graph.node_copy(node, lambda each: copies.get(each, each))
            own.meta = {k: v for k, v in reader.meta.items() if k not in ("val", "tensor_meta")}
            args, kwargs = map_arg((own.args, own.kwargs), lambda each: each.meta["val"])
            operator: Any = own.target
            with node.meta["val"].fake_mode:
                own.meta["val"] = operator(*args, **kwargs)
            copies[node] = own
    return copies[chain[-1]]
