"""Wrong graphs, plans, terms and targets: each is an error of litz that names the place, and none passes silently.

A row is a path into data that is right, a value that does not belong there, and words of the error.
"""

from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litz_ir import from_text
from litz_ir.builder import GraphBuilder
from litz_ir.device import Device
from litz_ir.dtypes import DType, b1, f32, i64
from litz_ir.errors import LitzError, SymbolError, TargetError, VerifyError
from litz_ir.loops import Axis, LoopGraph, NamedCombiner, Ref, Value
from litz_ir.origin import Origin
from litz_ir.plan import Launch, Plan
from litz_ir.scalar import OPS, Const, Expr, Index, Indirect, Load, const, op
from litz_ir.serial.field_checks import Misfit, check_expr
from litz_ir.symbols import symbol
from litz_ir.target import Capabilities, DeviceModel, Target
from litz_ir.target.conformance import run_conformance
from litz_ir.verifier import verify


@cache
def graph() -> LoopGraph:
    """A graph with every common operation."""
    g = GraphBuilder("wrong")
    n = g.size("n")
    x, ids = g.input("x", f32, (n, 8)), g.input("ids", i64, (4,))
    m = g.max(x, axis=-1, keepdims=True)
    e = g.exp(x - m)
    s = g.scan("sum", e, 1)
    taken = g.take(s, ids)
    swapped = taken.transpose()
    return g.build(swapped + 1.0, g.scatter(x, ids.reshape(4, 1), taken, mode="add"))


@cache
def plan() -> Plan:
    """A plan with a kernel."""
    found = from_text("""
plan small on cpu "plain" (%x: f32[n, 8] fixed) -> (%o) {
  symbols {
    n: int from 1
  }
  storage s0: n*32
  buffer %x: f32[n, 8] fixed
  buffer %o: f32[n, 8] fixed in s0
  kernel k0(in %p0: f32, out %p1: f32) {
    symbols {
      n: int from 1
    }
    schedule cpu_loops parallel(i0)
    outer [i0: n, i1: 8]
    phase [] {
      %p1[i0*8 + i1] = exp(%p0[i0*8 + i1]);
    }
  }
  define n from size 0 of %x
  allocate s0
  launch k0(%x, %o; n)
}
""")
    assert isinstance(found, Plan)
    return found


def changed(data: Any, path: str, value: Any) -> Any:
    """The data with another value at a path such as ``operations[1].axes[0].size``."""
    match = re.match(r"\.?(\w+)|\[(\d+)\]", path)
    assert match is not None, path
    rest = path[match.end() :]
    if match[1]:
        new = changed(getattr(data, match[1]), rest, value) if rest else value
        return replace(data, **{match[1]: new})
    position = int(match[2])
    new = changed(data[position], rest, value) if rest else value
    return (*data[:position], new, *data[position + 1 :])


