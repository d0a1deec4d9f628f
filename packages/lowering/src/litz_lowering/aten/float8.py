"""8-bit floats on a CPU: eager supports few operators, and the rest fall back to it so that it raises its error."""

from __future__ import annotations

import torch
from torch.fx import Node

from litz_ir.device import CPU
from litz_lowering.contexts.context import Declined, LoweringContext
from litz_lowering.contexts.outputs import flatten
from litz_lowering.contexts.registry import RuleEntry

_SERVED = frozenset(
    """
    _reshape_alias _to_copy _unsafe_view alias as_strided chunk clone contiguous copy copy_ detach diagonal expand lift
    lift_fresh permute reshape resolve_conj resolve_neg select slice split split_with_sizes squeeze t tensor_split
    transpose unbind unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze view
    _unsafe_index _unsafe_index_put as_strided_scatter cat constant_pad_nd diagonal_scatter embedding index index_put
    index_select masked_select repeat repeat_interleave roll select_scatter slice_scatter stack where
    empty empty_like empty_permuted empty_strided eye fill full full_like new_empty new_empty_strided new_full new_ones
    new_zeros ones ones_like scalar_tensor zero zeros zeros_like
    _assert_async _local_scalar_dense all any eq isnan item ne
    _foreach_clone _foreach_copy _foreach_zero
    """.split()
)
"""ATen operators that eager supports for every 8-bit float, without a trailing ``_copy``.

``abs`` is missing: eager's keeps the sign of zero and NaN, unlike that of other dtypes.
"""


def refused_float8(ctx: LoweringContext, entry: RuleEntry) -> Declined | None:
    """Decline rules for operators that eager refuses for 8-bit floats on a CPU, or rounds at each addition.

    Eager on a GPU supports other operators, so all rules apply there.
    """
    target = ctx.node.target
    if entry.how == "library" or not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    name = target._opname
    adds = name.endswith("index_put") and ctx.named_arguments.get("accumulate", False)
    if not adds and (name in _SERVED or name.removesuffix("_copy") in _SERVED):
        return None
    if any(map(_holds_float8, (ctx.node, *ctx.node.all_input_nodes))):
        return Declined("eager does not compute in 8-bit floats on a CPU", is_intended=True)
    return None


def _holds_float8(node: Node) -> bool:
    """True for a node with a CPU tensor of 8-bit floats among its results."""
    return any(
        isinstance(leaf, torch.Tensor)
        and leaf.device.type == CPU.kind
        and leaf.is_floating_point()
        and leaf.dtype.itemsize == 1
        for leaf in flatten(node.meta.get("val"))
    )
