"""Driver of lowering: walks an FX graph of ATen operations and builds the loop graph."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any
from weakref import WeakMethod

import torch
from torch.fx import GraphModule, Node

from litz_ir.errors import LitzError, SymbolError, UnsupportedOperation
from litz_ir.loops import Extern, LoopGraph, Output, Ref, TensorType, Value
from litz_ir.passes import Pass, PassContext, run_passes
from litz_lowering.aliased_results import AliasedResults
from litz_lowering.aten.fallback import NOT_ATEN, Fallback, call_aten, resolved
from litz_lowering.aten.fallback_families import fallback_reason
from litz_lowering.aten.float8 import refused_float8
from litz_lowering.aten.unrepresentable_numbers import unrepresentable_number
from litz_lowering.contexts.builder import GraphBuilder
from litz_lowering.contexts.constants import Constants, literal_elements
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.inputs import Inputs, attribute, literal
from litz_lowering.contexts.options import LoweringOptions
from litz_lowering.contexts.origins import origin_of
from litz_lowering.contexts.outputs import (
    as_required,
    check_sizes,
    flatten,
    output_memory_copy,
    output_of,
    required_type,
    result_types,
    with_fixed_outputs,
)
from litz_lowering.contexts.registry import apply, overload_name
from litz_lowering.contexts.subgraphs import SubgraphRequirements, Subgraphs
from litz_lowering.contexts.values import (
    Complex,
    Declined,
    Lowered,
    ResultType,
    Subgraph,
    Tensor,
    has_complex,
)
from litz_lowering.device_arguments import rule_arguments
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.fx_passes.pipeline import REQUIRED, post_grad
from litz_lowering.higher_order.decompose_hops import DecomposeHops
from litz_lowering.higher_order.flex_attention import MarkFlexAttention
from litz_lowering.higher_order.hop_calls import HopRoutine, call_hop
from litz_lowering.lowered_graph import LoweredGraph
from litz_lowering.rules import RULES
from litz_lowering.rules.indexing.factory import bind_range_size
from litz_lowering.tables import decompositions
from litz_lowering.types.devices import Devices, gpus_of
from litz_lowering.types.symbols_io import SymbolReader
from litz_lowering.types.torch_types import keyword, known_dtype, litz_dtype

_BIT_EQUAL = "litz_lowering.aten.bit_equal"
"""Module of the operators that ``numerics="strict"`` generates; imported where that is chosen."""

_FORCED = "requested by the option force_extern"
_NO_RULE = "no lowering rule"
_NO_COMPLEX_RULE = "no lowering rule for complex tensors"
_ATEN = ("aten", "prims", "prim")
_PINNED = "the result is in pinned memory"
_NEGATED = "the input that it writes has its negative bit set"
_COPY = torch.ops.aten.copy_.default


def _is_mutable(node: Node) -> bool:
    """True for a call that writes an argument."""
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def lower(
    gm: GraphModule,
    *,
    name: str = "graph",
    options: LoweringOptions | None = None,
    frozen: Collection[str] = (),
    donated: Collection[str] = (),
    saved: Collection[str] = (),
    context: PassContext | None = None,
) -> LoweredGraph:
    """Lower ``gm``, a functional graph of ATen operations with ``meta["val"]``, to a loop graph.

    ``frozen`` names placeholders whose tensors are likely equal from call to call, ``donated`` those whose tensors
    nobody reads afterwards, and ``saved`` nodes whose results may have other strides than eager's where the graph
    returns them. Each tensor operation becomes one loop operation. ``gm`` is not changed. FX passes run in ``context``.

    Raises :class:`UnsupportedOperation`, with node and source line, for an operation that cannot be called, and
    for one without a rule under ``fallback="error"``.
    """
    options, context = options or LoweringOptions(), context or PassContext({})
    source, constants = _run_fx_passes(gm, options, context), Constants(Devices(gpus_of(gm)))
    return _Lowering(source, options, "", constants, context).run(
        name, frozen=frozen, donated=donated, saved=saved
    )


def _run_fx_passes(gm: GraphModule, options: LoweringOptions, context: PassContext) -> AtenGraph:
    table = decompositions(strict=options.numerics == "strict")
    mark = MarkFlexAttention(
        options.nested_reductions,
        options.blocked_attention,
        table,
        partial(_lower_function, options),
        frozenset(name.rpartition(".")[2] for name in options.force_extern),
        options.deterministic,
    )
    passes: tuple[Pass[AtenGraph, AtenGraph], ...] = (mark, DecomposeHops(table), *post_grad(options))
    return run_passes(passes, AtenGraph(gm, gm.graph), context, counted="fx-pass", always=REQUIRED)


def _lower_function(options: LoweringOptions, function: GraphModule) -> LoopGraph:
    """Lower a function by itself, for passes that inspect its loops."""
    context, constants = PassContext({}), Constants(Devices(gpus_of(function)))
    source = _run_fx_passes(function, options, context)
    return _Lowering(source, options, "", constants, context).run("function", SubgraphRequirements()).graph


class _Lowering:
    """State of lowering one graph.

    ``path`` is the path of a subgraph and prefixes the names of its nodes, as in ``body.``. ``context`` collects
    the decisions of passes over the graph and its subgraphs.
    """

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
        self.subgraphs = Subgraphs(WeakMethod(self._subgraph))
        self.inputs = Inputs(self.builder)
        self.outputs: list[Output] = []
        self.returned: dict[str, set[str]] = {}
        self.fallbacks: list[Fallback] = []
        self.env: dict[Node, Lowered] = {}
        self.negated: dict[Node, Tensor] = {}
        self.wanted: dict[str, TensorType] = {}
        self.operations_of: dict[str, tuple[str, ...]] = {}
        self.requirements: SubgraphRequirements | None = None
        self.routines: dict[str, HopRoutine] = {}

    def run(
        self,
        name: str,
        requirements: SubgraphRequirements | None = None,
        frozen: Collection[str] = (),
        donated: Collection[str] = (),
        saved: Collection[str] = (),
    ) -> LoweredGraph:
        """Lower every node. ``requirements`` are those of a subgraph's outputs; for other arguments see
        :func:`lower`."""
        self.requirements = requirements
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
            frozen=self._unwritten(frozen),
            donated=self._unwritten(donated),
            saved=tuple(value for value, nodes in self.returned.items() if nodes.issubset(saved)),
        )
        return LoweredGraph(
            graph, self.constants.tensors, tuple(self.fallbacks), self.operations_of, self.routines,
            tuple(self.context.decisions),
        )  # fmt: skip

    def _unwritten(self, placeholders: Collection[str]) -> tuple[str, ...]:
        """Tensors among the inputs of ``placeholders`` that the graph does not overwrite."""
        wanted = {self.inputs.named[each] for each in placeholders}
        written = {value.replaces for each in self.builder.operations for value in each.results}
        return tuple(i.name for i in self.inputs.made if type(i) is Value and i.name in wanted - written)

    def _visit(self, node: Node) -> None:
        match node.op:
            case "placeholder":
                self.env[node] = self._input(node)
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

    def _input(self, node: Node) -> Lowered:
        """Input value, resolved where its negative bit is set; ``copy_`` alone writes such an input."""
        row_major = self.requirements.row_major if self.requirements is not None else ()
        value = self.inputs.placeholder(node, is_row_major=len(self.inputs.made) in row_major)
        given = node.meta.get("val")
        if not isinstance(value, Tensor) or not isinstance(given, torch.Tensor) or not given.is_neg():
            return value
        writers = [user for user in node.users if _is_mutable(user)]
        if any(user.target is not _COPY or user.args[0] is not node for user in writers):
            raise UnsupportedOperation(f"input {node.name} has its negative bit set and is written in place")
        self.negated[node] = value
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
        result_device = next((leaf.device for leaf in flatten(value) if isinstance(leaf, torch.Tensor)), None)
        args = tuple(self._read(item, result_device) for item in node.args)
        kwargs = {key: self._read(item, result_device) for key, item in node.kwargs.items()}
        outputs, complex_outputs = self._sized(node, value, args)
        is_complex = any(complex_outputs) or has_complex((*args, *kwargs.values()))
        found = RULES.find(overload_name(target), is_complex=is_complex)
        if found is None and isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
            return self.symbols.size(value)
        forced = self.path + node.name in self.options.force_extern
        ctx = self._context(node, outputs, complex_outputs)
        memory = self.negated.get(node.args[0]) if target is _COPY else None  # type: ignore[arg-type]  # a node
        if memory is not None:
            (written,) = call_aten(ctx, _COPY, (memory, *args[1:]), kwargs, _NEGATED)
            return resolved(ctx, written) if node.users and isinstance(written, Tensor) else written
        if node.kwargs.get("pin_memory"):
            declined = Declined(_PINNED, is_intended=True)
        elif found is not None and not forced:
            given = rule_arguments(ctx, found, args, kwargs)
            refused = unrepresentable_number(ctx) or refused_float8(ctx, found)
            if self.options.numerics == "strict":
                refused = refused or import_module(_BIT_EQUAL).unequal_bits(ctx, found, overload_name(target))
            result = refused or apply(found, ctx, *given)
            if not isinstance(result, Declined):
                check_sizes(ctx)
                return result
            declined = replace(result, is_intended=result.is_intended or found.how != "loops")
        elif forced:
            declined = Declined(_FORCED, is_intended=True)
        elif reason := fallback_reason(overload_name(target)):
            declined = Declined(reason, is_intended=True)
        else:
            declined = Declined(_NO_COMPLEX_RULE if is_complex else _NO_RULE)
        return self._fall_back(ctx, args, kwargs, declined)

    def _sized(
        self, node: Node, value: object, args: tuple[Any, ...]
    ) -> tuple[tuple[ResultType, ...], tuple[bool, ...]]:
        """Types of a node's results. A size that no term expresses is first computed by the host."""
        try:
            return result_types(self.symbols, value)
        except SymbolError:
            if not bind_range_size(self._context(node, ()), args):
                raise
            return result_types(self.symbols, value)

    def _fall_back(
        self, ctx: LoweringContext, args: tuple[Lowered, ...], kwargs: dict[str, Lowered], declined: Declined
    ) -> Lowered:
        """Lower the node to a call; raise under ``fallback="error"`` unless the fallback is intended."""
        target, reason = ctx.node.target, declined.reason
        is_error = self.options.fallback == "error" and not declined.is_intended
        if isinstance(target, torch._ops.HigherOrderOperator):
            if is_error:
                raise ctx.error(f"{target.name()} would run as an eager call: {reason}")
            reason = (
                f"{reason}; it has traced functions as arguments, so the compiled graph is not cached on disk"
            )
            value, name, routine = call_hop(ctx, lambda node: self.builder.newest(self.env[node]), reason)
            self.routines[name] = routine
            return value
        if not isinstance(target, torch._ops.OpOverload):
            raise ctx.error(
                f"{target} is no ATen operation and cannot be lowered: {reason}",
                hint="this graph runs as ATen operations",
            )
        if reason != _FORCED and target.namespace not in _ATEN:
            reason, is_error = NOT_ATEN, False
        if is_error:
            raise ctx.error(f"{target} would fall back to ATen: {reason}")
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

    def _subgraph(self, subgraph: Subgraph, requirements: SubgraphRequirements) -> LoopGraph:
        """Lower a subgraph; its constants and fallbacks are added to those of this graph."""
        path = f"{self.path}{subgraph.path}."
        source = _run_fx_passes(subgraph.module, self.options, self.context)
        inner = _Lowering(source, self.options, path, self.constants.inner(), self.context)
        lowered = inner.run(subgraph.path, requirements)
        self.fallbacks += lowered.fallbacks
        self.operations_of.update(lowered.operations_of)
        self.routines.update(lowered.routines)
        return lowered.graph

    # --- metadata and arguments ----------------------------------------

    def _read(self, argument: Any, result_device: torch.device | None = None) -> Any:
        """Convert an FX argument to the form that rules take; ``result_device`` is the device of the node's
        result."""
        match argument:
            case Node():
                return self.builder.newest(self.env[argument])
            case list() | tuple():
                return tuple(self._read(item, result_device) for item in argument)
            case dict():
                return {key: self._read(item, result_device) for key, item in argument.items()}
            case slice():
                raise UnsupportedOperation(f"arguments like {argument!r} are not supported")
            case torch.SymInt():
                return self.symbols.size(argument)
            case torch.dtype():
                return litz_dtype(argument) if known_dtype(argument) else keyword(argument)
            case torch.device():
                return self.symbols.devices.of(argument, result_device)
            case torch.memory_format() | torch.layout():
                return keyword(argument)
        return argument

    def _aliased(self, leaves: Sequence[object], output: Node) -> Mapping[Node, Tensor | Complex]:
        def context(node: Node) -> LoweringContext:
            return self._context(node, *result_types(self.symbols, node.meta["val"]))

        return AliasedResults(self.env, self.builder, RULES, self._read, context, apply).of(leaves, output)

    def _output(self, node: Node) -> None:
        leaves = tuple(flatten(node.args[0]))
        others = self._aliased(leaves, node) if self.requirements is None else {}
        for position, leaf in enumerate(leaves):
            value = self._read(leaf)
            meta = leaf.meta.get("val") if isinstance(leaf, Node) else None
            wanted = self.symbols.tensor_type(meta) if isinstance(meta, torch.Tensor) else None
            if self.requirements is not None:
                wanted = required_type(self.requirements, position, self.inputs.made) or wanted
            ctx = self._context(leaf if isinstance(leaf, Node) else node, (wanted,))
            if self.requirements is not None:
                value = as_required(ctx, self.requirements, value, wanted)
            elif isinstance(leaf, Node):
                value = others.get(leaf, value)
            output = output_of(ctx, value, wanted)
            self.outputs.append(output)
            if type(output) is Ref and wanted is not None:
                self.returned.setdefault(output.name, set()).add(getattr(leaf, "name", ""))
            if isinstance(value, Tensor | Complex) and self.requirements is None:
                memory = value.pairs if isinstance(value, Complex) else value
                self.wanted.update(output_memory_copy(self.builder, memory))
            if wanted is not None:
                self.wanted.setdefault(output.name, wanted)  # type: ignore[union-attr]  # a Ref, for a tensor
