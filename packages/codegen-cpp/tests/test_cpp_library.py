"""Routines of host programs against NumPy, for shapes and strides that need each of their forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_runtime import Model, Runtime, model_bytes, plan_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litz_codegen_cpp.host import build_runtime, refusals
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.isa import detect, runnable
from litz_ir.errors import CodegenError, CompilerNotFound

Array = np.ndarray[Any, Any]
LARGE = st.integers(1, 70) | st.sampled_from([1, 14, 15, 32, 33, 241, 300, 600])

MATMUL = """
plan matmul on cpu "any" (%a: f32[m, k] {left} fixed, %b: f32[k, n] {right} fixed, %c: f32[n] fixed) -> (%o) {{
  symbols {{
    m: int from 1
    k: int from 1
    n: int from 1
  }}
  buffer %a: f32[m, k] {left} fixed
  buffer %b: f32[k, n] {right} fixed
  buffer %c: f32[n] fixed
  buffer %o: f32[m, n] {out} fixed
  %o = call aten.addmm.default(%c, %a, %b, beta=2, alpha=0.5)
}}
"""
CONVOLUTION = """
plan convolution on cpu "any" (%x: f32[{x}] {xs} fixed, %w: f32[{w}] fixed, %b: f32[{o}] fixed) -> (%y) {{
  buffer %x: f32[{x}] {xs} fixed
  buffer %w: f32[{w}] fixed
  buffer %b: f32[{o}] fixed
  buffer %y: f32[{y}] {ys} fixed
  %y = call aten.convolution.default(%x, %w, %b, {stride}, {padding}, {dilation}, false, [0, 0], {groups})
}}
"""
ATTENTION = """
plan attention on cpu "any" (%q: f32[2, 3, t, {d}] fixed, %k: f32[2, 3, s, {d}] fixed, %v: f32[2, 3, s, {d}] fixed,
    %mask: f32[t, s] fixed) -> (%o, %l) {{
  symbols {{
    t: int from 1
    s: int from 1
  }}
  buffer %q: f32[2, 3, t, {d}] fixed
  buffer %k: f32[2, 3, s, {d}] fixed
  buffer %v: f32[2, 3, s, {d}] fixed
  buffer %mask: f32[t, s] fixed
  buffer %o: f32[2, 3, t, {d}] fixed
  buffer %l: f32[2, 3, t] fixed
  %o, %l = call aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v, 0.0, {causal}{mask}) unpack
}}
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    try:
        return Runtime(build_runtime(tmp_path_factory.mktemp("runtime")))
    except CompilerNotFound as error:
        pytest.skip(str(error))


def opened(
    runtime: Runtime, text: str, folder: Path, isa: str, weights: dict[str, tuple[int, Array]]
) -> Model:
    """The model of a plan for an instruction set."""
    plan, target = plan_of(text), CpuTarget(isa)
    names = [item.name for item in plan.inputs]
    host = target.build(target.emit_host(plan, list(weights)), folder).read_bytes()
    path = folder / "model.litz"
    path.write_bytes(model_bytes(host, isa, [name for name in names if name not in weights], weights))
    return runtime.open(path, threads=2)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("isa", runnable(detect()))
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_matmuls(runtime: Runtime, tmp_path: Path, isa: str, order: str) -> None:
    """Either operand in either order, and the result too; sizes around those of tiles, panels and blocks."""
    left, right, out = (
        ("", "strides(1, k)", "") if order == "rows" else ("strides(1, m)", "", "strides(1, m)")
    )
    model = opened(runtime, MATMUL.format(left=left, right=right, out=out), tmp_path, isa, {})

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(LARGE, LARGE, st.integers(1, 1100) | st.sampled_from([512, 513, 1024, 2048]))
    def check(m: int, n: int, k: int) -> None:
        a, b, c = random(m, k), random(k, n, seed=1), random(n, seed=2)
        a, b = (a, np.asfortranarray(b)) if order == "rows" else (np.asfortranarray(a), b)
        (found,) = model(a, b, c)
        expected = 0.5 * (a.astype(np.float64) @ b) + 2 * c
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6 * k**0.5 + 1e-5)

    check()
    model.close()


