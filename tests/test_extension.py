"""Scalar operations and reductions of other packages, from registration to kernels, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from litz_ir.dtypes import DType, f32, f64
from litz_ir.errors import ConfigError, DTypeError
from litz_ir.extension import register_operation, register_reduction
from litz_ir.interp.scalar import MEANINGS
from litz_ir.loops import REDUCTION_KINDS, ReductionKind, StateDefinition
from litz_ir.scalar import OPS, Load, Param, ScalarOp, const, op

PACKAGE = textwrap.dedent("""
    import numpy as np
    from litz_ir.builder import GraphBuilder
    from litz_ir.device import CPU
    from litz_ir.dtypes import f32
    from litz_ir.errors import ConfigError, DTypeError, GraphError, ScheduleError
    from litz_ir.extension import register_operation, register_reduction
    from litz_ir.loops import REDUCTION_KINDS, ReductionKind, StateDefinition
    from litz_ir.scalar import OPS, Param, ScalarOp, const, op, where

    ROW = ScalarOp("softplus", 1, accepts="float", cost=20)
    register_operation(ROW, lambda x: np.log1p(np.exp(x)))
    register_operation(ROW, lambda x: x)  # the same row again changes nothing

    def squares(dtypes):
        (x,) = (Param(0, each) for each in dtypes)
        a, b = Param(0, x.dtype), Param(1, x.dtype)
        return StateDefinition((const(0, x.dtype),), (op("mul", x, x),), (op("add", a, b),))

    register_reduction(ReductionKind("sum_of_squares", squares))

    g = GraphBuilder("own")
    x = g.input("x", f32, (6, 40))
    graph = g.build(g.softplus(x), *g.reduce("sum_of_squares", x, axis=1))
    array = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    expected = np.log1p(np.exp(array)), (array * array).sum(1)
