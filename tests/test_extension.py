"""Scalar operations and reductions of other packages, from registration to kernels, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PACKAGE = textwrap.dedent("""
    import numpy as np
    from litz_ir.builder import GraphBuilder
    from litz_ir.device import CPU
    from litz_ir.dtypes import f32
    from litz_ir.errors import ConfigError, ScheduleError
    from litz_ir.extension import register_operation, register_reduction
    from litz_ir.loops import REDUCTION_KINDS, ReductionKind, StateDefinition
    from litz_ir.scalar import OPS, Param, ScalarOp, const, op

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
    ("registration", "message"),
    [
        ('register_operation(ScalarOp("exp", 2), max)', "the name 'exp' is taken"),
        ('register_operation(ScalarOp("Soft Plus", 1), max)', "'Soft Plus' is no name of a row"),
        ('register_operation(ScalarOp("masked", 1), max)', "'masked' is no name of a row"),
        ('register_operation(ScalarOp("f32", 1), max)', "'f32' is no name of a row"),
        ('register_operation(ScalarOp("mine", 0), max)', "cannot be registered"),
        ('register_operation(ScalarOp("mine", 1, "cast"), max)', "cannot be registered"),
        ('register_operation(ScalarOp("mine", 1), 3)', "but a function belongs there"),
        ('register_reduction(ReductionKind("sum", squares))', "the name 'sum' is taken"),
        ('register_reduction(ReductionKind("mine", None))', "has no definition"),
    ],
)
def test_wrong_registrations_are_errors(registration: str, message: str) -> None:
    run(f"""
        try:
            {registration}
        except ConfigError as error:
            assert {message!r} in str(error), error
        else:
            raise AssertionError("it is registered")
        assert "mine" not in OPS and "mine" not in REDUCTION_KINDS
    """)
