"""Compiled graphs that are saved and loaded: `litz.standalone_compile`, `litz.compile`, `litz.CompiledArtifact`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

import litz
import litz_lowering
import litz_scheduler
from litz_codegen_cpp.target import CpuTarget
from litz_ir.errors import ArtifactError, ConfigError
from litz_ir.target import Capabilities

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

PIECES = Path(__file__).parent / "standalone_pieces.py"
FORMATS = ("binary", "unpacked")


def captured(
    function: Callable[..., Any], *args: Any, dynamic: bool = False
) -> tuple[GraphModule, list[Any]]:
    """Return the graph that Dynamo captures of a function, and its inputs."""
    found: list[Any] = []

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append((gm, list(inputs)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)(*args)
    ((gm, inputs),) = found
    return gm, inputs


def reloaded(artifact: Any, folder: Path, format: str) -> Any:
    """Return an artifact that was saved and loaded, under a lowering and a scheduler that refuse to work."""
    artifact.save(path=folder / "artifact", format=format)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(litz_lowering, "lower", None)
        patch.setattr(litz_scheduler, "schedule", None)
        return litz.CompiledArtifact.load(path=folder / "artifact", format=format)


def pieces(mode: str, folder: Path, cache: Path, format: str) -> dict[str, Any]:
    """Run the program that compiles a model between its calls of attention, or loads the results."""
    environment = {**os.environ, "LITZ_CACHE_DIR": str(cache)}
    command = [sys.executable, str(PIECES), mode, str(folder), format]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.timeout(400)
def test_a_second_process_loads_all_layers_and_compiles_nothing(tmp_path: Path) -> None:
    first = pieces("save", tmp_path / "pieces", tmp_path / "cache", "binary")
    assert first["graphs"] == first["traced"] == 18 and first["fallbacks"] == 0 and first["lower"] > 0
    second = pieces("load", tmp_path / "pieces", tmp_path / "empty", "binary")
    work = {name: second[name] for name in ("lower", "schedule", "build", "traced", "fallbacks")}
    assert work == dict.fromkeys(work, 0) and second["graphs"] == 18
    assert max(first["errors"] + second["errors"]) < 1e-5
    assert not list((tmp_path / "empty").rglob("*.so"))


@pytest.mark.parametrize("format", FORMATS)
def test_sizes_of_the_graph_stay_symbols(tmp_path: Path, format: str) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, int]:
        return torch.softmax(x @ w, -1).sum(0), x.shape[0] * 2

    w = torch.randn(8, 5)
    with torch.no_grad():
        x = torch.randn(6, 8)
        torch._dynamo.mark_dynamic(x, 0)
        gm, inputs = captured(function, x, w)
        code = gm.code
        artifact = litz.standalone_compile(gm, inputs, dynamic_shapes="from_graph")
    assert gm.code == code and artifact.is_saveable()
    size = next(k for k, each in enumerate(inputs) if isinstance(each, int | torch.SymInt))
    for made in (artifact, reloaded(artifact, tmp_path, format)):
        for rows in (6, 2, 31):
            x = torch.randn(rows, 8)
            tensors = iter((x, w))
            args = [rows if k == size else next(tensors) for k in range(3)]
            for result in (made(*args), made(args), made(tuple(args))):
                torch.testing.assert_close(result[0], function(x, w)[0])
                assert result[1] == 2 * rows
        tensors = iter((torch.randn(1, 8), w))
        with pytest.raises(ArtifactError, match="compiled for sizes 2 to any, got 1"):
            made([1 if k == size else next(tensors) for k in range(3)])


def test_sizes_of_example_inputs_are_constants(tmp_path: Path) -> None:
    with torch.no_grad():
        x = torch.randn(6, 8)
        torch._dynamo.mark_dynamic(x, 0)
        gm, inputs = captured(lambda x: torch.cumsum(x, 0) * x.shape[0], x)
        fixed = [torch.randn(1, 8) if isinstance(each, torch.Tensor) else 1 for each in inputs]
        made = litz.standalone_compile(gm, fixed, dynamic_shapes="from_example_inputs")
    loaded = reloaded(made, tmp_path, "binary")
    (given,) = (each for each in fixed if isinstance(each, torch.Tensor))
    torch.testing.assert_close(loaded(*fixed)[0], given)
    with pytest.raises(ArtifactError, match=r"float32 of \(1, 8\).* got torch.float32 of \(6, 8\)"):
        loaded(*(x if isinstance(each, torch.Tensor) else each for each in fixed))


def test_sizes_of_a_running_compilation(tmp_path: Path) -> None:
    made: list[Any] = []

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        artifact = litz.standalone_compile(gm, inputs, dynamic_shapes="from_tracing_context")
        made.append(reloaded(artifact, tmp_path, "unpacked"))
        return lambda *args: made[0](*args)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + x.shape[0]).sum(-1)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    with torch.no_grad():
        for rows in (4, 9):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(compiled(x), function(x))
    assert len(made) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_training_graph_is_saved_with_its_backward(tmp_path: Path, format: str) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).tanh().pow(2).mean()

    def inputs() -> list[torch.Tensor]:
        torch.manual_seed(0)
        return [torch.randn(4, 8, requires_grad=True), torch.randn(8, 3, requires_grad=True)]

    gm, given = captured(function, *inputs())
    artifact = litz.standalone_compile(gm, given, dynamic_shapes="from_example_inputs")
    expected = inputs()
    function(*expected).backward()
    for made in (artifact, reloaded(artifact, tmp_path, format)):
        args = inputs()
        (result,) = made(*args)
        result.backward()
        for got, wanted in zip(args, expected, strict=True):
            torch.testing.assert_close(got.grad, wanted.grad)


def test_a_training_graph_with_tensors_of_literals(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).sin() + torch.tensor([3, 1, 2, 5, 4, 6])

    wanted = torch.linspace(-1, 1, 12).reshape(2, 6).requires_grad_()
    function(wanted).sum().backward()
    artifact = litz.standalone_compile(*captured(function, wanted), dynamic_shapes="from_example_inputs")
    assert artifact.is_saveable(), artifact.unsaveable
    for made in (artifact, reloaded(artifact, tmp_path, "binary")):
        x = wanted.detach().clone().requires_grad_()
        (result,) = made(x)
        torch.testing.assert_close(result, function(x))
        result.sum().backward()
        torch.testing.assert_close(x.grad, wanted.grad)


def test_inputs_that_are_overwritten_and_constants(tmp_path: Path) -> None:
    table = torch.arange(64.0).reshape(8, 8)

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.linspace(1, 2, 8))

        def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            state.add_(x)
            return x @ table * self.scale

    x = torch.randn(4, 8)
    gm = GraphModule(*_traced(Module()))
    with torch.no_grad():
        artifact = litz.compile(gm, [x, torch.zeros(4, 8)])
    assert artifact.is_saveable(), artifact.unsaveable
    loaded = reloaded(artifact, tmp_path, "binary")
    for made in (artifact, loaded):
        state = torch.ones(4, 8)
        version = state._version
        torch.testing.assert_close(made(x, state), x @ table * torch.linspace(1, 2, 8))
        torch.testing.assert_close(state, x + 1)
        assert state._version > version


def _traced(module: nn.Module) -> tuple[nn.Module, torch.fx.Graph]:
    return module, torch.fx.Tracer().trace(module)


def test_results_that_are_inputs_or_views_of_them(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(lambda x, y: (x, x.t(), x + y))
    with torch.no_grad():
        artifact = litz.compile(gm, [torch.ones(2, 3), torch.ones(2, 3)])
    x = torch.randn(2, 3)
    for made in (artifact, reloaded(artifact, tmp_path, "binary")):
        same, view, own = made(x, x)
        assert same is x
        view.zero_()
        assert not x.any() and own.any()
        x = torch.randn(2, 3)


def test_options_are_those_of_the_call() -> None:
    gm = torch.fx.symbolic_trace(lambda x: x.exp())
    for options in ({"numerics": "fast"}, {"config_patches": {"numerics": "fast", "max_autotune": True}}):
        assert litz.compile(gm, [torch.zeros(3)], options=options).is_saveable()
    with pytest.raises(ConfigError, match="unknown option 'numeric'"):
        litz.compile(gm, [torch.zeros(3)], options={"numeric": "fast"})
    with pytest.raises(ConfigError, match=r"unknown dynamic_shapes 'static'"):
        litz.standalone_compile(gm, [torch.zeros(3)], dynamic_shapes="static")
    with pytest.raises(ConfigError, match=r"no compilation by torch.compile is running"):
        litz.standalone_compile(gm, [torch.zeros(3)], dynamic_shapes="from_tracing_context")


def test_graphs_that_cannot_be_saved_are_called_and_say_why(tmp_path: Path) -> None:
    nested = litz.compile(torch.fx.symbolic_trace(lambda x: {"sine": x.sin()}), [torch.ones(3)])
    torch.testing.assert_close(nested(torch.ones(3))["sine"], torch.ones(3).sin())
    x = torch.randn(5, 3, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    dynamic = litz.standalone_compile(*captured(lambda x: x.sin().sum(0), x))
    assert "torch.no_grad()" in dynamic.unsaveable
    for artifact, why in ((nested, "nested containers"), (dynamic, "training graph")):
        assert not artifact.is_saveable() and why in artifact.unsaveable
        with pytest.raises(ArtifactError, match=why):
            artifact.save(path=tmp_path / "artifact")
    assert not list(tmp_path.iterdir())


def test_nothing_needs_the_cache(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(lambda x: torch.softmax(x, -1) * 3)
    with litz.config.patch(cache=False):
        artifact = litz.compile(gm, [torch.ones(4, 8)])
        loaded = reloaded(artifact, tmp_path, "binary")
    del artifact
    torch.testing.assert_close(loaded(torch.ones(4, 8)), torch.full((4, 8), 3 / 8))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artifact in both formats."""
    folder = tmp_path_factory.mktemp("saved")
    artifact = litz.compile(torch.fx.symbolic_trace(lambda x: x.exp() + 1), [torch.zeros(16)])
    for format in FORMATS:
        artifact.save(path=folder / format, format=format)
    return folder


