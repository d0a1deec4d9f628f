"""The table of forms. Each row is chosen by options of the scheduler and by ``litz_codegen_triton.schedule``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from forms.form import FLOATS, Extent, Form

GENERATED = {"force": "generated_matmuls=all"}
"""Scheduler options that force generated kernels for matmuls, convolutions and attention."""


def _layer_norm_backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    # Statistics of 16-bit rows have eager's dtype, which is another on GPUs.
    _, mean, rate = torch.ops.aten.native_layer_norm(x, [x.shape[-1]], w, w, 1e-5)
    found: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(
        g, x, [x.shape[-1]], mean, rate, w, w, [True, True, True]
    )
    return found


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _adam(*tensors: Tensor) -> list[Tensor]:
    """One step for a group of parameters: (parameter, gradient, first moment, second moment) of each."""
    found = []
    for p, g, m, v in zip(*[iter(tensors)] * 4, strict=True):
        m, v = torch.lerp(m, g, 0.1), v.abs() * 0.999 + g * g * 0.001
        found += [p - 0.001 * m / (v.sqrt() + 1e-8), m, v]
    return found


def _swiglu(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def _batch_norm(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = torch.zeros_like(w), torch.ones_like(w)
    return F.batch_norm(x, mean, variance, w, w, True), mean, variance


def _logsumexp_of(x: Tensor) -> Tensor:
    return x.logsumexp(-1)


def _extreme_and_place(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    low, high = x.min(dim), x.max(dim)
    return low.values, low.indices, high.values, high.indices


def _prod(x: Tensor, dim: int) -> Tensor:
    return (x * 1e-6 + 1).prod(dim)


def _any_all(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return (x > 3.5).any(dim), (x > -3.5).all(dim)


QUICK = ("sum", "welford")
"""The combiners that Triton's interpreter reduces by NumPy. It calls the others' functions for every element, which
takes minutes for the thousands that a loop ends with; the same functions run in the other forms."""

COMBINERS: dict[str, tuple[Callable[[Tensor, int], Any], str, tuple[str, ...]]] = {
    "sum": (lambda x, dim: x.sum(dim), "tl.sum", (*FLOATS, "i32")),
    "prod": (_prod, "litz_mul", ("f32", "f64")),
    "min_max": (lambda x, dim: (x.amin(dim), x.amax(dim)), "litz_max", (*FLOATS, "i32")),
    "any_all": (_any_all, "tl.m", ("f32", "i32")),
    "argmin_argmax": (_extreme_and_place, "litz_argmax", (*FLOATS, "i32")),
    "welford": (lambda x, dim: (x.var(dim), x.mean(dim)), "mean", FLOATS),
    "online_softmax": (lambda x, dim: x.logsumexp(dim), "litz_", FLOATS),
}
"""The combiners: a program, a text of its kernels, the dtypes."""


def _reductions() -> Iterator[Form]:
    """Every combiner in every form of reduction."""

    def along(program: Callable[[Tensor, int], Any], dim: int) -> Callable[[Tensor], Any]:
        return lambda x: program(x, dim)

    for name, (program, shows, dtypes) in COMBINERS.items():
        rows, columns = along(program, -1), along(program, 0)
        yield Form(
            f"grid_rows_{name}",
            rows,
            "{t}[20000, {n}]",
            Extent(1024, 33),
            "{t}[12, {n}]",
            Extent(64, 33),
            shows,
            dtypes=dtypes,
        )
        yield Form(
            f"grid_looped_rows_{name}",
            rows,
            "{t}[1100, {n}]",
            Extent(32768, 40000),
            "{t}[3, {n}]",
            Extent(32768, 20000),
            "st.async"
            if name == "online_softmax"
            else "for roffset",  # rows that are read again are in clusters
            dtypes=dtypes[:2],
            slow=name not in QUICK,
        )
        yield Form(
            f"grid_columns_{name}",
            columns,
            "{t}[{n}, 32768]",
            Extent(1024, 3),
            "{t}[{n}, 70]",
            Extent(64, 3),
            "RBLOCK",
            dtypes=dtypes,
        )
        yield Form(
            f"cluster_rows_{name}",
            rows,
            "{t}[64, {n}]",
            Extent(262144, 200704),
            "{t}[1, {n}]",
            Extent(163840, 131073),
            "st.async",
            dtypes=dtypes,
            slow=name not in QUICK,
        )
        yield Form(
            f"cluster_cached_rows_{name}",
            rows,
            "{t}[128, {n}]",
            Extent(65536, 50001),
            "{t}[2, {n}]",
            Extent(512, 300),
            "st.async",
            dtypes=dtypes[:2],
        )
        yield Form(
            f"cluster_columns_{name}",
            columns,
            "{t}[{n}, 4096]",
            Extent(16384, 8225),
            "{t}[{n}, 4]",
            Extent(256, 257),
            "litz_meet",
            dtypes=dtypes,
        )
        yield Form(
            f"split_{name}",
            lambda x, program=program: program(x.flatten(), 0),
            "{t}[4096, {n}]",
            Extent(4096, 4099),
            "{t}[16, {n}]",
            Extent(64, 67),
            "k0_",
            dtypes=dtypes[:2],
        )


def _maps() -> Iterator[Form]:
    yield Form(
        "map", F.gelu, "{t}[{n}]", Extent(1 << 24, 33), "{t}[{n}]", Extent(1024, 33), "XBLOCK", 1, FLOATS
    )
    yield Form(
        "map_halves", _swiglu, "{t}[{n}, 22016]", Extent(4096, 3), "{t}[{n}, 64]", Extent(16, 3), "XBLOCK", 1
    )
    yield Form(
        "wide_index",
        lambda x, b: x * 2 + b,
        "{t}[{n}, 40000] {t}[40000]",
        Extent(65536, 53700),
        "{t}[{n}, 40] {t}[40]",
        Extent(64, 3),
        "tl.int64",
        1,
        ("u8",),
    )
    yield Form(
        "transpose",
        lambda x, y: x.t() + y,
        "{t}[4096, {n}] {t}[{n}, 4096]",
        Extent(8192, 8193),
        "{t}[70, {n}] {t}[{n}, 70]",
        Extent(64, 3),
        "YBLOCK",
        1,
    )
    yield Form(
        "permute",
        lambda x: x.permute(0, 2, 3, 1).contiguous(),
        "{t}[64, {n}, 56, 56]",
        Extent(256, 65),
        "{t}[2, {n}, 6, 6]",
        Extent(32, 5),
        "BLOCK",
        1,
    )
    yield Form(
        "concatenation",
        lambda x, y: torch.cat([x, F.pad(y, (64, 64))]),
        "{t}[8192, 4096] {t}[{n}, 3968]",
        Extent(8192, 3),
        "{t}[5, 256] {t}[{n}, 128]",
        Extent(8, 1),
        "mask",
        1,
    )
    yield Form(
        "gather",
        lambda t, n: t[n],
        "{t}[50257, 768] i64[{n}]",
        Extent(16384, 1),
        "{t}[50, 24] i64[{n}]",
        Extent(32, 1),
        "tl.minimum",
        1,
    )
    yield Form(
        "scatter_atomics",
        lambda t, n, g: torch.zeros_like(t).index_add(0, n, g),
        "{t}[50257, 768] i64[{n}] {t}[{n}, 768]",
        Extent(16384, 1),
        "{t}[50, 24] i64[{n}] {t}[{n}, 24]",
        Extent(32, 1),
        "tl.atomic_add",
        2,
        ("f32", "f64"),
    )


def _rows() -> Iterator[Form]:
    """Phases over rows and columns: normalisations and softmax."""
    softmax: Callable[[Tensor], Tensor] = lambda x: x.softmax(-1)  # noqa: E731  # a row's function, named for several rows
    norm: Callable[[Tensor, Tensor], Tensor] = lambda x, w: F.layer_norm(x, w.shape, w)  # noqa: E731
    yield Form(
        "rows_softmax",
        softmax,
        "{t}[16384, {n}]",
        Extent(4096, 33),
        "{t}[20, {n}]",
        Extent(64, 33),
        "of 3",
        1,
        FLOATS,
    )
    yield Form(
        "rows_layer_norm",
        norm,
        "{t}[16384, {n}] {t}[{n}]",
        Extent(4096, 33),
        "{t}[20, {n}] {t}[{n}]",
        Extent(64, 33),
        "tl.sum",
        1,
        FLOATS,
    )
    yield Form(
        "rows_rms_norm",
        _rms_norm,
        "{t}[16384, {n}] {t}[{n}]",
        Extent(4096, 33),
        "{t}[20, {n}] {t}[{n}]",
        Extent(64, 33),
        "tl.sum",
        1,
        FLOATS,
    )
    yield Form(
        "long_rows_softmax",
        softmax,
        "{t}[512, {n}]",
        Extent(131072, 100000),
        "{t}[1, {n}]",
        Extent(16384, 20000),
        "litz_online_softmax",
        1,
    )
    yield Form(
        "long_rows_layer_norm",
        norm,
        "{t}[1024, {n}] {t}[{n}]",
        Extent(65536, 40000),
        "{t}[2, {n}] {t}[{n}]",
        Extent(16384, 20000),
        "litz_welford",
        1,
    )
    yield Form(
        "cross_entropy",
        F.cross_entropy,
        "{t}[8192, {n}] i64[8192]",
        Extent(49152, 50257),
        "{t}[7, {n}] i64[7]",
        Extent(64, 33),
        "groups = tl.reshape(",
        2,
        ("f32",),
    )
    yield Form(
        "tall_columns_softmax",
        lambda x: x.softmax(0),
        "{t}[{n}, 4096]",
        Extent(8192, 8225),
        "{t}[{n}, 24]",
        Extent(256, 33),
        "litz_online_softmax",
    )
    yield Form(
        "cluster_batch_norm",
        _batch_norm,
        "{t}[{n}, 64, 56, 56] {t}[64]",
        Extent(32, 9),
        "{t}[{n}, 3, 9, 9] {t}[3]",
        Extent(16, 5),
        "litz_welford",
        0,
        ("f32",),
    )
    yield Form(
        "cluster_batch_norm_gradient",
        _batch_norm_output,
        "{t}[{n}, 64, 56, 56] {t}[64]",
        Extent(64, 33),
        "{t}[{n}, 3, 9, 9] {t}[3]",
        Extent(16, 5),
        "st.async",
        0,
        ("f32",),
        gradients=True,
    )
    yield Form(
        "cluster_softmax_backward",
        lambda g, y: torch.ops.aten._softmax_backward_data(g, y, -1, y.dtype),
        "{t}[1024, {n}] {t}[1024, {n}]",
        Extent(57344, 50001),
        "{t}[2, {n}] {t}[2, {n}]",
        Extent(512, 300),
        "st.async",
        1,
        ("f32",),
    )
    yield Form(
        "mixed_axes",
        _layer_norm_backward,
        "{t}[16384, {n}] {t}[16384, {n}] {t}[{n}]",
        Extent(1024, 33),
        "{t}[40, {n}] {t}[40, {n}] {t}[{n}]",
        Extent(32, 3),
        "tl.sum",
        0,
        ("f32",),
    )
    yield Form(
        "cluster_mixed_axes",
        _layer_norm_backward,
        "{t}[2048, {n}] {t}[2048, {n}] {t}[{n}]",
        Extent(20480, 16385),
        "{t}[40, {n}] {t}[40, {n}] {t}[{n}]",
        Extent(32, 3),
        "cluster_ctarank",
        0,
        ("f32", "bf16"),
    )
    for name, full, large, small, little, function in (
        ("rows", "{t}[16384, {n}]", Extent(4096, 33), "{t}[20, {n}]", Extent(96, 33), softmax),
        ("columns", "{t}[{n}, 4096]", Extent(16384, 33), "{t}[{n}, 31]", Extent(200, 3), lambda x: x.sum(0)),
        ("map", "{t}[16384, {n}]", Extent(4096, 33), "{t}[20, {n}]", Extent(96, 33), F.silu),
    ):
        yield Form(f"dynamic_{name}", function, full, large, small, little, "mask", 0, dynamic=True)


def _batch_norm_output(x: Tensor, w: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, w, w, True)


def _scans() -> Iterator[Form]:
    sums: Callable[[Tensor], Tensor] = lambda x: x.cumsum(-1)  # noqa: E731  # a row's function, named for several rows
    yield Form(
        "scan_block",
        sums,
        "{t}[20000, {n}]",
        Extent(1024, 33),
        "{t}[30, {n}]",
        Extent(64, 33),
        "tl.",
        1,
        FLOATS,
    )
    yield Form(
        "scan_looped",
        sums,
        "{t}[1024, {n}]",
        Extent(65536, 40000),
        "{t}[9, {n}]",
        Extent(16384, 20000),
        "carry",
        1,
        ("f32", "bf16"),
        sequential=True,
    )
    yield Form(
        "scan_extremes",
        lambda x: x.cummax(-1),
        "{t}[4096, {n}]",
        Extent(4096, 33),
        "{t}[30, {n}]",
        Extent(64, 33),
        "tl.",
        1,
    )
    yield Form(
        "scan_logcumsumexp",
        lambda x: x.logcumsumexp(-1),
        "{t}[4096, {n}]",
        Extent(4096, 33),
        "{t}[30, {n}]",
        Extent(64, 33),
        "tl.",
        1,
        ("f32",),
    )
    yield Form(
        "scan_split",
        sums,
        "{t}[2, {n}]",
        Extent(1 << 22, 3000000),
        "{t}[2, {n}]",
        Extent(1024, 1000),
        "k2_",
        0,
        ("f32", "f64", "i32"),
    )
    for name, function, full, large, part, dtypes in (
        ("sum", sums, "{t}[2, {n}]", 1 << 22, (8192, 64), ("f32", "bf16")),
        ("extremes", lambda x: x.cummax(-1), "{t}[3, {n}]", 1 << 21, (8192, 64), ("f32",)),
        ("logcumsumexp", lambda x: x.logcumsumexp(-1), "{t}[1, {n}]", 1 << 21, (8192, 64), ("f32",)),
        ("prod", lambda x: (x * 1e-6 + 1).cumprod(-1), "{t}[1, {n}]", 1 << 21, (8192, 64), ("f32",)),
    ):
        yield Form(
            f"scan_look_back_{name}",
            function,
            full,
            Extent(large, large - 8191),
            "{t}[2, {n}]",
            Extent(512, 449),
            "volatile=True",
            0,
            dtypes,
            look_back=part,
            options={"force": f"lookback={part[0]}"},
        )
    yield Form(
        "sort_rows",
        lambda x: x.sort(dim=-1, stable=True),
        "{t}[20000, {n}]",
        Extent(1024, 600),
        "{t}[128, {n}]",
        Extent(128, 70),
        "litz_sort",
        2,
        ("f32", "bf16", "i32"),
        options={"sort_rows": True},
        gpu_rules=True,
    )


def _foreach() -> Iterator[Form]:
    """Horizontally fused loops."""
    yield Form(
        "foreach_equal",
        _adam,
        "{t}[1024, {n}] " * 16,
        Extent(1024, 33),
        "{t}[12, {n}] " * 16,
        Extent(32, 3),
        "XBLOCK",
        0,
        ("f32",),
    )
    yield Form(
        "foreach_unequal",
        _adam,
        "".join(f"{each} " * 4 for each in ("{t}[512, {n}]", "{t}[600, 512]", "{t}[{n}]", "{t}[{n}, 4]")),
        Extent(768, 3),
        "".join(f"{each} " * 4 for each in ("{t}[16, {n}]", "{t}[2, 24]", "{t}[{n}]", "{t}[{n}, 7]")),
        Extent(32, 3),
        "subkernel0_first",
        1,
        ("f32",),
    )
    yield Form(
        "foreach_of_kinds",
        lambda w, v, x, y: (w.to(torch.bfloat16), v.to(torch.bfloat16), x.square().sum(1), y.amax(1)),
        "{t}[256, 512] {t}[131072] {t}[512, {n}] {t}[100, {n}]",
        Extent(256, 3),
        "{t}[8, {n}] {t}[48] {t}[16, {n}] {t}[3, {n}]",
        Extent(32, 3),
        "foreach_",
        1,
        ("f32",),
    )


def _matmuls() -> Iterator[Form]:
    """Generated matmuls, each of the three extents varied, with and without an epilogue."""
    epilogue: Callable[..., Tensor] = lambda a, b, c: F.gelu(a @ b + c)  # noqa: E731  # named for several rows
    for axis, full, small in (
        ("m", "{t}[{n}, 512] {t}[512, 1024]", "{t}[{n}, 32] {t}[32, 48]"),
        ("n", "{t}[1024, 512] {t}[512, {n}]", "{t}[40, 32] {t}[32, {n}]"),
        ("k", "{t}[1024, {n}] {t}[{n}, 1024]", "{t}[40, {n}] {t}[{n}, 48]"),
    ):
        yield Form(
            f"matmul_{axis}",
            lambda a, b: a @ b,
            full,
            Extent(1024, 33),
            small,
            Extent(64, 17),
            "tl.dot",
            0,
            options=GENERATED,
        )
        bias = "{t}[{n}]" if axis == "n" else "{t}[1024]"
        little = "{t}[{n}]" if axis == "n" else "{t}[48]"
        yield Form(
            f"matmul_{axis}_epilogue",
            epilogue,
            f"{full} {bias}",
            Extent(1024, 33),
            f"{small} {little}",
            Extent(64, 17),
            "tl.dot",
            0,
            options=GENERATED,
        )
    yield Form(
        "matmul_split_k",
        lambda a, b: a @ b,
        "{t}[128, {n}] {t}[{n}, 128]",
        Extent(65536, 50001),
        "{t}[16, {n}] {t}[{n}, 16]",
        Extent(2048, 1500),
        "tl.dot",
        0,
        ("f32", "bf16"),
        options=GENERATED,
    )


def _convolutions() -> Iterator[Form]:
    """Generated convolutions with their gradients, the height of the images varied."""
    for name, stride, groups in (("", 1, 1), ("_strided", 2, 1), ("_grouped", 1, 4)):
        yield Form(
            f"convolution{name}",
            lambda x, w, stride=stride, groups=groups: F.conv2d(x, w, None, stride, 1, 1, groups),
            f"{{t}}[8, 64, {{n}}, 56] {{t}}[96, {64 // groups}, 3, 3]",
            Extent(56, 3),
            f"{{t}}[1, 8, {{n}}, 6] {{t}}[8, {8 // groups}, 3, 3]",
            Extent(8, 3),
            "tl.dot",
            dtypes=("bf16", "f16"),
            options=GENERATED,
            gradients=True,
            interpreted=False,
        )


def _attention() -> Iterator[Form]:
    """Fused attention by generated kernels, the number of keys varied."""
    for name, causal in (("", False), ("_causal", True)):
        yield Form(
            f"attention{name}",
            lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
            "{t}[4, 8, 512, 64] " + "{t}[4, 8, {n}, 64] " * 2,
            Extent(512, 33),
            "{t}[1, 2, 32, 16]",
            Extent(32, 3),
            "tl.dot",
            0,
            ("bf16", "f16"),
            options=GENERATED,
            gradients=True,
            interpreted=False,
        )


def _graphs() -> Iterator[Form]:
    yield Form(
        "cuda_graph",
        lambda x: (x.softmax(-1), x.sum(0)),
        "{t}[4096, {n}]",
        Extent(1024, 33),
        "{t}[8, {n}]",
        Extent(8, 3),
        "tl.",
        0,
        options={"cuda_graphs": True},
        interpreted=False,
    )
    yield Form(
        "cuda_graph_parts",
        _with_a_look,
        "{t}[4096, {n}]",
        Extent(1024, 33),
        "{t}[8, {n}]",
        Extent(8, 3),
        "tl.",
        0,
        ("f32",),
        options={"cuda_graphs": True},
        interpreted=False,
    )


def _with_a_look(x: Tensor) -> Tensor:
    """A program that cannot be captured as one CUDA graph: a result has a data-dependent size."""
    chosen = (x.softmax(-1).sum(-1) > 0.5).nonzero()
    return x.softmax(0).sum(-1)[chosen.flatten()]


FORMS: tuple[Form, ...] = (
    *_maps(),
    *_reductions(),
    *_rows(),
    *_scans(),
    *_foreach(),
    *_matmuls(),
    *_convolutions(),
    *_attention(),
    *_graphs(),
)
