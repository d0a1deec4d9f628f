"""Upper bounds of the symbolic sizes of a graph, by guards, so that indices of its tensors have 32 bits."""

from __future__ import annotations

import sympy
import torch
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from litz_lowering.types.symbols_io import hint_of

_POINTS = 1 << 30
"""Elements of the largest tensor up to which all sizes may grow: half of those that an index of 32 bits reaches."""

_LEAST_GROWTH = 2
"""Ratio in which each size may at least grow before a graph is compiled again, whatever has 64 bits then."""


def bound_sizes(gm: GraphModule) -> None:
    """Guard that sizes with symbols stay below bounds, in a graph that Dynamo captures: it reads the guards afterwards.

    All sizes may grow in the ratio in which the largest tensor of the graph reaches 2^30 elements. A graph that is
    called with larger ones is compiled again. Sizes that have an upper bound keep it. Division of an index of 64 bits
    by a size that the kernel gets takes a GPU several times as long as the rest of an element.
    """
    sizes: dict[sympy.Symbol, torch.SymInt] = {}
    largest, degree = 1, 1
    for value in pytree.tree_leaves([node.meta.get("val") for node in gm.graph.nodes]):
        dimensions = value.shape if isinstance(value, torch.Tensor) else [value]
        own = [each for each in dimensions if isinstance(each, torch.SymInt)]
        sizes |= {each.node.expr: each for each in own if isinstance(each.node.expr, sympy.Symbol)}
        count: int | torch.SymInt = value.numel() if isinstance(value, torch.Tensor) else 1
        hint = hint_of(count)
        if isinstance(count, torch.SymInt) and hint is not None:
            largest, degree = max(largest, hint), max(degree, sympy.total_degree(count.node.expr))
    growth = max(_LEAST_GROWTH, (_POINTS / largest) ** (1 / degree))
    for symbol, size in sizes.items():
        env, hint = size.node.shape_env, hint_of(size)
        if hint is not None and hint > 0 and _is_unbounded(symbol, env):
            torch._check(size <= int(hint * growth))


def _is_unbounded(symbol: sympy.Symbol, env: ShapeEnv) -> bool:
    """Return True for a symbol without an upper bound that fits 32 bits."""
    known = env.var_to_range.get(symbol)
    return known is None or bool(known.upper >= 2 * _POINTS)
