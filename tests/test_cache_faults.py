"""Faults of cache folders and layers: the values are eager's, each fault is one log line, and nothing is executed that
another user could have written."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import litz
import litz_scheduler
from litz.cache import artifacts
from litz.cache.store import FOLDERS, MANIFEST, Store
from litz.notices import log_once
from litz.settings import Config

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

OTHER = 54321
"""A user that no table of users has."""


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1) + 1


def call(folder: Path, *layers: Path) -> None:
    """Compile and call a function anew with these folders, and compare it with eager."""
    torch._dynamo.reset()
    options = {"cache_dir": str(folder), "cache_layers": os.pathsep.join(map(str, layers))}
    with litz.config.patch(**options, fallback="warn"), torch.no_grad():
        x = torch.randn(7, 33)
        torch.testing.assert_close(torch.compile(function, backend="litz")(x), function(x))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that has the compiled function."""
    folder = tmp_path_factory.mktemp("filled")
    call(folder)
    return folder


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """A function that returns the warnings of litz so far."""
    log_once.cache_clear()
    caplog.set_level(logging.WARNING, logger="litz")

    def found() -> list[str]:
        return [
            each.message for each in caplog.records if each.name.startswith("litz") and each.levelno >= 30
        ]

    return found


def signed_again(entry: Path) -> None:
    """Write the manifest of an entry for the files that it has now."""
    files = (path for path in entry.iterdir() if path.name != MANIFEST)
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (entry / MANIFEST).write_text(json.dumps(sums))


def damaged(entry: Path, fault: str, elsewhere: Path) -> None:
    """Damage the entry of a graph."""
    plan = entry / "plan.json"
    data = plan.read_bytes()
    match fault:
        case "truncated":
            plan.write_bytes(data[:-10])
        case "flipped":
            plan.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
        case "version":
            plan.write_bytes(b'{"version": 999}')
            signed_again(entry)
        case "file is a link":
            shutil.move(plan, elsewhere)
            plan.symlink_to(elsewhere)
        case "entry is a link":
            shutil.move(entry, elsewhere)
            entry.symlink_to(elsewhere)
        case "file of another user":
            os.chown(plan, OTHER, OTHER)
        case "entry of another user":
            os.chown(entry, OTHER, OTHER)
        case "file that others can write":
            plan.chmod(0o666)
        case "a pipe":
            plan.unlink()
            os.mkfifo(plan, 0o600)
        case _:
            raise AssertionError(fault)


FAULTS = (
    "truncated", "flipped", "version", "file is a link", "entry is a link", "file of another user",
    "entry of another user", "file that others can write", "a pipe",
)  # fmt: skip


