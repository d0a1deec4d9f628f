"""Tests that docs/architecture.md shows one softmax as the stages print it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from litz_codegen_cpp.target import CpuTarget
from litz_codegen_triton.target import CudaTarget
from litz_ir.device import CPU, Device
from litz_ir.fused import FusedGraph
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.text import from_text, print_schedule, to_text
from litz_lowering import decompositions, lower
from litz_scheduler import schedule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- stage: (\w+) -->\n```\w*\n)(.*?)(\n```)", re.DOTALL)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """The example of the page."""
    return torch.softmax(x * 0.125, -1)


def stages() -> Iterator[tuple[str, str]]:
    """Yield each stage's name and text."""
    table = decompositions()
    gm = make_fx(softmax, decomposition_table=table, tracing_mode="fake")(torch.randn(4096, 1024))
    yield "fx", gm.code.strip()
    lowered = lower(gm, name="softmax")
    yield "loops", to_text(lowered.graph)
    cpu = CpuTarget(isa="avx512", threads=2)
    seen: dict[str, str] = {}
    context = PassContext({CPU: cpu.capabilities()})

    def keep(name: str, before: object, after: object) -> None:
        if isinstance(after, LoopGraph | FusedGraph | Plan):
            seen[name] = to_text(after)

    plan = schedule(lowered.graph, context, hooks=[keep])
    yield "inlined", seen["inline"]
    yield "fused", _without_decisions(seen["fuse"].split("  }\n", 1)[1])
    yield "plan", _without_decisions(seen["plan"])
    text = cpu.emit(plan)[0].text
    yield "cpp", text[text.index("// k0") :].strip()
    # The same loops, scheduled for a GPU: only the device of the values differs.
    gpu = CudaTarget("sm_90")
    moved = from_text(to_text(lowered.graph).replace("graph softmax(", "graph softmax on cuda ("))
    on_gpu = gpu.schedule(schedule(moved, PassContext({Device("cuda"): gpu.capabilities()})))
    yield "tiles", "\n".join(print_schedule(kernel.schedule) for kernel in on_gpu.kernels)
    yield "triton", gpu.emit(on_gpu)[0].text.strip()


def _without_decisions(text: str) -> str:
    return (
        "\n".join(line for line in text.splitlines() if not line.startswith("  decision")).rstrip("}\n ")
        + "\n}"
    )


def test_the_page_is_true(request: pytest.FixtureRequest) -> None:
    printed = dict(stages())
    page = PAGE.read_text(encoding="utf-8")
    shown = {match[2]: match[3] for match in BLOCK.finditer(page)}
    assert shown.keys() == printed.keys()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(BLOCK.sub(lambda m: m[1] + printed[m[2]] + m[4], page), encoding="utf-8")
        return
    assert shown == printed, f"{PAGE} shows another text: --update-golden rewrites it"
