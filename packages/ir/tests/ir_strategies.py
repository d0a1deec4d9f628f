"""Hypothesis strategies for terms, bodies and loop graphs, all of which can be printed, parsed and serialised.

Not every generated program is valid.
"""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from litz_ir.device import CPU, Device
from litz_ir.dtypes import ALL, DType, b1, f32, f64, i64
from litz_ir.loops import nodes as n
from litz_ir.loops.layout import Layout, contiguous
from litz_ir.origin import Origin
from litz_ir.scalar import expr as e
from litz_ir.scalar.build import const
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import Size, symbol

SYMBOLS = ("s0", "s1", "i0", "i1", "r0", "max", "f32", "a.b")
NAMES = st.sampled_from(
    ("x", "y", "buf.1", "min", "f32", "in", "let", "odd name", "it's", 'q"q', "é", "", "1a", "\\\n")
)
VALUES = st.sampled_from(("x", "y", "z", "x.1", "odd name", "f32"))
TEXTS = st.sampled_from(("", "plain", 'quo"te', "new\nline", "tab\t# no comment @ no origin", "ünïcode"))
DTYPES = st.sampled_from(ALL)
ERRORS = st.sampled_from(get_args(n.AssertedError))
DEVICES = st.sampled_from((CPU, CPU, Device("cuda"), Device("cuda", 1)))
INTS = st.sampled_from((0, 1, 2, 3, 7, 64, 1024, -1, -5))


def tuples(items: st.SearchStrategy[Any], low: int = 0, high: int = 2) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, min_size=low, max_size=high).map(tuple)


def _grow_terms(inner: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    positive = st.sampled_from((2, 3, 8, symbol("s0"), symbol("s1") + 2))
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(floordiv, inner, positive),
        st.builds(mod, inner, positive),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
    )


plain_terms: st.SearchStrategy[Size] = st.recursive(
    INTS | st.sampled_from(SYMBOLS).map(symbol), _grow_terms, max_leaves=5
)


@st.composite
def literals(draw: st.DrawFn, dtype: DType) -> e.Expr:
    if dtype.is_bool:
        return const(draw(st.booleans()), dtype)
    if dtype.is_float:
        return const(
            draw(st.sampled_from((0.0, -0.0, 0.125, 1e300, -2.5, 3.0, float("inf"), float("nan")))), dtype
        )
    return const(draw(st.integers(-300, 2**64)), dtype)


@st.composite
def leaves(draw: st.DrawFn, dtype: DType) -> e.Expr:
    choice = draw(st.integers(0, 4))
    if choice == 0:
        return draw(literals(dtype))
    if choice == 1:
        return e.Scalar(draw(VALUES), dtype)
    if choice == 2:
        return e.Param(draw(st.integers(0, 3)), dtype)
    if choice == 3 and dtype == i64:
        return e.Index(draw(plain_terms))
    return e.Load(draw(VALUES), draw(tuples(plain_terms)), dtype)


@st.composite
def exprs(draw: st.DrawFn, dtype: DType | None = None, depth: int = 3) -> e.Expr:
    """An expression whose operations follow the table, mostly, with shared parts."""
    dtype = dtype or draw(DTYPES)
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(leaves(dtype))
    choice = draw(st.integers(0, 10))
    if choice == 10:
        return e.Checked(draw(exprs(b1, depth - 1)), draw(exprs(dtype, depth - 1)), "zero_division")
    if choice == 9 and dtype in (f32, f64):
        axes = draw(tuples(st.tuples(NAMES, plain_terms), low=1))
        return e.NestedReduction(axes, draw(exprs(dtype, depth - 1)))
    if choice == 0:
        cond = draw(exprs(b1, depth - 1))
        return e.Masked(cond, draw(exprs(dtype, depth - 1)), draw(exprs(dtype, depth - 1)))
    if choice == 1:
        value = draw(exprs(draw(st.sampled_from([d for d in ALL if d.is_integer])), depth - 1))
        atom = e.Indirect(
            value,
            draw(plain_terms),
            draw(st.booleans()),
            draw(st.sampled_from(("assumed", "clamped", "raised"))),
            draw(st.sampled_from(("index", "element"))),
        )
        return e.Load(draw(VALUES), (atom * 4 + 1, draw(plain_terms)), dtype)
    if choice == 2:
        return e.Op(
            draw(st.sampled_from(("add", "no_such", "where", "cast", "odd name"))),
            (draw(exprs(f32, 0)),),
            dtype,
        )
    if choice == 3:
        return e.Op("cast", (draw(exprs(None, depth - 1)),), dtype)
    if choice == 4:
        shared = draw(exprs(dtype, depth - 1))
        return e.Op("maximum", (shared, shared), dtype)
    if dtype.is_bool:
        other = draw(DTYPES)
        name = draw(st.sampled_from(("lt", "eq", "ge", "ne")))
        return e.Op(name, (draw(exprs(other, depth - 1)), draw(exprs(other, depth - 1))), b1)
    name = draw(
        st.sampled_from(
            ("add", "sub", "mul", "div", "bit_and", "bit_or", "neg", "where", "exp", "random_bits")
        )
    )
    row = OPS[name]
    kinds = {"where": (b1, dtype, dtype), "random_bits": (i64, i64)}.get(name, (dtype,) * row.arity)
    return e.Op(name, tuple(draw(exprs(kind, depth - 1)) for kind in kinds), dtype)


