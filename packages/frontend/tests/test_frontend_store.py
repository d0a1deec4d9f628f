"""The cache on disk: whole entries or none, and nothing from folders that others can write."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from litz.cache.store import MANIFEST, Store
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


def test_writers_race_and_one_entry_stands(tmp_path: Path) -> None:
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


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot make"):
        Store(tmp_path / "file" / "cache")