def test_files_are_json_and_binaries_alone(saved: Path) -> None:
    names = {path.name for path in (saved / "unpacked").iterdir()}
    assert names == {"manifest.json", "program.json", "forward.plan.json", "forward.0.so"}
    with zipfile.ZipFile(saved / "binary") as archive:
        assert set(archive.namelist()) == names
    for name in names - {"forward.0.so"}:
        json.loads((saved / "unpacked" / name).read_text())


@pytest.mark.parametrize("name", ["manifest.json", "program.json", "forward.plan.json", "forward.0.so"])
def test_a_damaged_file_is_refused(tmp_path: Path, saved: Path, name: str) -> None:
    folder = tmp_path / "unpacked"
    shutil.copytree(saved / "unpacked", folder)
    data = (folder / name).read_bytes()
    for damaged in (data[: len(data) // 2], bytes([data[0] ^ 1]) + data[1:]):
        (folder / name).write_bytes(damaged)
        with pytest.raises(ArtifactError, match=r"checksum|manifest"):
            litz.CompiledArtifact.load(path=folder, format="unpacked")


def test_damaged_archives_are_refused(tmp_path: Path, saved: Path) -> None:
    data, path = (saved / "binary").read_bytes(), tmp_path / "binary"
    for damaged in (b"", data[:100], data[: len(data) // 2], data[:60] + bytes([data[60] ^ 1]) + data[61:]):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match=r"damaged|cannot be read"):
            litz.CompiledArtifact.load(path=path)


def _rewritten(saved: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a saved folder whose manifest is changed."""
    shutil.copytree(saved / "unpacked", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_code_with_instructions_that_a_machine_lacks_is_refused(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CpuTarget.capabilities
    optional = frozenset({"of_another_cpu"})

    def richer(self: CpuTarget) -> Capabilities:
        return replace(real(self), features=real(self).features | optional)

    with monkeypatch.context() as patch:
        patch.setattr(CpuTarget, "capabilities", richer)
        litz.CompiledArtifact.load(path=saved / "binary")
        litz.compile(torch.fx.symbolic_trace(lambda x: x.exp() + 2), [torch.zeros(16)]).save(
            path=tmp_path / "made"
        )
        litz.CompiledArtifact.load(path=tmp_path / "made")
    with pytest.raises(
        ArtifactError, match=r"compiled for cpu \w+ with .*of_another_cpu.*, and this machine has cpu"
    ):
        litz.CompiledArtifact.load(path=tmp_path / "made")


def test_other_versions_formats_and_paths_are_refused(tmp_path: Path, saved: Path) -> None:
    def load(number: int, change: Callable[[dict[str, Any]], None]) -> None:
        litz.CompiledArtifact.load(path=_rewritten(saved, tmp_path / str(number), change), format="unpacked")

    with pytest.raises(ArtifactError, match=r"was written by torch 1\.0 \(now torch"):
        load(0, lambda manifest: manifest["written_by"].__setitem__(-1, "torch 1.0"))
    with pytest.raises(ArtifactError, match="has the format 'litz artifact' 99"):
        load(1, lambda manifest: manifest.update(version=99))
    with pytest.raises(ArtifactError, match="names a file outside of itself"):
        load(2, lambda manifest: manifest["files"].update({"../binary": "0"}))
    with pytest.raises(ArtifactError, match="is a folder"):
        litz.CompiledArtifact.load(path=saved / "unpacked")
    with pytest.raises(ArtifactError, match="is not a folder"):
        litz.CompiledArtifact.load(path=saved / "binary", format="unpacked")
    with pytest.raises(ArtifactError, match="unknown format 'pickle'"):
        litz.CompiledArtifact.load(path=saved / "binary", format="pickle")
    with pytest.raises(ArtifactError, match="cannot read"):
        litz.CompiledArtifact.load(path=saved / "missing")


def test_what_others_can_write_is_refused(tmp_path: Path, saved: Path) -> None:
    shutil.copytree(saved, tmp_path / "copy")
    copies = [tmp_path / "copy" / name for name in ("binary", "unpacked", "unpacked/forward.0.so")]
    for path in copies:
        mode = path.stat().st_mode
        path.chmod(mode | 0o020)
        container = path if path.name == "binary" else tmp_path / "copy" / "unpacked"
        with pytest.raises(ArtifactError, match="others may write to it"):
            litz.CompiledArtifact.load(path=container, format=container.name)
        path.chmod(mode)
        litz.CompiledArtifact.load(path=container, format=container.name)


def test_saving_replaces_artifacts_and_nothing_else(tmp_path: Path, saved: Path) -> None:
    artifact = litz.CompiledArtifact.load(path=saved / "binary")
    for _ in range(2):
        for format in FORMATS:
            artifact.save(path=tmp_path / "new" / format, format=format)
            litz.CompiledArtifact.load(path=tmp_path / "new" / format, format=format)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["binary", "unpacked"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="exists and is not a saved artifact"):
        artifact.save(path=tmp_path / "mine", format="unpacked")
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_bytes_of_an_artifact(saved: Path) -> None:
    artifact = litz.CompiledArtifact.load(path=saved / "unpacked", format="unpacked")
    again = litz.CompiledArtifact.from_bytes(artifact.to_bytes())
    torch.testing.assert_close(again(torch.ones(16)), torch.ones(16).exp() + 1)
    assert artifact.to_bytes() == again.to_bytes()