def indirect_terms() -> st.SearchStrategy[Size]:
    atoms = st.builds(
        e.Indirect,
        exprs(i64, 1),
        plain_terms,
        st.booleans(),
        st.sampled_from(("assumed", "clamped", "raised")),
    )
    return plain_terms | st.builds(lambda atom, term: atom * 2 + term, atoms, plain_terms)


origins = st.builds(
    Origin,
    node=st.sampled_from(("", "relu_1", "in", "odd node")),
    operation=st.sampled_from(("", "aten.relu.default", "odd (op)")),
    module=st.sampled_from(("", "model.layers.0", "odd module")),
    file=st.sampled_from(("", "model.py", "/a b/c:d.py", "dir/x-y.py")),
    line=st.sampled_from((0, 12)),
    source=TEXTS,
)
layouts = st.builds(Layout, tuples(plain_terms, 0, 3), plain_terms, st.booleans())


@st.composite
def types(draw: st.DrawFn, shape: tuple[Size, ...] | None = None) -> n.TensorType:
    shape = draw(tuples(plain_terms)) if shape is None else shape
    layout = draw(layouts) if draw(st.booleans()) else contiguous(shape)
    return n.TensorType(draw(DTYPES), shape, layout, draw(DEVICES))


values = st.builds(n.Value, VALUES, types(), st.none() | VALUES)
complex_values = st.builds(n.ComplexValue, VALUES, types(), st.none() | VALUES)
axes = tuples(st.builds(n.Axis, st.sampled_from(("i0", "i1", "j", "in")), plain_terms))
arguments: st.SearchStrategy[n.Argument] = st.recursive(
    st.one_of(
        st.builds(n.Ref, VALUES),
        st.builds(n.StridedRef, VALUES, tuples(plain_terms, 0, 3), layouts),
        st.builds(n.ComplexRef, VALUES),
        st.builds(n.ScalarRef, VALUES),
        st.builds(n.Keyword, NAMES, NAMES),
        DTYPES,
        DEVICES,
        plain_terms,
        st.sampled_from((0.5, -0.0, -3.0, float("inf"), float("-inf"), True, False, None)),
        st.sampled_from((1j, complex(-0.0, float("-inf")), complex(2.5, -1.0))),
        TEXTS,
    ),
    lambda inner: tuples(inner, 0, 3),
    max_leaves=4,
)
attributes = tuples(st.tuples(NAMES, arguments))
combiners = st.builds(
    n.NamedCombiner, st.sampled_from(("sum", "prod", "min", "max", "any", "all", "xor", "argmin", "welford"))
) | st.builds(n.UserCombiner, tuples(exprs(None, 2)), tuples(exprs(None, 1)), tuples(exprs(None, 2)))


@st.composite
def loop_results(draw: st.DrawFn, *loops: tuple[n.Axis, ...]) -> tuple[n.Value, ...]:
    """Results of the loop's own shape, or any others."""
    if draw(st.booleans()):
        return draw(tuples(values))
    shape = tuple(axis.size for loop in loops for axis in loop)
    return (n.Value(draw(VALUES), draw(types(shape))),)