@pytest.mark.parametrize("tier", ["folder", "layer"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_entry_is_compiled_once(
    fault: str, tier: str, filled: Path, tmp_path: Path, lowered: list[str], lines: Callable[[], list[str]]
) -> None:
    if "another user" in fault and os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    own, layer = tmp_path / "own", tmp_path / "layer"
    faulty = own if tier == "folder" else layer
    shutil.copytree(filled, faulty)
    (entry,) = (faulty / "graphs").iterdir()
    damaged(entry, fault, tmp_path / "elsewhere")
    layers = () if tier == "folder" else (layer,)
    call(own, *layers)
    assert len(lowered) == 1 and 1 <= len(set(lines())) <= 2 and "counts as a cache miss" in lines()[0]
    call(own, *layers)
    assert len(lowered) == 1, "the entry was replaced, or the layer's is hidden by a new one"


def test_a_folder_of_another_user_is_not_used(
    filled: Path, tmp_path: Path, lowered: list[str], lines: Callable[[], list[str]]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    shutil.copytree(filled, tmp_path / "layer")
    os.chown(tmp_path / "layer", OTHER, OTHER)
    call(tmp_path / "own", tmp_path / "layer")
    assert len(lowered) == 1 and len(lines()) == 1 and "it belongs to another user" in lines()[0]


def test_a_full_disk_costs_the_entries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], list[str]]
) -> None:
    def full(path: str, flags: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(litz.cache.store, "created", full)
    for _ in range(2):
        call(tmp_path)
    assert [each for each in lines() if "No space left" in each] == lines() and len(lines()) == 1
    assert not [path for kind in FOLDERS for path in (tmp_path / kind).iterdir()]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A function that mounts an empty file system of memory with these options."""
    made: list[Path] = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"mounted{len(made)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "litz", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("this process cannot mount file systems")
        made.append(folder)
        return folder

    yield mount
    for folder in made:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_small_disk_fills_up(mounted: Callable[[str], Path], lines: Callable[[], list[str]]) -> None:
    folder = mounted("size=32k,mode=700")
    call(folder)
    assert [each for each in lines() if "No space left" in each]
    call(folder)


@pytest.mark.parametrize("tier", ["folder", "layer"])
def test_a_folder_mounted_noexec(
    tier: str, filled: Path, tmp_path: Path, mounted: Callable[[str], Path], lowered: list[str],
    lines: Callable[[], list[str]],
) -> None:  # fmt: skip
    folder = mounted("noexec,mode=700")
    shutil.copytree(filled, folder / "cache")
    call(*((folder / "cache",) if tier == "folder" else (tmp_path / "own", folder / "cache")))
    assert lowered == [] and lines() == []


def test_binaries_are_copied_where_files_cannot_be_executed(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowered: list[str]
) -> None:
    shutil.copytree(filled, tmp_path / "own")
    asked: list[Path] = []
    monkeypatch.setattr(artifacts, "_forbids_execution", lambda folder: asked.append(folder) or True)
    call(tmp_path / "own")
    assert asked and lowered == []


FORKED = """
import os, random, signal, sys, time
from pathlib import Path
from litz.cache.store import Store

store = Store(Path(sys.argv[1]))
random.seed(0)


def child(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    return pid


def write_for_ever():
    for number in range(10**6):
        store.write(f"{os.getpid()}-{number}", {"a": b"x" * 50_000, "b": str(number).encode()})
        store.write("same", {"a": b"y" * 50_000, "b": b"0"})
        store.drop("same")


for _ in range(100):
    pid = child(write_for_ever)
    time.sleep(random.random() * 0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

def write_fifty():
    for number in range(50):
        assert store.write(f"one-{number}", {"a": b"z" * 9000})


pids = [child(write_fifty) for _ in range(16)]
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
"""


def test_writers_that_are_killed_and_sixteen_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "cache")], capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    store = Store(tmp_path / "cache")
    keys = store.keys()
    assert len([key for key in keys if key.startswith("one-")]) == 50 < len(keys)
    assert all(store.read(key) for key in keys if not key.startswith(".")), caplog.text
    assert "damaged" not in caplog.text


NAMELESS = """
import torch, litz
def function(x):
    return x.sin() + 1
x = torch.randn(9)
torch.testing.assert_close(torch.compile(function, backend="litz")(x), function(x))
print(litz.config.current().cache_root())
"""


def test_a_user_without_a_name_and_a_folder_of_their_own() -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root, with setpriv, can be another user")
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with tempfile.TemporaryDirectory(
        prefix="litz-nameless-"
    ) as name:  # which others can reach, unlike pytest's
        temporary = Path(name)
        temporary.chmod(0o777)
        command = ["env", f"TMPDIR={name}", "setpriv", f"--reuid={OTHER}", "--clear-groups", sys.executable]
        done = subprocess.run(
            [*command, "-c", NAMELESS],
            env=environment,
            cwd=name,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(temporary / f"litz-{OTHER}")
        assert list((temporary / f"litz-{OTHER}" / "graphs").iterdir()) and not (temporary / "~").exists()


@pytest.mark.parametrize("raises", [False, True])
def test_the_cache_of_a_user_without_a_folder_is_a_temporary_one(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    def unknown(*_: object, **__: object) -> Path:
        if raises:
            raise RuntimeError("could not determine it")
        return Path("~/.cache/litz")

    monkeypatch.setattr(litz.settings, "user_cache_path", unknown)
    assert Config().cache_root() == Path(tempfile.gettempdir(), f"litz-{os.getuid()}")


@pytest.mark.parametrize("off", ["cache", "torch"])
@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")  # torch says so of its own profile
def test_failures_are_reported_elsewhere_where_caches_are_off(
    off: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(litz_scheduler, "schedule", fail)
    with torch.compiler.config.patch(force_disable_caches=off == "torch"):  # type: ignore[attr-defined]
        with litz.config.patch(cache=off != "cache"):
            call(tmp_path / "cache")
    assert not list(tmp_path.iterdir())
