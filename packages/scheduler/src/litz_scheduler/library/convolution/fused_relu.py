"""Convolutions of inference on a GPU whose library adds the shift of a batch norm, a residual, and applies ReLU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from litz_ir.contraction import ConvolutionArguments, convolution_arguments
from litz_ir.dtypes import bf16, f16, f32
from litz_ir.fused import Decision
from litz_ir.loops import (
    Argument,
    Axis,
    ContractionCall,
    LoopGraph,
    Operation,
    Pointwise,
    Ref,
    TensorType,
    Value,
    contiguous,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, Op, cast, const, loads, op, substitute_expr, transform, where
from litz_ir.symbols import symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import element_axes, is_identity, output_names
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.library.convolution.channelwise import Affine, split
from litz_scheduler.library.layout.convolution_layouts import is_channels_last
from litz_scheduler.options import SchedulerOptions

_DTYPES = (bf16, f16)

_CHANNELS = 8
"""Tensor cores read channels in multiples of 16 bytes; with fewer, as in RGB inputs, a loop is as fast as the
library."""


@dataclass(frozen=True, slots=True)
class FuseConvolutionRelu:
    """Replace a convolution in low precision and a loop over it by the routine ``convolution_relu``.

    The loop scales and shifts each channel by inputs of the graph, such as a batch norm, may add a tensor or another
    such convolution, and applies ReLU. The scale becomes part of the weight, in the loop that casts it, and the shift
    the routine's bias.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``convolution_relu`` turns the pass on."""
    name: str = "fuse-convolution-relu"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        replaced = any(value.replaces is not None for value in data.values().values())
        if not self.options.convolution_relu or replaced:
            return data  # a convolution is moved to its reader, past writes
        return _Rewriter(data, gpu_kinds(context), context).run()


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution that the library can scale."""

    call: ContractionCall
    arguments: ConvolutionArguments
    affine: Affine = field(default_factory=Affine)
    """Function of each channel that the reader applies to it first."""


@dataclass(frozen=True, slots=True)
class _Match:
    """A loop as ReLU of a convolution, and of what is added to it."""

    main: _Convolution
    added: _Convolution | str | None
    """Another convolution, or the name of a tensor."""


class _Rewriter:
    """Rewrites a graph, operation by operation."""

    def __init__(self, graph: LoopGraph, kinds: frozenset[str], context: PassContext) -> None:
        self.graph, self.context = graph, context
        self.values = graph.values()
        self.readers = Counter(name for each in graph.operations for name in each.reads)
        self.returned = output_names(graph)
        inputs = (each for each in graph.inputs if isinstance(each, Value))
        self.vectors = frozenset(each.name for each in inputs if len(each.type.shape) == 1)
        self.makers = {value.name: each for each in graph.operations for value in each.results}
        self.convolutions = {
            each.name: found for each in graph.operations if (found := self._parsed(each, kinds)) is not None
        }
        self.removed: set[str] = set()

    def run(self) -> LoopGraph:
        """Return the rewritten graph."""
        operations: list[Operation] = []
        for operation in self.graph.operations:
            match = self._match(operation) if isinstance(operation, Pointwise) and self.convolutions else None
            if match is None or not isinstance(operation, Pointwise):
                operations.append(operation)
                continue
            operations.extend(self._fused(match, operation))
            self.context.decide(Decision("library", match.main.call.name, "fuse", reasons.LIBRARY_RELU))
        old = [self.makers[name] for name in self.removed]
        return self.graph.with_operations(
            tuple(each for each in operations if not any(each is o for o in old))
        )

    def _parsed(self, call: Operation, kinds: frozenset[str]) -> _Convolution | None:
        """Return a convolution in channels-last that one loop alone reads; ``None`` for any other operation."""
        if not isinstance(call, ContractionCall):
            return None
        arguments = convolution_arguments(call.target, call.arguments, call.attributes)
        if arguments is None or arguments.grad_output is not None or arguments.transposed or arguments.bias:
            return None
        result, alone = call.results[0], self.readers[call.name] == 1 and call.name not in self.returned
        tensors = (self.values[arguments.input.name].type, self.values[arguments.weight.name].type)
        types = (result.type, *tensors)
        if not alone or arguments.groups != 1 or {len(type_.shape) for type_ in types} != {4}:
            return None
        if {type_.dtype for type_ in types} not in ({dtype} for dtype in _DTYPES):
            return None
        if any(type_.device.kind not in kinds for type_ in types) or not self._fills(tensors[1]):
            return None
        suits = is_channels_last(result.type) and is_channels_last(tensors[0])
        return _Convolution(call, arguments) if suits else None

    def _fills(self, weight: TensorType) -> bool:
        """Return whether input and output channels are known and fill the accesses of tensor cores."""
        return all(isinstance(size, int) and size % _CHANNELS == 0 for size in weight.shape[:2])

    def _match(self, loop: Pointwise) -> _Match | None:
        """Return a loop as ReLU of a convolution and of what is added to it; ``None`` for any other loop."""
        result = loop.results[0]
        if len(loop.bodies) != 1 or loop.token or result.type.dtype not in _DTYPES:
            return None
        read = [load for load in loads(*loop.bodies) if load.buffer not in self.vectors]
        found = [self.convolutions[each.buffer] for each in read if each.buffer in self.convolutions]
        if not found or len(read) > 2 or not all(self._is_read_pointwise(each, loop) for each in read):
            return None
        body = transform(loop.bodies[0], _unrounded)
        parts: list[Expr] = []
        split_ones: list[_Convolution] = []
        for each in found:
            x = _wide(next(load for load in read if load.buffer == each.call.name), body)
            made = split(body, x, loop.axes[1].name, self.vectors)
            body = made.rest
            split_ones.append(replace(each, affine=made.affine))
            parts.append(cast(x, f32))
        others = [each for each in read if each.buffer not in self.convolutions]
        parts.extend(cast(each, f32) for each in others)
        if not any(body == _relu(total, loop) for total in _sums(parts)):
            return None
        *first, last = split_ones
        return _Match(last, first[0] if first else others[0].buffer if others else None)

    def _is_read_pointwise(self, load: Load, loop: Pointwise) -> bool:
        """Return whether a loop reads a tensor of its own shape, dtype and layout at the loop's own points."""
        own, other = loop.results[0].type, self.values[load.buffer].type
        same = own.shape == other.shape and own.dtype == other.dtype and is_identity(load.index, loop.axes)
        sizes = tuple(axis.size for axis in loop.axes)
        return same and sizes == own.shape and is_channels_last(own) and is_channels_last(other)

    def _fused(self, match: _Match, loop: Pointwise) -> tuple[Operation, ...]:
        """Return the loops over the parameters, the convolution that is added, and the call for the whole loop."""
        main, added, result = match.main, match.added, loop.results[0]
        operations: list[Operation] = []
        weight = self._scaled_weight(main, loop, operations)
        shifts = [main.affine.shift]
        z: Argument = None
        if isinstance(added, _Convolution):
            x, _, *geometry = added.call.arguments
            operations.append(
                replace(added.call, arguments=(x, self._scaled_weight(added, loop, operations), *geometry))
            )
            shifts.append(added.affine.shift)
            z = Ref(added.call.name)
        elif added is not None:
            z = Ref(added)
        bias = self._bias([each for each in shifts if each is not None], main, loop, operations)
        arguments = main.arguments
        geometry_ = (arguments.padding, arguments.stride, arguments.dilation)
        fixed = replace(result, type=replace(result.type, layout=replace(result.type.layout, fixed=True)))
        call = replace(
            main.call, results=(fixed,), target="convolution_relu",
            arguments=(Ref(arguments.input.name), weight, bias, z, *geometry_), attributes=(),
            layout_requirement="exact",
        )  # fmt: skip
        return *operations, call

    def _scaled_weight(self, convolution: _Convolution, loop: Pointwise, operations: list[Operation]) -> Ref:
        """Return the weight times the scale of its output channels; add the loop that computes it."""
        name, call = convolution.arguments.weight.name, convolution.call
        self.removed.add(call.name)
        if convolution.affine.scale is None:
            return Ref(name)
        type_ = self.values[name].type
        axes, body = self._computed(name)
        scale = cast(
            substitute_expr(convolution.affine.scale, {loop.axes[1].name: symbol(axes[0].name)}), f32
        )
        scaled = Value(f"{call.name}.weight", replace(type_, layout=replace(type_.layout, fixed=True)))
        wide = body.args[0] if isinstance(body, Op) and body.name == "cast" else body
        scaled_body = cast(op("mul", cast(wide, f32), scale), type_.dtype)
        operations.append(
            Pointwise(results=(scaled,), axes=axes, bodies=(scaled_body,), origin=convolution.call.origin)
        )
        return Ref(scaled.name)

    def _computed(self, name: str) -> tuple[tuple[Axis, ...], Expr]:
        """Return the axes and the body of the loop that computes a weight, which is removed; else its load."""
        maker = self.makers.get(name)
        alone = self.readers[name] == 1 and name not in self.returned
        if not alone or not isinstance(maker, Pointwise) or len(maker.bodies) != 1 or maker.token:
            axes = element_axes(self.values[name].type)
            return axes, Load(name, tuple(symbol(axis.name) for axis in axes), self.values[name].type.dtype)
        self.removed.add(name)
        body = maker.bodies[0]
        if isinstance(body, Load) and is_identity(body.index, maker.axes):
            return self._computed(body.buffer)  # a copy in another layout
        return maker.axes, body

    def _bias(
        self, shifts: Sequence[Expr], main: _Convolution, loop: Pointwise, operations: list[Operation]
    ) -> Ref | None:
        """Return the sum of the shifts, rounded once; add the loop that computes it."""
        if not shifts:
            return None
        result = main.call.results[0].type
        axis = Axis("i0", result.shape[1])
        total: Expr | None = None
        for shift in shifts:
            own = cast(substitute_expr(shift, {loop.axes[1].name: symbol(axis.name)}), f32)
            total = own if total is None else op("add", total, own)
        assert total is not None
        layout = replace(contiguous((axis.size,)), fixed=True)
        value = Value(f"{main.call.name}.bias", TensorType(result.dtype, (axis.size,), layout, result.device))
        body = cast(total, result.dtype)
        operations.append(Pointwise(results=(value,), axes=(axis,), bodies=(body,), origin=main.call.origin))
        return Ref(value.name)


