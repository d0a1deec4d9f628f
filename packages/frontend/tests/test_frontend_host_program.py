"""Text of host programs: deletion of variables, distinct names, and addresses."""

from __future__ import annotations

from litz.host.emit.code import Code, assigned, code, with_drops
from litz.host.emit.source import host_program
from litz.host.program import MemoryLocation, Segment
from litz.host.runtime.extents import extents
from litz_ir.device import CPU
from litz_ir.dtypes import bf16, f32
from litz_ir.loops import Argument, Layout, Ref, TensorType, Value, tensor_type
from litz_ir.plan import CallStep, CpuLoops, Kernel, Parameter, Placement, Plan
from litz_ir.symbols import SymbolInfo, SymbolTable, add, mul, symbol
from litz_ir.text import from_text

A, B, C = (Code(name, (name,)) for name in "abc")


def calls(inputs: str, result: str, target: str, **attributes: Argument) -> Plan:
    """Return a plan that passes its inputs to a routine twice, the second time with attributes."""
    names = inputs.split()
    arguments = tuple(map(Ref, names))
    again = CallStep(target, arguments, tuple(attributes.items()), ("again",))
    steps = (CallStep(target, arguments, (), (result,)), again)
    type_ = tensor_type(f32, 2, 3)
    buffers = tuple((name, Placement(type_)) for name in (*names, result, "again"))
    values = tuple(Value(name, type_) for name in names)
    return Plan("p", CPU, "any", SymbolTable(), values, (), buffers, (), (), steps, (Ref("again"),))


def test_a_variable_is_deleted_after_its_last_use() -> None:
    lines = [
        assigned([A, B], Code("args")),
        code("{} = f({}, {})", C, A, B),
        code("g({})", B),
        code("return {}", C),
    ]
    assert list(with_drops(lines)) == [
        "a, b = args", "c = f(a, b)", "del a", "g(b)", "del b", "return c",
    ]  # fmt: skip


def test_a_keyword_argument_of_the_same_name_is_no_use() -> None:
    text = host_program(calls("dim", "sums", "mylib.sums.default", dim=1)).text
    assert text.index("del sums") < text.index("again =")
    text = host_program(calls("x", "dim", "mylib.sums.default", dim=1)).text
    assert text.index("del dim") < text.index("dim=1")


def test_a_value_and_a_routine_of_one_name_are_distinct() -> None:
    program = host_program(calls("matmul", "y", "matmul"))
    ((target, function),) = program.externs
    assert target == "matmul" and function != "matmul"
    assert f"y = {function}(matmul)" in program.text


ARENA = """
plan p on cpu "any" (%x: f32[8]) -> (%d, %y) {
  storage a: 128
  storage d: 32
  buffer %x: f32[8]
  buffer %b: f32[8] in a
  buffer %c: f32[8] in a at 64
  buffer %d: f32[8] in d
  buffer %y: f32[8]
  kernel k(in %p0: f32, out %p1: f32) {
    outer [i0: 8]
    phase [] { %p1[i0] = %p0[i0]; }
  }
  allocate a
  allocate d
  launch k(%x, %b)
  launch k(%b, %c)
  launch k(%c, %d)
  %y = call mylib.twice.default(%c)
  free a
}
"""


def test_an_arena_is_allocated_once_and_its_address_read_once() -> None:
    plan = from_text(ARENA)
    assert isinstance(plan, Plan)
    program = host_program(plan)
    assert program.text.count("empty((128,), (1,), torch.uint8)") == 1
    assert "(x.data_ptr(), (a_at := a.data_ptr()), a_at + 64, d.data_ptr())" in program.text
    assert program.segments[0].buffers == (
        MemoryLocation("x"),
        MemoryLocation("a", 0, storage=True),
        MemoryLocation("a", 64, storage=True),
        MemoryLocation("d"),
    )
    assert [where for _, where, _ in program.segments[0].launches] == [(0, 1), (1, 2), (2, 3)]
    assert "c = alias_as(a[64:], torch.float32, (8,), (1,))" in program.text
    assert program.text.index("segment_0(") < program.text.index("del ") < program.text.index("return")
    assert program.segments[0].given == ((plan.inputs[0].type, None), (None, None), (None, None))


def test_byte_ranges_of_buffers_passed_to_a_program() -> None:
    s0, s1, n = symbol("s0"), symbol("s1"), symbol("n")
    parameters = tuple(Parameter(name, f32, "in") for name in "abcde")
    named = SymbolInfo("n", "int"), SymbolInfo("s1", "int")
    made = Kernel("k", parameters, named, (), (), (), CpuLoops())
    row = TensorType(bf16, (4,), Layout((2,), 6))
    types = (tensor_type(f32, s0, 4), tensor_type(f32, s1), row, tensor_type(f32, 0, 4), None)
    # the kernel's s1 is the plan's s0 + 1, of which its own s1 says nothing
    segment = Segment("s", (), (s0, add(s0, 1)), (("k", (0, 1, 2, 3, 4), (0, 1)),), (False,), (types,), CPU)
    assert list(extents(segment, {"k": made})) == [
        [(0, mul(16, n)), None, (12, 26), (0, 0), None],
    ]  # fmt: skip


def viewed(*outputs: str, training: bool = True) -> str:
    """Return the text of a program that makes ``y`` and reads it through views."""
    row, column = tensor_type(f32, 4, 6), TensorType(f32, (6, 4), Layout((1, 6), fixed=True), CPU)
    flat, last = tensor_type(f32, 24), TensorType(f32, (6,), Layout((1,), 18), CPU)
    made = Placement(TensorType(f32, (4, 6), Layout((6, 1), fixed=True), CPU))
    buffers = {
        "x": Placement(row), "y": made, "flat": Placement(flat, base="y"), "again": Placement(row, base="flat"),
        "t": Placement(column, base="y"), "u": Placement(column, base="x"), "last": Placement(last, base="again"),
        "z": Placement(row),
    }  # fmt: skip
    steps = (
        CallStep("mylib.made.default", (Ref("x"),), (), ("y",)),
        CallStep("mylib.read.default", (Ref("again"), Ref("last")), (), ("z",)),
    )
    results, placed = tuple(map(Ref, outputs)), tuple(buffers.items())
    return host_program(
        Plan("p", CPU, "any", SymbolTable(), (Value("x", row),), (), placed, (), (), steps, results),
        training=training,
    ).text


def test_views_between_a_tensor_and_a_view_are_not_made() -> None:
    text = viewed("z")
    assert "flat" not in text and "again" not in text
    assert "last = alias(y, (6,), (1,), 18)" in text and "mylib_read_default(y, last)" in text


def test_a_view_that_is_returned_as_such_stays_one() -> None:
    assert "again = strided(flat, (4, 6), (6, 1), 0)" in viewed("z", "again", "flat")


def test_a_result_that_alone_is_over_its_memory_is_no_view_for_autograd() -> None:
    assert "t = alias(y, (6, 4), (1, 6), 0)" in viewed("z", "t")
    assert "t = strided(y, (6, 4), (1, 6), 0)" in viewed("z", "t", training=False)
    assert "t = strided(y, (6, 4), (1, 6), 0)" in viewed("z", "t", "y")
    assert "u = strided(x, (6, 4), (1, 6), 0)" in viewed("z", "u")
