"""Execution of plans over NumPy memory: placements, calls, mutation, regions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from litz_ir.device import CPU, STORAGE_ALIGNMENT
from litz_ir.dtypes import ALL, DType, b1, bf16, f16, f32, i32, i64, u16
from litz_ir.errors import AssertionFailed, DTypeError, ExternNotFound, GraphError
from litz_ir.host.executor import Executor
from litz_ir.host.externs import ExternTable, numpy_externs
from litz_ir.host.memory import NumpyMemory
from litz_ir.interp.encoding import Array, decode, encode, storage_dtype
from litz_ir.loops.layout import Layout
from litz_ir.loops.nodes import (
    Axis,
    Input,
    Output,
    Ref,
    ScalarInput,
    ScalarRef,
    StridedRef,
    TensorType,
    Value,
    tensor_type,
)
from litz_ir.plan.kernel import Kernel, Parameter, Phase, Store
from litz_ir.plan.program import (
    Allocate,
    CallStep,
    CheckStep,
    DefineStep,
    Free,
    Launch,
    Placement,
    Plan,
    RegionStep,
    Step,
    Storage,
)
from litz_ir.plan.schedule import CpuLoops
from litz_ir.scalar.build import const, index, load, op
from litz_ir.scalar.expr import Scalar
from litz_ir.scalar.node import Expr
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import Size, symbol

i, n, s = symbol("i"), symbol("n"), symbol("s")


def unary(name: str, body: Expr, size: Size, *symbols: SymbolInfo) -> Kernel:
    """``o[i] = body`` for a body over ``x[i]``."""
    parameters = (Parameter("x", f32, "in"), Parameter("o", f32, "out"))
    store = Phase((), (Store("o", i, body),))
    return Kernel(name, parameters, symbols, (Axis("i", size),), (), (store,), CpuLoops())


X = load("x", (i,), f32)
DOUBLE = unary("double", op("add", X, X), 6)
NEGATE = unary("negate", op("neg", X), 6)
T23 = tensor_type(f32, 2, 3)
NO_SYMBOLS = SymbolTable()
x23 = np.arange(6, dtype=np.float32).reshape(2, 3)


def plan(
    steps: Sequence[Step],
    outputs: Sequence[Output],
    buffers: dict[str, Placement],
    *,
    inputs: Sequence[Input] = (Value("x", T23),),
    kernels: Sequence[Kernel] = (DOUBLE, NEGATE),
    symbols: SymbolTable = NO_SYMBOLS,
    constants: Sequence[Value] = (),
    storages: Sequence[Storage] = (Storage("a", 24, CPU), Storage("b", 64, CPU)),
) -> Plan:
    placed = {each.name: Placement(each.type) for each in (*inputs, *constants) if isinstance(each, Value)}
    return Plan(
        "p",
        CPU,
        "reference",
        symbols,
        tuple(inputs),
        tuple(constants),
        tuple({**placed, **buffers}.items()),
        tuple(storages),
        tuple(kernels),
        tuple(steps),
        tuple(outputs),
    )


TWO_KERNELS = plan(
    [
        Allocate("a"),
        Launch("double", ("x", "t")),
        Allocate("b"),
        Launch("negate", ("t", "o")),
        Free("a"),
    ],
    [Ref("o")],
    {"t": Placement(T23, "a"), "o": Placement(TensorType(f32, (3, 2), Layout((1, 3), fixed=True)), "b", 32)},
)


def test_kernels_storages_and_strides() -> None:
    (found,) = Executor(TWO_KERNELS).run([x23])
    assert found.strides == (4, 12) and np.array_equal(found, (-2 * x23).T)


def test_launchers_receive_addresses_from_the_start_of_memory() -> None:
    seen: list[tuple[Sequence[int], Sequence[int | float]]] = []

    def double(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
        seen.append((addresses, symbols))
        values = (ctypes.c_float * 6).from_address(addresses[0])
        (ctypes.c_float * 6).from_address(addresses[1])[:] = [2 * v for v in values]

    offset = TensorType(f32, (2,), Layout((1,), 3))
    tail = plan(
        [Allocate("a"), Launch("double", ("x", "o"), (7, symbol("s"))), Launch("double", ("view", "o"))],
        [Ref("o")],
        {"o": Placement(T23, "a"), "view": Placement(offset, base="x")},
        inputs=(Value("x", T23), ScalarInput("s", "int", "s")),
        kernels=(DOUBLE,),
    )
    memory = NumpyMemory()
    (found,) = Executor(tail, {"double": double}, memory).run([x23, 5])
    assert np.array_equal(found, 2 * x23)
    assert seen[0][0][0] == seen[1][0][0] == memory.address(x23) and seen[0][1] == [7, 5]


def test_every_kernel_needs_a_launcher() -> None:
    with pytest.raises(GraphError, match="kernels have no launcher: negate"):
        Executor(TWO_KERNELS, {"double": lambda addresses, symbols: None})


def test_storages_are_aligned_and_may_be_filled() -> None:
    memory = NumpyMemory(fill=0x7F)
    for nbytes in (1, 100):
        storage = memory.empty(nbytes, CPU)
        assert (
            len(storage) == nbytes
            and memory.address(storage) % STORAGE_ALIGNMENT == 0
            and (storage == 0x7F).all()
        )


def test_a_freed_storage_is_gone() -> None:
    early = plan(
        [Allocate("a"), Launch("double", ("x", "t")), Free("a")], [Ref("t")], {"t": Placement(T23, "a")}
    )
    with pytest.raises(GraphError, match="t is used while a is not allocated"):
        Executor(early).run([x23])


MUTATION = plan(
    [Launch("double", ("x", "x1"))],
    [Ref("x1"), Ref("row"), Ref("x")],
    {
        "x1": Placement(T23, base="x"),
        "row": Placement(TensorType(f32, (3,), Layout((1,), 3)), base="x"),
    },
)


def test_mutated_inputs_change_in_place_and_outputs_alias_them() -> None:
    mine = x23.copy()
    whole, row, again = Executor(MUTATION).run([mine])
    assert whole is mine and again is mine and np.array_equal(mine, 2 * x23)
    assert row.tolist() == [6, 8, 10] and np.shares_memory(row, mine)


def test_inputs_of_other_strides_are_copied_in_and_back() -> None:
    mine = np.asfortranarray(x23)
    whole, row, _ = Executor(MUTATION).run([mine])
    assert whole is mine and np.array_equal(mine, 2 * x23) and row.tolist() == [6, 8, 10]
    frozen = np.asfortranarray(x23)
    frozen.flags.writeable = False
    (found,) = Executor(TWO_KERNELS).run([frozen])  # only reads it
    assert np.array_equal(found, (-2 * x23).T)


def test_inputs_are_checked() -> None:
    with pytest.raises(GraphError, match=r"input x has shape \(2, 4\), expected \(2, 3\)"):
        Executor(TWO_KERNELS).run([np.zeros((2, 4), np.float32)])
    with pytest.raises(GraphError, match=r"input x has shape \(6,\), expected \(2, 3\)"):
        Executor(TWO_KERNELS).run([np.zeros(6, np.float32)])
    with pytest.raises(DTypeError, match="input x is f32, got elements of f64"):
        Executor(TWO_KERNELS).run([np.zeros((2, 3))])
    with pytest.raises(GraphError, match="takes 1 inputs, got 2"):
        Executor(TWO_KERNELS).run([x23, x23])
    with pytest.raises(GraphError, match="input x: expected a NumPy array, got list"):
        Executor(TWO_KERNELS).run([[1.0]])


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor of a device: an array of integers or floats, and the dtype that its elements have."""

    array: Array
    dtype: DType