def test_prepacked_weights_give_the_same_results(runtime: Runtime, tmp_path: Path) -> None:
    a, b, c = random(37, 700), random(700, 45, seed=1), random(45, seed=2)
    text = MATMUL.replace("[k, n]", "[700, 45]").replace("[m, k]", "[m, 700]").replace("[m, n]", "[m, 45]")
    text = text.replace("f32[n]", "f32[45]").replace("    k: int from 1\n    n: int from 1\n", "")
    text = text.format(left="", right="", out="")
    found = []
    for weights in ({}, {"b": (1, b), "c": (2, c)}):
        (tmp_path / str(len(weights))).mkdir()
        model = opened(runtime, text, tmp_path / str(len(weights)), detect().name, weights)
        found.append(model(*((a,) if weights else (a, b, c)))[0])
        model.close()
    np.testing.assert_array_equal(found[0], found[1])


def test_weights_with_an_offset(runtime: Runtime, tmp_path: Path) -> None:
    """The address of a weight is that of its first element, also where it is prepacked."""
    text = MATMUL.replace("[k, n]", "[8, 5]").replace("[m, k]", "[m, 8]").replace("[m, n]", "[m, 5]")
    text = text.replace("f32[n]", "f32[5]").replace("    k: int from 1\n    n: int from 1\n", "")
    a, b, c = random(3, 8), random(8, 5, seed=1), random(5, seed=2)
    text = text.format(left="", right="offset(1048576)", out="")
    model = opened(runtime, text, tmp_path, detect().name, {"b": (1, b)})
    np.testing.assert_allclose(model(a, c)[0], 0.5 * a @ b + 2 * c, rtol=1e-4, atol=1e-5)
    model.close()


FROZEN_OUTPUT = """
plan outer on cpu "any" (%x: f32[4] fixed, %w: f32[4] fixed) -> (%y, %v) {
  storage s0: 16
  buffer %x: f32[4] fixed
  buffer %w: f32[4] fixed
  buffer %v: f32[4]
  buffer %y: f32[4] fixed in s0
  kernel add(in %p0: f32, in %p1: f32, out %p2: f32) {
    schedule cpu_loops parallel(i0) vector i0
    outer [i0: 4]
    phase [] { %p2[i0] = %p0[i0] + %p1[i0]; }
  }
  plan inner on cpu "any" (%w: f32[4] fixed) -> (%v) {
    storage s0: 16
    buffer %w: f32[4] fixed
    buffer %v: f32[4] in s0
    kernel twice(in %p0: f32, out %p1: f32) {
      schedule cpu_loops parallel(i0) vector i0
      outer [i0: 4]
      phase [] { %p1[i0] = %p0[i0] + %p0[i0]; }
    }
    allocate s0
    launch twice(%w, %v)
  }
  %v = region.frozen(%w) { inner }
  allocate s0
  launch add(%x, %v, %y)
}
"""


def test_results_of_frozen_regions_are_outputs_too(runtime: Runtime, tmp_path: Path) -> None:
    """They are computed when a model is opened, so each call copies them."""
    w = random(4)
    model = opened(runtime, FROZEN_OUTPUT, tmp_path, detect().name, {"w": (1, w)})
    for seed in (1, 2):
        x = random(4, seed=seed)
        y, v = model(x)
        np.testing.assert_array_equal(v, w + w)
        np.testing.assert_array_equal(y, x + v)
    model.close()


INSIDE = """
plan outer on cpu "any" (%x: f32[4] fixed) -> (%y) {
  buffer %x: f32[4] fixed
  buffer %v: f32[4]
  buffer %y: f32[4] fixed
  plan middle on cpu "any" (%x: f32[4] fixed) -> (%v) {
    buffer %x: f32[4] fixed
    buffer %u: f32[4]
    buffer %v: f32[4]
    plan inner on cpu "any" (%x: f32[4] fixed) -> (%v) {
      storage s0: 16
      buffer %x: f32[4] fixed
      buffer %v: f32[4] in s0
      kernel twice(in %p0: f32, out %p1: f32) {
        schedule cpu_loops parallel(i0) vector i0
        outer [i0: 4]
        phase [] { %p1[i0] = %p0[i0] + %p0[i0]; }
      }
      allocate s0
      launch twice(%x, %v)
    }
    %u = region.invoke(%x) { inner }
    %v = region.invoke(%u) { inner }
  }
  %v = region.invoke(%x) { middle }
  %y = region.invoke(%v) { middle }
}
"""