@st.composite
def operations(draw: st.DrawFn, depth: int = 1) -> n.Operation:
    shared: dict[str, Any] = {
        "origin": draw(origins),
        "token": draw(st.sampled_from(("", "rng", "odd token"))),
        "results": draw(tuples(values)),
    }
    kind = draw(st.sampled_from(_OPERATIONS if depth else _OPERATIONS[:-1]))
    outer, inner = draw(axes), draw(axes)
    if kind in (n.Pointwise, n.Reduction, n.View):
        shared["results"] = draw(loop_results(outer))
    if kind is n.Pointwise:
        return n.Pointwise(axes=outer, bodies=draw(tuples(exprs())), **shared)
    if kind is n.Reduction:
        bodies = draw(tuples(exprs()))
        return n.Reduction(axes=outer, reduce_axes=inner, combiner=draw(combiners), bodies=bodies, **shared)
    if kind is n.Scan:
        axis = n.Axis("k", draw(plain_terms))
        shared["results"] = draw(loop_results((axis,), outer))
        position = draw(st.integers(0, 1))
        return n.Scan(
            axes=outer,
            scan_axis=axis,
            dimension=position,
            combiner=draw(combiners),
            bodies=draw(tuples(exprs())),
            **shared,
        )
    if kind is n.Scatter:
        mode = draw(st.sampled_from(("set", "add", "mul", "min", "max")))
        index = draw(tuples(indirect_terms()))
        return n.Scatter(base=draw(VALUES), axes=outer, index=index, body=draw(exprs()), mode=mode, **shared)
    if kind is n.View:
        index = draw(tuples(indirect_terms()))
        given = draw(st.none() | st.tuples(*[plain_terms] * len(index)))
        return n.View(
            base=draw(VALUES),
            axes=outer,
            index=index,
            aliases=draw(st.booleans()),
            base_strides=given,
            **shared,
        )
    if kind is n.Sort:
        flags = {"descending": draw(st.booleans()), "stable": draw(st.booleans())}
        return n.Sort(source=draw(VALUES), dimension=draw(st.integers(-1, 2)), **flags, **shared)
    if kind is n.Mutation:
        return n.Mutation(target=draw(VALUES), source=draw(VALUES), **shared)
    if kind is n.Assert:
        error = draw(ERRORS)
        return n.Assert(condition=draw(exprs(b1)), message=draw(TEXTS), error=error, **shared)
    if kind is n.HostScalar:
        return n.HostScalar(symbol=draw(st.sampled_from(SYMBOLS)), body=draw(exprs()), **shared)
    if kind is n.Region:
        way = draw(region_kinds)
        graphs = draw(tuples(loop_graphs(0)))
        return n.Region(kind=way, subgraphs=graphs, arguments=draw(tuples(arguments)), **shared)
    return draw(calls(kind, shared))


region_kinds = st.sampled_from(get_args(n.RegionKind))
_OPERATIONS: tuple[type[n.Operation], ...] = (
    n.Pointwise, n.Reduction, n.Scan, n.Scatter, n.View, n.Sort, n.Mutation, n.Assert, n.HostScalar,
    n.Extern, n.ContractionCall, n.Random, n.Collective, n.Region,
)  # fmt: skip


@st.composite
def calls(draw: st.DrawFn, kind: type[n.Operation], shared: dict[str, Any]) -> n.Operation:
    fields = dict(
        {**shared, "results": draw(tuples(values | complex_values))},
        target=draw(NAMES),
        arguments=draw(tuples(arguments)),
        attributes=draw(attributes),
        mutates=draw(tuples(st.tuples(VALUES, VALUES))),
        aliases=draw(tuples(st.tuples(VALUES, VALUES))),
        layout_requirement=draw(st.sampled_from(("any", "dense", "exact"))),
        unreturned=draw(tuples(VALUES)),
        unpack=draw(st.booleans()),
        flops=draw(plain_terms),
    )
    if kind is n.Extern:
        return n.Extern(reason=draw(TEXTS), **fields)
    if kind is n.ContractionCall:
        return n.ContractionCall(kind=draw(st.sampled_from(("matmul", "convolution", "attention"))), **fields)
    return kind(**fields)


@st.composite
def symbol_infos(draw: st.DrawFn, name: str) -> SymbolInfo:
    if draw(st.booleans()):
        kind = draw(st.sampled_from(("float", "bool")))
        return SymbolInfo(name, kind, hint=draw(st.sampled_from((None, 0.5, True))), source=draw(TEXTS))
    low = draw(st.sampled_from((None, 0, 2)))
    high = draw(st.sampled_from((None, 64)))
    return SymbolInfo(
        name, "int", low, high, draw(st.sampled_from((1, 8))), draw(st.none() | INTS), draw(TEXTS)
    )


@st.composite
def tables(draw: st.DrawFn) -> SymbolTable:
    names = draw(st.lists(st.sampled_from((*SYMBOLS, "equal")), unique=True, max_size=3))
    infos = tuple(draw(symbol_infos(name)) for name in names)
    if not names:
        return SymbolTable()
    return SymbolTable(infos, ((symbol(names[0]) * 2, 6),) if draw(st.booleans()) else ())


inputs = st.one_of(
    values,
    complex_values,
    st.builds(
        n.ScalarInput,
        VALUES,
        st.sampled_from(("int", "float", "bool")),
        st.none() | st.sampled_from(SYMBOLS),
        st.none() | plain_terms,
    ),
    st.builds(n.ObjectInput, VALUES, NAMES),
)
outputs = st.one_of(
    st.builds(n.Ref, VALUES),
    st.builds(n.ComplexRef, VALUES),
    st.builds(n.ScalarRef, VALUES),
    plain_terms,
    st.sampled_from((1.5, -0.5, True, None)),
)


@st.composite
def loop_graphs(draw: st.DrawFn, depth: int = 1) -> n.LoopGraph:
    return n.LoopGraph(
        draw(NAMES),
        draw(tables()),
        draw(tuples(inputs)),
        draw(tuples(values)),
        draw(tuples(operations(depth), 0, 3 if depth else 1)),
        draw(tuples(outputs)),
        draw(tuples(NAMES, 0, 2)),
        draw(tuples(NAMES, 0, 2)),
        draw(tuples(NAMES, 0, 2)),
    )
