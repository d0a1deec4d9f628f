"""The command line in processes of its own: scripts run, explained and timed, and installations that are faulty."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from litz.commands.checks import _fits, _threads
from litz.commands.main import main
from litz.commands.scripts import backend_instead, default_backend, run_script

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

SCRIPT = """
import sys
import torch
import factors

@torch.compile
def scores(x, y):
    return torch.softmax(x @ y, -1) * factors.FACTOR

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.layer(x)).sum()

assert __name__ == "__main__" and sys.argv[0].endswith("script.py")
for rows in (8, 12):
    scores(torch.randn(rows, 16), torch.randn(16, 16))
x = torch.ones(4, 16, requires_grad=True)
model = torch.compile(Model(), backend="litz")
before = torch.random.get_rng_state()
model(x).backward()
print("random", torch.equal(before, torch.random.get_rng_state()), "gradient", x.grad is not None, sys.argv[1:])
if "--fail" in sys.argv:
    raise ValueError("from the script")
sys.exit(3)
"""


def litz(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder that holds the script."""
    (folder / "factors.py").write_text("FACTOR = 2\n", encoding="utf-8")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    given = {"LITZ_CACHE_DIR": str(folder / "cache"), "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "litz", *arguments],
        cwd=folder,
        env={**os.environ, **given, **environment},
        capture_output=True,
        text=True,
        timeout=170,
    )


def test_run_makes_litz_the_default_and_prints_counters(tmp_path: Path) -> None:
    done = litz(tmp_path, "run", "script.py", "--rows", "2")
    assert done.returncode == 3, done.stderr
    assert "gradient True ['--rows', '2']" in done.stdout
    rows = [line.split() for line in done.stderr.splitlines() if "│" in line]
    assert [each[3] for each in rows if each[1] == "graphs"] == ["4"], "two shapes, a forward and a backward"


def test_explain_writes_the_page_and_the_document_of_a_script(tmp_path: Path) -> None:
    done = litz(tmp_path, "explain", "--output", "out.html", "--json", "out.json", "script.py", "--fail")
    assert done.returncode == 1 and "ValueError: from the script" in done.stderr
    assert "4 graphs" in done.stderr and "1 recompilations" in done.stderr
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "litz explain script.py" in page and "torch.softmax(x @ y, -1)" in page
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (report["format"], report["version"]) == ("litz-explanation", 1)
    assert [graph["kind"] for graph in report["graphs"]] == ["inference", "inference", "forward", "backward"]
    reasons = [frame["recompile_reason"] for frame in report["frames"] if frame["recompile_reason"]]
    assert len(reasons) == 1 and "size mismatch at index 0. expected 8, actual 12" in reasons[0]


def test_bench_times_each_graph_without_side_effects(tmp_path: Path) -> None:
    done = litz(tmp_path, "bench", "--seconds", "0.01", "script.py")
    assert done.returncode == 3, done.stderr
    assert "random True gradient True" in done.stdout
    rows = [line for line in done.stdout.splitlines() if "script.py" in line]
    assert [row.split("│")[1].strip() for row in rows] == ["0/0", "0/1", "1/0 with backward"]
    assert all(float(cell) > 0 for row in rows for cell in row.split("│")[3:6])


def test_what_is_missing_is_an_error_before_a_script_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("run", "bench", "explain"):
        assert main([command, "no.py"]) == 1
        printed = capsys.readouterr()
        assert printed.err.startswith("config: there is no script 'no.py'") and not printed.out
    Path("ran.py").write_text("open('ran', 'w')", encoding="utf-8")
    assert main(["explain", "--output", "no/page.html", "ran.py"]) == 1
    assert "'no/page.html' cannot be written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["ran.py"]


def test_a_script_leaves_the_import_path_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.path.insert(0, 'elsewhere')\nsys.exit('bad')")
    before, argv = list(sys.path), sys.argv
    assert run_script(str(tmp_path / "script.py"), ["--rows"]) == 1
    assert (sys.path, sys.argv) == (before, argv)


def test_doctor_of_a_good_installation(tmp_path: Path) -> None:
    done = litz(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        " 0 broken" in done.stdout
        and "agrees with eager's" in done.stdout
        and "broken " not in done.stdout[:200]
    )
    assert not list((tmp_path / "cache").glob("litz-doctor-*")), "it leaves nothing"


def test_doctor_names_faults_and_what_mends_them(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "graphs"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    done = litz(tmp_path, "doctor", LITZ_COMPILER="/nowhere/g++", TORCHINDUCTOR_MAX_AUTOTUNE="1")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    faults = {line.split(":")[0]: following for line, following in pairwise(lines)}
    assert "LITZ_CACHE_DIR" in faults["broken  cache"] and "chmod 700" in faults["broken  cache"]
    assert "mend:" in faults["broken  C++ compiler"] and "mend:" in faults["broken  compilation for cpu"]
    assert "mend:" in faults["warning environment"]


def test_more_threads_than_cpus_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4096)
    assert _threads().state == "warning" and "OMP_NUM_THREADS=" in _threads().mend
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert (_threads().state, _threads().mend) == ("good", "")


def test_info_and_cache_work_as_a_module(tmp_path: Path) -> None:
    done = litz(tmp_path, "info")
    assert done.returncode == 0 and "threads" in done.stdout and str(tmp_path / "cache") in done.stdout


@pytest.mark.parametrize(
    ("found", "allowed", "fits"),
    [
        ("2.13.0+cpu", ">=2.11", True),
        ("2.10.1", ">=2.11", False),
        ("0.2.0", "<0.3,>=0.2", True),
        ("0.3.0", "<0.3,>=0.2", False),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_as_numbers(found: str, allowed: str, fits: bool) -> None:
    assert _fits(found, allowed) is fits


def test_the_default_backend_is_restored() -> None:
    torch._dynamo.reset()
    seen = []

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        seen.append(len(inputs))
        return gm

    with pytest.raises(KeyError), default_backend(), backend_instead(backend):
        torch.compile(torch.sin)(torch.ones(3))
        raise KeyError
    torch._dynamo.reset()
    torch.compile(torch.cos, backend="litz")(torch.ones(3))
    assert seen == [1]


def test_the_default_backend_of_older_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.compiler, "set_default_backend", raising=False)
    given = []
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: given.append((args, kwargs)))
    before = torch.compile
    with default_backend():
        torch.compile(torch.sin)
        torch.compile(torch.sin, backend="eager", dynamic=True)
    assert torch.compile is before
    assert [kwargs for _, kwargs in given] == [{"backend": "litz"}, {"backend": "eager", "dynamic": True}]