RIGHT = Const(1.0, f32)
GRAPHS: Sequence[tuple[str, object, str]] = [
    ("name", 3, "graph.name: str belongs there, found an int: 3"),
    ("symbols", (), "symbols: SymbolTable belongs there"),
    ("inputs", [], "inputs: tuple belongs there, found a list"),
    ("inputs[0]", "x", r"inputs\[0\]: Value or ComplexValue or ScalarInput or ObjectInput belongs there"),
    ("inputs[0].name", 1, r"inputs\[0\].name: str belongs there"),
    ("inputs[0].type", f32, r"inputs\[0\].type: TensorType belongs there"),
    ("inputs[0].type.dtype", "f32", r"inputs\[0\].type.dtype: DType belongs there, found a str: 'f32'"),
    ("inputs[0].type.shape", [4, 8], r"inputs\[0\].type.shape: tuple belongs there"),
    ("inputs[0].type.shape[1]", np.int64(8), r"type.shape\[1\]: int or Term belongs there, found an int64"),
    ("inputs[0].type.shape[1]", 8.0, r"type.shape\[1\]: int or Term belongs there, found a float"),
    ("inputs[0].type.shape[1]", True, r"type.shape\[1\]: int or Term belongs there, found a bool"),
    ("inputs[0].type.shape[1]", "n", r"type.shape\[1\]: int or Term belongs there, found a str"),
    ("inputs[0].type.shape[1]", None, r"type.shape\[1\]: int or Term belongs there, found a NoneType"),
    ("inputs[0].type.layout.strides", (8,), "strides"),
    ("inputs[0].type.layout.offset", 1.5, "layout.offset: int or Term belongs there"),
    ("inputs[0].type.layout.fixed", 1, "layout.fixed: bool belongs there, found an int: 1"),
    ("inputs[0].type.device", "cpu", "type.device: Device belongs there"),
    ("inputs[0].type.device", None, "type.device: Device belongs there, found a NoneType"),
    ("inputs[0].replaces", 0, r"inputs\[0\].replaces"),
    ("constants", None, "constants: tuple belongs there"),
    ("operations", None, "operations: tuple belongs there"),
    ("operations[0]", "max", r"operations\[0\]: "),
    ("operations[0].results", None, r"operations\[0\].results: tuple belongs there"),
    ("operations[0].results[0]", "max", r"operations\[0\].results\[0\]"),
    ("operations[0].axes", (("i0", 4),), r"operations\[0\].axes\[0\]: Axis belongs there, found a tuple"),
    ("operations[0].axes[0].name", 0, r"operations\[0\].axes\[0\].name: str belongs there"),
    ("operations[0].axes[0].size", 4.0, r"operations\[0\].axes\[0\].size: int or Term belongs there"),
    ("operations[0].reduce_axes", Axis("r0", 8), r"reduce_axes: tuple belongs there, found an Axis"),
    ("operations[0].reduce_axes[0].size", 9, "outside|bounds|index"),
    ("operations[0].combiner", "max", r"operations\[0\].combiner: .* belongs there, found a str: 'max'"),
    ("operations[0].combiner", max, r"operations\[0\].combiner: "),
    ("operations[0].bodies", Load("x", (0, 0), f32), r"operations\[0\].bodies: tuple belongs there"),
    ("operations[0].bodies[0]", 1.0, r"operations\[0\].bodies\[0\]: Expr belongs there, found a float: 1.0"),
    ("operations[0].bodies[0]", "x", r"operations\[0\].bodies\[0\]: Expr belongs there"),
    ("operations[0].bodies[0]", symbol("r0"), r"operations\[0\].bodies\[0\]: Expr belongs there"),
    ("operations[0].bodies[0]", Load("x", (symbol("i0"), symbol("r0")), i64), "x"),
    ("operations[0].bodies[0]", Load("y", (0, 0), f32), "y"),
    ("operations[0].bodies[0]", Load("x", (0,), f32), "x"),
    ("operations[0].bodies[0]", Load("x", (0, symbol("z")), f32), "z"),
    ("operations[0].origin", "model.py:3", r"operations\[0\].origin: Origin belongs there"),
    ("operations[0].origin", Origin(line="3"), r"operations\[0\].origin.line: int belongs there"),  # type: ignore[arg-type]
    ("operations[0].token", None, r"operations\[0\].token: str belongs there"),
    ("operations[2].bodies[0]", Const(1, i64), "dtype|i64"),
    ("operations[3].dimension", "1", r"operations\[3\].dimension: int belongs there"),
    ("operations[3].dimension", 7, "dimension"),
    ("operations[3].scan_axis", "k", r"operations\[3\].scan_axis: Axis belongs there"),
    ("operations[5].index", (0, 0, 0), "index"),
    ("operations[5].index[0]", 1.0, r"operations\[5\].index\[0\]: int or Term belongs there"),
    ("operations[5].base", "nothing", "nothing"),
    ("operations[5].aliases", "no", r"operations\[5\].aliases: bool belongs there"),
    ("operations[8].mode", "plus", r"operations\[8\].mode: one of .* belongs there, found a str: 'plus'"),
    ("operations[8].body", 0, r"operations\[8\].body: Expr belongs there"),
    ("outputs", ["add"], "outputs: tuple belongs there, found a list"),
    ("outputs", ("add",), r"outputs\[0\]: .*Ref.* belongs there, found a str: 'add'"),
    ("outputs", "add", "outputs: tuple belongs there"),
    ("outputs", (graph().operations[1].results[0],), r"outputs\[0\]: .*Ref.* belongs there, found a Value"),
    ("outputs", (Ref("nothing"),), "nothing"),
    ("outputs", (Ref(3),), r"outputs\[0\].name: str belongs there"),  # type: ignore[arg-type]
    ("frozen", "x", "frozen: tuple belongs there"),
    ("donated", (0,), r"donated\[0\]: str belongs there"),
    ("donated", ("nothing",), "nothing"),
]  # fmt: skip

