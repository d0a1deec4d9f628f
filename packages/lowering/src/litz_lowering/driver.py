"""The driver: walks an FX graph of ATen operations and builds the loop graph."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node

from litz_ir.device import CPU
from litz_ir.dtypes import b1, f64, u64
from litz_ir.errors import LitzError, SymbolError, UnsupportedOperation
from litz_ir.fused import Decision
from litz_ir.loops import Extern, LoopGraph, Output, Pointwise, Ref, TensorType, Value
from litz_ir.passes import PassContext, run_passes
from litz_ir.scalar import Const, Expr, Load, Scalar, build
from litz_ir.symbols import free_symbols
from litz_lowering.aliased_results import AliasedResults
from litz_lowering.builder import GraphBuilder
from litz_lowering.constants import Constants, literal_elements
from litz_lowering.context import LoweringContext
from litz_lowering.decompose import Decompositions, decomposition_table, users_decompositions
from litz_lowering.decompose_hops import DecomposeHops
from litz_lowering.devices import Devices, gpus_of
from litz_lowering.fallback import OUTSIDE, Fallback, call_aten, copied_to, resolved
from litz_lowering.fallback_families import fallback_reason
from litz_lowering.flex_attention import MarkFlexAttention
from litz_lowering.float8 import refused_float8
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.fx_passes.pipeline import post_grad
from litz_lowering.hop_calls import HopRoutine, call_hop
from litz_lowering.inputs import Inputs, attribute, literal
from litz_lowering.options import LoweringOptions
from litz_lowering.origins import origin_of
from litz_lowering.outputs import (
    as_required,
    flatten,
    output_memory_copy,
    output_of,
    required_type,
    with_fixed_outputs,
)
from litz_lowering.registry import RuleResult, apply
from litz_lowering.rules import RULES
from litz_lowering.rules.factory import bind_range_size
from litz_lowering.subgraphs import OutputRequirements, Subgraphs
from litz_lowering.symbols_io import SymbolReader
from litz_lowering.torch_types import keyword, known_dtype, litz_dtype
from litz_lowering.unrepresentable_numbers import unrepresentable_number
from litz_lowering.values import Complex, Declined, Lowered, ResultType, Subgraph, Tensor, has_complex

_FORCED = "asked for by force_extern"
_NO_RULE = "no lowering rule"
_NO_COMPLEX_RULE = "no lowering rule for complex tensors"
_ATEN = ("aten", "prims", "prim")
_ELSEWHERE = "a tensor of another device"
_PINNED = "it makes pinned memory"


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A loop graph, the tensors that its constants name, and what was left to ATen.

    ``operations_of`` maps each FX node's name to the names of the loop operations made for it. ``routines`` are what
    calls of the graph run that no name can find: operators with the traced functions that they are given.
    ``decisions`` say what was rewritten, and what nearly was.
    """

    graph: LoopGraph
    constants: Mapping[str, torch.Tensor]
    fallbacks: tuple[Fallback, ...] = ()
    operations_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    routines: Mapping[str, HopRoutine] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()


def lower(
    gm: GraphModule,
    *,
    name: str = "graph",
    options: LoweringOptions | None = None,
    held: Collection[str] = (),
    donated: Collection[str] = (),
    saved: Collection[str] = (),
) -> LoweredGraph:
    """The loop graph of ``gm``: functional ATen operations that carry ``meta["val"]``, as AOTAutograd gives them.

    ``held`` names the placeholders that are likely the same tensors, with the same elements, call after call;
    ``donated`` those whose tensors nobody reads afterwards; ``saved`` names nodes whose results, where the graph
    returns them, may come with other strides than eager's. One loop operation is made for each tensor operation; ``gm``
    is not changed. Errors name the node and the user's line: :class:`UnsupportedOperation` for what cannot be called,
    and for what has no rule where the options say so.
    """
    options, context = options or LoweringOptions(), PassContext({})
    constants = Constants(Devices(gpus_of(gm)))
    lowering = _Lowering(_cleaned(gm, options, context), options, "", constants, context)
    return lowering.run(name, held=held, donated=donated, saved=saved)


