"""Matmuls of narrow operands whose results are read in f32 alone, as those of weights' gradients under autocast are."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch.fx import Node

from litz_ir.passes import PassContext
from litz_lowering.fx_passes.aten_graph import AtenGraph

_NARROW = (torch.bfloat16, torch.float16)

_VIEWS = ("aten.t.default", "aten.permute.default", "aten.transpose.int")

_ALIGNED = 8
"""Elements of which each size is a multiple. Other matmuls are padded later, as calls with one dtype."""


@dataclass
class WideMatmuls:
    """Let the library write a matmul in f32 that is cast to f32 at once, without rounding it to the narrow dtype."""

    devices: frozenset[str]
    """Kinds of devices whose library does so as quickly: cuBLAS on an H200 takes 245 us in bf16 and 250 in f32 for
    2,048 x 8,192 x 5,632, and the cast 17."""
    name: str = "fx.wide_matmuls"
    ulp: int = 1 << 16

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph with such matmuls, or ``data`` itself where there are none."""
        if not any(self._cast_matmul(node) for node in data.graph.nodes):
            return data
        graph = copy.deepcopy(data.graph)
        for cast in list(graph.nodes):
            read = self._cast_matmul(cast)
            if not read:
                continue
            matmul = read[-1]
            matmul.target = torch.ops.aten.mm.dtype
            matmul.args = (*matmul.args, torch.float32)
            for node in read:
                node.meta["val"] = node.meta["val"].to(torch.float32)
            cast.replace_all_uses_with(read[0])
            graph.erase_node(cast)
        return AtenGraph(data.module, graph)

    def _cast_matmul(self, cast: Node) -> tuple[Node, ...]:
        """Return what a cast to f32 alone reads: a matmul, and before it the views of it, the last one first."""
        if str(cast.target) != "aten._to_copy.default" or cast.kwargs != {"dtype": torch.float32}:
            return ()
        found: list[Node] = []
        node = cast.args[0]
        while isinstance(node, Node) and len(node.users) == 1:
            found.append(node)
            if str(node.target) not in _VIEWS:
                break
            node = node.args[0]
        if not found or found[-1].target is not torch.ops.aten.mm.default:
            return ()
        values = [each.meta.get("val") for each in (*found, *found[-1].all_input_nodes)]
        return tuple(found) if all(map(self._suits, values)) else ()

    def _suits(self, value: object) -> bool:
        if not isinstance(value, torch.Tensor) or value.device.type not in self.devices:
            return False
        sizes = all(type(size) is int and size > 0 and size % _ALIGNED == 0 for size in value.shape)
        return value.dtype in _NARROW and sizes