PLANS: Sequence[tuple[str, object, str]] = [
    ("name", None, "plan.name: str belongs there"),
    ("device", "cpu", "device: Device belongs there"),
    ("capability", 9, "capability: str belongs there"),
    ("buffers", {"x": 1}, "buffers: tuple belongs there, found a dict"),
    ("buffers[0]", "x", r"buffers\[0\]: a tuple of 2 belongs there"),
    ("buffers[1]", ("o", "s0"), r"buffers\[1\]\[1\]: Placement belongs there"),
    ("storages[0].nbytes", 3.5, r"storages\[0\].nbytes"),
    ("kernels[0]", "k0", r"kernels\[0\]: Kernel belongs there"),
    ("kernels[0].parameters[0].access", "inout?", r"kernels\[0\].parameters\[0\].access: one of"),
    ("kernels[0].parameters[0].dtype", np.float32, r"parameters\[0\].dtype: DType belongs there"),
    ("kernels[0].outer[0].size", "n", r"kernels\[0\].outer\[0\].size: int or Term belongs there"),
    ("kernels[0].schedule", "parallel", r"kernels\[0\].schedule"),
    ("kernels[0].phases[0].statements[0]", None, r"phases\[0\].statements\[0\]"),
    ("steps", None, "steps: tuple belongs there"),
    ("steps[2]", "launch", r"steps\[2\]"),
    ("steps[2].kernel", "k9", "k9"),
    ("steps[2].buffers", ["x", "o"], r"steps\[2\].buffers: tuple belongs there"),
    ("steps[2].buffers", ("x",), "buffers"),
    ("steps[2].symbols", (1.5,), r"steps\[2\].symbols\[0\]"),
    ("steps", (Launch("k0", ("x", "o"), (symbol("n"),)),), "n|s0|defined|allocated"),
    ("peak", 1.5, "peak"),
    ("decisions", "none", "decisions: tuple belongs there"),
]  # fmt: skip


def numbered(names: Iterable[str]) -> list[str]:
    """Names of cases, made unique by their positions."""
    return [f"{position} {name}" for position, name in enumerate(names)]


@pytest.mark.parametrize(("path", "value", "message"), GRAPHS, ids=numbered(row[0] for row in GRAPHS))
def test_a_wrong_field_of_a_graph(path: str, value: object, message: str) -> None:
    verify(graph())
    with pytest.raises(VerifyError) as caught:
        verify(changed(graph(), path, value))
    assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(("path", "value", "message"), PLANS, ids=numbered(row[0] for row in PLANS))
def test_a_wrong_field_of_a_plan(path: str, value: object, message: str) -> None:
    verify(plan())
    with pytest.raises(VerifyError) as caught:
        verify(changed(plan(), path, value))
    assert re.search(message, str(caught.value)), str(caught.value)


def test_an_error_of_a_field_names_the_operation_and_its_line() -> None:
    with pytest.raises(VerifyError) as caught:
        verify(changed(graph(), "operations[1].bodies[0]", None))
    assert caught.value.check == "field-type"
    assert caught.value.node == "sub"
    assert caught.value.origin.source == "e = g.exp(x - m)"


