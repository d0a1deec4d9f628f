"""The text of kernels: its form, hoisting, division into units, and refused kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from cpp_kernels import I0, I1, R0, Case, M, N, choices, ints, kernel, layouts, softmax_local
from test_cpp_emit import plan_of

from litz_codegen_cpp.emit.kernel import Emitted, emit_kernel, entry_point
from litz_codegen_cpp.emit.unit import KERNELS_PER_UNIT, UNIT_CHARACTERS, emit_plan, split_units, unit_text
from litz_ir.dtypes import DType, bf16, f8e4m3fn, f32, i64
from litz_ir.errors import CodegenError
from litz_ir.loops import NamedCombiner
from litz_ir.origin import Origin
from litz_ir.plan import Accumulate, CpuLoops, Kernel, KernelOrigin, Launch, Store
from litz_ir.scalar import Expr, Indirect, Scalar
from litz_ir.scalar.build import cast, const, index, load, op
from litz_ir.symbols import floordiv, mod, symbol

LANES = 16


def named(cases: list[Case], name: str) -> Kernel:
    return next(case.kernel for case in cases if case.kernel.name == name)


def pointwise(value: Expr, name: str = "k") -> Kernel:
    return kernel(
        name, "x w : o", [("i0", N), ("i1", M)], [([], [Store("o", I0 * M + I1, value)])], symbols=ints("n", "m"),
        schedule=CpuLoops(parallel=("i0", "i1"), vector="i1"),
    )  # fmt: skip


def loop_body(text: str, opening: str) -> str:
    """The lines of the first loop that starts with ``opening``."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.strip().startswith(opening))
    depth = len(lines[start]) - len(lines[start].lstrip())
    end = next(k for k in range(start + 1, len(lines)) if lines[k] == " " * depth + "}")
    return "\n".join(lines[start + 1 : end])


def test_the_text_of_a_softmax(golden: Callable[[str, str], None]) -> None:
    made = replace(named(softmax_local(), "softmax_local_inner"), name="softmax")
    names = ("amax", "sub", "exp", "sum", "div")
    origins = tuple(KernelOrigin(name, Origin(file="model.py", line=3)) for name in names)
    step = Launch("softmax", ("x", "o"), (symbol("n"),), origins)
    (unit,) = emit_plan(replace(plan_of([made]), steps=(step,)), LANES, ())
    golden("softmax.cpp", unit.text)


def test_emission_is_deterministic() -> None:
    kernels = [case.kernel for case in choices()]
    assert emit_plan(plan_of(kernels), LANES, ()) == emit_plan(plan_of(kernels), LANES, ())


def test_loop_invariant_values_are_hoisted() -> None:
    scale = op("rsqrt", op("add", load("w", (I0,), f32), const(1e-5, f32)))
    text = emit_kernel(pointwise(op("mul", load("x", (I0 * M + I1,), f32), scale)), LANES).text
    inside = loop_body(text, "for (int64_t i1 = ")
    assert "rsqrt(" in text
    assert "rsqrt(" not in inside
    assert "broadcast" not in inside
    assert "i0*m" not in inside


def test_a_value_used_twice_is_computed_once() -> None:
    e = op("exp", load("x", (I0 * M + I1,), f32))
    text = emit_kernel(pointwise(op("add", e, op("mul", e, e))), LANES).text
    body = loop_body(text, "for (int64_t i1 = ")
    assert body.count("exp(") == body.count("load(") > 0, "once for each register"


def test_nothing_is_read_before_a_loop_that_may_be_empty() -> None:
    value = op("mul", load("x", (I0 * M + R0,), f32), load("w", (I0,), f32))
    made = kernel(
        "k",
        "x w : o",
        [("i0", N)],
        [
            ([("r0", M)], [Accumulate((("s", f32),), NamedCombiner("sum"), (value,))]),
            ([], [Store("o", I0, Scalar("s", f32))]),
        ],
        symbols=ints("n", "m"),
        schedule=CpuLoops(vector="r0"),
    )
    text = emit_kernel(made, LANES).text
    assert text.index("if (m > 0) {") < text.index("load_scalar(w + i0)")
    assert text.index("if (n <= 0) return 0;") < text.index("const float* x")


