"""Builder of loop graphs as lowering makes them, one operation per tensor operation, which tests schedule and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from litz_ir.device import CPU
from litz_ir.dtypes import DType, f32, f64, i64
from litz_ir.host import Executor
from litz_ir.host.externs import ExternTable, numpy_externs
from litz_ir.host.memory import NumpyMemory
from litz_ir.interp import run_graph
from litz_ir.loops import (
    Assert,
    Axis,
    Combiner,
    ContractionCall,
    Extern,
    HostScalar,
    LayoutRequirement,
    LoopGraph,
    Mutation,
    NamedCombiner,
    Operation,
    Pointwise,
    Random,
    Reduction,
    ReductionName,
    Ref,
    Scan,
    Scatter,
    ScatterMode,
    TensorType,
    Value,
    View,
)
from litz_ir.loops.layout import contiguous, contiguous_strides
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.scalar import Expr, Indirect, Load, cast, const, index, masked, op
from litz_ir.symbols import Size, SymbolInfo, SymbolTable, add, extent, floordiv, mod, mul, simplify, symbol
from litz_ir.target import Capabilities, DeviceModel, RoutineModel
from litz_ir.verifier import verify
from litz_scheduler import SchedulerOptions, schedule
from litz_scheduler.analysis.graph_facts import alias_type

Array = npt.NDArray[Any]
Terms = tuple[Size, ...]

CPU_LIKE = Capabilities("avx512", CPU, DeviceModel(vector_bytes=64, threads=2), scratch_bytes=16 << 10)
ROUTINES = RoutineModel(
    measured_on="nothing: round numbers",
    matmul_share=0.7,
    unaligned_matmul_shares=((1, 0.1), (2, 0.25)),
    matmul_loop_share=0.5,
    grouped_share=0.3,
    group_slowness=25,
    narrow_share=0.1,
    narrow_gradient_share=0.15,
    narrow_columns=64,
    narrow_slowness=4,
    gathered_flops=200,
    depthwise_taps=25,
    fused_depthwise_taps=9,
    depthwise_sums=(10, 25, 49),
)
GPU_LIKE = Capabilities(
    "sm_90",
    CPU,
    DeviceModel(sm_count=4, vector_bytes=16, line_bytes=128),
    atomics=frozenset({f32, f64, i64}),
    max_tile_elements=1024,
    nested_reductions=True,
    routines=ROUTINES,
)
CRAMPED = Capabilities("cramped", CPU, max_statements=12)
MACHINES = (CPU_LIKE, GPU_LIKE, CRAMPED)


def with_numbers(machine: Capabilities, **numbers: Any) -> Capabilities:
    """Return capabilities with other numbers of the machine, by the names of the model's fields."""
    return replace(machine, model=replace(machine.model, **numbers))