n, i0 = symbol("n"), symbol("i0")
CALLS: Sequence[tuple[str, Callable[[], object], str]] = [
    ("truth of a term", lambda: bool(n), "n has no truth value"),
    ("truth of a comparison's operand", lambda: n and 3, "n has no truth value"),
    ("a reduction that is none", lambda: NamedCombiner("mean"), "unknown combiner 'mean'"),
    ("an operation that is none", lambda: op("expp", RIGHT), "unknown scalar operation 'expp'"),
    ("too many operands", lambda: op("exp", RIGHT, RIGHT), "exp takes 1 arguments, got 2"),
    ("operands of two dtypes", lambda: op("add", RIGHT, const(1, i64)), "operands of one dtype, got f32, i64"),
    ("an operand that is unfit", lambda: op("bit_and", RIGHT, RIGHT), "bit_and does not accept f32"),
    ("a choice by a number", lambda: op("where", RIGHT, RIGHT, RIGHT), "where takes a b1 condition"),
    ("a list for an index", lambda: Load("x", [i0, 0], f32), "give tuples for lists"),  # type: ignore[arg-type]
    ("a verifier of a string", lambda: verify("graph"), "no verifier for str"),
    ("a device without a kind", lambda: Device(""), "the kind of a device is ''"),
    ("a device by its number", lambda: Device(3), "the kind of a device is 3"),  # type: ignore[arg-type]
    ("a device below 0", lambda: Device("cpu", -1), "the number of a device is -1, but an int of at least 0"),
    ("a number as text", lambda: Device("cpu", "0"), "the number of a device is '0'"),  # type: ignore[arg-type]
    ("a device's text", lambda: Device.parse("cuda:x"), "'cuda:x' is no device"),
    ("no device's text", lambda: Device.parse(""), "the kind of a device is ''"),
    ("a reduction that sorts", lambda: NamedCombiner("sort").kind.definition((i64,)), "by the operation Sort"),
    ("an index of a list", lambda: Index([i0]), "give tuples for lists"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_a_wrong_call(call: Callable[[], object], message: str) -> None:
    with pytest.raises(LitzError, match=re.escape(message)):
        call()


CAPABILITIES: Sequence[tuple[dict[str, Any], str]] = [
    ({"name": None}, "name is None, but a string that is not empty belongs there"),
    ({"name": ""}, "name is '', but a string that is not empty belongs there"),
    ({"device": "cpu"}, "device is 'cpu', but a Device belongs there"),
    ({"model": 64}, "model is 64, but a DeviceModel belongs there"),
    ({"scratch_bytes": -1}, "scratch_bytes is -1, but an int of at least 0 belongs there"),
    ({"max_tile_elements": 2.0}, "max_tile_elements is 2.0, but an int of at least 0"),
    ({"max_statements": 0}, "max_statements is 0, but an int of at least 1"),
    ({"max_subkernels": True}, "max_subkernels is True, but an int of at least 1"),
    ({"forward_progress": "yes"}, "forward_progress is 'yes', but True or False belongs there"),
    ({"dtypes": {f32}}, "but a frozenset of dtypes belongs there"),
    ({"dtypes": frozenset({"f32"})}, "but a frozenset of dtypes belongs there"),
    ({"atomics": frozenset({f32, "i32"})}, "but a frozenset of dtypes belongs there"),
    ({"operations": ["exp"]}, "but None or a frozenset of names of litz_ir.scalar.OPS belongs there"),
    ({"operations": frozenset(OPS) | {"expp"}}, "operations has 'expp' (did you mean exp or exp2?), but None or"),
    ({"combiners": frozenset({"mean", "sum", 3})}, "combiners has 'mean', 3"),
    ({"combining_stores": frozenset({"set"})}, "combining_stores has 'set'"),
    ({"index_bits": 16}, "index_bits is 16, but 32 or 64 belongs there"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"), CAPABILITIES, ids=numbered(next(iter(row[0])) for row in CAPABILITIES)
)
def test_wrong_capabilities(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=re.escape(message)):
        Capabilities(**{"name": "plain", **fields})


MODELS: Sequence[tuple[str, object, str]] = [
    ("threads", 0, "threads is 0, but an int of at least 1 belongs there"),
    ("threads", "8", "threads is '8', but an int of at least 1"),
    ("threads", None, "threads is None, but an int of at least 1"),
    ("threads", True, "threads is True, but an int of at least 1"),
    ("vector_bytes", -16, "vector_bytes is -16, but 0 or a power of two belongs there"),
    ("vector_bytes", 3, "vector_bytes is 3, but 0 or a power of two"),
    ("line_bytes", 0, "line_bytes is 0, but a power of two"),
    ("l2_bytes", -1, "l2_bytes is -1, but an int of at least 0"),
    ("memory_rate", 0, "memory_rate is 0, but a finite number above 0 belongs there"),
    ("memory_rate", math.nan, "memory_rate is nan, but a finite number above 0"),
    ("flop_rate", math.inf, "flop_rate is inf, but a finite number above 0"),
    ("matrix_rate", -1.0, "matrix_rate is -1.0, but a finite number of at least 0"),
    ("launch_seconds", "2e-6", "launch_seconds is '2e-6', but a finite number of at least 0"),
    ("warp_size", 0, "warp_size is 0, but a power of two"),
    ("tensor_descriptors", 1, "tensor_descriptors is 1, but True or False"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "message"), MODELS, ids=numbered(row[0] for row in MODELS))
def test_wrong_numbers_of_a_machine(name: str, value: Any, message: str) -> None:
    with pytest.raises(TargetError, match=re.escape(message)):
        DeviceModel(**{name: value})


def test_every_number_of_a_machine_is_checked() -> None:
    wrong: Any = [None]
    for field in fields(DeviceModel):
        with pytest.raises(TargetError, match=field.name):
            DeviceModel(**{field.name: wrong})
    for field in fields(Capabilities):
        with pytest.raises(TargetError, match=field.name):
            Capabilities(**{"name": "plain", field.name: wrong})


class Half:
    """A target without most of its members."""

    name = ""

    def capabilities(self) -> Capabilities:
        return Capabilities("half")


def test_a_target_says_all_that_it_lacks(tmp_path: Path) -> None:
    target: Any = Half()
    assert not isinstance(target, Target)
    with pytest.raises(TargetError) as caught:
        run_conformance(target, tmp_path)
    for member in (
        "name (a string",
        "seconds (a method",
        "emit (a method",
        "build (a method",
        "load (a method",
    ):
        assert member in str(caught.value)


def test_the_list_is_long() -> None:
    assert len(GRAPHS) + len(PLANS) + len(CALLS) + len(CAPABILITIES) >= 100


@pytest.mark.parametrize("data", [graph(), plan()], ids=["graph", "plan"])
def test_copies_are_equal(data: LoopGraph | Plan) -> None:
    assert pickle.loads(pickle.dumps(data)) == data
    assert copy.deepcopy(data) == data
    assert copy.copy(data) == data
    verify(pickle.loads(pickle.dumps(data)))


def test_expressions_and_dtypes_keep_their_identity_in_copies() -> None:
    body = graph().operations[1].bodies[0]  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(body)) is body
    assert copy.deepcopy(body) is body
    assert pickle.loads(pickle.dumps(f32)) == f32
    assert isinstance(pickle.loads(pickle.dumps(b1)), DType)
    assert pickle.loads(pickle.dumps(n)) is n


def test_a_term_says_what_to_do_instead() -> None:
    with pytest.raises(SymbolError, match="compare it with 0"):
        bool(n + 1)
    assert isinstance(graph().inputs[0], Value)


def test_an_index_that_is_read_twice_at_each_of_many_depths_is_checked_once() -> None:
    """A binary search reads at an index that the last step computed from what it read: 2 to the 60th paths."""
    value: Expr = Load("ids", (0,), i64)
    for _ in range(60):
        at = Indirect(value, 4)
        value = op("add", Load("ids", (at,), i64), Load("more", (at,), i64))
    check_expr(value)
    wrong = Load("ids", (Indirect(Load("ids", ("0",), i64), 4),), i64)  # type: ignore[arg-type]
    with pytest.raises(Misfit, match="int or Term belongs there, found a str") as caught:
        check_expr(op("neg", wrong))
    assert caught.value.path.startswith(".args[0].index[0]<") and caught.value.path.endswith(">.index[0]")
