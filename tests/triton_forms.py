"""Forms that kernels take on a GPU alone, or at sizes that no interpreter runs: a table of them, at both sizes.

``python tests/triton_forms.py`` runs each at a small size in Triton's interpreter (``TRITON_INTERPRET=1``), with the
scheduler's thresholds lowered to match, and prints a line of JSON with its name and what differs from eager.
``python tests/triton_forms.py FOLDER`` leaves the kernels of each at its full size in a folder, to be compiled.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule

from litz_codegen_triton.emit.kernel import KernelSource, emit_kernel
from litz_codegen_triton.runtime.interpret import run_plan
from litz_ir.device import CPU
from litz_ir.loops.nodes import LoopGraph
from litz_ir.passes.base import PassContext
from litz_ir.target.capabilities import Capabilities
from litz_lowering import decompositions, lower
from litz_scheduler import SchedulerOptions, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = Capabilities(
    "sm_90", CPU, processors=132, l2_bytes=50 << 20, block_limit=32768, together=8, waits=True, beside=64
)
LOWERED = SchedulerOptions(program_bytes=64, long_row=32, tall_column=16)
"""What makes the scheduler treat small sizes as it treats large ones."""

_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "i64": torch.int64}
_ARGUMENT = re.compile(r"(\w+)\[([\d, ]*)\]")


@dataclass(frozen=True, slots=True)
class Form:
    """A function, the dtypes and shapes of its arguments at full and at small size, and what its kernels are at full
    size: a text that one of them has, and their number. ``look_back`` is how many points of a scanned row a program has
    at both sizes."""

    name: str
    function: Callable[..., Any]
    full: str
    small: str
    shows: str
    kernels: int = 1
    dynamic: bool = False
    look_back: tuple[int, int] = (0, 0)


def _layer_norm_backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mean = x.mean(-1, keepdim=True)
    rate = (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    found: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(
        g, x, [x.shape[-1]], mean, rate, w, w, [True, True, True]
    )
    return found


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _adam(*tensors: Tensor) -> list[Tensor]:
    """One step for a group of parameters: (parameter, gradient, first moment, second moment) of each."""
    found = []
    for p, g, m, v in zip(*[iter(tensors)] * 4, strict=True):
        m, v = torch.lerp(m, g, 0.1), v.abs() * 0.999 + g * g * 0.001
        found += [p - 0.001 * m / (v.sqrt() + 1e-8), m, v]
    return found


def _of_fixed_width(x: Tensor, w: Tensor) -> Tensor:
    """Any number of rows: the question about their length makes a constant of it."""
    return F.silu(x) * w if x.shape[1] in (4096, 96) else x


def _swiglu(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


FORMS: tuple[Form, ...] = (
    Form("map", F.gelu, "f32[67108864]", "f32[1000]", "XBLOCK"),
    Form("map_bf16", F.gelu, "bf16[8192, 8192]", "bf16[33, 40]", "XBLOCK"),
    Form("map_f16", _swiglu, "f16[8192, 22016]", "f16[9, 64]", "XBLOCK"),
    Form(
        "wide_index",
        lambda x, b: x * 2 + b,
        "f32[70000, 40000] f32[40000]",
        "f32[70, 40] f32[40]",
        "tl.int64",
    ),
    Form(
        "square",
        lambda x, y: x.t() + y,
        "f32[4096, 8192] f32[8192, 4096]",
        "f32[70, 50] f32[50, 70]",
        "YBLOCK",
    ),
    Form(
        "square_bf16",
        lambda x: x.permute(0, 2, 3, 1).contiguous(),
        "bf16[64, 256, 56, 56]",
        "bf16[2, 20, 6, 6]",
        "YBLOCK",
    ),
    Form("rows", lambda x: x.softmax(-1), "bf16[16384, 4096]", "bf16[20, 96]", "of 3"),
    Form(
        "rows_f32",
        lambda x, w: F.layer_norm(x, w.shape, w),
        "f32[16384, 4096] f32[4096]",
        "f32[20, 96] f32[96]",
        "tl.sum",
    ),
    Form("rms_norm", _rms_norm, "bf16[16384, 4096] bf16[4096]", "bf16[20, 96] bf16[96]", "tl.sum"),
    Form("long_rows", lambda x: x.softmax(-1), "f32[512, 131072]", "f32[2, 20000]", "litz_online_softmax"),
    Form(
        "long_rows_bf16",
        lambda x, w: F.layer_norm(x, w.shape, w),
        "bf16[1024, 65536] bf16[65536]",
        "bf16[2, 20000] bf16[20000]",
        "litz_welford",
    ),
    Form(
        "odd_rows",
        F.cross_entropy,
        "f32[8192, 50257] i64[8192]",
        "f32[7, 501] i64[7]",
        "litz_online_softmax",
        2,
    ),
    Form("tall_columns", lambda x: x.softmax(0), "f32[8192, 4096]", "f32[200, 24]", "litz_online_softmax"),
    Form(
        "tall_columns_welford",
        lambda x: x.var(0, correction=0),
        "f32[65536, 1024]",
        "f32[300, 24]",
        "litz_welford",
        2,
    ),
    Form("split_sum", lambda x: x.sum(), "f32[67108864]", "f32[4096]", "tl.sum", 2),
    Form(
        "split_sum_bf16", lambda x: x.float().square().sum(), "bf16[8192, 8192]", "bf16[64, 64]", "tl.sum", 2
    ),
    Form("split_columns", lambda x: x.sum(0), "f32[65536, 1024]", "f32[640, 24]", "tl.sum", 2),
    Form("split_argmax", lambda x: x.argmax(), "f32[16777216]", "f32[4096]", "litz_argmax", 2),
    Form(
        "split_batch_norm",
        lambda x, w: F.batch_norm(x, None, None, w, w, True),
        "f32[128, 64, 56, 56] f32[64]",
        "f32[8, 3, 9, 9] f32[3]",
        "litz_welford",
    ),
    Form(
        "mixed_axes",
        _layer_norm_backward,
        "f32[16384, 1024] f32[16384, 1024] f32[1024]",
        "f32[40, 32] f32[40, 32] f32[32]",
        "tl.sum",
        4,
    ),
    Form(
        "shared_columns",
        lambda x: (x.mean(0), x.var(0), x.amax(0)),
        "f32[16384, 4096]",
        "f32[700, 24]",
        "litz_meet",
    ),
    Form(
        "shared_rows",
        lambda g, y: torch.ops.aten._softmax_backward_data(g, y, -1, torch.float32),
        "f32[1024, 65536] f32[1024, 65536]",
        "f32[2, 1008] f32[2, 1008]",
        "litz_meet",
    ),
    Form(
        "pack",
        _adam,
        " ".join(f"{each} " * 4 for each in ("f32[512, 768]", "f32[600, 512]", "f32[2304]", "f32[768, 4]")),
        " ".join(f"{each} " * 4 for each in ("f32[16, 4]", "f32[2, 24]", "f32[33]", "f32[5, 7]")),
        "part0_first",
    ),
    Form(
        "pack_of_kinds",
        lambda w, v, x, y: (w.to(torch.bfloat16), v.to(torch.bfloat16), x.square().sum(1), y.amax(1)),
        "f32[256, 512] f32[131072] f32[512, 256] f32[100, 1000]",
        "f32[8, 32] f32[48] f32[16, 24] f32[3, 50]",
        "pack_",
    ),
    Form(
        "pack_of_any_size",
        lambda w, v, x: (w.to(torch.bfloat16), v.to(torch.bfloat16), x.to(torch.bfloat16)),
        "f32[256, 512] f32[131072, 1] f32[512, 256]",
        "f32[8, 32] f32[48, 1] f32[16, 24]",
        "part0_n0",
        dynamic=True,
    ),
    Form("group", _adam, "f32[1024, 1024] " * 16, "f32[12, 20] " * 16, "XBLOCK"),
    Form("gather", lambda t, n: t[n], "bf16[50257, 768] i64[16384]", "bf16[50, 24] i64[30]", "tl.minimum"),
    Form(
        "scatter",
        lambda t, n, g: torch.zeros_like(t).index_add(0, n, g),
        "f32[50257, 768] i64[16384] f32[16384, 768]",
        "f32[50, 24] i64[30] f32[30, 24]",
        "tl.atomic_add",
        2,
    ),
    Form("running", lambda x: x.cumsum(-1), "f32[1024, 65536]", "f32[3, 5000]", "carry"),
    *(
        Form(name, function, full, small, "volatile=True", kernels, look_back=(8192, part))
        for name, function, full, small, kernels, part in (
            ("relay", lambda x: x.cumsum(-1), "f32[2, 16777217]", "f32[2, 3000]", 1, 64),
            ("relay_of_narrow_ones", lambda x: x.cumsum(-1), "bf16[16777216]", "bf16[3000]", 2, 64),
            ("relay_of_pairs", lambda x: x.cummax(-1), "f32[3, 8388608]", "f32[3, 500]", 1, 64),
            ("relay_of_wide_ones", lambda x: x.logcumsumexp(-1), "f32[1, 8388608]", "f32[1, 500]", 1, 64),
            ("relay_of_products", lambda x: (x * 0.5 + 1).cumprod(-1), "f32[8388608]", "f32[1000]", 1, 64),
        )
    ),
    Form(
        "joined",
        lambda x, y: torch.cat([x, F.pad(y, (64, 64))]),
        "bf16[8192, 4096] bf16[8192, 3968]",
        "bf16[5, 256] bf16[6, 128]",
        "mask",
    ),
    Form("any_rows", lambda x: x.softmax(-1), "f32[16384, 4096]", "f32[20, 97]", "for roffset", dynamic=True),
    Form(
        "any_map",
        lambda x, b: F.silu(x + b),
        "f32[16384, 4096] f32[4096]",
        "f32[20, 97] f32[97]",
        "xmask",
        dynamic=True,
    ),
    Form(
        "any_batch",
        _of_fixed_width,
        "bf16[16384, 4096] bf16[4096]",
        "bf16[20, 96] bf16[96]",
        "tl.int64",
        dynamic=True,
    ),
    Form("any_columns", lambda x: x.sum(0), "f32[16384, 4096]", "f32[200, 31]", "for roffset", dynamic=True),
)


def described(text: str) -> list[tuple[list[int], torch.dtype]]:
    """The shapes and dtypes of arguments that are written as ``f32[8, 4] i64[8]``."""
    found = _ARGUMENT.findall(text)
    return [([int(size) for size in sizes.split(",")], _DTYPES[name]) for name, sizes in found]


class _Enough(Exception):
    """Nobody calls what was captured."""


def graph_of(form: Form) -> LoopGraph:
    """What a form at its full size is lowered to; of its arguments nothing but their sizes is looked at."""
    found: list[LoopGraph] = []

    def keep(gm: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        found.append(lower(gm).graph)
        raise _Enough

    compiled = aot_function(
        form.function, fw_compiler=keep, decompositions=decompositions(), dynamic=form.dynamic
    )
    # Sizes become symbols for tensors with memory alone, which is not there before it is touched.
    made = contextlib.nullcontext() if form.dynamic else FakeTensorMode(allow_non_fake_inputs=True)
    with contextlib.suppress(_Enough), made:
        compiled(*(torch.empty(shape, dtype=dtype) for shape, dtype in described(form.full)))
    return found[0]


def sources(form: Form) -> list[KernelSource]:
    """The kernels of a form at its full size."""
    plan = schedule(
        graph_of(form), PassContext({CPU: MACHINE}), SchedulerOptions(look_back=form.look_back[0])
    )
    return [emit_kernel(kernel) for kernel in plan.kernels]


def arguments(form: Form) -> list[Tensor]:
    """Arguments of the small size, the same in every process; integers are indices into the one before them."""
    generator = torch.Generator().manual_seed(0)
    found: list[Tensor] = []
    for shape, dtype in described(form.small):
        if dtype.is_floating_point:
            found.append(torch.randn(shape, generator=generator).to(dtype))
        else:
            found.append(torch.randint(found[-1].shape[0], shape, generator=generator))
    return found


def difference(form: Form, folder: Path) -> str:
    """What differs between eager and the kernels of the small size in Triton's interpreter; what is raised counts."""

    options = replace(LOWERED, look_back=form.look_back[1])

    def run(graph: LoopGraph, inputs: Sequence[Any], constants: Any = None, externs: Any = None) -> list[Any]:
        plan = schedule(graph, PassContext({CPU: MACHINE}), options)
        return run_plan(plan, inputs, folder, externs=externs, constants=constants)

    lowering_check.run_graph = run
    try:
        compiled, _ = lowering_check.captured(form.function, dynamic=form.dynamic)
        got, wanted = compiled(*arguments(form)), form.function(*arguments(form))
        torch.testing.assert_close(
            got, wanted, rtol=1e-4 if form.small.startswith("f32") else 2e-2, atol=1e-3
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """See the module's text."""
    if len(sys.argv) > 1:
        for form in FORMS:
            for source in sources(form):
                text = json.dumps(asdict(replace(source, programs=0)), sort_keys=True)
                name = sha256(text.encode()).hexdigest()[:16]
                (Path(sys.argv[1]) / f"{name}.json").write_text(text)
        return
    with tempfile.TemporaryDirectory(prefix="litz-triton-") as folder:
        for form in FORMS:
            print(json.dumps({"case": form.name, "difference": difference(form, Path(folder))}), flush=True)


if __name__ == "__main__":
    main()