""")


def run(program: str) -> None:
    """Run a program in a process of its own, after the package that registers."""
    text = PACKAGE + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_interpreter_text_and_json_know_registered_rows() -> None:
    run("""
        import pickle
        from litz_ir import from_json, from_text, to_json, to_text
        from litz_ir.interchange import from_interchange, to_interchange
        from litz_ir.interp import run_graph

        for found, right in zip(run_graph(graph, [array]), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5)
        assert "softplus(%x[i0, i1])" in to_text(graph) and "reduce.sum_of_squares" in to_text(graph)
        assert from_text(to_text(graph)) == graph
        assert from_json(to_json(graph)) == graph
        assert from_interchange(to_interchange(graph)) == graph
        assert pickle.loads(pickle.dumps(graph)) == graph
    """)


def test_a_device_without_the_operation_refuses_it_by_name() -> None:
    run("""
        from litz_ir.passes import PassContext
        from litz_ir.target import Capabilities
        from litz_scheduler import schedule

        try:
            schedule(graph, PassContext({CPU: Capabilities("plain")}))
        except ScheduleError as error:
            assert "softplus needs the scalar operation softplus, which kernels of plain lack" in str(error)
        else:
            raise AssertionError("it is scheduled")
        schedule(graph, PassContext({CPU: Capabilities("plain", operations=frozenset(OPS))}))
    """)


def test_a_spelling_makes_kernels_of_it_in_c_plus_plus() -> None:
    run("""
        import pathlib, tempfile
        from litz_codegen_cpp.emit import Spelling, register_spelling
        from litz_codegen_cpp.target import CpuTarget
        from litz_scheduler.conformance import GraphCase, run_graph_conformance

        case = GraphCase("own", graph, (array,), ulp=256)
        folder = pathlib.Path(tempfile.mkdtemp())
        assert run_graph_conformance(CpuTarget(), folder, cases=[case]).skipped
        register_spelling("softplus", Spelling("log1p(exp({0}))", "math_hyperbolic"))
        report = run_graph_conformance(CpuTarget(), folder, cases=[case])
        assert report.passed == ("own",), report.describe()
        try:
            register_spelling("exp", Spelling("{0}"))
        except ConfigError as error:
            assert "exp has a spelling" in str(error)
        else:
            raise AssertionError("exp is spelled anew")
    """)


def test_a_spelling_makes_kernels_of_it_in_triton() -> None:
    run("""
        from dataclasses import replace
        from litz_codegen_triton.emit import Spelling, register_spelling
        from litz_codegen_triton.target import CudaTarget
        from litz_ir.passes import PassContext
        from litz_ir.text import parse_graph, to_text
        from litz_scheduler import schedule

        register_spelling("softplus", {"float": Spelling("tl.log(1 + tl.exp({0}))")})
        target = CudaTarget("sm_90")
        on_gpu = parse_graph(to_text(graph).replace("graph own(", "graph own on cuda("))
        plan = target.schedule(schedule(on_gpu, PassContext({target.capabilities().device: target.capabilities()})))
        text = "".join(unit.text for unit in target.emit(plan))
        assert "tl.log(1 + tl.exp(" in text
    """)


@pytest.mark.parametrize(
    ("meaning", "message"),
    [
        ("lambda x: 1 / 0", "the meaning of mine raised ZeroDivisionError: division by zero"),
        ("lambda x, y: x", "the meaning of mine raised TypeError"),
        ("lambda x: None", "the meaning of mine returned object of shape ()"),
        (
            "lambda x: x.sum()",
            "the meaning of mine returned float32 of shape (), but an array for f32 of shape (6, 40)",
        ),
        ("lambda x: x[:1]", "the meaning of mine returned float32 of shape (1, 40)"),
        ("lambda x: x + 1j", "the meaning of mine returned complex64"),
    ],
)
def test_a_meaning_that_is_wrong_is_an_error_of_the_operation(meaning: str, message: str) -> None:
    run(f"""
        from litz_ir.interp import run_graph

        register_operation(ScalarOp("mine", 1), {meaning})
        g = GraphBuilder("wrong")
        graph = g.build(g.mine(g.input("x", f32, (6, 40))))
        try:
            run_graph(graph, [array])
        except GraphError as error:
            assert {message!r} in str(error) and error.node == "mine", error
        else:
            raise AssertionError("it runs")
    """)


def test_a_row_of_bools_and_a_reduction_of_two_values_are_registered() -> None:
    run("""
        from litz_ir.dtypes import i64
        from litz_ir.interp import run_graph

        register_operation(ScalarOp("nearly", 2, "compare", commutative=True), lambda x, y: abs(x - y) < 0.5)
        register_operation(ScalarOp("half", 1, accepts="integer"), lambda x: x / 2)

        def last(dtypes):
            value, index = (Param(k, each) for k, each in enumerate(dtypes))
            if not index.dtype.is_integer:
                raise DTypeError(f"an index is an integer, got {index.dtype}")
            later = op("ge", Param(3, index.dtype), Param(1, index.dtype))
            merge = tuple(where(later, Param(2 + k, each), Param(k, each)) for k, each in enumerate(dtypes))
            return StateDefinition((const(0, value.dtype), const(-1, index.dtype)), (value, index), merge)

        row = ReductionKind("last", last, inputs=2, results=2, merges_states=True)
        register_reduction(row)
        register_reduction(row)
        g = GraphBuilder("own")
        x = g.input("x", f32, (6, 40))
        graph = g.build(g.nearly(x, 0.25), g.reduce("last", (x, g.index(x.shape, 1)), axis=1)[0])
        near, end = run_graph(graph, [array])
        assert (near == (abs(array - 0.25) < 0.5)).all() and (end == array[:, -1]).all()

        g = GraphBuilder("own")
        graph = g.build(g.half(g.input("x", i64, (2,))))
        try:
            run_graph(graph, [np.array([2, 3])])
        except GraphError as error:
            assert "returned float64 of shape (2,), but an array for i64" in str(error), error
        else:
            raise AssertionError("its fractions are dropped")
    """)


def of_one(*, identity: Any = None, initial: Any = None, merge: Any = None) -> ReductionKind:
    """A kind with the sum's definition, of which parts may be replaced."""

    def define(dtypes: tuple[DType, ...]) -> StateDefinition:
        (dtype,) = dtypes
        a, b = Param(0, dtype), Param(1, dtype)
        return StateDefinition(
            (const(0, dtype),) if identity is None else identity,
            (a,) if initial is None else initial,
            (op("add", a, b),) if merge is None else merge,
        )

    return ReductionKind("mine", define)


def returning(value: Any, **fields: Any) -> ReductionKind:
    """A kind whose definition returns a value."""
    return ReductionKind("mine", lambda dtypes: value, **fields)


def refuse(dtypes: Any) -> Any:
    raise DTypeError("it takes no numbers")


A, B = Param(0, f32), Param(1, f32)


