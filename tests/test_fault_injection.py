"""Fault injection at the borders of all stages: results are eager's, and later graphs are unaffected."""

from __future__ import annotations

import hashlib
import json
import logging
import runpy
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from remembered_builds import remembered_builds
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

import litz
import litz_lowering
from litz import loading, pipeline
from litz.cache.artifacts import ArtifactCache
from litz.cache.name_sets import NameSets
from litz.cache.store import MANIFEST, Store
from litz.cache.tiles import TileChoices
from litz.capture import aot, aot_backend
from litz.compilation import Compilation, compilation
from litz.cuda_graphs.runner import CudaGraphRunner
from litz.loading import Compiled
from litz.notices import log_once
from litz.reports import repro
from litz.targets import TargetSet
from litz.tuning import search
from litz.tuning import tuned_graph as tuned
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain import BuildOptions
from litz_ir.errors import InternalError, LitzError
from litz_lowering.contexts import registry
from litz_scheduler import pipeline as scheduler
from litz_scheduler.build_plan import PlanMemory
from litz_scheduler.fusion import VerticalFusion
from litz_scheduler.graph_partition import PartitionGraph

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "frontend" / "tests"))
from tuning_target import Stopwatch, TunableCpu

Function = Callable[..., torch.Tensor]
X = torch.linspace(-1, 1, 36).reshape(6, 6)
W = torch.linspace(0, 1, 36).reshape(6, 6)

ERRORS = (KeyError, RecursionError, AssertionError, MemoryError, OSError)


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two groups around a matmul."""
    return (torch.tanh(x * w) @ w).sigmoid().sum(0)


def other(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x - w, -1)


@dataclass(frozen=True)
class Border:
    """A call between stages: the attribute ``name`` of ``owner``; ``stage`` is its name in reports, ``modes`` are those
    in which it is called."""

    stage: str
    owner: Any
    name: str
    modes: str = "inference training"

    def __str__(self) -> str:
        return f"{getattr(self.owner, '__name__', self.owner)}.{self.name}"


BORDERS = (
    Border("lookup", aot, "plain_device"),
    Border("lookup", aot, "fx_graph_key"),
    Border("lookup", ArtifactCache, "lookup_fx_graph"),
    Border("capture", aot_backend, "aot_module_simplified"),
    Border("partition", litz_lowering, "partition", "training"),
    Border("partition", aot, "saved_in_any_layout", "training"),
    Border("capture", litz_lowering, "correct_metadata"),
    Border("capture", aot, "parameter_inputs", "inference"),
    Border("capture", aot, "expect", "training"),
    Border("capture", aot, "own_views", "training"),
    Border("capture", aot, "saved_alone", "training"),
    Border("capture", aot, "report_strides", "training"),
    Border("capture", aot.CompileSession, "_take"),
    Border("cache", ArtifactCache, "key"),
    Border("cache", ArtifactCache, "read"),
    Border("store", ArtifactCache, "write"),
    Border("capture", ArtifactCache, "store_fx_graph"),
    Border("compilation", compilation, "warn_about_bf16"),
    Border("target", compilation, "targets_for"),
    Border("lower", litz_lowering, "lower"),
    Border("pass", VerticalFusion, "apply"),
    Border("pass", PlanMemory, "apply"),
    Border("emit", CpuTarget, "emit"),
    Border("compile", CpuTarget, "build"),
    Border("load", CpuTarget, "load"),
    Border("load", loading, "host_program"),
    Border("load", loading, "load_program"),
    Border("cache", Store, "__init__"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "cache"), fallback="warn", verify=False):
        yield tmp_path / "cache"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Reuse compiled units between tests, since the compiler takes most of a case's time."""
    with remembered_builds(tmp_path_factory.mktemp("built")):
        yield


