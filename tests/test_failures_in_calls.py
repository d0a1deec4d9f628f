"""Failures in lazy work during a call of a compiled graph: results and written arguments are eager's, the failure is
reported once, and later calls and graphs work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from launched_on_cpu import ANYWHERE, LaunchedCpu, stand_in
from remembered_builds import remembered_builds
from torch import Tensor, nn
from torch.testing import assert_close

import litz
from litz import stage_options
from litz.capture import aot
from litz.compilation import compilation
from litz.host.runtime import frozen_results
from litz.notices import log_once
from litz.targets import TargetSet
from litz_codegen_cpp.runtime import call
from litz_ir.errors import LitzError, OutOfMemory

pytestmark = pytest.mark.sampled  # it compiles whole programs

ERRORS = (KeyError, RecursionError, AssertionError, MemoryError, OSError)
Program = Callable[..., Any]


class Warnings(logging.Handler):
    """Log handler that keeps litz's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The warnings of litz."""
    log_once.cache_clear()
    handler, log = Warnings(), logging.getLogger("litz")
    log.addHandler(handler)
    yield handler.texts
    log.removeHandler(handler)


@pytest.fixture(autouse=True)
def options(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "cache"), fallback="warn", verify=False):
        yield


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Reuse compiled units between tests."""
    with remembered_builds(tmp_path_factory.mktemp("built")):
        yield


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def fault(*args: Any, **kwargs: Any) -> Any:
        raise error("injected")

    return fault


def one_report(told: Sequence[str], error: type[Exception]) -> str:
    """Return the only warning, which names the exception and the folder of a report."""
    (text,) = told
    assert f"{error.__name__}: {error('injected')}" in text
    assert (Path(text.rpartition("report: ")[2]) / "repro.py").exists(), text
    return text


# --- kernels that are built anew for buffers at other addresses --------------------------------------------


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> LaunchedCpu:
    """The CPU as a target that is launched like a GPU."""
    made = LaunchedCpu()
    stand_in(monkeypatch)
    for module in (compilation, aot):
        monkeypatch.setattr(module, "targets_for", lambda *_: TargetSet({"cpu": made}))
    return made


def odd(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor that begins one element after a multiple of 64 bytes."""
    size = torch.Size(shape).numel()
    values = torch.rand(size + 1, generator=torch.Generator().manual_seed(seed)).to(dtype)
    made = values[1:].view(shape)
    assert made.data_ptr() % 16
    return made


def step(x: Tensor, w: Tensor, state: Tensor, b: Tensor) -> Tensor:
    """Two groups around a matmul; the second writes an argument, when the first has read one for the last time."""
    y = torch.tanh(x * 2) @ w
    state.mul_(0.5).add_(y.sum(0))
    return torch.softmax(y + b, -1)


def looked_up(table: Tensor, b: Tensor, state: Tensor) -> Tensor:
    places = (state[0].abs() * 5).long() % table.shape[0]
    state.add_(1)
    return (table[places] * b).sum(-1)