def decompositions() -> Decompositions:
    """The decomposition table to give to AOTAutograd: what has a lowering rule stays whole."""
    return decomposition_table(RULES.served)


def registered() -> dict[str, object]:
    """The rules and decompositions that are not litz's and torch's own, by what they serve: a lowered graph depends on
    them beside the versions of both. None stands for a rule that was taken away."""
    return {**RULES.users(), **users_decompositions()}


def _cleaned(gm: GraphModule, options: LoweringOptions, context: PassContext) -> AtenGraph:
    table = decompositions()
    flexible = MarkFlexAttention(
        options.nested_reductions, table, partial(_alone, options), options.deterministic
    )
    return run_passes((flexible, DecomposeHops(table), *post_grad(options)), AtenGraph(gm, gm.graph), context)


def _alone(options: LoweringOptions, function: GraphModule) -> LoopGraph:
    """The loop graph of a function that is lowered to see what it is made of."""
    context = PassContext({})
    source = _cleaned(function, options, context)
    return (
        _Lowering(source, options, "", Constants(Devices(gpus_of(function))), context)
        .run("function", OutputRequirements())
        .graph
    )


class _Lowering:
    """The state of lowering one graph. ``path`` leads to a subgraph, and qualifies its nodes' names: ``body.``.
    ``context`` holds what the passes over the graph, and over its subgraphs, decided."""

    def __init__(
        self,
        source: AtenGraph,
        options: LoweringOptions,
        path: str,
        constants: Constants,
        context: PassContext,
    ) -> None:
        self.graph = source.graph
        self.module = source.module
        self.options = options
        self.path = path
        self.context = context
        self.symbols = SymbolReader(constants.devices)
        self.builder = GraphBuilder((node.name for node in source.graph.nodes), self.symbols)
        self.constants = constants
        self.subgraphs = Subgraphs(self._subgraph)
        self.inputs = Inputs(self.builder)
        self.outputs: list[Output] = []
        self.returned: dict[str, set[str]] = {}
        self.fallbacks: list[Fallback] = []
        self.env: dict[Node, Lowered] = {}
        self.wanted: dict[str, TensorType] = {}
        self.operations_of: dict[str, tuple[str, ...]] = {}
        self.demand: OutputRequirements | None = None
        self.routines: dict[str, HopRoutine] = {}

    def run(
        self,
        name: str,
        demand: OutputRequirements | None = None,
        held: Collection[str] = (),
        donated: Collection[str] = (),
        saved: Collection[str] = (),
    ) -> LoweredGraph:
        """Lower every node; ``demand`` is made of the outputs of a subgraph. For the other names see :func:`lower`."""
        self.demand = demand
        for node in self.graph.nodes:
            before = len(self.builder.operations)
            try:
                self._visit(node)
            except LitzError as error:
                error.node = error.node or self.path + node.name
                error.origin = error.origin or origin_of(node, self.path)
                raise
            made = self.builder.operations[before:]
            self.fallbacks.extend(
                Fallback(self.path + node.name, call.target, call.reason, call.origin)
                for call in made
                if isinstance(call, Extern)
            )
            if made:
                self.operations_of[self.path + node.name] = tuple(self.path + each.name for each in made)
        graph = LoopGraph(
            name=name,
            symbols=self.symbols.table(),
            inputs=tuple(self.inputs.made),
            constants=tuple(self.constants.values),
            operations=with_fixed_outputs(self.builder.operations, self.outputs, self.wanted),
            outputs=tuple(self.outputs),
            frozen=self._unwritten(held),
            donated=self._unwritten(donated),
            saved=tuple(value for value, nodes in self.returned.items() if nodes.issubset(saved)),
        )
        return LoweredGraph(
            graph, self.constants.tensors, tuple(self.fallbacks), self.operations_of, self.routines,
            tuple(self.context.decisions),
        )  # fmt: skip

    def _unwritten(self, placeholders: Collection[str]) -> tuple[str, ...]:
        """The real tensors among the inputs for ``placeholders`` that nothing here overwrites."""
        wanted = {self.inputs.named[each] for each in placeholders}
        written = {value.replaces for each in self.builder.operations for value in each.results}
        return tuple(i.name for i in self.inputs.made if type(i) is Value and i.name in wanted - written)

    def _visit(self, node: Node) -> None:
        match node.op:
            case "placeholder":
                self.env[node] = self._plain(node, self.inputs.placeholder(node))
            case "get_attr":
                self.env[node] = self._attribute(node)
            case "call_function":
                self.env[node] = self._call(node)
            case "output":
                self._output(node)
            case _:
                raise UnsupportedOperation(
                    f"{node.op} nodes are not ATen operations",
                    hint="trace it with AOTAutograd or make_fx first",
                )

    def _plain(self, node: Node, value: Lowered) -> Lowered:
        """An input as its memory says, or with its negative bit worked in."""
        given = node.meta.get("val")
        if not isinstance(value, Tensor) or not isinstance(given, torch.Tensor) or not given.is_neg():
            return value
        if any(getattr(getattr(user.target, "_schema", None), "is_mutable", False) for user in node.users):
            raise UnsupportedOperation(f"input {node.name} has a negative bit, and is written to")
        return resolved(self._context(node, (value.type,)), value)

    def _attribute(self, node: Node) -> Lowered:
        path = str(node.target)
        value = attribute(self.module, path)
        if isinstance(value, GraphModule):
            return Subgraph(path, value)
        if not isinstance(value, torch.Tensor):
            return value
        elements = literal_elements(value)
        if elements is None:
            found = Tensor(self.constants.add(self.builder.unique(node.name, own=True), value))
            return Complex(found) if value.is_complex() else found
        return literal(self._context(node, (self.symbols.tensor_type(value),)), elements)

    # --- operations ----------------------------------------

    def _call(self, node: Node) -> Lowered:
        target = node.target
        if target is operator.getitem:
            source = self.env[node.args[0]]  # type: ignore[index]  # getitem's first argument is a node
            return source[node.args[1]]  # type: ignore[index]  # and its second an int
        value = node.meta.get("val")
        schema = getattr(target, "_schema", None)
        if "val" not in node.meta and (schema is None or schema.returns):
            raise UnsupportedOperation(
                f"{target} has no metadata",
                hint="trace with FakeTensors so that every node carries meta['val']",
            )
        place = next((leaf.device for leaf in flatten(value) if isinstance(leaf, torch.Tensor)), None)
        args = tuple(self._read(item, place) for item in node.args)
        kwargs = {key: self._read(item, place) for key, item in node.kwargs.items()}
        outputs, complex_outputs = self._sized(node, value, args)
        is_complex = any(complex_outputs) or has_complex((*args, *kwargs.values()))
        found = RULES.find(overload_name(target), is_complex=is_complex)
        if found is None and isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
            return self.symbols.size(value)
        forced = self.path + node.name in self.options.force_extern
        ctx = self._context(node, outputs, complex_outputs)
        if node.kwargs.get("pin_memory"):
            declined = Declined(_PINNED, is_meant=True)
        elif found is not None and not forced:
            local, named = (args, kwargs) if found.moves else self._local(ctx, (args, kwargs))
            refused = unrepresentable_number(ctx) or refused_float8(ctx, found)
            result = refused or self._apply(found, ctx, local, named)
            if not isinstance(result, Declined):
                self._all_bound(ctx)
                return result
            declined = replace(result, is_meant=result.is_meant or found.how != "loops")
        elif forced:
            declined = Declined(_FORCED, is_meant=True)
        elif reason := fallback_reason(overload_name(target)):
            declined = Declined(reason, is_meant=True)
        else:
            declined = Declined(_NO_COMPLEX_RULE if is_complex else _NO_RULE)
        return self._fall_back(ctx, args, kwargs, declined)

    def _sized(
        self, node: Node, value: object, args: tuple[Any, ...]
    ) -> tuple[tuple[ResultType, ...], tuple[bool, ...]]:
        """The types of a node's results, after the host computes a size that no term expresses."""
        try:
            return self._outputs(value)
        except SymbolError:
            if not bind_range_size(self._context(node, ()), args):
                raise
            return self._outputs(value)

    def _local(self, ctx: LoweringContext, argument: Any) -> Any:
        """The argument where the results are computed: eager takes 0-d tensors of the CPU, and indices, beside those of
        a device."""
        if isinstance(argument, tuple):
            return tuple(self._local(ctx, item) for item in argument)
        if isinstance(argument, dict):
            return {key: self._local(ctx, item) for key, item in argument.items()}
        if not isinstance(argument, Tensor | Complex) or not ctx.outputs or ctx.outputs[0] is None:
            return argument
        device = ctx.outputs[0].device
        if argument.device == device:
            return argument
        if isinstance(argument, Complex):
            return Complex(copied_to(ctx, argument.pairs, device, _ELSEWHERE))
        if argument.device == CPU and not argument.rank and (number := _by_value(ctx, argument)) is not None:
            kind = ctx.temporary(argument.dtype, (), device)
            return ctx.pointwise(lambda axes: number, kind, f"{argument.name}_here")
        return copied_to(ctx, argument, device, _ELSEWHERE)

    def _apply(
        self, found: Any, ctx: LoweringContext, args: tuple[Lowered, ...], kwargs: dict[str, Lowered]
    ) -> RuleResult:
        try:
            return apply(found, ctx, args, kwargs)
        except LitzError:
            raise
        except Exception as error:
            described = f"the rule for {ctx.origin.operation} failed: {type(error).__name__}: {error}"
            raise ctx.error(described) from error

    def _all_bound(self, ctx: LoweringContext) -> None:
        """Raise where the sizes of a result are data and its rule did not say which."""
        if not ctx.unbacked:
            return
        shapes = (size for kind in ctx.outputs if kind is not None for size in kind.shape)
        named = frozenset[str]().union(*map(free_symbols, shapes))
        if missing := {name for name in named if self.symbols.is_data(name)} - self.builder.bound:
            raise ctx.error(
                f"the rule for {ctx.origin.operation} gives no value to {', '.join(sorted(missing))}"
            )

    def _fall_back(
        self, ctx: LoweringContext, args: tuple[Lowered, ...], kwargs: dict[str, Lowered], declined: Declined
    ) -> Lowered:
        """The node as a call; raises where the options ask for an error and the call is not meant."""
        target, reason = ctx.node.target, declined.reason
        is_error = self.options.fallback == "error" and not declined.is_meant
        if isinstance(target, torch._ops.HigherOrderOperator):
            if is_error:
                raise ctx.error(f"{target.name()} would run as it came: {reason}")
            reason = f"{reason}; it holds traced functions, so that the compiled graph is not kept on disk"
            value, name, routine = call_hop(ctx, lambda node: self._current(self.env[node]), reason)
            self.routines[name] = routine
            return value
        if not isinstance(target, torch._ops.OpOverload):
            raise ctx.error(
                f"{target} is no ATen operation and cannot be lowered: {reason}",
                hint="this graph runs as it came",
            )
        if reason != _FORCED and target.namespace not in _ATEN:
            reason, is_error = OUTSIDE, False
        if is_error:
            raise ctx.error(f"{target} would be left to ATen: {reason}")
        results = call_aten(ctx, target, args, kwargs, reason)
        if ctx.unpack:
            return ctx.nested(results)
        return results[0] if results else None

    def _context(
        self, node: Node, outputs: tuple[ResultType, ...], complex_outputs: tuple[bool, ...] = ()
    ) -> LoweringContext:
        origin = origin_of(node, self.path)
        return LoweringContext(
            self.builder, node, outputs, origin, self.options, self.subgraphs, complex_outputs
        )

    def _subgraph(self, subgraph: Subgraph, demand: OutputRequirements) -> LoopGraph:
        """The loop graph of a subgraph; its constants and what it left to ATen are also this graph's."""
        path = f"{self.path}{subgraph.path}."
        source = _cleaned(subgraph.module, self.options, self.context)
        inner = _Lowering(source, self.options, path, self.constants.inner(), self.context)
        lowered = inner.run(subgraph.path, demand)
        self.fallbacks += lowered.fallbacks
        self.operations_of.update(lowered.operations_of)
        self.routines.update(lowered.routines)
        return lowered.graph

    # --- metadata and arguments ----------------------------------------

    def _outputs(self, value: object) -> tuple[tuple[ResultType, ...], tuple[bool, ...]]:
        """The types of a node's results, and which of them are complex."""
        leaves = [leaf for leaf in flatten(value) if leaf is not None or isinstance(value, list | tuple)]
        types = tuple(
            self.symbols.tensor_type(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in leaves
        )
        return types, tuple(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves)

    def _read(self, argument: Any, place: torch.device | None = None) -> Any:
        """An FX argument as rules see it; ``place`` is where the node's result is."""
        match argument:
            case Node():
                return self._current(self.env[argument])
            case list() | tuple():
                return tuple(self._read(item, place) for item in argument)
            case dict():
                return {key: self._read(item, place) for key, item in argument.items()}
            case slice():
                raise UnsupportedOperation(f"arguments like {argument!r} are not supported")
            case torch.SymInt():
                return self.symbols.size(argument)
            case torch.dtype():
                return litz_dtype(argument) if known_dtype(argument) else keyword(argument)
            case torch.device():
                return self.symbols.devices.of(argument, place)
            case torch.memory_format() | torch.layout():
                return keyword(argument)
        return argument

    def _current(self, value: Lowered) -> Lowered:
        if isinstance(value, Tensor):
            return self.builder.current(value)
        if isinstance(value, Complex):
            return Complex(self.builder.current(value.pairs))
        if isinstance(value, tuple):
            return tuple(map(self._current, value))
        return value

    def _shared(self, leaves: Sequence[object]) -> Mapping[Node, Tensor | Complex]:
        def context(node: Node) -> LoweringContext:
            return self._context(node, *self._outputs(node.meta["val"]))

        return AliasedResults(self.env, self.builder, RULES, self._read, context, self._apply).of(leaves)

    def _output(self, node: Node) -> None:
        leaves = tuple(flatten(node.args[0]))
        others = self._shared(leaves) if self.demand is None else {}
        for position, leaf in enumerate(leaves):
            value = self._read(leaf)
            meta = leaf.meta.get("val") if isinstance(leaf, Node) else None
            wanted = self.symbols.tensor_type(meta) if isinstance(meta, torch.Tensor) else None
            if self.demand is not None:
                wanted = required_type(self.demand, position, self.inputs.made) or wanted
            ctx = self._context(leaf if isinstance(leaf, Node) else node, (wanted,))
            if self.demand is not None:
                value = as_required(ctx, self.demand, value, wanted)
            elif isinstance(leaf, Node):
                value = others.get(leaf, value)
            output = output_of(ctx, value, wanted)
            self.outputs.append(output)
            if type(output) is Ref and wanted is not None:
                self.returned.setdefault(output.name, set()).add(getattr(leaf, "name", ""))
            if isinstance(value, Tensor | Complex) and self.demand is None:
                held = value.pairs if isinstance(value, Complex) else value
                self.wanted.update(output_memory_copy(self.builder, held))
            if wanted is not None:
                self.wanted.setdefault(output.name, wanted)  # type: ignore[union-attr]  # a Ref, for a tensor


def _by_value(ctx: LoweringContext, number: Tensor) -> Expr | None:
    """The element of a 0-d tensor of the CPU, where it is known, or as a number that kernels are passed; None for what
    no number holds."""
    body = number.load(())
    made = ctx.builder.producer(number.name)
    while isinstance(made, Pointwise) and len(made.bodies) == 1:
        (known,) = made.bodies
        if isinstance(known, Const):
            return known
        made = ctx.builder.producer(known.buffer) if isinstance(known, Load) else None
    if number.dtype.is_float:
        return Scalar(ctx.host_scalar(body).name, f64)
    if number.dtype.is_bool:
        return Scalar(ctx.host_scalar(body).name, b1)
    return None if number.dtype == u64 else build.index(ctx.host_integer(body, f"{number.name}_value"))


def overload_name(target: object) -> str:
    """The registry's name of an FX target: ``aten.add.Tensor`` for overloads, ``higher_order.cond`` for operators that
    take functions, the function's name for others."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    module = getattr(target, "__module__", "")
    return f"{module}.{getattr(target, '__name__', target)}".removeprefix("_")
