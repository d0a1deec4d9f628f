"""Indices of max pooling: a forward on a GPU saves positions in windows, of a byte or two, for its backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg

_aten = torch.ops.aten

_DIMENSIONS: Mapping[Any, int] = {
    _aten.max_pool2d_with_indices_backward.default: 2,
    _aten.max_pool3d_with_indices_backward.default: 3,
}
"""The backward operators, with the number of dimensions that windows extend over."""

_WIDTHS = ((torch.iinfo(torch.uint8).max, torch.uint8), (torch.iinfo(torch.int16).max, torch.int16))
"""The dtypes of positions, by the largest one that each holds."""


def narrow_pool_indices(graph: Graph) -> None:
    """Let backwards of max pooling on a GPU read positions relative to the first element of each window.

    A pool returns the position of each maximum in its image as i64, which the partitioner would save for the backward.
    Relative to the first element of its window, which may lie in the padding, it fits one byte or two. The graph is
    edited in place; pools of symbolic sizes stay as they are.
    """
    for node in list(graph.nodes):
        if node.target in _DIMENSIONS and len(node.args) == 8:
            _narrow(graph, node)


def _narrow(graph: Graph, backward: Node) -> None:
    """Replace the indices that a backward reads by narrow ones, which are made where the pool returns them."""
    indices = backward.args[7]
    windows = _windows(backward)
    if windows is None or not isinstance(indices, Node):
        return
    dtype = next((dtype for most, dtype in _WIDTHS if windows.last <= most), None)
    if dtype is None:
        return
    mode = indices.meta["val"].fake_mode
    with graph.inserting_before(indices.next):
        forward = _Emitter(graph, indices, mode)
        relative = forward.call(_aten.sub.Tensor, indices, windows.first(forward))
        narrow = forward.call(_aten._to_copy.default, relative, dtype=dtype)
    with graph.inserting_before(backward):
        own = _Emitter(graph, backward, mode)
        wide = own.call(_aten._to_copy.default, narrow, dtype=torch.int64)
        restored = own.call(_aten.add.Tensor, wide, windows.first(own))
    backward.replace_input_with(indices, restored)


@dataclass(frozen=True, slots=True)
class _Emitter:
    """Insertion of nodes into a graph, with the metadata of a node that they belong to."""

    graph: Graph
    like: Node
    mode: Any
    """The mode of the graph's fake tensors."""

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Insert a call, and return its node."""
        node = self.graph.call_function(target, args, kwargs)
        node.meta = {k: v for k, v in self.like.meta.items() if k not in ("val", "tensor_meta")}
        with self.mode:
            node.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]), **kwargs)
        return node


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of a pool over images whose sizes are known."""

    starts: Sequence[tuple[int, int, int]]
    """For each dimension of the image the first positions: from, up to and by."""
    last: int
    """The greatest position in a window relative to its first one."""
    device: torch.device

    def first(self, emitter: _Emitter) -> Node:
        """Insert the position of each window's first element in its image, and return its node."""
        total: Node | None = None
        for k, (start, end, step) in enumerate(self.starts):
            each = emitter.call(
                _aten.arange.start_step, start, end, step, dtype=torch.int64, device=self.device
            )
            for _ in range(len(self.starts) - 1 - k):
                each = emitter.call(_aten.unsqueeze.default, each, -1)
            total = each if total is None else emitter.call(_aten.add.Tensor, total, each)
        assert total is not None, "windows extend over some dimension"
        return total


def _windows(backward: Node) -> _Windows | None:
    """Return the windows of a backward; ``None`` on a CPU and for symbolic sizes."""
    gradient, image, kernel, stride, padding, dilation = backward.args[:6]
    assert isinstance(gradient, Node) and isinstance(image, Node)
    given, result = image.meta.get("val"), gradient.meta.get("val")
    if not isinstance(given, Tensor) or not isinstance(result, Tensor) or given.device.type == "cpu":
        return None
    count = _DIMENSIONS[backward.target]
    sizes, counts = given.shape[-count:], result.shape[-count:]
    numbers = [_each(number, count) for number in (kernel, stride or kernel, padding, dilation)]
    if not all(isinstance(number, int) for each in (sizes, counts, *numbers) for number in each):
        return None
    inner = [prod(sizes[k + 1 :]) for k in range(count)]
    kernels, strides, paddings, dilations = numbers
    starts = [
        (-p * n, (w * s - p) * n, s * n) for w, s, p, n in zip(counts, strides, paddings, inner, strict=True)
    ]
    last = sum((k - 1) * d * n for k, d, n in zip(kernels, dilations, inner, strict=True))
    return _Windows(starts, last, given.device)


def _each(number: Any, count: int) -> list[int]:
    """Return an argument that is one number or one for each dimension, as the latter."""
    given = [number] if isinstance(number, int) else list(number)
    return given * count if len(given) == 1 else given