def branches(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A branch, compiled as a program of its own and called in the middle of another."""
    y = x @ w
    result: Tensor = torch.cond(y.sum() > 0, lambda y, b: y.sin() + b, lambda y, b: y.cos() * b, (y, b))
    return result


def halved(x: Tensor, image: Tensor) -> Tensor:
    """Padding: elements that a loop reads at its borders are outside of the argument."""
    padded = nn.functional.pad(image, (3, 3), value=1.0)
    return padded[..., 2:-2].sum(0) + x.to(torch.bfloat16).float()


PROGRAMS: dict[str, tuple[Program, tuple[tuple[int, ...], ...]]] = {
    "two groups": (step, ((6, 6), (6, 6), (6,), (6,))),
    "looked up": (looked_up, ((7, 6), (6,), (4, 5))),
    "a branch": (branches, ((6, 6), (6, 6), (6,))),
    "padded": (halved, ((9,), (5, 7))),
}


def judged(compiled: Program, function: Program, shapes: Sequence[tuple[int, ...]], seed: int) -> None:
    """Assert that a call on arguments at odd addresses returns eager's results and leaves eager's values in its
    arguments."""
    ours, theirs = ([odd(*shape, seed=seed + k) for k, shape in enumerate(shapes)] for _ in range(2))
    assert_close(compiled(*ours), function(*theirs))
    assert_close(ours, theirs)


@pytest.mark.parametrize("sizes", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_build_that_fails_costs_copies(
    name: str, sizes: bool, target: LaunchedCpu, told: list[str]
) -> None:
    function, shapes = PROGRAMS[name]
    target.fault = raising(KeyError)
    compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=sizes)
    judged(compiled, function, shapes, 0)
    assert "runs on copies of buffers" in one_report(told, KeyError)
    assert target.driver.copied and not any(each.endswith(ANYWHERE) for each in target.driver.launched)
    told.clear()
    judged(compiled, function, shapes, 10)
    assert not told, "it is told once"
    target.driver.copied, target.fault = 0, None
    judged(torch.compile(function, backend="litz", fullgraph=True), function, shapes, 20)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_whatever_a_build_raises(error: type[Exception], target: LaunchedCpu, told: list[str]) -> None:
    target.fault = raising(error)
    compiled = torch.compile(step, backend="litz", fullgraph=True)
    for seed in range(3):
        judged(compiled, step, PROGRAMS["two groups"][1], seed)
    assert "runs on copies" in one_report(told, error)


def test_a_build_that_succeeds_copies_nothing(target: LaunchedCpu, told: list[str]) -> None:
    judged(torch.compile(step, backend="litz"), step, PROGRAMS["two groups"][1], 0)
    assert any(each.endswith(ANYWHERE) for each in target.driver.launched)
    assert not target.driver.copied and not told


def test_gradients_of_what_begins_anywhere(target: LaunchedCpu, told: list[str]) -> None:
    target.fault = raising(KeyError)

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(x * 2) @ w).square().sum()

    compiled = torch.compile(loss, backend="litz", fullgraph=True)
    for _ in range(2):
        given = [odd(6, 6, seed=k).requires_grad_() for k in range(2)]
        found, expected = (torch.autograd.grad(each(*given), given) for each in (compiled, loss))
        assert_close(found, expected)
    assert target.driver.copied
    one_report(told, KeyError)


def test_a_graph_from_the_cache_has_a_report(target: LaunchedCpu, told: list[str]) -> None:
    target.fault = raising(KeyError)

    def function(x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    with torch.no_grad():
        torch.compile(function, backend="litz")(torch.rand(6, 6))
        torch._dynamo.reset()
        assert not told
        judged(torch.compile(function, backend="litz"), function, ((6, 6),), 0)
    one_report(told, KeyError)


def test_a_build_that_fails_while_kernels_are_watched(target: LaunchedCpu, told: list[str]) -> None:
    target.fault = raising(KeyError)
    function, shapes = PROGRAMS["two groups"]
    seen: list[litz.loading.Compiled] = []

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return litz.compile_fx(gm, inputs, observers=(seen.append,))

    torch.compile(function, backend=backend)(*(torch.rand(shape) for shape in shapes))
    ours, theirs = ([odd(*shape) for shape in shapes] for _ in range(2))
    launched: list[str] = []
    assert seen[0].loader is not None
    call = seen[0].loader.call(lambda kernel, *_: launched.append(kernel))
    assert_close(call([*ours])[0], function(*theirs))
    assert_close(ours, theirs)
    assert seen[0].artifact is not None
    assert launched == [kernel.name for kernel in seen[0].artifact.plan.kernels]
    one_report(told, KeyError)


def test_strict_builds_and_interrupted_ones_raise(target: LaunchedCpu, told: list[str]) -> None:
    target.fault = raising(KeyError)
    given = [odd(*shape) for shape in PROGRAMS["two groups"][1]]
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(step, backend="litz")
        for _ in range(2):
            with pytest.raises(LitzError, match="KeyError: 'injected'") as caught:
                compiled(*given)
            assert isinstance(caught.value.__cause__, KeyError)
    for interrupt in (KeyboardInterrupt, SystemExit):
        target.fault = raising(interrupt)
        with pytest.raises(interrupt):
            torch.compile(looked_up, backend="litz")(*(odd(*s) for s in PROGRAMS["looked up"][1]))
    assert not told


# --- oneDNN ------------------------------------------------------------------------------------------------


class Image(nn.Module):
    """A convolution with a batch norm and an activation that oneDNN fuses, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 16, 3, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(16)
        self.activation = nn.Hardswish()
        self.linear = nn.Linear(16, 8)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        image = self.activation(self.norm(self.convolution(x)))
        seen.add_(1)
        result: Tensor = self.linear(image.mean((2, 3)))
        return result


ONEDNN = {
    "_linear_pointwise": "ATen multiplies the matrices",
    "_convolution_pointwise": "ATen runs the convolution",
    "_reorder_convolution_weight": "the weight of a convolution is not prepacked",
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("name", ONEDNN)
def test_a_primitive_that_cannot_be_made(
    name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    monkeypatch.setattr(stage_options, "linear_flops", lambda cpu: 1)
    module, x = Image().eval(), torch.randn(16, 8, 9, 9)
    with torch.no_grad():
        expected = module(x, torch.zeros(3))
        with monkeypatch.context() as patch, litz.config.patch(force="prepack_matmuls=0"):
            patch.setattr(getattr(torch.ops.mkldnn, name), "default", raising(error))
            compiled = torch.compile(module, backend="litz", fullgraph=True)
            for calls in (1, 2):
                ones = torch.zeros(3)
                found = compiled(x, ones)
                assert_close(found, expected, rtol=1e-4, atol=1e-5)
                assert found.stride() == expected.stride() and ones.tolist() == [1.0] * 3, calls
            assert ONEDNN[name] in one_report(told, error)
            told.clear()
        torch._dynamo.reset()
        found = torch.compile(module, backend="litz", fullgraph=True)(x, torch.zeros(3))
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not told


def test_strict_primitives_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    reorder = torch.ops.mkldnn._reorder_convolution_weight
    monkeypatch.setattr(reorder, "default", raising(MemoryError))
    compiled = torch.compile(Image().eval(), backend="litz")
    with (
        litz.config.patch(fallback="error"),
        torch.no_grad(),
        pytest.raises(LitzError, match="MemoryError: injected") as caught,
    ):
        compiled(torch.randn(16, 8, 9, 9), torch.zeros(3))
    assert isinstance(caught.value.__cause__, MemoryError)


# --- frozen parameters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("name", ["_is_private", "_compared_part", "_is_shared"])
def test_parameters_that_cannot_be_looked_at(
    name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    module, x = Image().eval(), torch.randn(16, 8, 9, 9)
    compiled = torch.compile(module, backend="litz", fullgraph=True)
    with torch.no_grad():
        with monkeypatch.context() as patch:
            patch.setattr(frozen_results, name, raising(error))
            for factor in (1.0, 2.0):
                module.convolution.weight.mul_(factor)
                assert_close(compiled(x, torch.zeros(3)), module(x, torch.zeros(3)), rtol=1e-4, atol=1e-5)
            assert frozen_results.NOT_FROZEN in one_report(told, error)
        told.clear()
        for _ in range(2):
            assert_close(compiled(x, torch.zeros(3)), module(x, torch.zeros(3)), rtol=1e-4, atol=1e-5)
    assert not told


def test_a_look_that_fails_later_is_told_then(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    module, x = Image().eval(), torch.randn(16, 8, 9, 9)
    compiled = torch.compile(module, backend="litz", fullgraph=True)
    with torch.no_grad():
        expected = compiled(x, torch.zeros(3))
        assert not told
        monkeypatch.setattr(frozen_results, "_is_private", raising(KeyError))
        for _ in range(2):
            assert_close(compiled(x, torch.zeros(3)), expected)
    one_report(told, KeyError)


def test_files_whose_names_are_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_bytes(b"1000-2000 rw-p 0 0 0 /weights\xff\xfe of mine\n3000-4000 rw-s 0 0 0 /shared\n")
    monkeypatch.setattr(frozen_results, "_MAPS", maps)
    assert frozen_results._private_files() == [range(0x1000, 0x2000)]
    monkeypatch.setattr(frozen_results, "_MAPS", tmp_path)
    assert frozen_results._private_files() == []


# --- memory ------------------------------------------------------------------------------------------------


def test_no_memory_for_scratch_is_an_error_of_the_program(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """Out of memory raises as in eager: a caller that catches it may try a smaller batch."""
    compiled = torch.compile(lambda x: torch.softmax(x, -1), backend="litz")
    x = torch.rand(6, 6)
    expected = compiled(x)
    run = call.NativeSegment.run

    def refused(self: call.NativeSegment, *given: Any) -> None:
        raise call._error(self._kernels[0], call.OUT_OF_MEMORY)

    monkeypatch.setattr(call.NativeSegment, "run", refused)
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="can't allocate memory for the scratch") as caught:
        torch.compile(lambda x: torch.softmax(x, -1), backend="litz")(x)
    assert isinstance(caught.value, OutOfMemory)
    monkeypatch.setattr(call.NativeSegment, "run", run)
    assert_close(compiled(x), expected)
    assert not told
