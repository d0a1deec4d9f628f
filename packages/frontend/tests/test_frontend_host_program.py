"""The host program's text: when variables are dropped, and that names never meet."""

from __future__ import annotations

from litz.host.code import Code, assigned, code, with_drops
from litz.host.source import host_program
from litz_ir.device import CPU
from litz_ir.dtypes import f32
from litz_ir.loops.nodes import Argument, Ref, Value, tensor_type
from litz_ir.plan.program import CallStep, Placement, Plan
from litz_ir.symbols.table import SymbolTable

A, B, C = (Code(name, (name,)) for name in "abc")


def calls(inputs: str, result: str, target: str, **attributes: Argument) -> Plan:
    """A plan that passes its inputs to a routine twice, the second time with attributes."""
    names = inputs.split()
    arguments = tuple(map(Ref, names))
    again = CallStep(target, arguments, tuple(attributes.items()), ("again",))
    steps = (CallStep(target, arguments, (), (result,)), again)
    type_ = tensor_type(f32, 2, 3)
    buffers = tuple((name, Placement(type_)) for name in (*names, result, "again"))
    values = tuple(Value(name, type_) for name in names)
    return Plan("p", CPU, "any", SymbolTable(), values, (), buffers, (), (), steps, (Ref("again"),))


def test_a_variable_is_dropped_after_its_last_use() -> None:
    lines = [
        assigned([A, B], Code("args")),
        code("{} = f({}, {})", C, A, B),
        code("g({})", B),
        code("return {}", C),
    ]
    assert list(with_drops(lines)) == [
        "a, b = args", "c = f(a, b)", "del a", "g(b)", "del b", "return c",
    ]  # fmt: skip


def test_a_word_that_is_no_use_keeps_nothing_alive() -> None:
    text = host_program(calls("dim", "sums", "mylib.sums.default", dim=1)).text
    assert text.index("del sums") < text.index("again =")
    text = host_program(calls("x", "dim", "mylib.sums.default", dim=1)).text
    assert text.index("del dim") < text.index("dim=1")


def test_a_value_called_like_a_routine_leaves_the_routine_alone() -> None:
    program = host_program(calls("matmul", "y", "matmul"))
    ((target, function),) = program.externs
    assert target == "matmul" and function != "matmul"
    assert f"y = {function}(matmul)" in program.text
