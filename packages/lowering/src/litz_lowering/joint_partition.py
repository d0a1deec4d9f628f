"""Partition of a joint graph into forward and backward: CSE, then torch's min-cut partitioner.

The cut either saves a value or recomputes it, so equal nodes are merged first. CSE is litz's own because torch's
pass imports all of its compiler, which takes longer than lowering a model.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import Graph, GraphModule, Node

from litz_ir.passes import Pass, PassContext, Pipeline
from litz_lowering.higher_order.flex_attention import forget_lists
from litz_lowering.joint_copies import remove_copies
from litz_lowering.overwritten_inputs import save_copies_of_overwritten
from litz_lowering.pool_indices import narrow_pool_indices
from litz_lowering.recomputed_draws import repeat_recomputed_draws
from litz_lowering.types.node_memory import may_write, storage_of
from litz_lowering.weight_casts import repeat_weight_casts

_NOT_PURE = ("aten.empty", "aten.new_empty", "aten._local_scalar_dense")
"""Operators whose results do not follow from their arguments: uninitialised memory and values of tensors."""

_ALIASES = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)
"""Operators whose result is their argument in another tensor."""


@dataclass(frozen=True, slots=True)
class JointGraph:
    """Joint graph of AOTAutograd, changed in place by passes."""

    module: GraphModule
    inputs: Sequence[Any]
    """Inputs of the graph, as the partitioner is given them."""
    options: Mapping[str, Any]
    """Options of torch's partitioner."""


@dataclass(frozen=True, slots=True)
class EditGraph:
    """Pass that edits a joint graph in place by a function.

    litz's own functions leave the values of its results as they are, to the bit.
    """

    name: str
    edit: Callable[[JointGraph], object]
    ulp: int = 0

    def apply(self, data: JointGraph, context: PassContext) -> JointGraph:
        """Edit the graph in place."""
        self.edit(data)
        return data


@dataclass(frozen=True, slots=True)
class MinCut:
    """Divide a joint graph by torch's min-cut rematerialisation."""

    name: str = "joint.min_cut"
    ulp: int = 0

    def apply(self, data: JointGraph, context: PassContext) -> tuple[GraphModule, GraphModule]:
        """Return the forward and the backward graph."""
        with functorch_config.patch(cse=False):
            halves = min_cut_rematerialization_partition(data.module, data.inputs, **data.options)
        outputs = data.options["num_fwd_outputs"]
        halves = repeat_recomputed_draws(data.module, *halves, outputs)
        save_copies_of_overwritten(*halves, outputs)
        return halves


def joint_passes(
    rewrite: Callable[[GraphModule], object] | None = None,
) -> tuple[Pass[Any, Any], ...]:
    """Passes that divide a joint graph, in order, with a ``rewrite`` before it is cut."""
    own = () if rewrite is None else (EditGraph("joint.rewrite", lambda data: rewrite(data.module)),)
    return (
        EditGraph("joint.forget_lists", lambda data: forget_lists(data.module.graph)),
        EditGraph("joint.narrow_pool_indices", lambda data: narrow_pool_indices(data.module.graph)),
        EditGraph("joint.merge_equal", _merge_equal),
        EditGraph("joint.remove_copies", lambda data: remove_copies(data.module.graph)),
        *own,
        EditGraph("joint.repeat_weight_casts", _repeat_weight_casts),  # equal casts would be merged
        MinCut(),
    )


def _merge_equal(data: JointGraph) -> None:
    """Merge common subexpressions, unless ``functorch.config.cse`` is off."""
    if functorch_config.cse:
        merge_equal(data.module.graph)


def _repeat_weight_casts(data: JointGraph) -> None:
    """Repeat casts of weights, whose placeholders the options name, in backwards on GPUs that pad them."""
    repeat_weight_casts(data.module.graph, data.options.get("static_lifetime_input_indices") or ())


def partition(
    joint: GraphModule,
    inputs: Sequence[Any],
    *,
    rewrite: Callable[[GraphModule], object] | None = None,
    **options: Any,
) -> tuple[GraphModule, GraphModule]:
    """Divide a joint graph, which is changed, into forward and backward.

    ``rewrite`` changes the graph after equal operations were merged and before it is cut; ``options`` are those of
    torch's partitioner.
    """
    passes = Pipeline[JointGraph, tuple[GraphModule, GraphModule]]("partition", joint_passes(rewrite))
    return passes.apply(JointGraph(joint, inputs, options), PassContext({}))


def merge_equal(graph: Graph) -> None:
    """Replace equal operations by the first of them, and aliases by what they are aliases of.

    Random operators, operators with effects and custom operators are not merged, nor are aliases of returned
    memory, since eager's results have memory of their own. Nothing is merged across an in-place write.
    """
    returned = {storage for node in _returned(graph) if (storage := storage_of(node)) is not None}
    known: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if may_write(node):
            known.clear()
        elif node.target in _ALIASES and storage_of(node) not in (None, *returned):
            # Autograd saves results through these; the layout of a saved alias would be taken for promised.
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)
        elif _is_pure(node) and storage_of(node) not in returned:
            try:
                key = (node.target, _key(node.args), _key(node.kwargs))
            except TypeError:
                continue  # an argument without a key
            first = known.setdefault(key, node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def _returned(graph: Graph) -> Iterator[Node]:
    for node in reversed(graph.nodes):
        if node.op == "output":
            yield from node.all_input_nodes
            return


def _is_pure(node: Node) -> bool:
    """True for an ATen operator that is a function of its arguments, and for arithmetic on sizes."""
    target = node.target
    if node.op != "call_function" or "unbacked_bindings" in node.meta:
        return False
    if isinstance(target, types.BuiltinFunctionType):
        return target.__module__ == operator.add.__module__
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    pure = not str(target).startswith(_NOT_PURE) and torch.Tag.nondeterministic_seeded not in target.tags
    return pure and bool(target._schema.returns)


def _key(value: Any) -> Hashable:
    """Key of an argument. Numbers of different types differ, and floats compare by bits.

    Raises :class:`TypeError` for a value without a key.
    """
    match value:
        case Node() | None | str() | torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return value
        case bool() | int() | float() | complex():
            return type(value), repr(value)
        case tuple() | list():
            return type(value), tuple(map(_key, value))
        case dict():
            return tuple((key, _key(item)) for key, item in value.items())
        case slice():
            return slice, _key((value.start, value.stop, value.step))
    raise TypeError(f"{type(value).__name__} has no key")