def test_a_uniform_choice_is_a_branch_and_a_varying_one_a_mask() -> None:
    rows = emit_kernel(named(choices(), "cat_rows_outer"), LANES).text
    assert "load_masked" not in rows
    assert re.search(r"if \(lt_\d+\) \{", rows)
    columns = emit_kernel(named(choices(), "cat_outer"), LANES).text
    assert "load_masked(a + " in columns


@pytest.mark.parametrize(
    ("name", "form"),
    [("transposed_outer", "transpose_tile("), ("reversed_outer", "load_reversed("), ("divided_outer", "gather("),
     ("aligned_outer", "load(x + "), ("broadcast_outer", "load_scalar(x + i0)")],
)  # fmt: skip
def test_the_stride_selects_the_form_of_an_access(name: str, form: str) -> None:
    assert form in emit_kernel(named(layouts(), name), LANES).text


def test_bf16_is_loaded_and_stored_two_registers_at_a_time() -> None:
    rounded = op("mul", cast(load("x", (I0,), bf16), f32), const(2.5, f32))
    twice = op("add", cast(cast(rounded, bf16), f32), const(1.0, f32))
    made = kernel(
        "k", "x : o", [("i0", N)], [([], [Store("o", I0, cast(twice, bf16))])], dtypes=dict.fromkeys("xo", bf16),
        symbols=ints("n"), schedule=CpuLoops(parallel=("i0",), vector="i0"),
    )  # fmt: skip
    text = emit_kernel(made, LANES).text
    counts = {name: text.count(f" {name}(") for name in ("load_pair", "round_bf16_pair", "store_pair")}
    assert counts == {"load_pair": 2, "round_bf16_pair": 2, "store_pair": 2}
    assert "load_partial(x" in text and "store_partial(o" in text


@pytest.mark.parametrize(("period", "pairs"), [(LANES, 0), (3 * LANES, 0), (2 * LANES, 2)])
def test_bf16_that_repeats_within_two_registers_is_read_one_at_a_time(period: int, pairs: int) -> None:
    repeated = cast(load("x", (mod(I0, period),), bf16), f32)
    longer = op("mul", op("add", repeated, const(1.0, f32)), const(2.5, f32))
    made = kernel(
        "k", "x : o", [("i0", 48 * LANES)], [([], [Store("o", I0, cast(longer, bf16))])],
        dtypes=dict.fromkeys("xo", bf16), schedule=CpuLoops(parallel=("i0",), vector="i0"),
    )  # fmt: skip
    text = emit_kernel(made, LANES).text
    assert (text.count(" load_pair("), text.count("store_pair(")) == (pairs, 2)


def test_a_transposing_kernel_is_tiled() -> None:
    for name in ("transposed_outer", "transposed_both_outer"):
        text = emit_kernel(named(layouts(), name), LANES).text
        assert "for (int64_t i0 = i0_tile_0; i0 < i0_end_0; ++i0) {" in loop_body(text, "for (int64_t i1 = ")


def test_symbols_and_buffers_do_not_hide_functions() -> None:
    value = op("exp", load("load", (symbol("max"),), f32))
    made = kernel(
        "exp", "load : select", [("max", N)], [([], [Store("select", symbol("max"), value)])], symbols=ints("n"),
        schedule=CpuLoops(vector="max"),
    )  # fmt: skip
    text = emit_kernel(made, LANES).text
    assert "const float* load_0 = (const float*)buffers[0];" in text
    assert f"int64_t {entry_point('exp')}(" in text
    assert entry_point("exp") != "exp"


