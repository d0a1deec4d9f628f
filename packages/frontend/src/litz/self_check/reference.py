"""ATen's results of an FX graph: in the graph's own dtypes, in double precision, and for slightly different inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from litz.devices import is_accelerator
from litz.self_check.judge import Values
from litz.self_check.snapshot import RandomState, Snapshot, copied, undisturbed

_NEARBY = 3
"""Number of runs with slightly different inputs."""

_UNSET = (
    "aten.empty.",
    "aten.empty_like.",
    "aten.empty_strided.",
    "aten.new_empty.",
    "aten.new_empty_strided.",
)
"""Operators whose results are uninitialised."""

_BITS = ("aten.view.dtype", "prims.view_element_type.default")
"""Operators that read the bits of floats, which have no equivalent in other dtypes."""

_COLLECTIVE = (
    "_c10d_functional",
    "_c10d_functional_autograd",
    "_dtensor",
    "c10d",
    "c10d_functional",
    "symm_mem",
)
"""Namespaces of operators that wait for other processes, which may not check the same call."""

_WIDE = {torch.float64: torch.float64, torch.complex64: torch.complex128, torch.complex128: torch.complex128}


class Reference:
    """ATen's runs of ``gm`` from the snapshot of a call.

    ``results`` and ``arguments`` are those of the call by ATen, ``expected`` the compared ones by label; ``written``
    are the positions of arguments that ATen overwrites, ``after`` is the random state after the run. Raises the
    errors of the graph.
    """

    def __init__(self, gm: GraphModule, snapshot: Snapshot, unjudged: frozenset[str]) -> None:
        self._gm = gm
        self._args = snapshot.args
        self._state = snapshot.state
        self._output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
        self._unjudged = unjudged
        arguments = copied(snapshot.args)
        before = [each._version if isinstance(each, Tensor) else 0 for each in arguments]
        self.results = self._run(gm, arguments)
        self.arguments = arguments
        self.after = RandomState.now(device for device, _ in snapshot.state.gpus)
        self.written = tuple(
            k for k, each in enumerate(arguments) if isinstance(each, Tensor) and each._version != before[k]
        )
        self.expected = self.labelled(self.results, arguments)

    def labelled(self, results: Sequence[Any], arguments: Sequence[Any]) -> Values:
        """Return the compared values of a call by label: results, and arguments that it overwrites."""
        nodes = pytree.tree_leaves(self._output.args[0])
        named = zip(nodes, results, strict=True)
        values = {
            f"result {k}": value
            for k, (node, value) in enumerate(named)
            if value is not None and not (isinstance(node, Node) and node.name in self._unjudged)
        }
        inputs = [node for node in self._gm.graph.nodes if node.op == "placeholder"]
        written = (k for k in self.written if inputs[k].name not in self._unjudged)
        return {**values, **{f"input {k}": arguments[k] for k in written}}

    def again(self, call: Callable[[list[Any]], Sequence[Any]]) -> Values:
        """Return the values of another compiled form of the graph, from the same arguments and random state."""
        arguments = copied(self._args)
        self._state.restore()
        return self.labelled(call(list(arguments)), arguments)

    def nearby(self) -> list[Values]:
        """Return ATen's values for float inputs that differ by about one rounding."""
        return [self._nearby(torch.Generator().manual_seed(seed)) for seed in range(_NEARBY)]

    def _nearby(self, source: torch.Generator) -> Values:
        """Return ATen's values for one set of such inputs."""
        with undisturbed():
            copies = copied(self._args)
            arguments = [_nudged(each, source) if isinstance(each, Tensor) else each for each in copies]
        return self.labelled(self._run(self._gm, arguments), arguments)

    @cached_property
    def exact(self) -> Values:
        """Values of a run in double precision, computed on first use."""
        with undisturbed():
            arguments = [_widened(each) for each in copied(self._args)]
        try:
            results = self._run(_Wide(self._gm).run, arguments)
            exact = self.labelled(results, arguments)
        except Exception:  # a graph without a double precision form is compared with itself
            return self.expected
        same = all(_shape(exact.get(label)) == _shape(value) for label, value in self.expected.items())
        return exact if same else self.expected

    def _run(self, call: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
        """Run the graph from the snapshot's random state."""
        self._state.restore()
        with undisturbed():
            results = call(*arguments)
        return list(results) if isinstance(results, list | tuple) else [results]


class _Wide(Interpreter):
    """Interpreter of a graph in double precision.

    Operations without a double precision form, and random ones, run in the dtypes of the graph, and their results
    are widened.
    """

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _widened(super().get_attr(target, args, kwargs))

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function" or not isinstance(n.target, torch._ops.OperatorBase):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        written = getattr(n.target, "_schema", None) is not None and n.target._schema.is_mutable  # type: ignore[attr-defined]
        if written or not (_is_random(n) or _is_higher_order(n) or str(n.target) in _BITS):
            wide_args, wide_kwargs = pytree.tree_map(_wide_dtype, (args, kwargs))
            try:
                return pytree.tree_map(_widened, n.target(*wide_args, **wide_kwargs))
            except (RuntimeError, TypeError, NotImplementedError):
                if written:
                    raise  # it must overwrite the tensor that others read
        narrow = {id(self.env[each]): each.meta.get("val") for each in n.all_input_nodes}
        args, kwargs = pytree.tree_map(lambda each: _like(each, narrow.get(id(each))), (args, kwargs))
        return pytree.tree_map(_widened, n.target(*args, **kwargs))


def in_double_precision(gm: GraphModule, args: Sequence[Any]) -> Any:
    """Return a graph's results in double precision; ``None`` for a graph without such a form."""
    try:
        with undisturbed():
            return _Wide(gm).run(*(_widened(each) for each in args))
    except Exception:
        return None


def check_obstacle(gm: GraphModule) -> str:
    """Return the reason that a graph must not run twice; empty where it may."""
    parts = [each for each in gm.modules() if isinstance(each, GraphModule)]
    for node in (node for each in parts for node in each.graph.nodes):
        if node.target is torch.ops.higher_order.with_effects:
            # The effect of ATen operations is an exception, which may be raised twice.
            if not str(node.args[1]).startswith("aten."):
                return f"{node.args[1]} has side effects"
        elif getattr(node.target, "namespace", "") in _COLLECTIVE:
            return f"{node.target} communicates with other processes"
    return ""


def gpus_of(gm: GraphModule) -> tuple[torch.device, ...]:
    """Return the GPUs, or other accelerators, that a graph's tensors are on."""
    values = (each for node in gm.graph.nodes for each in pytree.tree_leaves(node.meta.get("val")))
    devices = {
        each.device for each in values if isinstance(each, Tensor) and is_accelerator(each.device.type)
    }
    return tuple(sorted(devices, key=str))


def unjudged_nodes(gm: GraphModule, *, own_random: bool) -> frozenset[str]:
    """Return the nodes whose values are unspecified: uninitialised memory and, where kernels have their
    ``own_random`` numbers, everything that depends on these."""
    found: set[Node] = set()
    for node in gm.graph.nodes:
        if (own_random and _is_random(node)) or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    written = {node.args[0] for node in found if str(node.target) == "aten.copy_.default"}
    unset = {node for node in gm.graph.nodes if str(node.target).startswith(_UNSET)}
    return frozenset(node.name for node in (*found, *unset, *written) if isinstance(node, Node))


def _is_random(node: Node) -> bool:
    """Report whether a node draws random numbers."""
    target, owner = node.target, node.graph.owning_module
    if isinstance(target, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in target.tags
    inner = [getattr(owner, str(each.target), None) for each in node.all_input_nodes if each.op == "get_attr"]
    graphs = [each.graph for each in inner if isinstance(each, GraphModule)]
    return any(_is_random(each) for graph in graphs for each in graph.nodes)


def _is_higher_order(node: Node) -> bool:
    """Report whether a node calls a higher-order operator."""
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _widened(value: Any) -> Any:
    """Return a value in double precision."""
    return (
        value.to(_wide(value.dtype))
        if isinstance(value, Tensor) and value.dtype != _wide(value.dtype)
        else value
    )


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the double precision dtype for a dtype."""
    return _WIDE.get(dtype, torch.float64 if dtype.is_floating_point else dtype)


def _wide_dtype(value: Any) -> Any:
    """Return a dtype argument in double precision."""
    return _wide(value) if isinstance(value, torch.dtype) else value


def _like(value: Any, example: object) -> Any:
    """Return a tensor in the dtype of an example."""
    if isinstance(value, Tensor) and isinstance(example, Tensor) and value.dtype != example.dtype:
        return value.to(example.dtype)
    return value


def _nudged(tensor: Tensor, source: torch.Generator) -> Tensor:
    """Return a tensor with each element moved by one rounding up or down."""
    if tensor.is_floating_point() and tensor.dtype.itemsize > 1:
        signs = torch.randint(0, 2, tensor.shape, generator=source, dtype=torch.float64) * 2 - 1
        steps = signs.to(tensor.device) * torch.finfo(tensor.dtype).eps
        return (tensor.double() * (1 + steps)).to(tensor.dtype)
    return tensor


def _shape(value: object) -> object:
    """Return the shape of a tensor."""
    return value.shape if isinstance(value, Tensor) else None
