"""Entries of litz in `torch.compiler.save_cache_artifacts()` and `load_cache_artifacts()`."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from counted_stages import COUNTED_STAGES
from torch.compiler._cache import CacheArtifactFactory, CacheArtifactManager

import litz
from litz.cache.mega_cache import TYPE, decoded, encoded
from litz.cache.store import FOLDERS
from litz.notices import log_once

PROGRAM = (
    COUNTED_STAGES
    + """
import json, sys
from pathlib import Path
import torch
import litz
from torch._dynamo.utils import counters

mode, path = sys.argv[1], Path(sys.argv[2])

if mode == "load":
    info = torch.compiler.load_cache_artifacts(path.read_bytes())
    kinds = sorted({key.partition("/")[0] for key in info.litz_artifacts})

def function(x, w):
    return torch.softmax(x @ w, -1).sum(0)

x, w = torch.linspace(-1, 1, 48).reshape(6, 8).requires_grad_(), torch.linspace(0, 1, 40).reshape(8, 5)
compiled = torch.compile(function, backend="litz")
result = compiled(x, w)
result[0].backward()
torch.testing.assert_close(result, function(x, w))
with torch.no_grad():
    torch.testing.assert_close(compiled(x, w), function(x, w))
data, info = torch.compiler.save_cache_artifacts()
if mode == "save":
    path.write_bytes(data)
    kinds = sorted({key.partition("/")[0] for key in info.litz_artifacts})
print(json.dumps({**counts, "traced": counters["aot_autograd"]["total"], "kinds": kinds,
                  "grad": x.grad.sum().item(), "entries": len(info.litz_artifacts)}))
"""
)


def run(mode: str, path: Path, cache: Path) -> dict[str, Any]:
    environment = {**os.environ, "LITZ_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", PROGRAM, mode, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.timeout(400)
def test_a_second_process_with_an_empty_cache_compiles_nothing(tmp_path: Path) -> None:
    first = run("save", tmp_path / "bytes", tmp_path / "first")
    assert first["lower"] == 3 and first["build"] >= 2 and first["traced"] == 2
    second = run("load", tmp_path / "bytes", tmp_path / "second")
    work = {name: second[name] for name in ("lower", "schedule", "build", "traced")}
    assert work == dict.fromkeys(work, 0)
    assert second["grad"] == first["grad"]
    assert first["kinds"] == second["kinds"] == ["binaries", "fx_graphs", "graphs"]
    assert first["entries"] == second["entries"], "a process that loaded entries can save them again"


def saved(folder: Path) -> dict[str, bytes]:
    """Compile a function with this cache folder; return the content of torch's list by key."""
    with CacheArtifactManager.with_fresh_cache(), litz.config.patch(cache_dir=str(folder)):
        torch._dynamo.reset()
        torch.compile(lambda x: (x * 3 + 1).cos(), backend="litz")(torch.ones(64))
        found = {each.key: each.content for each in CacheArtifactManager._new_cache_artifacts[TYPE]}
    return found


def loaded(key: str, content: bytes, folder: Path) -> list[str]:
    """Load an entry into this cache folder; return the files that it contains then."""
    with litz.config.patch(cache_dir=str(folder)):
        CacheArtifactFactory.create(TYPE, key, content).populate_cache()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_entries_are_not_kept_in_memory(tmp_path: Path) -> None:
    with CacheArtifactManager.with_fresh_cache(), litz.config.patch(cache_dir=str(tmp_path)):
        torch._dynamo.reset()
        torch.compile(lambda x: (x * 3 + 2).cos(), backend="litz")(torch.ones(64))
        entries: list[Any] = CacheArtifactManager._new_cache_artifacts[TYPE]
        assert entries and not any(isinstance(each.entry, bytes) for each in entries)
        for path in tmp_path.glob("*/*/plan.json"):
            path.unlink()
        contents = {each.key.partition("/")[0]: each.content for each in entries}
    assert contents["graphs"] == b"" and contents["binaries"]


def test_files_survive_and_damage_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = saved(tmp_path / "from")
    assert {key.partition("/")[0] for key in found} == {"graphs", "binaries", "fx_graphs"}
    key = next(key for key in found if key.startswith("graphs/"))
    content = found[key]
    assert encoded(decoded(content)) == content
    for damaged in (content[:-1], content[:20], b"x" + content[1:], content[:-1] + bytes([content[-1] ^ 1])):
        assert loaded(key, damaged, tmp_path / "to") == []
    assert "is damaged and not used" in caplog.text
    files = loaded(key, content, tmp_path / "to")
    assert files == [f"{key}/{name}" for name in ("key.json", "manifest.json", "plan.json", "summary.json")]


@pytest.mark.parametrize("key", ["../x", "graphs/../../x", "graphs/abc", "other/" + "0" * 64, "graphs"])
def test_keys_name_no_other_folder(tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").mkdir()
    assert loaded(key, encoded({"plan.json": b"{}"}), tmp_path / "cache") == []
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert "it has no key of litz's" in caplog.text
    whole = f"{FOLDERS[0]}/{'0' * 64}"
    assert loaded(whole, encoded({"../plan.json": b"{}"}), tmp_path / "cache") == []


def test_nothing_is_stored_where_caches_are_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = saved(tmp_path / "from")
    caplog.set_level(logging.INFO)
    (tmp_path / "to").mkdir()
    for settings in (litz.config.patch(cache=False), torch.compiler.config.patch(force_disable_caches=True)):
        log_once.cache_clear()
        with settings:
            assert not any(loaded(key, content, tmp_path / "to") for key, content in found.items())
        assert caplog.text.count("the cache is off") == 1
        caplog.clear()


@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")  # torch says so of its own profile
def test_nothing_is_listed_where_caches_are_off(tmp_path: Path) -> None:
    with torch.compiler.config.patch(force_disable_caches=True):
        assert saved(tmp_path) == {}


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    found = saved(tmp_path / "from")
    for kind in FOLDERS:
        (tmp_path / "to" / kind).mkdir(parents=True)
        (tmp_path / "to" / kind).chmod(0o777)
    assert not any(loaded(key, content, tmp_path / "to") for key, content in found.items())