def test_subplans_run_subplans(runtime: Runtime, tmp_path: Path) -> None:
    model = opened(runtime, INSIDE, tmp_path, detect().name, {})
    x = random(4)
    (y,) = model(x)
    np.testing.assert_array_equal(y, 16 * x)
    model.close()


STORAGE_TWICE = """
plan twice on cpu "any" (%x: f32[4] fixed) -> (%o) {
  storage s0: 16
  storage s1: 16
  buffer %x: f32[4] fixed
  buffer %a: f32[4] in s0
  buffer %b: f32[4] in s1
  buffer %c: f32[4] in s0
  buffer %o: f32[4] fixed
  kernel add(in %p0: f32, in %p1: f32, out %p2: f32) {
    schedule cpu_loops parallel(i0) vector i0
    outer [i0: 4]
    phase [] { %p2[i0] = %p0[i0] + %p1[i0]; }
  }
  allocate s0
  launch add(%x, %x, %a)
  free s0
  allocate s1
  launch add(%x, %x, %b)
  allocate s0
  launch add(%x, %b, %c)
  launch add(%b, %c, %o)
}
"""


def test_a_storage_that_is_allocated_again_keeps_its_memory(runtime: Runtime, tmp_path: Path) -> None:
    """Another storage that is allocated between lives at the same time as its second use."""
    model = opened(runtime, STORAGE_TWICE, tmp_path, detect().name, {})
    x = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(model(x)[0], 5 * x)
    model.close()


