"""``TORCHDYNAMO_REPRO_AFTER`` writes scripts that shrink a failing graph, at both of its levels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sampled  # it compiles whole programs

HERE = Path(__file__).parent

PROGRAM = """
import torch

def program(x):
    return torch.tanh(x.sin() + 1) * 2

x = torch.ones(3)
result = torch.compile(program, backend="litz")(x)
torch.testing.assert_close(result, program(x))
print("done")
"""


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with the fault that tanh is not lowered in every process."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import injected_faults\n")
    paths = os.pathsep.join(map(str, (site, HERE, *filter(None, sys.path))))
    environment = {
        **os.environ, "PYTHONPATH": paths, "INJECTED_FAULT": "raising", "TORCH_COMPILE_DEBUG_DIR": str(folder),
        "LITZ_CACHE_DIR": str(folder / "cache"), **variables,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=170
    )


def launcher(folder: Path) -> Path:
    (found,) = folder.glob("torch_compile_debug/run_*/minifier/**/minifier_launcher.py")
    return found


def test_after_dynamo_torch_writes_a_minifier_that_runs(tmp_path: Path) -> None:
    failed = run(tmp_path, "-c", PROGRAM, TORCHDYNAMO_REPRO_AFTER="dynamo", LITZ_FALLBACK="error")
    assert failed.returncode == 1 and "Minifier script written" in failed.stderr, failed.stderr
    done = run(tmp_path, str(launcher(tmp_path)), LITZ_FALLBACK="error")
    assert done.returncode == 0, done.stderr
    script = (tmp_path / "repro.py").read_text()
    assert "torch.tanh(" in script and "sin" not in script.split("class Repro")[1]
    assert "backend='litz'" in script
    repeated = run(tmp_path, "repro.py", LITZ_FALLBACK="error")
    assert repeated.returncode == 1 and "ZeroDivisionError: injected" in repeated.stderr


@pytest.mark.parametrize("fallback", ["warn", "error"])
def test_after_aot_litz_writes_a_minifier_that_runs(fallback: str, tmp_path: Path) -> None:
    failed = run(tmp_path, "-c", PROGRAM, TORCHDYNAMO_REPRO_AFTER="aot", LITZ_FALLBACK=fallback)
    assert ("done" in failed.stdout) == (fallback == "warn"), failed.stderr
    script = launcher(tmp_path)
    assert f"minifier script written to {script}" in failed.stderr
    assert script.parent.name == "inference_0" and "injected" in (script.parent / "error.txt").read_text()
    done = run(script.parent, str(script))
    assert "1 of 4 operations fail in the same way (ZeroDivisionError in lower)" in done.stdout, done.stderr
    small = script.parent / "minified"
    assert "aten.tanh" in (small / "graph.py").read_text()
    for folder in (script.parent, small):
        repeated = run(tmp_path, str(folder / "repro.py"))
        assert repeated.returncode == 1 and "ZeroDivisionError: injected" in repeated.stderr, repeated.stderr


def test_without_a_failure_nothing_is_written(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", PROGRAM, TORCHDYNAMO_REPRO_AFTER="aot", INJECTED_FAULT="")
    assert done.stdout.strip() == "done", done.stderr
    assert not list(tmp_path.glob("torch_compile_debug/**/minifier_launcher.py"))