def test_names_cannot_add_lines_to_the_source() -> None:
    simple = pointwise(op("neg", load("x", (I0 * M + I1,), f32)))
    length = None
    for name in ("plain", "x\n#error y", "x\r#error y", "x\x0b", "back\\", "\u2028", "a*/ b"):
        kernels = [replace(simple, name=name)]
        step = Launch(name, (), (), (KernelOrigin(name, Origin()),))
        (unit,) = emit_plan(replace(plan_of(kernels), name=f"../{name}", steps=(step,)), LANES, ())
        lines = unit.text.splitlines()
        assert unit.text.isascii() and len(lines) == (length or len(lines)), name
        assert not any(line.endswith("\\") for line in lines) and "/" not in unit.name
        length = len(lines)


def test_kernels_whose_names_differ_in_punctuation_alone_have_symbols_of_their_own() -> None:
    names = ["a b", "a-b", "a_b", "exp", "exp_kernel", "_x", "n_x", "3", "n3", "é", "e"]
    assert len({entry_point(name) for name in names}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z]\w*", entry_point(name), re.ASCII) for name in names)
    simple = pointwise(op("neg", load("x", (I0 * M + I1,), f32)))
    (unit,) = emit_plan(plan_of([replace(simple, name=name) for name in names]), LANES, ())
    assert all(f"int64_t {entry_point(name)}(" in unit.text for name in names)


def test_many_kernels_are_split_into_units() -> None:
    simple = pointwise(op("neg", load("x", (I0 * M + I1,), f32)))
    kernels = [replace(simple, name=f"k{k}") for k in range(KERNELS_PER_UNIT + 5)]
    first, second = emit_plan(plan_of(kernels), LANES, ("-O2",))
    assert sorted((len(first.kernels), len(second.kernels))) == [32, 33]
    assert first.name != second.name
    assert "#include <litz/runtime.h>" in second.text
    with pytest.raises(CodegenError, match="one name"):
        emit_plan(plan_of([simple, simple]), LANES, ())


def test_a_unit_says_where_its_kernels_are() -> None:
    serial = replace(pointwise(load("x", (I0 * M + I1,), f32), "serial"), schedule=CpuLoops())
    kernels = [*(case.kernel for case in choices()[:3]), serial, replace(serial, name="last")]
    (unit,) = emit_plan(plan_of(kernels), LANES, ())
    text = unit.text.splitlines()
    assert len(unit.lines) == len(kernels) and unit.lines[-1][1] == len(text)
    for name, (first, last) in zip(unit.kernels, unit.lines, strict=True):
        own = text[first - 1 : last]
        assert own[0].startswith(("// ", "static void ", 'extern "C" ')) and own[-1] == "}"
        assert text[first - 2] == "", "an empty line separates kernels"
        entries = [line for line in own if line.startswith('extern "C" ')]
        assert len(entries) == 1 and f" {entry_point(name)}(" in entries[0]
    assert all(a[1] + 2 == b[0] for a, b in zip(unit.lines, unit.lines[1:])), "nothing else is between"


def test_units_for_parallel_builds_have_about_equal_length() -> None:
    lengths = (9_000, 100, 5_000, 4_000, 200, 8_700)
    kernels = [Emitted(f"k{k}", "x" * length) for k, length in enumerate(lengths)]
    first, second = split_units(kernels, 2)
    assert [[each.name for each in unit] for unit in (first, second)] == [
        ["k0", "k1", "k3", "k4"],
        ["k2", "k5"],
    ]
    assert [len(unit) for unit in split_units(kernels, 1)] == [6]
    assert len(split_units(kernels, 64)) == sum(lengths) // UNIT_CHARACTERS
    assert [len(unit) for unit in split_units(kernels[1:4], 8)] == [3], "too little text to be worth two"
    assert split_units([], 4) == []
    many = [Emitted(f"m{k}", "x" * 10) for k in range(2 * KERNELS_PER_UNIT + 1)]
    assert [len(split_units(many, jobs)) for jobs in (1, 2, 3)] == [3, 4, 3], "each thread has equally many"


def test_many_expensive_functions_are_not_inlined() -> None:
    once = emit_kernel(pointwise(op("exp", load("x", (I0 * M + I1,), f32))), LANES)
    many = [replace(once, name=f"k{k}") for k in range(30)]
    assert "LITZ_OUTLINE_MATH" not in unit_text([once])
    assert unit_text(many).startswith("#define LITZ_OUTLINE_MATH\n")


