"""Debug files and torch's structured trace show each form of a graph, and cost nothing while they are off."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import litz
from litz.capture.aot import CompileSession
from litz.options import config_from, variable_notices
from litz.settings import Config, ConfigHandle
from litz_ir.text import from_text

pytestmark = pytest.mark.sampled  # it compiles whole programs

PROGRAM = """
import torch, litz

def program(x, w):
    return (torch.tanh(x @ w) * 2).sum(-1)

x, w = (torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_() for _ in range(2))
result = torch.compile(program, backend="litz")(x, w)
torch.testing.assert_close(result, program(x, w))
result.sum().backward()
"""

TLPARSE = shutil.which("tlparse") or shutil.which("tlparse", path=str(Path(sys.executable).parent))


def run(folder: Path, command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, without other variables that turn traces on."""
    others = {k: v for k, v in os.environ.items() if k not in ("TORCH_TRACE", "TORCH_COMPILE_DEBUG")}
    environment = {**others, "LITZ_CACHE_DIR": str(folder / "cache"), **variables}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the program ran with both traces on."""
    folder = tmp_path_factory.mktemp("trace")
    (folder / "program.py").write_text(PROGRAM)
    run(folder, ["program.py"], TORCH_COMPILE_DEBUG="1", TORCH_TRACE=str(folder / "log"))
    return folder


def graph_folder(traced: Path, name: str) -> Path:
    (found,) = traced.glob(f"torch_compile_debug/run_*-pid_*/litz/{name}")
    return found


@pytest.mark.parametrize("name", ["forward_0", "backward_0"])
def test_debug_files_have_every_form_of_a_graph(traced: Path, name: str) -> None:
    folder = graph_folder(traced, name)
    for stem in ("captured", "joint", "graph"):
        assert "tanh" in (folder / f"{stem}.txt").read_text()
        compile((folder / f"{stem}.py").read_text(), stem, "exec")
    loops = sorted(each.name for each in (folder / "loops").iterdir())
    assert loops[0] == "00_start.txt" and any("inline" in each for each in loops)
    for path in (*(folder / "loops").iterdir(), *(folder / "fused").iterdir(), folder / "plan.txt"):
        assert from_text(path.read_text()) is not None
    texts = [(folder / "loops" / each).read_text() for each in loops]
    assert all(a != b for a, b in pairwise(texts)), "each pass changed something"
    (source,) = (folder / "kernels").iterdir()
    assert source.suffix == ".cpp" and "// k0_" in source.read_text()
    assert "torch.tanh(x @ w) * 2" in source.read_text(), "the user's lines"
    assert "def " in (folder / "host.py").read_text()
    decisions = json.loads((folder / "decisions.json").read_text())
    assert {"realise", "memory"} <= {each["stage"] for each in decisions}
    assert all(each["reason"] for each in decisions)
    kernels = json.loads((folder / "kernels.json").read_text())
    assert any(name in each["operations"] for each in kernels for name in ("tanh", "mul_1", "mul"))
    times = json.loads((folder / "timings.json").read_text())
    assert times["stages"]["lower"] > 0 and times["passes"]["inline"] > 0 and not times["cached"]


@pytest.mark.parametrize("name", ["forward_0", "backward_0"])
def test_the_repro_of_a_graph_runs_alone(traced: Path, name: str) -> None:
    assert "no failure" in run(graph_folder(traced, name), ["repro.py"]).stdout


def test_debug_files_compile_a_cached_graph_anew(traced: Path, tmp_path: Path) -> None:
    shutil.copytree(traced / "cache", tmp_path / "cache")
    run(tmp_path, ["-c", PROGRAM], LITZ_DEBUG_FILES="1")
    assert list(graph_folder(tmp_path, "forward_0").glob("loops/*"))


def test_the_trace_of_a_cached_graph_says_so(traced: Path, tmp_path: Path) -> None:
    shutil.copytree(traced / "cache", tmp_path / "cache")
    run(tmp_path, ["-c", PROGRAM], TORCH_TRACE=str(tmp_path / "log"))
    (log,) = (tmp_path / "log").iterdir()
    assert "litz_forward_0_plan" in log.read_text() and '"cached": true' in log.read_text()


@pytest.mark.skipif(TLPARSE is None, reason="tlparse is not installed")
def test_tlparse_shows_the_pages_of_litz(traced: Path, tmp_path: Path) -> None:
    (log,) = (traced / "log").iterdir()
    command = [str(TLPARSE), str(log), "-o", str(tmp_path / "pages"), "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "pages" / "index.html").read_text()

    pages = list(tmp_path.glob("pages/*/litz_*"))

    def page(name: str) -> str:
        found = next(each for each in pages if each.stem.rpartition("_")[0] == f"litz_{name}")
        assert found.name in index
        return found.read_text()

    for kind in ("forward_0", "backward_0"):
        assert "tanh" in page(f"{kind}_graph")
        assert from_text(page(f"{kind}_loops_00_start")) is not None
        assert page(f"{kind}_plan") == (graph_folder(traced, kind) / "plan.txt").read_text()
        assert json.loads(page(f"{kind}_decisions")) and json.loads(page(f"{kind}_timings"))["stages"]
        assert "extern" in page(f"{kind}_kernels_{kind}")
    events = json.loads((tmp_path / "pages" / "chromium_events.json").read_text())
    assert {"litz.lower", "litz.schedule", "litz.compile"} <= {each["name"] for each in events}


def test_no_page_is_made_while_traces_are_off(tmp_path: Path) -> None:
    code = PROGRAM + "import sys\nassert not [each for each in sys.modules if each.startswith('litz.trace')]"
    run(tmp_path, ["-c", code])
    assert not (tmp_path / "torch_compile_debug").exists()


def test_spellings_of_the_option() -> None:
    assert ConfigHandle({"TORCH_COMPILE_DEBUG": "1"}).debug_files
    assert not ConfigHandle({"TORCH_COMPILE_DEBUG": "0"}).debug_files
    assert config_from(Config(), None, {"trace.enabled": True}).debug_files
    assert variable_notices({"TORCH_COMPILE_DEBUG": "1"}) == ()


def test_a_page_that_cannot_be_made_costs_that_page_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr("litz.trace.recorder.write_pages", lambda name, pages: 1 / 0)
    with (
        litz.config.patch(debug_files=True, fallback="warn", cache=False),
        torch._dynamo.config.patch(debug_dir_root=str(tmp_path)),
    ):
        x = torch.ones(3)
        assert torch.equal(torch.compile(lambda x: x + 1, backend="litz")(x), x + 1)
    assert any("trace failed, so pages of a trace are missing" in each for each in caplog.messages)
    assert CompileSession.__dataclass_fields__["recorder"].default is None