def _unrounded(node: Expr) -> Expr:
    """Return an f32 value that was rounded to a narrow dtype and widened again without the rounding."""
    if not isinstance(node, Op) or node.name != "cast" or node.dtype != f32:
        return node
    narrow = node.args[0]
    if not isinstance(narrow, Op) or narrow.name != "cast" or narrow.dtype not in _DTYPES:
        return node
    return narrow.args[0] if narrow.args[0].dtype == f32 else node


def _wide(load: Load, body: Expr) -> Expr:
    """Return the widening of a load where a body uses nothing else of it; else the load."""
    wide = cast(load, f32)
    without = transform(body, lambda node: const(0.0, f32) if node == wide else node)
    return load if load in loads(without) else wide


def _sums(parts: Sequence[Expr]) -> Iterable[Expr]:
    """Yield the spellings of the sum of one or two values."""
    if len(parts) == 1:
        yield parts[0]
    else:
        yield op("add", parts[0], parts[1])
        yield op("add", parts[1], parts[0])


def _relu(x: Expr, loop: Pointwise) -> Expr:
    """Return the body of ReLU that lowering writes, rounded to the dtype of a loop's result."""
    zero = const(0.0, x.dtype)
    return cast(where(op("lt", x, zero), zero, x), loop.results[0].type.dtype)
