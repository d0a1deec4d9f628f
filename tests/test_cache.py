"""Cache between processes: the second one lowers, schedules and compiles nothing; caches can be moved and survive
damage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from counted_stages import COUNTED_STAGES
from torch.fx import symbolic_trace

from litz.cache.artifacts import ArtifactCache
from litz.cache.key import graph_key
from litz.cache.store import Store
from litz.settings import Config
from litz.stage_options import scheduler_options
from litz.targets import targets_for
from litz_ir.target import SourceUnit, Target
from litz_scheduler import SchedulerOptions

pytestmark = pytest.mark.sampled  # it compiles whole programs

PROGRAM = (
    COUNTED_STAGES
    + """
import json, subprocess, sys
import torch
import litz


def function(x, w):
    return torch.softmax(x @ w, -1).sum(0)

x, w = torch.linspace(-1, 1, 48).reshape(6, 8).requires_grad_(), torch.linspace(0, 1, 40).reshape(8, 5)
result = torch.compile(function, backend="litz")(x, w)
result[0].backward()
torch.testing.assert_close(result, function(x, w))
print(json.dumps({**counts, "grad": x.grad.sum().item()}))
"""
)


def run(cache: Path, cwd: Path | None = None) -> dict[str, Any]:
    environment = {**os.environ, "LITZ_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, env=environment, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache that a process filled, and what that process counted. Tests copy the cache, so that it has moved."""
    cache = tmp_path_factory.mktemp("filled") / "cache"
    return cache, run(cache)


def test_second_process_compiles_nothing(tmp_path: Path, filled: tuple[Path, dict[str, Any]]) -> None:
    cache, first = filled
    assert first["lower"] == 2 and first["build"] >= 2
    moved = tmp_path / "elsewhere"
    shutil.copytree(cache, moved)
    second = run(moved, cwd=tmp_path)
    assert {name: second[name] for name in ("lower", "schedule", "build")} == {
        "lower": 0,
        "schedule": 0,
        "build": 0,
    }
    assert second["grad"] == first["grad"]


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_damaged_entries_are_made_again(
    tmp_path: Path, damage: str, filled: tuple[Path, dict[str, Any]]
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled[0], cache)
    for path in cache.glob("*/*/*"):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if damage == "truncate" else bytes([data[0] ^ 1]) + data[1:])
    again = run(cache)
    assert again["lower"] == 2 and again["build"] >= 2
    assert run(cache)["build"] == 0


def test_nothing_on_disk_is_a_pickle(filled: tuple[Path, dict[str, Any]]) -> None:
    files = [path for path in filled[0].rglob("*") if path.is_file()]
    assert files
    assert all(path.suffix in (".json", ".so") for path in files), sorted(path.name for path in files)


def test_results_that_repeat_are_another_graph() -> None:
    gm = symbolic_trace(lambda x: torch.sin(x))
    keys = []
    for repeat in (False, True, False):
        torch.use_deterministic_algorithms(repeat)
        keys.append(graph_key(gm, Config(), ()))
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize(
    "change",
    [{"rng": "fast"}, {"numerics": "fast"}, {"numerics": "strict"}, {"fuse": False}, {"prepack_weights": False},
     {"attention": False}, {"sort_rows": False}, {"deterministic": True}, {"batch_invariant": True},
     {"force": "siblings=0"}, {"fallback": "error"}, {"isa": "scalar"}],
    ids=str,
)  # fmt: skip
def test_options_that_change_code_give_another_key(change: dict[str, Any]) -> None:
    gm = symbolic_trace(lambda x: torch.sin(x))
    keys = set()
    for options in (Config(), Config().replaced(change)):
        targets = targets_for(("cpu",), options)
        chosen = scheduler_options(options, targets)
        keys.add(ArtifactCache(None, None).key(gm, options, targets, chosen))
    assert len(keys) == 2


def test_ways_to_compile_do_not_change_the_key() -> None:
    gm, targets = symbolic_trace(lambda x: torch.sin(x)), targets_for(("cpu",), Config())
    keys = set()
    for change in ({}, {"compile_scheme": "subprocess"}, {"compile_threads": 3}, {"verify": True}):
        options = Config().replaced(change)
        keys.add(ArtifactCache(None, None).key(gm, options, targets, scheduler_options(options, targets)))
    assert len(keys) == 1


def test_options_that_are_sets_are_told_in_order() -> None:
    chosen = SchedulerOptions(generated_matmuls=frozenset({"mm_2", "mm", "addmm", "bmm"}))
    facts = ArtifactCache(None, None).facts(targets_for(("cpu",), Config()), chosen)
    assert "generated_matmuls=['addmm', 'bmm', 'mm', 'mm_2']" in facts[-1]


def test_processes_that_build_the_same_source_at_once(tmp_path: Path) -> None:
    unit = SourceUnit("first", "c++", "source", ())
    caches = [ArtifactCache(None, Store(tmp_path / "binaries")) for _ in range(2)]

    class Builder:
        """Target that names binaries after the graph; another process keeps the same source while the first one
        builds."""

        def build(self, unit: SourceUnit, folder: Path) -> Path:
            if unit.name == "first":
                other = replace(unit, name="second")
                assert caches[1].binary(other, cast(Target, self)).read_bytes() == b"binary"
            made = folder / f"{unit.name}.so"
            made.write_bytes(b"binary")
            return made

    assert caches[0].binary(unit, cast(Target, Builder())).read_bytes() == b"binary"