def test_a_body_of_a_thousand_operations_is_emitted() -> None:
    value: Expr = load("x", (I0 * M + I1,), f32)
    for k in range(1200):
        value = op("add", value, const(float(k), f32))
    assert emit_kernel(pointwise(value), LANES).text.count(" + ") > 1200


def test_low_precision_floats_that_are_only_moved_are_integers() -> None:
    for dtype, bits in ((bf16, "uint16_t"), (f8e4m3fn, "uint8_t")):
        moved = replace(pointwise(load("x", (I0 * M + I1,), dtype)), name="moved")
        moved = replace(moved, parameters=tuple(replace(each, dtype=dtype) for each in moved.parameters))
        made = emit_kernel(moved, LANES)
        assert f"load((({bits}*)x) + " in made.text and f"store((({bits}*)o) + " in made.text
        assert ("float8" in made.headers) == (dtype == f8e4m3fn)
    wide = emit_kernel(pointwise(load("x", (I0 * M + I1,), f32)), LANES)
    assert "float8" not in wide.headers


@pytest.mark.parametrize("source", [f32, bf16], ids=str)
def test_a_stored_low_precision_float_is_rounded_once(source: DType) -> None:
    stored = pointwise(cast(load("x", (I0 * M + I1,), source), f8e4m3fn))
    dtypes = {"x": source, "w": source, "o": f8e4m3fn}
    stored = replace(stored, parameters=tuple(replace(p, dtype=dtypes[p.name]) for p in stored.parameters))
    assert "round_" not in emit_kernel(stored, LANES).text


def refused() -> dict[str, tuple[Kernel, str]]:
    good = pointwise(op("neg", load("x", (I0 * M + I1,), f32)))
    other = replace(good, schedule=CpuLoops(parallel=("i1",)))
    early = replace(good, schedule=CpuLoops(vector="i0"))
    return {
        "parallel axes": (other, "do not lead"),
        "vector axis": (early, "not the last one"),
        "buffer": (pointwise(op("neg", load("nothing", (I0,), f32))), "'nothing'"),
        "symbol": (pointwise(op("neg", load("x", (symbol("q"),), f32))), "'q'"),
        "scalar": (pointwise(op("neg", Scalar("q", f32))), "'q'"),
        "indices": (pointwise(op("neg", load("x", (I0, I1), f32))), "2 indices"),
    }


@pytest.mark.parametrize("what", refused())
def test_refused_kernels_name_the_reason(what: str) -> None:
    made, message = refused()[what]
    origin = Origin(node="relu", file="model.py", line=7)
    plan = replace(plan_of([made]), steps=(Launch("k", (), (), (KernelOrigin("relu", origin),)),))
    with pytest.raises(CodegenError, match=message) as raised:
        emit_plan(plan, LANES, ())
    assert raised.value.origin == origin
    assert raised.value.node == "k"


def test_an_indirect_index_is_checked_where_it_is_known() -> None:
    row = Indirect(load("x", (I0,), i64), 9, True, "raised")
    made = pointwise(op("neg", load("w", (row * M + I1,), f32)))
    made = replace(made, parameters=(replace(made.parameters[0], dtype=i64), *made.parameters[1:]))
    text = emit_kernel(made, LANES).text
    inside = loop_body(text, "for (int64_t i1 = ")
    assert "checked_index" in text
    assert "checked_index" not in inside
    assert "load(w + " in inside


def test_small_indices_have_32_bit_lanes() -> None:
    below = op("lt", index(floordiv(I1, 3)), const(5, i64))
    value = op("where", below, load("x", (I0 * 90 + I1,), f32), const(0.0, f32))
    made = kernel("k", "x : o", [("i0", 4), ("i1", 90)], [([], [Store("o", I0 * 90 + I1, value)])],
                  schedule=CpuLoops(vector="i1"))  # fmt: skip
    assert "vec<int64_t>" not in emit_kernel(made, LANES).text
