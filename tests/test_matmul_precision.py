"""Precision of f32 matmuls on a GPU: torch's settings hold for generated kernels and library calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C._dynamo.guards import GlobalStateGuard
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import litz.host.runtime.precision
import litz.pipeline
from litz.artifact import Artifact
from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
from litz.explain.matmul_precision import matmul_precision
from litz.host.runtime.precision import f32_matmul_precision, warn_about_bf16
from litz.loading import Compiled
from litz.settings import Config
from litz.stage_options import scheduler_options
from litz.targets import targets_for
from litz_codegen_triton.target import CudaTarget


def old() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True


def new() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def everywhere() -> None:
    torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]  # made as it is imported


CONVOLUTIONS = "torch.backends.cudnn.conv.fp32_precision"

WAYS: dict[str, Callable[[], None]] = {
    "allow_tf32": old,
    "fp32_precision": new,
    "fp32_precision of everything": everywhere,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore torch's settings. torch.testing, once imported, forbids to set them in its process."""
    flags = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(flags, "__allow_nonbracketed_mutation_flag", True)
    yield
    torch.backends.fp32_precision = "none"  # type: ignore[attr-defined]  # see above
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.cudnn.conv.fp32_precision = "tf32"  # type: ignore[attr-defined]  # torch's default, as of RNNs


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Artifact]:
    """A compiler of programs on a GPU, with generated matmuls, up to the artifact; nothing is loaded."""

    def load(artifact: Artifact, *_: object, **__: object) -> Compiled:
        return Compiled(lambda args: (), artifact)

    def compile_it(
        dtype: torch.dtype = torch.float32,
        force: str = "generated_matmuls=all",
        program: Callable[[torch.dtype], GraphModule] = matmuls,
    ) -> Artifact:
        config = Config(cache=False, fallback="error", force=force)
        made = Compilation(program(dtype), "matmuls", config, ArtifactCache.open(config)).run().artifact
        assert made is not None
        return made

    monkeypatch.setattr(litz.pipeline, "load_tuned", load)
    monkeypatch.setattr(CudaTarget, "prepare", lambda _: 1)
    return compile_it


def matmuls(dtype: torch.dtype) -> GraphModule:
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return (x @ w).relu(), (x.unsqueeze(2) * w.unsqueeze(0)).sum(1)

    with FakeTensorMode():
        given = (
            torch.empty(48, 64, device="cuda", dtype=dtype),
            torch.empty(64, 32, device="cuda", dtype=dtype),
        )
        return make_fx(program)(*given)


def convolutions(dtype: torch.dtype) -> GraphModule:
    with FakeTensorMode():
        given = (
            torch.empty(2, 16, 12, 12, device="cuda", dtype=dtype),
            torch.empty(32, 16, 3, 3, device="cuda", dtype=dtype),
        )
        return make_fx(lambda x, w: torch.nn.functional.conv2d(x, w).relu())(*given)


def test_f32_is_exact_unless_somebody_asks_for_less() -> None:
    assert f32_matmul_precision() == "ieee"
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert f32_matmul_precision() == "ieee"


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_for_tf32_is_understood_and_guarded(way: str) -> None:
    guard = GlobalStateGuard()
    assert f32_matmul_precision() == "ieee" and guard.check()
    WAYS[way]()
    assert f32_matmul_precision() == "tf32" and not guard.check()


def test_what_is_generated_is_as_precise_as_a_library_would_be(compiled: Callable[..., Artifact]) -> None:
    exact = compiled()
    torch.set_float32_matmul_precision("high")
    rounded = compiled()
    assert exact.key != rounded.key
    assert [unit.text.count('input_precision="ieee"') for unit in exact.units] == [1, 1]
    written = [unit.text.count('input_precision="tf32"') for unit in rounded.units]
    assert sorted(written) == [0, 1], "a sum of multiplications is no matmul"
    notes = [each.note for each in rounded.plan.decisions if each.reason.key == "library.generated"]
    assert notes == ["TF32"]


def test_bf16_matmuls_ignore_the_setting(compiled: Callable[..., Artifact]) -> None:
    exact = compiled(torch.bfloat16)
    torch.set_float32_matmul_precision("high")
    rounded = compiled(torch.bfloat16)
    assert exact.plan == rounded.plan and exact.units == rounded.units
    assert matmul_precision(rounded.plan) == ""


@pytest.mark.parametrize("force", ["", "generated_matmuls=all"], ids=["called", "generated"])
def test_explain_reports_the_precision_of_matmuls(force: str, compiled: Callable[..., Artifact]) -> None:
    plan = compiled(force=force).plan
    assert matmul_precision(plan).startswith("f32 matmuls multiply exactly")
    torch.backends.cuda.matmul.allow_tf32 = True
    assert matmul_precision(plan).startswith("f32 matmuls round their operands to TF32")


@pytest.mark.parametrize("force", ["", "generated_matmuls=all"], ids=["called", "generated"])
def test_explain_says_how_precise_convolutions_are(force: str, compiled: Callable[..., Artifact]) -> None:
    conv: Any = torch.backends.cudnn.conv
    conv.fp32_precision = "ieee"
    plan = compiled(force=force, program=convolutions).plan
    assert matmul_precision(plan) == f"f32 convolutions multiply exactly, as {CONVOLUTIONS} says"
    conv.fp32_precision = "tf32"
    assert matmul_precision(plan) == f"f32 convolutions round their operands to TF32, as {CONVOLUTIONS} says"
    assert matmul_precision(compiled(torch.bfloat16, force, convolutions).plan) == ""


def test_graphs_on_the_cpu_do_not_depend_on_it() -> None:
    config = Config()
    torch.set_float32_matmul_precision("high")
    assert scheduler_options(config, targets_for(("cpu",), config)).matmul_precision == "ieee"
    assert scheduler_options(config, targets_for(("cuda", "cpu"), config)).matmul_precision == "tf32"


@pytest.mark.parametrize(("capability", "warnings"), [((7, 5), 1), ((8, 0), 0)])
def test_a_chip_without_bf16_is_told_of_once(
    capability: tuple[int, int],
    warnings: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a chip")
    litz.host.runtime.precision._warn.cache_clear()
    with FakeTensorMode(), caplog.at_level(logging.WARNING, "litz"):
        wide, narrow = (torch.empty(4, device="cuda:0", dtype=d) for d in (torch.float32, torch.bfloat16))
        warn_about_bf16([wide, torch.empty(4, dtype=torch.bfloat16)])
        assert not caplog.records
        for _ in range(2):
            warn_about_bf16([wide, narrow])
    litz.host.runtime.precision._warn.cache_clear()
    assert [record.message.partition(" has")[0] for record in caplog.records] == [
        "litz: a chip (sm_75)"
    ] * warnings