@pytest.mark.parametrize(
    ("row", "meaning", "message"),
    [
        (ScalarOp("exp", 2), max, "the name 'exp' is taken"),
        (OPS["exp"], max, "the name 'exp' is taken"),
        (ScalarOp("Soft Plus", 1), max, "'Soft Plus' is no name of a row"),
        (ScalarOp("masked", 1), max, "'masked' is no name of a row: the text form reserves the word"),
        (ScalarOp("let", 1), max, "'let' is no name of a row: the text form reserves the word"),
        (ScalarOp("f32", 1), max, "'f32' is no name of a row: the text form reserves the word"),
        (ScalarOp("sum", 1), max, "GraphBuilder has an attribute 'sum'"),
        (ScalarOp("build", 1), max, "GraphBuilder has an attribute 'build'"),
        (ScalarOp("input", 1), max, "GraphBuilder has an attribute 'input'"),
        (ScalarOp("while_loop", 1), max, "GraphBuilder has an attribute 'while_loop'"),
        (ScalarOp("device", 1), max, "GraphBuilder has an attribute 'device'"),
        ("zz", max, "'zz' is no row of a scalar operation"),
        (ScalarOp(3, 1), max, "3 is no name of a row"),
        (ScalarOp([], 1), max, "[] is no name of a row"),
        (ScalarOp("mine", 0), max, "cannot be registered"),
        (ScalarOp("mine", "a"), max, "its arity is an int of at least 1"),
        (ScalarOp("mine", True), max, "its arity is an int of at least 1"),
        (ScalarOp("mine", 1, cost="x"), max, "its cost an int of at least 0"),
        (ScalarOp("mine", 1, cost=-1), max, "its cost an int of at least 0"),
        (ScalarOp("mine", 1, "cast"), max, "its rule is one of same, compare, test"),
        (ScalarOp("mine", 1, accepts="floats"), max, "it accepts one of any, number, float"),
        (ScalarOp("mine", 1, commutative=True), max, "commutative is a bool, true only for"),
        (ScalarOp("mine", 2, commutative=1), max, "commutative is a bool, true only for"),
        (ScalarOp("mine", 1), 3, "but a function belongs there"),
    ],
)  # fmt: skip
def test_wrong_operations_are_not_registered(row: Any, meaning: Any, message: str) -> None:
    before = dict(OPS), dict(MEANINGS)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        register_operation(row, meaning)
    assert caught.value.hint
    assert (dict(OPS), dict(MEANINGS)) == before


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("r", "'r' is no row of a reduction"),
        (ReductionKind("sum", refuse), "the name 'sum' is taken"),
        (ReductionKind("user", refuse), "'user' is no name of a row: the text form reserves the word"),
        (ReductionKind(3, refuse), "3 is no name of a row"),
        (ReductionKind("mine", None), "has no definition"),
        (ReductionKind("mine", "define"), "has no definition"),
        (ReductionKind("mine", refuse, inputs="1"), "has no definition, inputs or results"),
        (ReductionKind("mine", refuse, results=0), "has no definition, inputs or results"),
        (ReductionKind("mine", refuse, merges_states="no"), "has merges_states 'no'"),
        (ReductionKind("mine", refuse, inputs=2, merges_states=True), "has merges_states True"),
        (ReductionKind("mine", refuse), "the definition of mine accepts no dtypes; of the first it said: it takes no"),
        (ReductionKind("mine", lambda: None), "the definition of mine of (f32) raised TypeError"),
        (ReductionKind("mine", lambda dtypes: dtypes[1]), "the definition of mine of (f32) raised IndexError"),
        (returning(None), "the definition of mine of (f32) returned None, but a StateDefinition belongs there"),
        (returning((0.0, 1.0)), "returned (0.0, 1.0), but a StateDefinition"),
        (returning(StateDefinition((0.0,), (A,), (A,))), "identity is (0.0,), but a tuple of 1 expressions"),
        (of_one(merge=()), "merge is (), but a tuple of 1 expressions belongs there"),
        (of_one(merge=(A, B)), "but a tuple of 1 expressions belongs there"),
        (of_one(merge=[A]), "but a tuple of 1 expressions belongs there"),
        (of_one(merge=(None,)), "merge is (None,)"),
        (of_one(merge=(Param(2, f32),)), "merge: [combine-parameter] the parameter $2 is not in scope"),
        (of_one(initial=(B,)), "initial: [combine-parameter] the parameter $1 is not in scope"),
        (of_one(initial=(op("cast", A, dtype=f64),)), "initial is (f64), but identity (f32)"),
        (of_one(merge=(op("lt", A, B),)), "merge is (b1), but identity (f32)"),
        (of_one(merge=(Load("x", (), f32),)), "merge: [defined-before-use] %x is read, but not defined here"),
        (of_one(identity=(op("neg", const(0, f32)),)), "identity is (Op("),
    ],
)  # fmt: skip
def test_wrong_reductions_are_not_registered(kind: Any, message: str) -> None:
    before = dict(REDUCTION_KINDS)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        register_reduction(kind)
    assert caught.value.hint
    assert dict(REDUCTION_KINDS) == before
