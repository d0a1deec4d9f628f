"""The builder of graphs: its graphs are those that the constructors give, and compute what NumPy does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir.builder import GraphBuilder
from litz_ir.dtypes import b1, f32, f64, i64
from litz_ir.errors import DTypeError, GraphError, LitzError
from litz_ir.interp import run_graph
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
from litz_ir.scalar import Load, Param, build
from litz_ir.symbols import SymbolInfo, SymbolTable, symbol
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


def test_an_unknown_method_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no method 'softmax'"):
        GraphBuilder("g").softmax  # noqa: B018
    assert issubclass(GraphError, LitzError)


def test_names_are_those_of_operations_and_unique() -> None:
    g = GraphBuilder("g")
    x = g.input("x", f32, (3,))
    assert [t.name for t in (g.exp(x), g.exp(x), g.exp(x, name="mine"), x + 1.0, x + 1.0)] == [
        "exp", "exp_1", "mine", "add", "add_1",
    ]  # fmt: skip