class Builder:
    """A loop graph under construction. Tensors are referred to by name; ``latest`` are those that may still be read."""

    def __init__(self, name: str = "g", symbols: SymbolTable | None = None) -> None:
        self.name = name
        self.symbols = symbols or SymbolTable()
        self.inputs: list[Value] = []
        self.operations: list[Operation] = []
        self.types: dict[str, TensorType] = {}
        self.latest: list[str] = []

    # --- values --------------------------------------------------------------------------------------------------

    def _value(
        self, dtype: DType, shape: Sequence[Size], name: str = "", replaces: str | None = None
    ) -> Value:
        name = name or f"v{len(self.types)}"
        type_ = TensorType(dtype, tuple(shape), contiguous(tuple(shape)))
        if replaces is not None:
            type_ = self.types[replaces]
            self.latest.remove(replaces)
        self.types[name] = type_
        self.latest.append(name)
        return Value(name, type_, replaces)

    def input(self, *shape: Size, dtype: DType = f32, strides: Terms | None = None) -> str:
        """Return a new input, whose layout is a promise to the caller."""
        value = self._value(dtype, shape, f"x{len(self.inputs)}")
        layout = contiguous(shape, fixed=True)
        if strides is not None:
            layout = replace(layout, strides=strides)
        value = Value(value.name, replace(value.type, layout=layout))
        self.types[value.name] = value.type
        self.inputs.append(value)
        return value.name

    def shape(self, x: str) -> Terms:
        return self.types[x].shape

    def at(self, x: str, axes: Terms) -> Expr:
        """The element of ``x`` that broadcasting puts at ``axes``."""
        shape = self.shape(x)
        tail = axes[len(axes) - len(shape) :]
        return Load(
            x, tuple(0 if n == 1 else a for n, a in zip(shape, tail, strict=True)), self.types[x].dtype
        )

    @staticmethod
    def axes(shape: Sequence[Size], prefix: str = "i") -> tuple[Axis, ...]:
        return tuple(Axis(f"{prefix}{k}", size) for k, size in enumerate(shape))

    def _simple(self, term: Size, axes: Sequence[Axis]) -> Size:
        ranges = dict(self.symbols.ranges()) | {axis.name: extent(axis.size) for axis in axes}
        return simplify(term, ranges)

    def _append(self, operation: Operation) -> str:
        self.operations.append(operation)
        return operation.results[0].name

    # --- loops ---------------------------------------------------------------------------------------------------

    def broadcast(self, *xs: str) -> Terms:
        """The shape of all together."""
        rank = max(len(self.shape(x)) for x in xs)
        padded = [(1,) * (rank - len(self.shape(x))) + self.shape(x) for x in xs]
        return tuple(next((s for s in sizes if s != 1), 1) for sizes in zip(*padded, strict=True))

    def pointwise(
        self, fn: Callable[..., Expr], *xs: str, shape: Sequence[Size] | None = None, name: str = ""
    ) -> str:
        """``fn`` of the broadcast elements."""
        axes = self.axes(self.broadcast(*xs) if shape is None else shape)
        points = tuple(symbol(axis.name) for axis in axes)
        body = fn(*(self.at(x, points) for x in xs))
        value = self._value(body.dtype, [axis.size for axis in axes], name)
        return self._append(Pointwise(results=(value,), axes=axes, bodies=(body,)))

    def several(self, fns: Sequence[Callable[..., Expr]], *xs: str) -> tuple[str, ...]:
        """Return the results of one loop with several bodies."""
        axes = self.axes(self.broadcast(*xs))
        points = tuple(symbol(axis.name) for axis in axes)
        bodies = tuple(fn(*(self.at(x, points) for x in xs)) for fn in fns)
        results = tuple(self._value(body.dtype, [axis.size for axis in axes]) for body in bodies)
        self._append(Pointwise(results=results, axes=axes, bodies=bodies))
        return tuple(value.name for value in results)

    def op(self, name: str, *xs: str) -> str:
        """A scalar operation of the table, elementwise."""
        return self.pointwise(lambda *args: op(name, *args), *xs)

    def scale(self, x: str, multiplier: float, shift: float = 0.0) -> str:
        return self.pointwise(lambda a: op("add", op("mul", a, const(multiplier, f32)), const(shift, f32)), x)

    def iota(self, *shape: Size) -> str:
        """Return the last index of every point, as a float."""
        last = symbol(f"i{len(shape) - 1}")
        return self.pointwise(lambda: cast(index(last), f32), shape=shape)

    def reduce(
        self,
        kind: ReductionName,
        x: str,
        dims: Sequence[int],
        keepdim: bool = False,
        combiner: Combiner | None = None,
    ) -> tuple[str, ...]:
        """A reduction of ``x`` over ``dims``; the positions of argmin and argmax number the reduced points."""
        shape = self.shape(x)
        reduce_axes = tuple(Axis(f"r{k}", shape[d]) for k, d in enumerate(dims))
        names: dict[int, Size] = {d: symbol(axis.name) for d, axis in zip(dims, reduce_axes, strict=True)}
        kept: list[Size] = []
        for d, size in enumerate(shape):
            if d not in names:
                names[d] = symbol(f"i{len(kept)}")
                kept.append(size)
            elif keepdim:
                kept.append(1)
        axes = self.axes(kept)
        load = Load(x, tuple(names[d] for d in range(len(shape))), self.types[x].dtype)
        bodies: tuple[Expr, ...] = (load,)
        if kind in ("argmin", "argmax"):
            number: Size = 0
            for axis in reduce_axes:
                number = add(mul(number, axis.size), symbol(axis.name))
            bodies = (load, index(number))
        used = combiner or NamedCombiner(kind)
        dtypes = {"argmin": (load.dtype, i64), "argmax": (load.dtype, i64), "welford": (f32, f32, f32)}
        wanted = dtypes.get(kind, (load.dtype,))
        results = tuple(self._value(dtype, kept) for dtype in wanted)
        self._append(
            Reduction(results=results, axes=axes, reduce_axes=reduce_axes, combiner=used, bodies=bodies)
        )
        return tuple(value.name for value in results)

    def sum(self, x: str, *dims: int, keepdim: bool = True) -> str:
        return self.reduce("sum", x, dims, keepdim)[0]

    def max(self, x: str, *dims: int, keepdim: bool = True) -> str:
        return self.reduce("max", x, dims, keepdim)[0]

    def scan(self, x: str, dim: int) -> str:
        """A running sum along ``dim``."""
        shape = self.shape(x)
        rest = tuple(size for d, size in enumerate(shape) if d != dim)
        axes, scanned = self.axes(rest), Axis("k", shape[dim])
        place: list[Size] = [symbol(axis.name) for axis in axes]
        place.insert(dim, symbol("k"))
        value = self._value(self.types[x].dtype, shape)
        body = Load(x, tuple(place), self.types[x].dtype)
        return self._append(
            Scan(
                results=(value,),
                axes=axes,
                scan_axis=scanned,
                dimension=dim,
                combiner=NamedCombiner("sum"),
                bodies=(body,),
            )
        )

    def scatter(
        self, base: str, source: str, place: Callable[[Terms], Terms], mode: ScatterMode = "add",
        body: Callable[[Terms], Expr] | None = None,
    ) -> str:  # fmt: skip
        """``source`` (or ``body``) combined into ``base`` at ``place`` of every point of ``source``'s shape."""
        axes = self.axes(self.shape(source))
        points: Terms = tuple(symbol(axis.name) for axis in axes)
        value = self._value(self.types[base].dtype, self.shape(base))
        content = self.at(source, points) if body is None else body(points)
        scatter = Scatter(
            results=(value,), base=base, axes=axes, index=place(points), body=content, mode=mode
        )
        return self._append(scatter)

    def gather(self, table: str, rows: str) -> str:
        """``table[rows]``; negative positions count from the end, and those outside are moved inside."""
        axes = self.axes((self.shape(rows)[0], *self.shape(table)[1:]))
        points: Terms = tuple(symbol(axis.name) for axis in axes)
        row = Indirect(Load(rows, points[:1], i64), self.shape(table)[0], wrap=True, check="clamped")
        dtype = self.types[table].dtype
        value = self._value(dtype, [axis.size for axis in axes])
        body = Load(table, (row, *points[1:]), dtype)
        return self._append(Pointwise(results=(value,), axes=axes, bodies=(body,)))

    def pad(self, x: str) -> str:
        """One -1 before and after along the last dimension: nothing is read outside."""
        shape = self.shape(x)
        axes = self.axes((*shape[:-1], add(shape[-1], 2)))
        points: Terms = tuple(symbol(axis.name) for axis in axes)
        shifted = add(points[-1], -1)
        after = op("ge", index(shifted), const(0, i64))
        inside = op("bit_and", after, op("lt", index(shifted), index(shape[-1])))
        place = tuple(0 if n == 1 else t for n, t in zip(shape[:-1], points, strict=False))
        value = self._value(f32, [axis.size for axis in axes])
        body = masked(inside, Load(x, (*place, shifted), f32), const(-1.0, f32))
        return self._append(Pointwise(results=(value,), axes=axes, bodies=(body,)))

    # --- views ---------------------------------------------------------------------------------------------------

    def view(
        self, x: str, shape: Sequence[Size], place: Callable[[Terms], Sequence[Size]], aliases: bool = True
    ) -> str:
        axes = self.axes(shape)
        where = tuple(self._simple(term, axes) for term in place(tuple(symbol(axis.name) for axis in axes)))
        value = self._value(self.types[x].dtype, shape)
        view = View(results=(value,), base=x, axes=axes, index=where, aliases=aliases)
        alias = alias_type(view, self.types[x], self.symbols) if aliases else None
        if alias is not None:
            self.types[value.name] = alias
            view = replace(view, results=(replace(value, type=alias),))
        return self._append(view)

    def permute(self, x: str, *dims: int) -> str:
        shape = self.shape(x)
        return self.view(x, [shape[d] for d in dims], lambda a: [a[dims.index(d)] for d in range(len(shape))])

    def flip(self, x: str, dim: int) -> str:
        shape = self.shape(x)

        def place(a: Terms) -> list[Size]:
            return [add(shape[d], mul(t, -1), -1) if d == dim else t for d, t in enumerate(a)]

        return self.view(x, shape, place, aliases=False)

    def slice(self, x: str, dim: int, start: int, stop: int, step: int = 1) -> str:
        shape = [len(range(start, stop, step)) if d == dim else n for d, n in enumerate(self.shape(x))]
        return self.view(
            x, shape, lambda a: [add(mul(t, step), start) if d == dim else t for d, t in enumerate(a)]
        )

    def expand(self, x: str, *shape: Size) -> str:
        own = self.shape(x)

        def place(a: Terms) -> list[Size]:
            return [0 if n == 1 else t for n, t in zip(own, a[len(shape) - len(own) :], strict=True)]

        return self.view(x, shape, place)

    def reshape(self, x: str, *shape: Size) -> str:
        own = self.shape(x)

        def place(a: Terms) -> list[Size]:
            number: Size = 0
            for size, term in zip(shape, a, strict=True):
                number = add(mul(number, size), term)
            found: list[Size] = []
            for size in reversed(own):
                found.append(0 if size in (0, 1) else mod(number, size))
                number = number if size in (0, 1) else floordiv(number, size)
            return found[::-1]

        return self.view(x, shape, place)

    # --- the rest ------------------------------------------------------------------------------------------------

    def mm(self, a: str, b: str, need: LayoutRequirement = "any") -> str:
        value = self._value(f32, (self.shape(a)[0], self.shape(b)[1]))
        call = ContractionCall(
            results=(value,),
            target="aten.mm.default",
            arguments=(Ref(a), Ref(b)),
            kind="matmul",
            layout_requirement=need,
        )
        return self._append(call)

    def fill_(self, x: str, number: float) -> str:
        """A call that overwrites its argument and returns nothing."""
        value = self._value(f32, self.shape(x), replaces=x)
        call = Extern(
            results=(value,),
            target="fill",
            arguments=(Ref(x), number),
            mutates=((x, value.name),),
            unreturned=(value.name,),
        )
        return self._append(call)

    def draw(self, *shape: Size) -> str:
        """A call with a token: it fills its result with the number of such calls before it."""
        value = self._value(f32, shape)
        call = Random(results=(value,), target="draw", arguments=tuple(shape), token="rng")
        return self._append(call)

    def positives(self, x: str) -> str:
        """The positive elements of a vector: a call that decides how many there are."""
        name = f"u{len(self.symbols)}"
        self.symbols = self.symbols.add(SymbolInfo(name, "int", 0, None, hint=4))
        value = self._value(f32, (symbol(name),))
        return self._append(Extern(results=(value,), target="positives", arguments=(Ref(x),), reason="data"))

    def host_scalar(self, x: str) -> str:
        """A float symbol with the value of the 0-d tensor ``x``."""
        name = f"h{len(self.symbols)}"
        self.symbols = self.symbols.add(SymbolInfo(name, "float", hint=1.0))
        self.operations.append(HostScalar(results=(), symbol=name, body=cast(Load(x, (), f32), f64)))
        return name

    def check(self, x: str) -> None:
        """Assert that the 0-d tensor ``x`` is a number."""
        finite = op("le", op("abs", Load(x, (), f32)), const(1e30, f32))
        self.operations.append(Assert(results=(), condition=finite, message="not finite", token="assert"))

    def copy_(self, target: str, source: str) -> str:
        value = self._value(self.types[target].dtype, self.shape(target), replaces=target)
        return self._append(Mutation(results=(value,), target=target, source=source))

    def build(self, *outputs: str) -> LoopGraph:
        """The finished, verified graph; a returned value's layout is a promise."""
        wanted = set(outputs)

        def promise(operation: Operation) -> Operation:
            if not any(v.name in wanted for v in operation.results):
                return operation
            results = tuple(_fixed(v) if v.name in wanted else v for v in operation.results)
            return replace(operation, results=results)

        graph = LoopGraph(
            self.name, self.symbols, tuple(self.inputs), (), tuple(map(promise, self.operations)),
            tuple(Ref(name) for name in outputs),
        )  # fmt: skip
        verify(graph)
        return graph


