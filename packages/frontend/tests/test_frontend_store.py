"""The cache on disk: complete entries or none, and nothing from folders that others can write."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import litz
import litz.cache
import litz_lowering
from litz.cache.artifacts import ArtifactCache
from litz.cache.store import FOLDERS, MANIFEST, Store
from litz.commands.main import main
from litz.notices import log_once
from litz.settings import Config
from litz_ir.errors import CacheError


def test_round_trip(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    assert store.read("a") is None
    assert store.write("a", {"plan.json": b"{}", "unit.so": b"\x7fELF"})
    assert store.read("a") == {"plan.json": b"{}", "unit.so": b"\x7fELF"}
    assert store.path("a", "unit.so").read_bytes() == b"\x7fELF"


@pytest.mark.parametrize("damage", ["flip", "truncate", "missing", "manifest", "escape"])
def test_damage_is_a_miss(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path / "cache")
    store.write("a", {"plan.json": b"0123456789"})
    target = store.path("a", "plan.json")
    match damage:
        case "flip":
            target.write_bytes(b"0123456780")
        case "truncate":
            target.write_bytes(b"01234")
        case "missing":
            target.unlink()
        case "manifest":
            store.path("a", MANIFEST).write_bytes(b"{")
        case "escape":
            store.path("a", MANIFEST).write_text('{"../b/secret": "00"}')
    assert store.read("a") is None
    assert "damaged" in caplog.text
    assert store.write("a", {"plan.json": b"new"})
    assert store.read("a") == {"plan.json": b"new"}


def test_of_concurrent_writes_one_entry_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(store.write("k", {"f": b"x" * 4096})))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8
    assert store.read("k") == {"f": b"x" * 4096}
    assert not list((tmp_path / "cache").glob(".writing-*"))


def test_folders_that_others_can_write_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="others may write"):
        Store(folder)


def test_a_cache_folder_whose_parent_others_can_write_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "cache"
    made = ArtifactCache.open(Config(cache_dir=str(root)))
    assert made.graphs is not None and made.graphs.write("a", {"f": b"1"})
    root.chmod(0o702)
    log_once.cache_clear()
    assert ArtifactCache.open(Config(cache_dir=str(root))).graphs is None
    assert "others may write to it" in caplog.text and f"chmod 700 {root}" in caplog.text
    with pytest.raises(CacheError, match="others may write"):
        litz.cache.entries(root)


def test_a_cache_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = ArtifactCache.open(Config(cache_dir=str(tmp_path / "cache")))
    finally:
        os.umask(before)
    assert made.graphs is not None and (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert ArtifactCache.open(Config(cache_dir=str(tmp_path / "cache"))).graphs is not None


@pytest.mark.parametrize("opened", ["folder", "entry", "file", "manifest"])
def test_nothing_that_others_can_write_is_read(
    tmp_path: Path, opened: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "cache")
    store.write("a", {"unit.so": b"\x7fELF"})
    folders = {"folder": store.folder, "entry": store.folder / "a"}
    names = {"file": "unit.so", "manifest": MANIFEST}
    path = folders[opened] if opened in folders else store.path("a", names[opened])
    path.chmod(path.stat().st_mode | 0o020)
    assert store.read("a") is None
    assert "others may write to it" in caplog.text


def test_files_are_writable_by_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path / "cache")
        store.write("a", {"unit.so": b"\x7fELF"})
    finally:
        os.umask(before)
    assert store.read("a") is not None
    assert {path.stat().st_mode & 0o022 for path in store.folder.rglob("*")} == {0}


def owned(monkeypatch: pytest.MonkeyPatch, owner: int, folder: Path) -> None:
    """Simulate that everything in a folder belongs to ``owner``, for a process of another user."""
    stat, fstat = os.stat, os.fstat

    def by_owner(state: os.stat_result) -> os.stat_result:
        return os.stat_result((*state[:4], owner, *state[5:]))

    monkeypatch.setattr(Path, "stat", lambda self, **given: by_owner(stat(self, **given)))
    monkeypatch.setattr(os, "fstat", lambda descriptor: by_owner(fstat(descriptor)))
    monkeypatch.setattr(os, "geteuid", lambda: 4321)


def test_folders_of_this_user_and_of_root_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Store(tmp_path / "cache").write("a", {"f": b"1"})
    for owner in (4321, 0):
        with monkeypatch.context() as patch:
            owned(patch, owner, tmp_path)
            assert Store(tmp_path / "cache").read("a") == {"f": b"1"}
    owned(monkeypatch, 1234, tmp_path)
    with pytest.raises(CacheError, match="belongs to another user"):
        Store(tmp_path / "cache")


def test_a_folder_that_cannot_be_written_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = ArtifactCache.open(Config(cache_dir=str(tmp_path)))
    assert made.graphs is not None and made.graphs.write("a", {"f": b"1"})
    shutil.rmtree(tmp_path / FOLDERS[-1])

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("mkdir", "rename"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    log_once.cache_clear()
    with caplog.at_level(logging.INFO):
        for key in "bcd":
            cache = ArtifactCache.open(Config(cache_dir=str(tmp_path)))
            assert cache.graphs is not None and cache.graphs.read("a") == {"f": b"1"}
            assert not cache.graphs.write(key, {"f": b"2"})
            assert cache.matmul_choices.read("a") is None
            cache.matmul_choices.write("a", frozenset({"mm"}))
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "nothing is added to the cache" in caplog.text


def test_a_folder_that_cannot_be_used_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    log_once.cache_clear()
    for _ in range(3):
        assert ArtifactCache.open(Config(cache_dir=str(tmp_path / "file"))).graphs is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


NOBODY = 65534


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """Run as a user who owns nothing; skip the test where this process cannot become one."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can be another user")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def layer() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="litz-layer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def opened_to_others(folder: Path) -> None:
    """Change permissions as ``chmod -R a+rX`` does."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))


def test_another_user_loads_graphs_that_root_compiled(layer: Path, caplog: pytest.LogCaptureFixture) -> None:
    def result() -> torch.Tensor:
        torch._dynamo.reset()
        found: torch.Tensor = torch.compile(lambda x: x.sin() + 1, backend="litz")(torch.zeros(64))
        return found

    with litz.config.patch(cache_dir=str(layer), fallback="error"):
        result()
        opened_to_others(layer)
        before = sorted(layer.rglob("*"))
        log_once.cache_clear()
        with caplog.at_level(logging.INFO, logger="litz"), pytest.MonkeyPatch.context() as patch:
            patch.setattr(litz_lowering, "lower", None)  # nothing is compiled again
            with another_user():
                for _ in range(2):
                    assert result().tolist() == [1.0] * 64
    assert sorted(layer.rglob("*")) == before
    messages = [record.message for record in caplog.records if record.name.startswith("litz")]
    assert messages == [f"litz: {layer} cannot be written: nothing is added to the cache"]


def test_another_user_does_not_read_private_entries(layer: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(layer / "graphs")
    store.write("a", {"f": b"1"})
    store.folder.chmod(0o755)
    log_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="litz"), another_user():
        assert [Store(layer / "graphs").read("a") for _ in range(2)] == [None, None]
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert f"chmod -R a+rX {layer}" in caplog.text
    assert store.read("a") == {"f": b"1"}


def test_a_layer_is_not_cleared_by_another_user(layer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(layer / "graphs")
    store.write("a", {"f": b"1"})
    opened_to_others(layer)
    with litz.config.patch(cache_dir=str(layer)), another_user():
        assert main(["cache", "verify"]) == 0
        assert main(["cache", "clear"]) == 1
    printed = capsys.readouterr()
    assert "graphs: 1 whole" in printed.out and "cannot be written" in " ".join(printed.err.split())
    assert store.read("a") == {"f": b"1"}


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot make"):
        Store(tmp_path / "file" / "cache")
