"""The quota of the cache folder: the entries used least recently go, whatever the clock and other processes do."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from litz.cache.layers import opened_tiers
from litz.cache.quota import QuotaKeeper, collect
from litz.cache.store import DROPPED, FOLDERS, WRITING, Store
from litz.settings import Config
from litz_ir.errors import CacheError


def entry(root: Path, key: str, age: float, size: int = 1000) -> Path:
    """Write an entry that was used ``age`` seconds ago; its manifest takes less than 100 bytes."""
    store = Store(root / FOLDERS[len(key) % 2])
    assert store.write(key, {"f": b"x" * size})
    path = store.folder / key
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_the_entries_used_least_recently_are_deleted(tmp_path: Path) -> None:
    paths = [entry(tmp_path, "k" * n, age=n * 1e5) for n in range(1, 11)]
    done = collect(tmp_path, 8000)
    left = [path for path in paths if path.exists()]
    assert left == paths[:6] and done.entries == 4 and done.bytes <= 0.9 * 8000 < done.bytes + 1100
    assert collect(tmp_path, 8000).entries == 0


def test_a_use_is_noted_once_an_hour_and_keeps_an_entry(tmp_path: Path) -> None:
    old, recent = entry(tmp_path, "aa", age=7200), entry(tmp_path, "aaaa", age=1800)
    before = recent.stat().st_mtime
    store = Store(old.parent)
    assert store.read("aa") and store.read("aaaa")
    assert time.time() - old.stat().st_mtime < 60 and recent.stat().st_mtime == before
    collect(tmp_path, 1500)
    assert old.exists() and not recent.exists()


def test_a_use_in_the_future_is_noted_again(tmp_path: Path) -> None:
    path = entry(tmp_path, "aa", age=-1e6)
    assert Store(path.parent).read("aa")
    assert abs(time.time() - path.stat().st_mtime) < 60, "the clock was set back"


def test_writes_keep_the_quota_and_look_at_the_entries_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = opened_tiers(Config(cache_dir=str(tmp_path), cache_quota="100kB"))[0]
    looked: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(str(path)) or scandir(path))
    for number in range(300):
        assert tiers.write(f"{number:03}", {"f": b"x" * 1000})
        os.utime(tmp_path / "graphs" / f"{number:03}", (1e9 + number, 1e9 + number))
    total = sum(path.stat().st_size for path in tmp_path.glob("*/*/*") if path.is_file())
    assert 80_000 < total <= 101_100
    assert len([each for each in looked if each == str(tmp_path / FOLDERS[0])]) < 100


def test_what_a_compilation_just_wrote_stays(tmp_path: Path) -> None:
    for kind in FOLDERS:
        Store(tmp_path / kind)
    old, fresh = entry(tmp_path, "aa", age=400), entry(tmp_path, "aaaa", age=0)
    QuotaKeeper(tmp_path, 100).added(1000)
    assert fresh.exists() and not old.exists(), "its binary is loaded later"
    assert collect(tmp_path, 100).entries == 1


def test_threads_count_at_the_same_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for kind in FOLDERS:
        Store(tmp_path / kind)
    for number in range(200):
        entry(tmp_path, f"{number:05}", age=1e6)

    def added(_: int) -> None:
        (tmp_path / "graphs" / ".usage").unlink(missing_ok=True)
        QuotaKeeper(tmp_path, 1 << 30).added(1)

    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(8) as pool:
        list(pool.map(added, range(100)))
    assert not caplog.records


def test_two_processes_add_to_one_sum(tmp_path: Path) -> None:
    for kind in FOLDERS:
        Store(tmp_path / kind)
    one, two = QuotaKeeper(tmp_path, 10_000), QuotaKeeper(tmp_path, 10_000)
    paths = [entry(tmp_path, "a" * (2 * n), age=1e6 - n) for n in range(1, 10)]
    one.added(1000)  # counts
    assert all(path.exists() for path in paths)
    entry(tmp_path, "a" * 30, age=0)
    two.added(1000)
    assert not paths[0].exists()


def test_what_killed_processes_left_goes(tmp_path: Path) -> None:
    Store(tmp_path / "graphs")
    left = [tmp_path / "graphs" / f"{prefix}x" for prefix in (WRITING, DROPPED)]
    fresh = tmp_path / "graphs" / f"{WRITING}fresh"
    for path in (*left, fresh):
        path.mkdir()
        (path / "f").write_text("half")
    for path in left:
        os.utime(path, (1e9, 1e9))
    collect(tmp_path, 1 << 30)
    assert fresh.exists() and not any(path.exists() for path in left)


def test_the_sum_is_in_no_file_of_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for kind in FOLDERS:
        Store(tmp_path / kind)
    (tmp_path / "graphs").chmod(0o777)
    with caplog.at_level(logging.WARNING), pytest.raises(CacheError, match="others may write"):
        collect(tmp_path, 1)


def test_no_quota_counts_nothing(tmp_path: Path) -> None:
    tiers = opened_tiers(Config(cache_dir=str(tmp_path)))[0]
    assert tiers.keeper is None and tiers.write("a", {"f": b"1"})
    assert sorted(path.name for path in (tmp_path / "graphs").iterdir()) == ["a"]