class DeviceMemory(NumpyMemory):
    """Knows the dtype of each tensor of its own."""

    def geometry(self, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return super().geometry(tensor.array if isinstance(tensor, DeviceTensor) else tensor)

    def dtypes(self, tensor: Any) -> frozenset[DType]:
        return frozenset({tensor.dtype}) if isinstance(tensor, DeviceTensor) else super().dtypes(tensor)


def test_dtypes_of_inputs_and_constants_are_checked_in_any_memory() -> None:
    integers = DeviceTensor(np.zeros((2, 3), np.int32), i32)
    with pytest.raises(DTypeError, match="input x is f32, got elements of i32"):
        Executor(TWO_KERNELS, memory=DeviceMemory()).run([integers])
    with pytest.raises(DTypeError, match="input x is f32, got elements of bf16 or u16"):
        Executor(TWO_KERNELS).run([np.zeros((2, 3), np.uint16)])
    with pytest.raises(DTypeError, match="input x is f32, got elements of a dtype that litz does not have"):
        Executor(TWO_KERNELS).run([np.zeros((2, 3), np.complex64)])
    constant = plan(
        (), (Ref("w"),), {"w": Placement(T23)}, inputs=(), kernels=(), constants=[Value("w", T23)]
    )
    with pytest.raises(DTypeError, match="constant w is f32, got elements of i32"):
        Executor(constant, memory=DeviceMemory(), constants={"w": integers}).run([])


def test_an_array_may_have_any_dtype_that_it_stores() -> None:
    memory = NumpyMemory()
    for each in ALL:
        assert each in memory.dtypes(np.zeros(1, storage_dtype(each)))
    assert memory.dtypes(np.zeros(1, np.uint16)) == {bf16, u16}
    assert memory.dtypes(np.zeros(1, ">f4")) == frozenset()


def test_symbols_from_sizes_arguments_and_the_host() -> None:
    scaled = unary(
        "scale", op("mul", X, Scalar("alpha", f32)), n, SymbolInfo("n"), SymbolInfo("alpha", "float")
    )
    shape = tensor_type(f32, n)
    first = op("cast", load("x", (0,), f32), dtype=i64)
    dynamic = plan(
        [
            DefineStep("n", ("size", "x", 0)),
            DefineStep("alpha", ("argument", "alpha", 0)),
            DefineStep("u", first),
            CheckStep(op("lt", index(symbol("u")), const(9, i64)), "the first value is too large"),
            Allocate("a"),
            Launch("scale", ("x", "o"), (n, symbol("alpha"))),
        ],
        [Ref("o"), n * 2, ScalarRef("alpha"), symbol("u"), None, True],
        {"o": Placement(shape, "a")},
        inputs=(Value("x", shape), ScalarInput("alpha", "float", "alpha")),
        kernels=(scaled,),
        symbols=SymbolTable((SymbolInfo("n"), SymbolInfo("alpha", "float"), SymbolInfo("u"))),
        storages=(Storage("a", n * 4, CPU),),
    )
    for size in (1, 5):
        x = np.arange(size, dtype=np.float32) + 3
        found = Executor(dynamic).run([x, 0.5])
        assert np.array_equal(found[0], x * 0.5) and found[1:] == [size * 2, 0.5, 3, None, True]
    with pytest.raises(AssertionFailed, match="the first value is too large"):
        Executor(dynamic).run([np.full(2, 9, np.float32), 0.5])


def test_calls_take_tensors_and_their_results_get_the_promised_strides() -> None:
    transposed = TensorType(f32, (2, 4), Layout((1, 2)))
    product = plan(
        [CallStep("aten.mm.default", (Ref("x"), Ref("w")), (), ("y",)), Free("w")],
        [Ref("y")],
        {"y": Placement(transposed)},
        constants=(Value("w", tensor_type(f32, 3, 4)),),
    )
    w = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    (found,) = Executor(product, externs=numpy_externs(), constants={"w": w}).run([x23])
    assert found.strides == (4, 8) and np.allclose(found, x23 @ w)
    with pytest.raises(GraphError, match="constants are missing: w"):
        Executor(product)
    with pytest.raises(ExternNotFound, match=r"aten.mm.default(.|\n)*did you mean aten.mm.defalt"):
        Executor(product, externs=ExternTable({"aten.mm.defalt": np.matmul}), constants={"w": w}).run([x23])


def test_a_call_may_mutate_and_return_several() -> None:
    def routine(x: Any, size: int, *, into: Any) -> tuple[Any, Any]:
        into += size
        return x + 1, x.nonzero()[0]

    u = symbol("u")
    several = plan(
        [CallStep("my.op", (Ref("x"), s), (("into", Ref("w")),), (None, "places"), True)],
        [Ref("places"), Ref("w1"), u],
        {"places": Placement(tensor_type(i64, u)), "w1": Placement(tensor_type(f32, 2), base="w")},
        inputs=(Value("x", T23), Value("w", tensor_type(f32, 2)), ScalarInput("s", "int", "s")),
    )
    w = np.zeros(2, np.float32)
    places, w1, count = Executor(several, externs={"my.op": routine}).run([x23, w, 4])
    assert places.tolist() == [0, 0, 1, 1, 1] and count == 5 and w1 is w and w.tolist() == [4, 4]


def test_a_call_takes_a_strided_view() -> None:
    def increment(column: Any) -> None:
        column += 1

    column = StridedRef("w", (s,), Layout((3,), 1))
    partly = plan(
        [CallStep("increment", (column,), (), ())],
        [Ref("w")],
        {},
        inputs=(Value("w", T23), ScalarInput("s", "int", "s")),
    )
    w = np.zeros((2, 3), np.float32)
    Executor(partly, externs={"increment": increment}).run([w, 2])
    assert w.tolist() == [[0, 1, 0], [0, 1, 0]]


def test_regions_run_their_plans() -> None:
    def branch(kernel: str) -> Plan:
        steps = [Allocate("a"), Launch(kernel, ("x", "o"))]
        return replace(plan(steps, [Ref("o")], {"o": Placement(T23, "a")}), name=f"{kernel}_it")

    choice = plan(
        [RegionStep("cond", ("double_it", "negate_it"), (Ref("c"), Ref("x")), ("o",))],
        [Ref("o")],
        {"o": Placement(T23)},
        inputs=(Value("c", tensor_type(b1)), Value("x", T23)),
    )
    choice = replace(choice, subplans=(branch("double"), branch("negate")))
    assert np.array_equal(Executor(choice).run([np.array(True), x23])[0], 2 * x23)
    assert np.array_equal(Executor(choice).run([np.array(False), x23])[0], -x23)
    kept = plan(
        [RegionStep("frozen", ("double_it",), (Ref("x"),), ("o",))], [Ref("o")], {"o": Placement(T23)}
    )
    kept = replace(kept, subplans=(branch("double"),))
    assert np.array_equal(Executor(kept).run([x23])[0], 2 * x23)


@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
def test_the_matmul_family_of_numpy(dtype: DType) -> None:
    rng, table = np.random.default_rng(0), numpy_externs()
    a, b, c = (rng.integers(-4, 5, size=shape).astype(np.float32) for shape in ((2, 3, 4), (2, 4, 5), (5,)))
    sa, sb, sc = (encode(v, dtype) for v in (a, b, c))
    assert np.array_equal(decode(table["aten.bmm.default"](sa, sb), dtype), a @ b)
    assert np.array_equal(decode(table["aten.mm.default"](sa[0], sb[0]), dtype), a[0] @ b[0])
    assert np.array_equal(decode(table["matmul"](sa, sb[0]), dtype), a @ b[0])
    mixed = table["aten.addmm.default"](sc, sa[0], sb[0], beta=0.5, alpha=2)
    assert np.array_equal(decode(mixed, dtype), 0.5 * c + 2 * (a[0] @ b[0]))
    broken = encode(np.full(5, np.nan, np.float32), dtype)
    assert np.array_equal(decode(table["aten.baddbmm.default"](broken, sa, sb, beta=0), dtype), a @ b)
    with pytest.raises(DTypeError, match="ambiguous"):
        table["matmul"](np.zeros((2, 2), np.uint8), np.zeros((2, 2), np.uint8))


def test_extern_tables_extend() -> None:
    table = numpy_externs().extended({"mine": np.add, "matmul": np.multiply})
    assert table["mine"] is np.add and table["matmul"] is np.multiply
    assert "aten.mm.default" in table and "nothing" not in table and len(table) == len(list(table))
    order = table["sort"](np.array([2.0, 1.0, 2.0]), 0, True, True)[1]
    assert order.tolist() == [0, 2, 1]


def test_contiguous_layouts_are_what_memory_views_give() -> None:
    memory = NumpyMemory()
    storage = memory.empty(48, CPU)
    view = memory.view(storage, f32, (2, 3), (3, 1), 8)
    view[...] = 1
    assert storage.view(np.float32)[2:8].tolist() == [1] * 6 and memory.geometry(view) == ((2, 3), (3, 1))