class Warnings(logging.Handler):
    """Log handler that keeps litz's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """The warnings of litz; what is said once in a process is said again."""
    log_once.cache_clear()
    handler, log = Warnings(), logging.getLogger("litz")
    log.addHandler(handler)
    yield handler.records
    log.removeHandler(handler)


def run(function: Function, mode: str) -> list[Compiled]:
    """Compile afresh, run in a mode, compare with eager, and return the compiled function."""
    torch._dynamo.reset()
    seen: list[Compiled] = []

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return litz.compile_fx(gm, inputs, observers=(seen.append,))

    compiled = torch.compile(function, backend=backend)
    expected, found = (_values(each, mode) for each in (function, compiled))
    for a, b in zip(expected, found, strict=True):
        assert_close(b, a)
        assert b.stride() == a.stride()
    return seen


def _values(function: Function, mode: str) -> list[torch.Tensor]:
    if mode == "inference":
        with torch.no_grad():
            return [function(X, W), function(X, W)]
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    values = []
    for _ in range(2):
        result = function(x, w)
        result.square().sum().backward()
        values.append(result.detach())
    assert x.grad is not None and w.grad is not None
    return [*values, x.grad, w.grad]


def is_compiled(function: Function, mode: str) -> bool:
    """Report that a function is compiled without a fallback to ATen after a failure."""
    seen = run(function, mode)
    whole = all(each.artifact is not None for each in seen)
    forced = [
        left for each in seen if each.artifact for left in each.artifact.fallbacks if "force" in left.reason
    ]
    return bool(seen) and whole and not forced


def report_of(records: Sequence[logging.LogRecord]) -> tuple[str, Path]:
    """Return the only warning, and the folder that it names."""
    (record,) = records
    text = record.getMessage()
    folder = Path(text.rpartition("report: ")[2])
    assert {"error.txt", "graph.py", "repro.py"} <= {each.name for each in folder.iterdir()}, text
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    return text, folder


def raising(error: type[Exception]) -> Callable[..., Any]:
    def fault(*args: Any, **kwargs: Any) -> Any:
        raise error("injected")

    return fault


@pytest.mark.sampled
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("border", BORDERS, ids=str)
def test_a_stage_that_raises(
    border: Border, error: type[Exception], monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    modes = border.modes.split()
    for mode in (
        modes if error is KeyError else modes[:1]
    ):  # training takes long, and no exception of another path
        with monkeypatch.context() as patch:
            patch.setattr(border.owner, border.name, raising(error))
            run(program, mode)
        text, _ = report_of(records)
        assert f"litz: {border.stage} failed" in text and f"{error.__name__}: {error('injected')}" in text
        assert "test_fault_injection.py" in text, "the user's line is named"
        records.clear()
        assert is_compiled(program, mode)
        assert error is not KeyError or is_compiled(other, mode)
        assert not records


ALL_PASSES = scheduler.default_passes()
PASSES = {
    each.name: type(each) for each in (*ALL_PASSES.graph_for({"cpu"}), *ALL_PASSES.fusion, *ALL_PASSES.plan)
}


@pytest.mark.sampled
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("name", PASSES)
def test_a_pass_that_raises(
    name: str, monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    monkeypatch.setattr(PASSES[name], "apply", raising(KeyError))
    (compiled,) = run(program, "inference")
    text, folder = report_of(records)
    assert compiled.artifact is None and name.removesuffix("-2") in text
    assert "graph " in (folder / "loops.txt").read_text(), "the loop graph is part of the report"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_a_rule_that_raises_costs_its_own_operation(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(registry.REGISTRY._rules, "aten.tanh.default", registry.RuleEntry(raising(error)))
        (compiled,) = run(program, "inference")
    assert compiled.artifact is not None and compiled.artifact.plan.kernels
    left = [each.target for each in compiled.artifact.fallbacks if "force" in each.reason]
    assert left == ["aten.tanh.default"]
    assert "tanh run as ATen instead" in report_of(records)[0]
    assert is_compiled(program, "inference"), "what was left is not kept"


@pytest.mark.usefixtures("built")
def test_a_backward_that_fails_leaves_its_forward_compiled(
    monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    lower = litz_lowering.lower

    def fault(gm: torch.fx.GraphModule, *, name: str, **options: Any) -> Any:
        return raising(KeyError)() if name.startswith("backward") else lower(gm, name=name, **options)

    monkeypatch.setattr(litz_lowering, "lower", fault)
    forward, backward = run(program, "training")
    assert forward.artifact is not None and backward.artifact is None
    assert "graph backward" in report_of(records)[0]


@pytest.mark.usefixtures("built")
def test_strict_and_silent(monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]) -> None:
    monkeypatch.setattr(litz_lowering, "lower", raising(KeyError))
    graph = make_fx(program, tracing_mode="fake")(X, W)
    with litz.config.patch(fallback="silent"):
        run(program, "training")
    with (
        litz.config.patch(fallback="error"),
        pytest.raises(InternalError, match="KeyError: 'injected'") as caught,
    ):
        litz.compile_fx_inner(graph, [X, W])
    assert isinstance(caught.value, LitzError) and isinstance(caught.value.__cause__, KeyError)
    assert caught.value.stage == "lower" and not records
    for interrupt in (KeyboardInterrupt, SystemExit):
        monkeypatch.setattr(litz_lowering, "lower", raising(interrupt))
        with pytest.raises(interrupt):
            litz.compile_fx_inner(graph, [X, W])


def test_what_a_program_does_wrong_stays_its_own(records: list[logging.LogRecord]) -> None:
    torch._dynamo.reset()
    with pytest.raises(IndexError):
        torch.compile(lambda x, k: x[k] + 1, backend="litz")(X, torch.tensor([0, 9]))
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="leaf Variable"):
        torch.compile(lambda x: x.sin_(), backend="litz")(X.clone().requires_grad_())
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="unknown option"):
        torch.compile(program, backend="litz", options={"no_such": 1})(X, W)
    assert not records


# --- compilers ---------------------------------------------------------------------------------------------


@pytest.fixture
def compiler(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes a compiler: it prints its version, and runs ``body`` when it is to compile."""

    def made(body: str) -> str:
        path = tmp_path / "g++"
        path.write_text(f"#!/bin/sh\ncase $* in *--version*) echo g++ 12.0.0; exit;; esac\n{body}\n")
        path.chmod(0o700)
        return str(path)

    return made