def _fixed(value: Value) -> Value:
    if value.replaces is not None:
        return value
    return replace(value, type=replace(value.type, layout=replace(value.type.layout, fixed=True)))


# --- scheduling and running -----------------------------------------------------------------------------


def _fill(target: Array, number: float) -> None:
    target[...] = number


def externs() -> ExternTable:
    """Return NumPy's routines and those of the builder, whose random draws start from zero."""
    drawn = count()

    def draw(*shape: int) -> Array:
        return np.full(shape, float(next(drawn)), np.float32)

    return numpy_externs().extended({"fill": _fill, "draw": draw, "positives": lambda x: x[x > 0]})


def plan_of(
    graph: LoopGraph, machine: Capabilities = CPU_LIKE, options: SchedulerOptions | None = None
) -> Plan:
    """Return the plan for ``graph``, verified after every stage."""
    return schedule(graph, PassContext({CPU: machine}), options or SchedulerOptions(), hooks=[verify_stage])


def verify_stage(name: str, before: object, after: object) -> None:
    """Verify the result of a stage, as a hook of ``schedule``."""
    verify(after)


def sample(value: Value, sizes: dict[str, int], generator: np.random.Generator) -> Array:
    """An input with small, exactly representable values and the strides that its type says."""
    shape = tuple(n if isinstance(n, int) else sizes[str(n)] for n in value.type.shape)
    strides = value.type.layout.strides
    numbers = np.asarray(generator.integers(-4, 5, shape))
    if value.type.dtype.is_integer:
        array = np.asarray(numbers, np.int64)
    else:
        array = np.asarray(numbers / 2, np.float32)
    if strides == contiguous_strides(value.type.shape):
        return array
    static = [stride for stride in strides if isinstance(stride, int)]
    order = sorted(range(len(shape)), key=lambda d: -static[d])
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def run_both(
    graph: LoopGraph, plan: Plan, sizes: dict[str, int] | None = None, seed: int = 0
) -> tuple[list[Any], list[Any], list[Array], list[Array]]:
    """(outputs of the graph, outputs of the plan, the graph's inputs after it ran, the plan's)."""
    generator = np.random.default_rng(seed)
    given = [sample(v, sizes or {}, generator) for v in graph.inputs if isinstance(v, Value)]
    first, second = [a.copy(order="K") for a in given], [a.copy(order="K") for a in given]
    expected = run_graph(graph, first, externs=externs())
    executor = Executor(plan, memory=NumpyMemory(fill=0xA5), externs=externs())
    return expected, executor.run(second), first, second


def assert_same(
    graph: LoopGraph, plan: Plan, sizes: dict[str, int] | None = None, *, exact: bool = False, seed: int = 0
) -> None:
    """Assert that the plan computes the graph's results, and leaves inputs that are not donated as the graph does."""
    expected, found, first, second = run_both(graph, plan, sizes, seed)
    tensors = [value.name for value in graph.inputs if isinstance(value, Value)]
    left = [(a, b) for name, a, b in zip(tensors, first, second, strict=True) if name not in plan.donated]
    for a, b in [*zip(expected, found, strict=True), *left]:
        assert a.dtype == b.dtype and a.shape == b.shape
        if exact or a.dtype != np.float32:
            np.testing.assert_array_equal(b, a)
        else:
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-5)