CASES = {
    "plain": ((2, 5, 9, 11), (7, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "many channels": ((1, 20, 8, 8), (40, 20, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strides": ((2, 18, 13, 10), (33, 18, 3, 2), (2, 3), (0, 1), (1, 1), 1),
    "dilation": ((1, 17, 15, 15), (8, 17, 3, 3), (1, 2), (2, 3), (2, 3), 1),
    "groups": ((3, 40, 7, 6), (12, 20, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    "depthwise": ((2, 19, 9, 8), (19, 1, 3, 3), (2, 1), (1, 1), (1, 1), 19),
    "pointwise": ((2, 600, 3, 3), (16, 600, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "first layer": ((1, 3, 33, 33), (24, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    "one channel": ((2, 1, 6, 6), (1, 1, 3, 3), (1, 1), (1, 1), (1, 1), 1),
}


def convolved(x: Array, w: Array, b: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """A convolution as sums over taps, in f64."""
    n, _, h, width = x.shape
    o, each, taps, across = w.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    rows = (h + 2 * padding[0] - dilation[0] * (taps - 1) - 1) // stride[0] + 1
    columns = (width + 2 * padding[1] - dilation[1] * (across - 1) - 1) // stride[1] + 1
    out = np.zeros((n, o, rows, columns)) + b[None, :, None, None]
    for group in range(groups):
        own = slice(group * (o // groups), (group + 1) * (o // groups))
        for i in range(taps):
            for j in range(across):
                top, left = i * dilation[0], j * dilation[1]
                part = padded[:, group * each : (group + 1) * each, top :: stride[0], left :: stride[1]][
                    :, :, :rows, :columns
                ]
                out[:, own] += np.einsum("nchw,oc->nohw", part, w[own, :, i, j])
    return out


@pytest.mark.parametrize(
    ("case", "last"),
    [
        *((case, True) for case in CASES),
        *((case, False) for case in ("plain", "groups", "depthwise", "strides")),
    ],
)
def test_convolutions(runtime: Runtime, tmp_path: Path, case: str, last: bool) -> None:
    shape, filters, stride, padding, dilation, groups = CASES[case]
    x, w, b = random(*shape), random(*filters, seed=1), random(filters[0], seed=2)
    expected = convolved(x, w, b, stride, padding, dilation, groups)

    def layout(n: int, c: int, h: int, width: int) -> str:
        return f"strides({c * h * width}, 1, {c * width}, {c})" if last else ""

    if last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    sizes = {"x": shape, "w": filters, "y": expected.shape}
    text = CONVOLUTION.format(
        **{name: ", ".join(map(str, size)) for name, size in sizes.items()}, o=filters[0], groups=groups,
        xs=layout(*shape), ys=layout(*expected.shape), stride=list(stride), padding=list(padding),
        dilation=list(dilation),
    )  # fmt: skip
    model = opened(runtime, text, tmp_path, detect().name, {"w": (1, w)})
    np.testing.assert_allclose(model(x, b)[0], expected, rtol=1e-4, atol=1e-4)
    model.close()


@pytest.mark.parametrize("last", [True, False])
def test_convolutions_in_one_dimension(runtime: Runtime, tmp_path: Path, last: bool) -> None:
    """Images do not follow each other as pixels do."""
    x, w, b = random(3, 20, 30), random(16, 20, 3, seed=1), random(16, seed=2)
    strides = ["strides(600, 1, 20)", "strides(448, 1, 16)"] if last else ["", ""]
    if last:
        x = np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)
    text = CONVOLUTION.format(
        x="3, 20, 30", w="16, 20, 3", o=16, y="3, 16, 28", xs=strides[0], ys=strides[1], stride=[1], padding=[0],
        dilation=[1], groups=1,
    )  # fmt: skip
    model = opened(runtime, text, tmp_path, detect().name, {"w": (1, w)})
    expected = convolved(x[:, :, None], w[:, :, None], b, (1, 1), (0, 0), (1, 1), 1)[:, :, 0]
    np.testing.assert_allclose(model(x, b)[0], expected, rtol=1e-4, atol=1e-4)
    model.close()


def test_rows_of_one_pixel(runtime: Runtime, tmp_path: Path) -> None:
    """The stride of a dimension of size 1 means nothing."""
    x, w, b = random(2, 20, 6, 3), random(16, 20, 3, 3, seed=1), random(16, seed=2)
    text = CONVOLUTION.format(
        x="2, 20, 6, 3", w="16, 20, 3, 3", o=16, y="2, 16, 4, 1", xs="", ys="strides(64, 1, 16, 1)", stride=[1, 1],
        padding=[0, 0], dilation=[1, 1], groups=1,
    )  # fmt: skip
    model = opened(runtime, text, tmp_path, detect().name, {"w": (1, w)})
    expected = convolved(x, w, b, (1, 1), (0, 0), (1, 1), 1)
    np.testing.assert_allclose(model(x, b)[0], expected, rtol=1e-4, atol=1e-4)
    model.close()


BATCHES = """
plan batches on cpu "any" (%a: f32[n, 4, 5] fixed, %b: f32[n, 5, 6] fixed, %x: f32[n, 4, 5, 5] fixed,
    %w: f32[6, 4, 3, 3] fixed, %b1: f32[6] fixed) -> (%o, %y) {
  symbols { n: int from 0 }
  buffer %a: f32[n, 4, 5] fixed
  buffer %b: f32[n, 5, 6] fixed
  buffer %x: f32[n, 4, 5, 5] fixed
  buffer %w: f32[6, 4, 3, 3] fixed
  buffer %b1: f32[6] fixed
  buffer %o: f32[n, 4, 6] fixed
  buffer %y: f32[n, 6, 3, 3] fixed
  %o = call aten.bmm.default(%a, %b)
  %y = call aten.convolution.default(%x, %w, %b1, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
}
"""


def test_batches_of_no_items(runtime: Runtime, tmp_path: Path) -> None:
    """The bytes of scratch are asked for before a routine sees that there is nothing to do."""
    model = opened(runtime, BATCHES, tmp_path, detect().name, {})
    w, b = random(6, 4, 3, 3), random(6)
    o, y = model(random(0, 4, 5), random(0, 5, 6), random(0, 4, 5, 5), w, b)
    assert o.shape == (0, 4, 6) and y.shape == (0, 6, 3, 3)
    left, right, x = random(2, 4, 5), random(2, 5, 6), random(2, 4, 5, 5)
    o, y = model(left, right, x, w, b)
    np.testing.assert_allclose(o, left @ right, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y, convolved(x, w, b, (1, 1), (0, 0), (1, 1), 1), rtol=1e-4, atol=1e-4)
    model.close()


def test_convolutions_of_no_channels(runtime: Runtime, tmp_path: Path) -> None:
    """A sum of nothing is the bias."""
    text = CONVOLUTION.format(
        x="2, 0, 5, 5", w="6, 0, 3, 3", o=6, y="2, 6, 3, 3", xs="", ys="", stride=[1, 1], padding=[0, 0],
        dilation=[1, 1], groups=1,
    )  # fmt: skip
    model = opened(runtime, text, tmp_path, detect().name, {})
    b = random(6)
    (found,) = model(random(2, 0, 5, 5), random(6, 0, 3, 3), b)
    np.testing.assert_array_equal(found, np.broadcast_to(b[:, None, None], (2, 6, 3, 3)))
    model.close()


@pytest.mark.parametrize(
    ("width", "causal", "masked"), [(64, True, False), (24, False, True), (530, True, True)]
)
def test_attention(runtime: Runtime, tmp_path: Path, width: int, causal: bool, masked: bool) -> None:
    mask_text = ", attn_mask=%mask, scale=0.25" if masked else ""
    text = ATTENTION.format(d=width, causal=str(causal).lower(), mask=mask_text)
    model = opened(runtime, text, tmp_path, detect().name, {})
    for t, s in ((1, 1), (5, 300), (70, 70), (57, 513)):
        q, k, v = random(2, 3, t, width), random(2, 3, s, width, seed=1), random(2, 3, s, width, seed=2)
        mask = np.where(random(t, s, seed=3) > 1, -np.inf, random(t, s, seed=4)).astype(np.float32)
        mask[:, 0] = 0
        scores = np.einsum("bhtd,bhsd->bhts", q, k).astype(np.float64) * (0.25 if masked else width**-0.5)
        scores = scores + mask if masked else scores
        if causal:
            scores = np.where(np.arange(s)[None, :] > np.arange(t)[:, None], -np.inf, scores)
        most = scores.max(-1, keepdims=True)
        weights = np.exp(scores - most)
        total = weights.sum(-1, keepdims=True)
        found, logsumexp = model(q, k, v, mask)
        expected = np.einsum("bhts,bhsd->bhtd", weights / total, v)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(logsumexp, (most + np.log(total))[..., 0], rtol=1e-4, atol=1e-4)
    model.close()


ROWS = MATMUL.format(left="", right="", out="")
STRIDED_BIAS = CONVOLUTION.replace("%b: f32[{o}]", "%b: f32[{o}] strides(2)").format(
    x="2, 4, 5, 5", w="6, 4, 3, 3", o=6, y="2, 6, 3, 3", xs="", ys="", stride=[1, 1], padding=[0, 0],
    dilation=[1, 1], groups=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name", "overload"),
    [
        (ROWS.replace("aten.addmm.default", "aten.sort.stable"), "aten::sort", "stable"),
        (ROWS.replace("f32", "f64"), "aten::addmm", ""),
        (ROWS.replace("alpha=0.5", "alpha=inf"), "aten::addmm", ""),
        (STRIDED_BIAS, "aten::convolution", ""),
    ],
)
def test_calls_that_no_routine_runs_go_to_operators(text: str, name: str, overload: str) -> None:
    plan = plan_of(text)
    assert not refusals(plan)
    assert f'"{name}", "{overload}"' in CpuTarget(detect()).emit_host(plan).text
    assert "operator_table[] = {{}}" in CpuTarget(detect()).emit_host(plan_of(ROWS)).text


def test_calls_that_a_program_cannot_make_are_named() -> None:
    plan = plan_of(ROWS.replace("aten.addmm.default", "strided_scatter"))
    (refusal,) = refusals(plan)
    assert refusal.call == "strided_scatter" and "Python alone" in refusal.reason
    with pytest.raises(CodegenError, match="strided_scatter"):
        CpuTarget(detect()).emit_host(plan)
