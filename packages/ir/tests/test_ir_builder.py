"""The builder of graphs: its graphs are those that the constructors give, and compute what NumPy does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir.builder import GraphBuilder
from litz_ir.dtypes import DType, b1, f8e4m3fn, f16, f32, f64, i32, i64, u8
from litz_ir.errors import DTypeError, GraphError, LitzError, SymbolError
from litz_ir.interp import run_graph
from litz_ir.interp.encoding import storage_dtype
from litz_ir.loops import (
    Axis,
    LoopGraph,
    NamedCombiner,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    UserCombiner,
    Value,
)
from litz_ir.loops.layout import contiguous
from litz_ir.scalar import Load, Param, build, const, op
from litz_ir.symbols import SymbolInfo, SymbolTable, evaluate, symbol
from litz_ir.text import parse_graph, to_text

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)


def softmax() -> LoopGraph:
    g = GraphBuilder("softmax")
    x = g.input("x", f32, (g.size("n"), 1024))
    e = g.exp(x - g.max(x, axis=-1, keepdims=True))
    return g.build(e / g.sum(e, axis=-1, keepdims=True))


def layer_norm() -> LoopGraph:
    g = GraphBuilder("layer_norm")
    x, r = g.input("x", f32, (g.size("n"), 96)), g.input("r", f32, (symbol("n"), 96))
    w, b = g.input("w", f32, (96,)), g.input("b", f32, (96,))
    h = x + r
    c = h - g.mean(h, axis=-1, keepdims=True)
    v = g.mean(c * c, axis=-1, keepdims=True)
    return g.build(c * g.rsqrt(v + 1e-5) * w + b)


def attention_scores() -> LoopGraph:
    g = GraphBuilder("scores")
    q, k = (g.input(name, f32, (2, 4, 6, 8)) for name in "qk")
    s = q @ k.transpose() * 8**-0.5
    seen = g.index(s.shape, -2) >= g.index(s.shape, -1)
    s = g.where(seen, s, float("-inf"))
    e = g.exp(s - g.max(s, axis=-1, keepdims=True))
    return g.build(e / g.sum(e, axis=-1, keepdims=True))


@pytest.mark.parametrize(("program", "lines"), [(softmax, 4), (layer_norm, 7), (attention_scores, 8)])
def test_lines_of_common_programs(program: Callable[[], LoopGraph], lines: int) -> None:
    body = inspect.getsource(program).splitlines()[1:]
    assert len([line for line in body if line.strip()]) <= lines


def test_a_graph_of_the_builder_is_that_of_the_constructors() -> None:
    n, i0, i1, r0 = symbol("n"), symbol("i0"), symbol("i1"), symbol("r0")

    def value(name: str, *shape: Any, fixed: bool = False) -> Value:
        return Value(name, TensorType(f32, shape, contiguous(shape, fixed=fixed)))

    points, row, reduced = (
        (Axis("i0", n), Axis("i1", 1024)),
        (Axis("i0", n), Axis("i1", 1)),
        (Axis("r0", 1024),),
    )
    x, e = Load("x", (i0, i1), f32), Load("exp", (i0, i1), f32)
    expected = LoopGraph(
        name="softmax",
        symbols=SymbolTable((SymbolInfo("n", "int", 1),)),
        inputs=(value("x", n, 1024, fixed=True),),
        constants=(),
        operations=(
            Reduction(
                results=(value("max", n, 1),), axes=row, reduce_axes=reduced, combiner=NamedCombiner("max"),
                bodies=(Load("x", (i0, r0), f32),),
            ),
            Pointwise(
                results=(value("sub", n, 1024),), axes=points,
                bodies=(build.op("sub", x, Load("max", (i0, 0), f32)),),
            ),
            Pointwise(
                results=(value("exp", n, 1024),), axes=points,
                bodies=(build.op("exp", Load("sub", (i0, i1), f32)),),
            ),
            Reduction(
                results=(value("sum", n, 1),), axes=row, reduce_axes=reduced, combiner=NamedCombiner("sum"),
                bodies=(Load("exp", (i0, r0), f32),),
            ),
            Pointwise(
                results=(value("div", n, 1024, fixed=True),), axes=points,
                bodies=(build.op("div", e, Load("sum", (i0, 0), f32)),),
            ),
        ),
        outputs=(Ref("div"),),
    )  # fmt: skip
    assert softmax() == expected


@pytest.mark.parametrize("program", [softmax, layer_norm, attention_scores])
def test_a_graph_is_what_its_text_says(program: Callable[[], LoopGraph]) -> None:
    graph = program()
    assert parse_graph(to_text(graph)) == graph


def test_origins_are_the_lines_that_add_operations() -> None:
    graph = softmax()
    assert [each.origin.source for each in graph.operations][1:3] == [
        "e = g.exp(x - g.max(x, axis=-1, keepdims=True))"
    ] * 2
    assert all(each.origin.file == __file__ and each.origin.line for each in graph.operations)


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def run(build_graph: Callable[..., Any], *arrays: Array, externs: Any = None) -> list[Any]:
    """The results of a graph whose outputs ``build_graph`` makes of the builder and its inputs."""
    g = GraphBuilder("g")
    dtypes = {"float32": f32, "float64": f64, "int64": i64, "bool": b1}
    inputs = [g.input(f"x{k}", dtypes[a.dtype.name], a.shape) for k, a in enumerate(arrays)]
    outputs = build_graph(g, *inputs)
    graph = g.build(*(outputs if isinstance(outputs, tuple) else (outputs,)))
    assert parse_graph(to_text(graph)) == graph
    return run_graph(graph, [a.copy() for a in arrays], externs=externs or {})


POSITIONS = np.array([3, 0, -1])
PROGRAMS: Sequence[tuple[str, Callable[..., Any], Callable[..., Any], Sequence[Array]]] = [
    ("arithmetic", lambda g, x, y: 2.0 - x * y + x / 4.0, lambda x, y: 2 - x * y + x / 4, [numbers(3, 4), numbers(4)]),
    ("power", lambda g, x: abs(x) ** 1.5 - (-x), lambda x: abs(x) ** 1.5 + x, [numbers(5)]),
    ("integers", lambda g, x: x // 2 + x % 3 ^ 1, lambda x: x // 2 + x % 3 ^ 1, [np.arange(-4, 4)]),
    ("compared", lambda g, x: (x < 0.5) & (x >= -0.5), lambda x: (x < 0.5) & (x >= -0.5), [numbers(9)]),
    ("or", lambda g, x: (x <= 0.5) | (x > 1.0), lambda x: (x <= 0.5) | (x > 1), [numbers(9)]),
    ("choice", lambda g, x, y: g.where(x <= y, x, 0.0), lambda x, y: np.where(x <= y, x, 0), [numbers(4), numbers(4)]),
    ("cast", lambda g, x: x.to(i64).to(f64), lambda x: x.astype(np.int64).astype(np.float64), [numbers(6)]),
    ("constants", lambda g, x: g.full((2, 3), 1.5, f32) + x, lambda x: np.full((2, 3), 1.5) + x, [numbers(3)]),
    ("positions", lambda g, x: x + g.index((3, 4), 0), lambda x: x + np.arange(3)[:, None], [np.arange(4)]),
    ("all", lambda g, x: g.sum(x), np.sum, [numbers(3, 4)]),
    ("axes", lambda g, x: g.min(x, axis=(0, -1)), lambda x: x.min((0, 2)), [numbers(3, 4, 5)]),
    ("mean", lambda g, x: g.mean(x, axis=1), lambda x: x.mean(1), [numbers(3, 4)]),
    ("argmax", lambda g, x: g.argmax(x, 1), lambda x: x.argmax(1), [numbers(3, 4)]),
    ("matmul", lambda g, x, y: x @ y, np.matmul, [numbers(2, 3, 4), numbers(4, 5)]),
    ("cumulative", lambda g, x: g.scan("sum", x, 0), lambda x: x.cumsum(0), [numbers(3, 4)]),
    ("sorted", lambda g, x: g.sort(x), lambda x: (np.sort(x), np.argsort(x)), [numbers(3, 4)]),
    ("take", lambda g, x, p: g.take(x, p, axis=1), lambda x, p: x.take(p, axis=1), [numbers(2, 4, 3), POSITIONS]),
    ("reshape", lambda g, x: x.reshape(2, -1) + 0.0, lambda x: x.reshape(2, -1), [numbers(4, 3)]),
    ("flat transpose", lambda g, x: x.transpose().reshape(12) + 0.0, lambda x: x.T.reshape(12), [numbers(4, 3)]),
    ("permute", lambda g, x: x.permute(2, 0, 1) + 0.0, lambda x: x.transpose(2, 0, 1), [numbers(2, 3, 4)]),
    ("slices", lambda g, x: x[1:, ::2, None] + x[0, 1], lambda x: x[1:, ::2, None] + x[0, 1], [numbers(3, 4)]),
    ("last", lambda g, x: x[..., -1] + 0.0, lambda x: x[..., -1], [numbers(3, 4)]),
    ("expand", lambda g, x: x.expand(2, 3) + 0.0, lambda x: np.broadcast_to(x, (2, 3)), [numbers(1, 3)]),
    ("flip", lambda g, x: x.flip(0) + 0.0, lambda x: x[::-1], [numbers(3, 2)]),
    ("squeeze", lambda g, x: x.squeeze(1) + 0.0, lambda x: x[:, 0], [numbers(3, 1)]),
    ("literals", lambda g, x: g.where(x > 0, 1.5, 0.0, dtype=f32), lambda x: np.where(x > 0, 1.5, 0), [numbers(5)]),
    ("literal", lambda g, x: g.where(x > 0, 1.5, x), lambda x: np.where(x > 0, 1.5, x), [numbers(5)]),
    ("always", lambda g, x: g.where(True, x, 1.5), lambda x: x, [numbers(5)]),
    ("NumPy's scalars", lambda g, x: np.float32(2) * x + np.int64(1), lambda x: 2 * x + 1, [numbers(5)]),
    ("reflected", lambda g, x: 2 ** (7 // (5 % x)), lambda x: 2 ** (7 // (5 % x)), [np.array([2, 3, 4])]),
    ("reflected bits", lambda g, x: (1 & x) + (4 | x) + (7 ^ x), lambda x: (1 & x) + (4 | x) + (7 ^ x), [np.arange(9)]),
    ("shifts", lambda g, x: (x << 2) + (64 >> x) + (1 << (x >> 1)),
     lambda x: (x << 2) + (64 >> x) + (1 << (x >> 1)), [np.arange(6)]),
    ("inverted", lambda g, x: ~(x > 0), lambda x: ~(x > 0), [numbers(5)]),
    ("inverted bits", lambda g, x: ~x, lambda x: ~x, [np.arange(5)]),
    ("identities", lambda g, x: g.eq(x, x), lambda x: x == x, [numbers(5)]),
    ("shape as one", lambda g, x: x.reshape((6, -1)) + 0.0, lambda x: x.reshape(6, -1), [numbers(4, 3)]),
    ("order as one", lambda g, x: x.permute([1, 0]) + 0.0, lambda x: x.T, [numbers(4, 3)]),
    ("expand as one", lambda g, x: x.expand((2, 3)) + 0.0, lambda x: np.broadcast_to(x, (2, 3)), [numbers(3)]),
    ("NumPy's sizes", lambda g, x: x.expand(np.int64(4), 3) + 0.0, lambda x: np.tile(x, (4, 1)), [numbers(3)]),
    ("NumPy's index", lambda g, x: x[np.int64(1), np.int64(1) :], lambda x: x[1, 1:], [numbers(4, 3)]),
    ("NumPy's axis", lambda g, x: g.sum(x, axis=np.int64(1)), lambda x: x.sum(1), [numbers(4, 3)]),
    ("no axis", lambda g, x: g.sum(x, axis=()), lambda x: x, [numbers(4, 3)]),
    (
        "scalar body",
        lambda g, x, y: g.pointwise(lambda a, b: op("add", a, op("mul", b, const(0.5, f32))), x, y),
        lambda x, y: x + y * 0.5,
        [numbers(4), numbers(4)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build_graph", "in_numpy", "arrays"), [each[1:] for each in PROGRAMS], ids=[each[0] for each in PROGRAMS]
)
def test_programs_compute_what_numpy_does(
    build_graph: Callable[..., Any], in_numpy: Callable[..., Any], arrays: Sequence[Array]
) -> None:
    expected = in_numpy(*arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found, right in zip(run(build_graph, *arrays), expected, strict=True):
        assert found.shape == np.shape(right)
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def test_a_scatter_adds_at_positions() -> None:
    x, positions, values = numbers(3, 4), np.array([[0, 0, 2, -1]]), numbers(2, 4)
    expected = x.copy()
    for row in range(2):
        for column in range(4):
            expected[positions[0, column], column] += values[row, column]
    (found,) = run(lambda g, x, p, v: g.scatter(x, p, v, mode="add"), x, positions, values)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_combiner_by_expressions() -> None:
    a, b = Param(0, f32), Param(1, f32)
    largest = UserCombiner((build.op("maximum", a, b),), (build.const(-9.0, f32),), (build.op("neg", a),))
    x = numbers(3, 4)
    (found,) = run(lambda g, x: g.reduce(largest, x, axis=1), x)
    np.testing.assert_array_equal(found, -x.max(1))


def test_an_assignment_overwrites_its_target() -> None:
    g = GraphBuilder("g")
    x = g.input("x", f32, (3,))
    newer = g.assign(x, x * 2.0)
    graph = g.build(newer + 1.0)
    array = np.array([1, 2, 3], np.float32)
    (found,) = run_graph(graph, [array])
    np.testing.assert_array_equal(found, [3, 5, 7])
    np.testing.assert_array_equal(array, [2, 4, 6])
    with pytest.raises(GraphError, match=r"x was overwritten(.|\n)*use what assign returned: assign"):
        x + 1.0


def test_calls_and_choices_between_graphs() -> None:
    def branch(name: str, factor: float) -> LoopGraph:
        g = GraphBuilder(name)
        x = g.input("x", f32, (3,))
        return g.build(x * factor)

    def program(g: GraphBuilder, x: Any) -> Any:
        called = g.call("double", x, dtype=f32, shape=(3,))
        return g.cond(g.sum(x) > 0.0, branch("yes", 10.0), branch("no", -10.0), called)

    for sign in (1, -1):
        x = sign * np.array([1, 2, 3], np.float32)
        (found,) = run(program, x, externs={"double": lambda x: x + x})
        np.testing.assert_array_equal(found, abs(x) * 20)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda g, x: x + g.input("y", f32, (3,)), r"shapes \(2, 4\) and \(3\) do not broadcast"),
        (lambda g, x: x + g.input("y", i64, (4,)), "add takes operands of one dtype, got f32, i64"),
        (lambda g, x: g.sum(x, axis=2), "axis 2 is outside a tensor of 2 dimensions"),
        (lambda g, x: x.reshape(3, -1), "has not as many elements"),
        (lambda g, x: x.reshape(3, 3), "has not as many elements"),
        (lambda g, x: x[5], "index 5 is outside a dimension of size 2"),
        (lambda g, x: x[::-1], "steps are positive"),
        (lambda g, x: x["a"], "'a' is no index"),
        (lambda g, x: x[0, 0, 0], "does not fit a tensor of shape"),
        (lambda g, x: x.permute(0, 0), "is no order of 2 dimensions"),
        (lambda g, x: x.expand(3, 4), "do not broadcast|does not expand"),
        (lambda g, x: x.squeeze(0), "has size 2, not 1"),
        (lambda g, x: x @ x, r"matmul of shapes \(2, 4\) and \(2, 4\)"),
        (lambda g, x: x if x else None, "has no truth value while the graph is built"),
        (lambda g, x: g.add(1.0, 2.0), "of literals alone"),
        (lambda g, x: g.reduce("median", x), "unknown combiner 'median'"),
        (lambda g, x: g.scatter(x, g.index((3,), 0), x), "do not broadcast|scatter of shape"),
        (lambda g, x: g.assign(x, x[0]), "assignment of"),
        (lambda g, x: g.cond(x, softmax(), softmax()), "is no 0-d b1 tensor"),
        (lambda g, x: g.output(GraphBuilder("other").input("z", f32, ())), "a tensor of the graph other"),
        (lambda g, x: g.op("frobnicate", x), "unknown scalar operation 'frobnicate'"),
        (lambda g, x: g.bit_and(x, x), "bit_and does not accept f32"),
        (lambda g, x: g.pointwise(lambda a: a, x, shape=(4,)), "does not broadcast to"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(program: Callable[..., Any], message: str) -> None:
    g = GraphBuilder("g")
    x = g.input("x", f32, (2, 4))
    with pytest.raises((GraphError, DTypeError), match=message):
        program(g, x)


def doubling(x: Any, dtype: DType = f32) -> LoopGraph:
    """A graph that doubles a tensor and converts it to ``dtype``."""
    inner = GraphBuilder("doubling")
    return inner.build((inner.input("x", x.dtype, x.shape) * 2.0).to(dtype))


Program = Callable[[GraphBuilder, Any], Any]
ARRAY = np.ones((4, 8), np.float32)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda g, x: g.where(x > 0.0, 1.5, 0.0), "give dtype=, such as where"),
        (lambda g, x: g.where(x > 0.0, x, 1.0, dtype=f64), "where gives f32 here, not f64"),
        (lambda g, x: g.sum(x, axis=(0, 0)), r"axis \(0, 0\) has a dimension twice"),
        (lambda g, x: g.mean(x, axis=(0, -2)), r"axis \(0, -2\) has a dimension twice"),
        (lambda g, x: g.input("x", f32, ()), "has a value x(.|\n)*a name of its own"),
        (lambda g, x: g.input(g.exp(x).name, f32, ()), "has a value exp"),
        (lambda g, x: x[: g.size("n")][:-1], "bounds are terms or at least 0 here"),
    ],
)  # fmt: skip
def test_what_would_be_wrong_in_silence_is_an_error(program: Program, message: str) -> None:
    g = GraphBuilder("g")
    with pytest.raises((GraphError, DTypeError), match=message):
        program(g, g.input("x", f32, (4, 8)))


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (1.5, i64, "i64 holds no fraction"),
        (float("nan"), i64, "i64 holds no fraction, infinity or NaN"),
        (2**40, i32, "i32 holds -2147483648 to 2147483647"),
        (-1, u8, "u8 holds 0 to 255"),
        (1e6, f16, "it overflows f16, whose largest value is 65504"),
        (65520, f16, "it overflows f16"),
        (10**400, f64, "it overflows f64"),
        (-1e39, f32, "it overflows f32"),
        (1e-8, f16, "it rounds to 0 in f16, whose smallest positive value is 5.96046e-08"),
        (float("inf"), f8e4m3fn, "f8e4m3fn has no infinity"),
        (True, f32, "f32 holds numbers, not truth values(.|\n)*write 1"),
        (True, i64, "i64 holds numbers, not truth values"),
        (1, b1, "b1 holds truth values, not numbers(.|\n)*write True or False"),
    ],
)
def test_a_literal_that_its_dtype_cannot_hold_is_an_error(value: Any, dtype: DType, message: str) -> None:
    g = GraphBuilder("g")
    x = g.input("x", dtype, (2,))
    for program in (lambda: g.eq(x, value), lambda: g.eq(value, x), lambda: g.full((2,), value, dtype)):
        with pytest.raises(DTypeError, match=message):
            program()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2.0, i64), (2**31 - 1, i32), (-(2**63), i64), (255, u8), (True, b1), (np.bool_(True), b1), (65519, f16),
        (0.1, f16), (float("-inf"), f16), (float("nan"), f8e4m3fn), (448, f8e4m3fn), (0, f32), (6e-8, f16),
        (1e-45, f32), (1e308, f64), (np.float16(0.5), f32),
    ],
)  # fmt: skip
def test_a_literal_that_its_dtype_holds_is_none(value: Any, dtype: DType) -> None:
    g = GraphBuilder("g")
    graph = g.build(g.eq(g.input("x", dtype, (2,)), value), g.full((2,), value, dtype))
    filled = run_graph(graph, [np.zeros(2, storage_dtype(dtype))])[1]
    # The literal is the same number wherever it stands.
    assert run_graph(graph, [filled])[0].tolist() == [value == value] * 2


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda g, x: ARRAY + x, r"add of a NumPy array of shape \(4, 8\)(.|\n)*add an input to the graph"),
        (lambda g, x: x + ARRAY, "add of a NumPy array"),
        (lambda g, x: ARRAY < x, "gt of a NumPy array"),
        (lambda g, x: x @ ARRAY, "an operand of matmul is a NumPy array"),
        (lambda g, x: ARRAY @ x, "an operand of matmul is a NumPy array"),
        (lambda g, x: np.asarray(x), "x has no elements while the graph is built"),
        (lambda g, x: list(x), "x is one tensor, not a sequence"),
        (lambda g, x: x + "a", "add of 'a', but tensors and literals are its operands"),
        (lambda g, x: None - x, "sub of None"),
        (lambda g, x: x + g.size("n"), r"add of <n>(.|\n)*litz_ir.scalar.index\(n\)"),
        (lambda g, x: g.add(x, [1, 2]), r"add of \[1, 2\]"),
        (lambda g, x: g.cast(x, f64), "cast takes 1 arguments, got 2"),
        (lambda g, x: g.exp(), "exp takes 1 arguments, got 0"),
        (lambda g, x: g.bit_and(f32, x), "give a dtype by its keyword"),
        (lambda g, x: g.op("expp", x), r"unknown scalar operation 'expp'(.|\n)*did you mean exp"),
        (lambda g, x: g.op(3, x), "unknown scalar operation 3"),
        (lambda g, x: g.exp(x, dtype=f64), "exp gives f32 here, not f64"),
        (lambda g, x: x.to("f64"), "the dtype of cast is 'f64', but a dtype(.|\n)*give litz_ir.dtypes.f64"),
        (lambda g, x: g.sum(ARRAY), "what is reduced is a NumPy array(.|\n)*add an input"),
        (lambda g, x: g.sum(None), "what is reduced is None, but a tensor belongs there"),
        (lambda g, x: g.reduce("sum", []), r"what is reduced is \[\]"),
        (lambda g, x: g.sum(x, axis="a"), "axis 'a' is no integer"),
        (lambda g, x: g.max(x, axis=1.0), "axis 1.0 is no integer"),
        (lambda g, x: g.argmax(x, None), "axis None is no integer"),
        (lambda g, x: g.reduce("argmax", x), "argmax combines 2 values of each element, but 1 are given"),
        (lambda g, x: g.reduce(None, x), "the combiner is None"),
        (lambda g, x: g.scan("argmax", x, 0), "argmax combines 2 values"),
        (lambda g, x: g.scan("welford", x, 0), "a scan has one result, but welford has 3"),
        (lambda g, x: g.scan("sum", ARRAY, 0), "what is scanned is a NumPy array"),
        (lambda g, x: g.sort(None), "what is sorted is None"),
        (lambda g, x: g.take(x, [1, 2]), r"the tensor of positions is \[1, 2\]"),
        (lambda g, x: g.take(x, x), "an indirect index must be an integer, got f32"),
        (lambda g, x: g.scatter(x, [0], x), "positions of the scatter"),
        (lambda g, x: g.scatter(x, x, x, mode="mean"), "no scatter by 'mean'(.|\n)*modes are set, add"),
        (lambda g, x: g.assign(x, 1.0), "the source is 1.0"),
        (lambda g, x: g.build(None), "an output is None, but a tensor belongs there"),
        (lambda g, x: g.build([x]), "an output is (.|\n)*give tensors as separate arguments"),
        (lambda g, x: g.pointwise(lambda a: None, x), "the body of pointwise returned None(.|\n)*litz_ir.scalar"),
        (lambda g, x: g.pointwise(lambda a: 1.5, x), r"returned 1.5(.|\n)*const\(1.5, f32\)"),
        (lambda g, x: g.pointwise(lambda a: g.exp(a), x), "in the body of pointwise, apply litz_ir.scalar.op"),
        (lambda g, x: g.pointwise(x, lambda a: a), "the body of pointwise is Tensor"),
        (lambda g, x: g.input("y", "f32", (4,)), "the dtype of the input y is 'f32'"),
        (lambda g, x: g.input("y", np.float32, (4,)), "the dtype of the input y"),
        (lambda g, x: g.input("y", f32, 4), r"the shape of the input y is 4(.|\n)*write \(4,\)"),
        (lambda g, x: g.input("y", f32, "ab"), "the shape of the input y is 'ab'"),
        (lambda g, x: g.input("y", f32, (4.0,)), "the input y has the size 4.0"),
        (lambda g, x: g.input("y", f32, (-1,)), "the input y has the size -1"),
        (lambda g, x: g.input("y", f32, (4,), strides=(1, 1)), "has 1 dimensions and 2 strides"),
        (lambda g, x: g.input(3, f32, (4,)), "the name 3 is no name of a value"),
        (lambda g, x: g.exp(x, name=3), "the name 3 is no name of a value"),
        (lambda g, x: g.size("i0"), "axes of the builder's loops"),
        (lambda g, x: g.size("n", low="a"), "low of the size n is 'a'"),
        (lambda g, x: g.full("a", 1.0, f32), "the shape of full is 'a'"),
        (lambda g, x: g.full((2,), "a", f32), "full of 'a', but a literal belongs there"),
        (lambda g, x: g.full((2,), 1.0, None), "the dtype of full is None"),
        (lambda g, x: g.index((2,), "a"), "axis 'a' is no integer"),
        (lambda g, x: x.reshape("ab"), "reshape has the size 'ab'"),
        (lambda g, x: x.expand(4.0, 8), "expand has the size 4.0"),
        (lambda g, x: g.view(x, (3,), None), "the index map of view is None, but a function belongs there"),
        (lambda g, x: g.view(x, (3,), lambda point: point), "the index map of view gives 1 terms for 2 dimensions"),
        (lambda g, x: x.permute(1), r"\(1,\) is no order of 2 dimensions(.|\n)*give each of 0 to 1 once"),
        (lambda g, x: x.permute("a", 0), "axis 'a' is no integer"),
        (lambda g, x: x[np.array([1, 2])], "is no index(.|\n)*take reads by a tensor"),
        (lambda g, x: x[x > 0.0], "is no index"),
        (lambda g, x: g.call("f", ARRAY, dtype=f32, shape=(2,)), "an argument of the call is a NumPy array"),
        (lambda g, x: g.cond(g.sum(x) > 0.0, GraphBuilder("no"), softmax(), x), "the branch is (.|\n)*a graph belongs"),
        (lambda g, x: g.cond(g.sum(x) > 0.0, softmax(), softmax()), "has 1 inputs, but gets 0 tensors"),
        (lambda g, x: g.cond(g.sum(x) > 0.0, doubling(x), softmax(), x), r"but gets f32\(4, 8\)"),
        (
            lambda g, x: g.cond(g.sum(x) > 0.0, doubling(x), doubling(x, i64), x),
            r"other branch doubling returns i64\(4, 8\), but the branch doubling f32\(4, 8\)",
        ),
        (lambda g, x: g.cond(g.sum(x) > 0.0, softmax(), softmax(), x), r"is f32\(n, 1024\), but gets f32\(4, 8\)"),
    ],
)  # fmt: skip
def test_what_is_no_operand_is_an_error_of_litz(program: Program, message: str) -> None:
    g = GraphBuilder("g")
    with pytest.raises((GraphError, DTypeError), match=message):
        program(g, g.input("x", f32, (4, 8)))


def test_numpy_has_no_functions_of_tensors() -> None:
    x = GraphBuilder("g").input("x", f32, (4, 8))
    with pytest.raises(TypeError, match="does not support ufuncs"):
        np.exp(x)  # type: ignore[call-overload]


def test_equality_of_tensors_is_identity() -> None:
    g = GraphBuilder("g")
    x, y = g.input("x", f32, (4,)), g.input("y", f32, (4,))
    assert x == x and x != y and x in (y, x)


@pytest.mark.parametrize(
    ("shapes", "unread"),
    [
        (lambda n, m: [(n,)], "m"),
        (lambda n, m: [(n + m,)], "n"),
        (lambda n, m: [(n * m,)], "n"),
        (lambda n, m: [(n,), (n + m,)], ""),
        (lambda n, m: [(n * 2, m)], ""),
    ],
)
def test_each_size_is_read_from_a_shape(shapes: Callable[..., Any], unread: str) -> None:
    g = GraphBuilder("g")
    n, m = g.size("n"), g.size("m")
    inputs = [g.input(f"x{k}", f32, shape) for k, shape in enumerate(shapes(n, m))]
    result = g.full((m,), 1.0, f32)
    if unread:
        with pytest.raises(
            GraphError, match=f"size {unread} has no value(.|\n)*give an input the dimension {unread}"
        ):
            g.build(result)
        return
    sizes = {"n": 3, "m": 4}
    graph = g.build(result)
    arrays = [np.zeros([evaluate(size, sizes) for size in each.shape], np.float32) for each in inputs]
    assert run_graph(graph, arrays)[0].shape == (4,)


def test_the_result_of_a_call_gives_a_size() -> None:
    g = GraphBuilder("g")
    x = g.input("x", f32, (5,))
    found = g.call("positive", x, dtype=f32, shape=(g.size("count", 0, 5),))
    (result,) = run_graph(g.build(found * 2.0), [numbers(5)], externs={"positive": lambda x: x[x > 0]})
    assert (result > 0).all()
    with pytest.raises(SymbolError, match="declared more than once"):
        g.size("count")


def test_a_failed_build_adds_no_outputs() -> None:
    g = GraphBuilder("g")
    x = g.input("x", f32, (3,))
    assert len(g.build(x + 1.0).outputs) == len(g.build(x + 2.0).outputs) == 1


def newton(g: GraphBuilder) -> tuple[LoopGraph, LoopGraph]:
    """Condition and body of the loop that counts steps and refines a square root of a third tensor."""
    graphs = []
    for name in ("goes_on", "step"):
        inner = GraphBuilder(name, device=g.device)
        count, root, x = (
            inner.input("count", i64, ()),
            inner.input("root", f32, (3,)),
            inner.input("x", f32, (3,)),
        )
        results = (count < 20,) if name == "goes_on" else (count + 1, (root + x / root) * 0.5)
        graphs.append(inner.build(*results))
    return graphs[0], graphs[1]


@pytest.mark.parametrize("start", [0, 20])
def test_a_loop_runs_while_its_condition_holds(start: int) -> None:
    def program(g: GraphBuilder, x: Any, pairs: Any) -> Any:
        return g.while_loop(*newton(g), [g.full((), start, i64), pairs.transpose()[0]], [x])

    x, pairs = np.array([1, 4, 9], np.float32), np.ones((3, 2), np.float32)
    count, root = run(program, x, pairs)
    assert count == 20
    np.testing.assert_allclose(root, [1, 2, 3] if start == 0 else 1, rtol=1e-6)


def test_a_loop_without_other_tensors() -> None:
    def of_x(name: str, result: Callable[[Any], Any]) -> LoopGraph:
        inner = GraphBuilder(name)
        return inner.build(result(inner.input("x", f32, ())))

    g = GraphBuilder("g")
    x = g.input("x", f32, ())
    (last,) = g.while_loop(of_x("less", lambda x: x < 100.0), of_x("twice", lambda x: x * 2.0), [x])
    assert run_graph(g.build(last), [np.array(3, np.float32)]) == [192]


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (lambda g, c, b, i, x: g.while_loop(c, b, (), (x,)), r"what is carried is \(\)"),
        (
            lambda g, c, b, i, x: g.while_loop(c, b, (i, x)),
            "the condition goes_on has 3 inputs, but gets 2 tensors",
        ),
        (
            lambda g, c, b, i, x: g.while_loop(c, b, (x, x), (x,)),
            r"input count of the condition goes_on is i64\(\)",
        ),
        (lambda g, c, b, i, x: g.while_loop(b, b, (i, x), (x,)), "but one 0-d b1 tensor belongs there"),
        (
            lambda g, c, b, i, x: g.while_loop(c, c, (i, x), (x,)),
            r"returns b1\(\), but what is carried is i64\(\), f32",
        ),
        (
            lambda g, c, b, i, x: g.while_loop(c, None, (i, x), (x,)),
            "the body is None, but a graph belongs there",
        ),
        (lambda g, c, b, i, x: g.while_loop(c, b, (i, 1.0), (x,)), "what is carried, element 1, is 1.0"),
    ],
)
def test_a_loop_that_does_not_fit_is_an_error(loop: Callable[..., Any], message: str) -> None:
    g = GraphBuilder("g")
    with pytest.raises(GraphError, match=message):
        loop(g, *newton(g), g.input("i", i64, ()), g.input("x", f32, (3,)))


def test_an_unknown_method_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no method 'softmax'"):
        GraphBuilder("g").softmax  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean exp"):
        GraphBuilder("g").expp  # noqa: B018
    with pytest.raises(AttributeError, match=r"did you mean .*reduce"):
        GraphBuilder("g").reduction  # noqa: B018
    assert issubclass(GraphError, LitzError)


def test_names_are_those_of_operations_and_unique() -> None:
    g = GraphBuilder("g")
    x = g.input("x", f32, (3,))
    assert [t.name for t in (g.exp(x), g.exp(x), g.exp(x, name="mine"), x + 1.0, x + 1.0)] == [
        "exp", "exp_1", "mine", "add", "add_1",
    ]  # fmt: skip


def test_reversed_rows_of_an_unknown_number_are_copied() -> None:
    """No strides of torch express them, whose sign is that of a symbol."""
    g = GraphBuilder("reversed")
    n = g.size("n")
    x = g.input("x", f32, (n, n))
    with pytest.raises(GraphError, match="no strides express the view"):
        g.view(x, (n, n), lambda point: (n - 1 - point[0], point[1]))
    assert g.view(x, (n, n), lambda point: (point[1], point[0])).type.layout.strides == (1, n)
