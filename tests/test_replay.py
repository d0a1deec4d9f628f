"""Tests of the comparison of two trees' kernels: it finds differences other than names, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replay.canonical import canonical
from replay.compare import Emitted, compared
from replay.records import headers
from replay.run import Expectation, expectations, grouped, unexpected
from rich.console import Console

CPP = """#include <litz/math_exp.h>
// softmax: exp
static void k_range(void** buffers, const int64_t* symbols, int64_t begin, int64_t end) {
  const float* x = (const float*)buffers[0];
  float* o = (float*)buffers[1];
  max_state<vec<float>> max_0, max_1;
  for (int64_t i0 = begin; i0 < end; i0 += 2 * LITZ_LANES) {
    const vec<float> x_0 = load(x + i0);
    const vec<float> exp_0 = exp(x_0 - max_1.result());
    store(o + i0, exp_0);
  }
}
"""

TRITON = '''import triton
import triton.language as tl


@triton.jit
def litz_max(a, b):
    """Keep NaN."""
    return tl.where(a != a, a, tl.maximum(a, b))


@triton.jit
def k0(x_ptr, o_ptr, n):
    # computes o
    XBLOCK: tl.constexpr = 128
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_0 = tl.load(x_ptr + x, x < n, other=0.0)
    tl.store(o_ptr + x, litz_max(b=x_0, a=tl.exp(x_0)), mask=x < n)
'''

PLAN = """memory %s0: 64 bytes on cpu
allocate %s0
launch %k0 on (%x, %s0) with n*2
free %s0
"""

TEXTS = {"c++": CPP, "triton": TRITON, "plan": PLAN}


def changed(language: str, *replacements: tuple[str, str]) -> str:
    text = TEXTS[language]
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def kernel(language: str, text: str, key: str = "t graph 0 cpu record 0", **how: object) -> Emitted:
    return replace(Emitted(key, "k0", language, text), **how)


@pytest.mark.parametrize(
    ("language", "replacements"),
    [
        ("c++", [("// softmax: exp", "// rows\n/* of\n two */")]),
        ("c++", [("  ", "\t"), ("i0 < end", "i0<end")]),
        ("c++", [("exp_0", "weight"), ("x_0", "loaded"), ("k_range", "k_rows"), ("max_1", "largest")]),
        ("c++", [("const float* x =", "const float* data ="), ("load(x +", "load(data +")]),
        ("triton", [("# computes o", "# rows"), ('    """Keep NaN."""\n', "")]),
        ("triton", [("x_ptr", "data"), ("XBLOCK", "TILE"), ("litz_max", "larger"), ("b=x_0", "b=(x_0)")]),
        ("triton", [("(a, b):", "(p, q):"), ("a != a, a, tl.maximum(a, b)", "p != p, p, tl.maximum(p, q)"),
                    ("b=x_0, a=", "q=x_0, p=")]),
        ("plan", [("%s0", "%arena"), ("%k0", "%softmax")]),
    ],
)  # fmt: skip
def test_what_is_no_difference(language: str, replacements: list[tuple[str, str]]) -> None:
    text = changed(language, *replacements)
    found = compared({"a": kernel(language, TEXTS[language])}, {"a": kernel(language, text)})
    assert (found.same, found.different) == (1, ())


@pytest.mark.parametrize(
    ("language", "replacements"),
    [
        ("c++", [("2 * LITZ", "4 * LITZ")]),
        ("c++", [("= exp(", "= log(")]),
        ("c++", [("store(o + i0", "store(x + i0")]),
        ("c++", [("max_1.result", "max_0.result")]),
        ("c++", [("x_0 - max", "x_0 + max")]),
        ("c++", [("const vec<float> x_0", "const vec<double> x_0")]),
        ("c++", [("<litz/math_exp.h>", "<litz/math_log.h>")]),
        ("triton", [("= 128", "= 256")]),
        ("triton", [("tl.exp(", "tl.log(")]),
        ("triton", [("a, tl.maximum(a", "a, tl.minimum(a")]),
        ("triton", [("o_ptr + x", "x_ptr + x")]),
        ("triton", [("other=0.0", "other=1.0")]),
        ("triton", [("b=x_0, a=", "a=x_0, b=")]),
        ("triton", [("mask=x", "cache=x")]),
        ("plan", [("64", "128")]),
        ("plan", [("(%x, %s0)", "(%s0, %x)")]),
        ("plan", [("allocate %s0\n", "")]),
    ],
)  # fmt: skip
def test_what_is_a_difference(language: str, replacements: list[tuple[str, str]]) -> None:
    text = changed(language, *replacements)
    found = compared({"a": kernel(language, TEXTS[language])}, {"a": kernel(language, text)})
    assert (found.same, len(found.different)) == (0, 1)


def test_facts_are_part_of_a_kernel() -> None:
    four, eight = (kernel("triton", TRITON, facts=(f"warps: {warps}",)) for warps in (4, 8))
    assert compared({"a": four}, {"a": eight}).different == ((four, eight),)


def test_an_operand_after_an_asterisk_is_not_a_declaration() -> None:
    text = "void f(int64_t a, int64_t b) { g(LITZ_LANES * a, b); }"
    assert canonical(text, "c++") != canonical(text.replace("LANES * a", "LANES * b"), "c++")


def of_header(function: str) -> Emitted:
    text = f"inline float {function}(float x) {{ return x; }}"
    return Emitted("header math.h record 0", "math.h", "c++", text)


def calls(function: str, times: int = 1) -> dict[str, Emitted]:
    body = " ".join([f"x = {function}(x);"] * times)
    key = f"t graph {times} cpu record 0"
    return {key: Emitted(key, "k", "c++", f"void k(float x) {{ {body} }}")}


def test_a_function_of_a_header_may_be_renamed_everywhere() -> None:
    before = {"h": of_header("fast_exp"), **calls("fast_exp"), **calls("fast_exp", 2)}
    after = {"h": of_header("exp2"), **calls("exp2"), **calls("exp2", 2)}
    found = compared(before, after)
    assert (found.same, found.keys(), found.renamed) == (3, [], {"fast_exp": "exp2"})


def test_a_function_renamed_in_some_kernels_is_another_function() -> None:
    before = {"h": of_header("fast_exp"), **calls("fast_exp"), **calls("fast_exp", 2)}
    after = {"h": of_header("exp2"), **calls("exp2"), **calls("fast_exp", 2)}
    found = compared(before, after)
    assert (found.same, len(found.different), found.renamed) == (2, 1, {})


def test_a_function_that_headers_still_declare_is_not_renamed() -> None:
    header = Emitted(
        "header math.h record 0", "math.h", "c++", "float exp2(float x); float fast_exp(float x);"
    )
    found = compared({"h": header, **calls("fast_exp")}, {"h": header, **calls("exp2")})
    assert (found.same, len(found.different), found.renamed) == (1, 1, {})


def test_functions_renamed_crosswise_differ() -> None:
    texts = ("float f(float x); float g(float x);", "float fast_f(float x); float fast_g(float x);")
    before, after = (Emitted("header math.h record 0", "math.h", "c++", text) for text in texts)
    found = compared({"h": before, **calls("f")}, {"h": after, **calls("fast_g")})
    assert (found.same, len(found.different), found.renamed) == (1, 1, {"g": "fast_g"})


def test_kernels_under_other_keys_are_found_by_content() -> None:
    first, second = kernel("c++", CPP), kernel("c++", CPP.replace("2 *", "4 *"))
    moved = {"b": kernel("c++", CPP.replace("x_0", "y"), key="b"), "c": kernel("triton", TRITON, key="c")}
    found = compared({"a": first, "d": second}, moved)
    assert (found.moved, found.gone, [each.key for each in found.new]) == (1, (second,), ["c"])


def test_kernels_in_another_order_are_the_same() -> None:
    one, other = kernel("c++", CPP), kernel("triton", TRITON, key="t graph 0 cpu record 1")
    swapped = {one.key: replace(other, key=one.key), other.key: replace(one, key=other.key)}
    found = compared({one.key: one, other.key: other}, swapped)
    assert (found.same, found.moved, found.keys()) == (0, 2, [])


def test_equal_differences_are_one_group() -> None:
    before = {key: kernel("c++", CPP, key=key) for key in "ab"}
    after = {key: kernel("c++", CPP.replace("2 *", "4 *"), key=key) for key in "ab"}
    ((text, keys),) = grouped(compared(before, after)).items()
    assert "+  for (int64_t i0 = begin; i0 < end; i0 += 4 * LITZ_LANES) {" in text and len(keys) == 2


def test_expected_differences_have_reasons() -> None:
    found = expectations("# of this change\n\na.py::test[x-*] * # tiles of 256\n")
    assert found == [Expectation("a.py::test[x-*] *", "tiles of 256")]
    keys = ["a.py::test[x-1] graph 0", "a.py::test[y] graph 0"]
    assert unexpected(keys, found, Console(quiet=True)) == keys[1:]
    with pytest.raises(SystemExit, match="without a reason"):
        expectations("a.py::*")


def test_headers_are_those_of_all_folders() -> None:
    assert {"header lanes.h", "header library/gemm.h"} <= headers().keys()