@pytest.mark.parametrize("body", ["sleep 60", "kill -9 $$", "exit 0", "echo not ELF > /dev/full"])
def test_a_compiler_that_hangs_or_dies(
    body: str,
    compiler: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    records: list[logging.LogRecord],
) -> None:
    monkeypatch.setattr(BuildOptions.__init__, "__defaults__", ("-O2", False, (), 0.3))
    with litz.config.patch(compiler=compiler(body)):
        run(program, "inference")
    text, _ = report_of(records)
    assert ("did not finish in 0.3 s" in text) == (body == "sleep 60")
    records.clear()
    monkeypatch.undo()
    assert is_compiled(program, "inference") and not records


def test_no_compiler_is_said_once(tmp_path: Path, records: list[logging.LogRecord]) -> None:
    with litz.config.patch(compiler=str(tmp_path / "nowhere")):
        for function in (program, other, program):
            run(function, "training")
    (record,) = records
    assert "there is no compiler" in record.getMessage()


# --- what the cache holds ----------------------------------------------------------------------------------


def _entries(folder: Path, kind: str) -> list[Path]:
    return sorted(path for path in (folder / kind).iterdir() if not path.name.startswith("."))


def _spoil(entry: Path, how: str) -> None:
    """Damage all files of an entry, or write an entry that is well-formed and meaningless."""
    files = [path for path in entry.iterdir() if path.name != MANIFEST]
    for path in files:
        path.unlink()  # it may be loaded
        path.write_bytes({"damaged": b"", "nonsense": b"\x00\xff nonsense", "list": b"[1]"}[how])
    if how != "damaged":
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        (entry / MANIFEST).write_text(json.dumps(digests))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("how", ["damaged", "nonsense", "list"])
@pytest.mark.parametrize("kind", ["graphs", "binaries", "fx_graphs"])
def test_an_entry_that_is_of_no_use(
    kind: str, how: str, folder: Path, records: list[logging.LogRecord]
) -> None:
    assert is_compiled(program, "inference")
    # In another folder, as in another process: the loader knows a library that it has loaded by its path.
    moved = shutil.move(folder, folder.with_name("moved"))
    (entry,) = _entries(moved, kind)
    _spoil(entry, how)
    with litz.config.patch(cache_dir=str(moved)):
        assert is_compiled(program, "inference")
        assert len(records) == 1 and str(moved) in records[0].getMessage()
        records.clear()
        assert is_compiled(program, "inference") and not records, "it was made again"


@pytest.mark.parametrize("choices", [TileChoices, NameSets])
@pytest.mark.parametrize("how", ["damaged", "nonsense", "list"])
def test_a_choice_that_is_of_no_use(
    choices: Any, how: str, tmp_path: Path, records: list[logging.LogRecord]
) -> None:
    store = Store(tmp_path / "choices")
    store.write("key", {"choice.json": b"{}", "matmuls.json": b"{}"})
    _spoil(tmp_path / "choices" / "key", how)
    assert choices(store).read("key") is None
    assert len(records) == 1


# --- tuning and replays ------------------------------------------------------------------------------------

TUNING = (
    (tuned, "tunable_kernels"),
    (tuned, "applied"),
    (TileChoices, "read"),
    (TileChoices, "write"),
    (search.TileSearch, "_built"),
    (search.TileSearch, "_choice"),
    (tuned.TunedGraph, "_settled"),
)


@pytest.mark.sampled
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize(("owner", "name"), TUNING)
def test_tuning_that_fails_costs_nothing_else(
    owner: Any,
    name: str,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    records: list[logging.LogRecord],
) -> None:
    target = TunableCpu((2, 4))
    monkeypatch.setattr(compilation, "targets_for", lambda *_: TargetSet({"cpu": target}))
    clock = Stopwatch(target, {1: 3.0, 2: 2.0, 4: 1.0})
    monkeypatch.setattr(pipeline, "load_tuned", partial(tuned.load_tuned, clock=clock))
    monkeypatch.setattr(owner, name, raising(error))
    config = litz.config.current().replaced({"autotune": True, "autotune_seconds": 1000.0})
    x = torch.linspace(-1, 1, 6000).reshape(60, 100)
    graph = make_fx(other, tracing_mode="fake")(x, x)
    compiled = Compilation(graph, "graph", config, ArtifactCache.open(config)).run()
    for _ in range(4):
        assert_close(compiled.call([x, x])[0], other(x, x))
    assert "litz: tuning failed" in report_of(records)[0]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_a_replay_that_cannot_be_planned(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    monkeypatch.setattr(PartitionGraph, "apply", raising(error))
    with litz.config.patch(cuda_graphs=True):
        assert is_compiled(program, "training")
    assert "pass partition-graph failed" in report_of(records)[0]


class Recorder:
    """Stand-in for a CUDA graph that keeps calls instead of capturing; one of its methods fails."""

    def __init__(self, fault: str, error: type[Exception]) -> None:
        self.buffers: list[torch.Tensor] = []
        setattr(self, fault, raising(error))

    def is_free(self) -> bool:
        return True

    def capture(self, call: Callable[..., Any], args: list[Any]) -> tuple[Any, list[Any]]:
        self._again = lambda: call(list(args))
        return self, list(self._again())

    def wait(self, buffers: Sequence[torch.Tensor]) -> None:
        """Do nothing: no device runs."""

    def run(self) -> None:
        self._again()


@pytest.mark.sampled
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("fault", ["is_free", "capture", "wait", "run"])
def test_a_graph_capture_that_fails(
    fault: str, error: type[Exception], records: list[logging.LogRecord]
) -> None:
    def call(args: list[Any]) -> list[torch.Tensor]:
        (x,) = args
        args.clear()
        return [x * 2]

    run = CudaGraphRunner(call, Recorder(fault, error), 1 << 20)
    for k in range(6):
        assert_close(run([X + k])[0], 2 * (X + k))
    (record,) = records
    assert "replay failed" in record.getMessage() and error.__name__ in record.getMessage()


# --- reports -----------------------------------------------------------------------------------------------


def branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A higher-order operator, whose branches have graphs of their own."""
    return torch.cond(x.sum() > 3, lambda x, w: x.sin() + w, lambda x, w: x.cos() * w, (x, w))


def repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the repro of a report in this process."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "graph", raising=False)
    runpy.run_path(str(folder / "repro.py"))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("function", [program, branches])
@pytest.mark.parametrize(
    "border", [(litz_lowering, "lower"), (aot_backend, "aot_module_simplified")], ids=["lower", "aot"]
)
@pytest.mark.parametrize("sizes", [False, True], ids=["static", "dynamic"])
def test_a_repro_repeats_the_failure_and_nothing_else(
    function: Function,
    border: tuple[Any, str],
    sizes: bool,
    monkeypatch: pytest.MonkeyPatch,
    records: list[logging.LogRecord],
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch._dynamo.reset()
    with monkeypatch.context() as patch:
        patch.setattr(*border, raising(KeyError))
        torch.compile(function, backend="litz", dynamic=sizes)(X, W)
        _, folder = report_of(records)
        with pytest.raises((InternalError, KeyError), match="injected"):
            repeated(folder, monkeypatch)
    repeated(folder, monkeypatch)
    assert "no failure" in capsys.readouterr().out
    assert ("dynamic=[0, 1]" in (folder / "graph.py").read_text()) == sizes


@pytest.mark.usefixtures("built")
def test_a_repro_runs_alone(monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]) -> None:
    monkeypatch.setattr(litz_lowering, "lower", raising(KeyError))
    run(program, "inference")
    _, folder = report_of(records)
    fault = (
        "import runpy, litz_lowering as p\ndef lower(*a, **k): raise KeyError('injected')\np.lower = lower\n"
    )
    fault += f"import sys\nsys.path.insert(0, {str(folder)!r})\nrunpy.run_path({str(folder / 'repro.py')!r})"
    for command, code in ((["-c", fault], 1), ([str(folder / "repro.py")], 0)):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        assert ("InternalError: lower: KeyError: 'injected'" in done.stderr) == bool(code)
    assert "Traceback" in (folder / "error.txt").read_text()


@pytest.mark.usefixtures("built")
def test_reports_are_few_and_written_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    monkeypatch.setattr(repro, "MAX_REPORTS", 2)
    for error in (KeyError, OSError, MemoryError, MemoryError):
        monkeypatch.setattr(litz_lowering, "lower", raising(error))
        run(program, "inference")
    assert len(records) == 4
    texts = [(each / "error.txt").read_text() for each in (folder / "reports").iterdir()]
    assert len(texts) == 2 and any("MemoryError" in text for text in texts)


@pytest.mark.usefixtures("built")
def test_reports_without_a_cache_and_those_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    monkeypatch.setattr(litz_lowering, "lower", raising(KeyError))
    with litz.config.patch(cache=False):
        run(program, "inference")
    _, place = report_of(records)
    shutil.rmtree(place)
    records.clear()
    monkeypatch.setattr(repro, "graph_source", raising(RecursionError))
    run(program, "inference")
    assert "none, since writing it failed: RecursionError" in records[0].getMessage()


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("function", ["source_lines", "write_report"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_report_that_fails_is_still_a_warning(
    function: str, mode: str, monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    monkeypatch.setattr(repro, function, raising(KeyError))
    monkeypatch.setattr(litz_lowering, "lower", raising(RecursionError))
    run(program, mode)
    (text,) = (record.getMessage() for record in records)
    assert "lower failed" in text and "RecursionError: injected" in text
    assert "failed: KeyError: 'injected'" in text


def test_a_jagged_tensor_is_one_calm_line(records: list[logging.LogRecord]) -> None:
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (x * 2).sin(), backend="litz")
    for result, row in zip(compiled(jagged).unbind(), rows, strict=True):
        assert_close(result, (row * 2).sin())
    weight = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: x * weight, backend="litz")(jagged).values().sum().backward()
    (record,) = records
    text = record.getMessage()
    assert (
        "runs as ATen operations: sizes of jagged nested tensors are not supported" in text
        and "\n" not in text
    )
