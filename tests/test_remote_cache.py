"""The remote cache: signed entries on a Redis server or in a folder of fsspec, bounded in time."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import litz
from litz.cache.counts import stats
from litz.cache.remote import signed
from litz.cache.remote.file_store import FileStore
from litz.cache.remote.signed import LOOKUP_SECONDS, MOST_FAILURES, SignedCache
from litz.notices import log_once

KEY = "a secret of the fleet"
ENTRY = {"plan.json": b"{}", "unit.so": b"\x7fELF"}
SPARE = 0.2
"""Seconds that a thread of a busy machine may take to run."""


@pytest.fixture(autouse=True)
def anew() -> None:
    """Start without log lines, counts and remote caches of other tests."""
    log_once.cache_clear()
    signed._of_process.cache_clear()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """A function that returns the warnings of litz so far."""
    caplog.set_level(logging.WARNING, logger="litz")

    def found() -> list[str]:
        return [
            each.message for each in caplog.records if each.name.startswith("litz") and each.levelno >= 30
        ]

    return found


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis server, which stores nothing on disk."""
    pytest.importorskip("redis", reason="the package redis is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    folder = tmp_path_factory.mktemp("redis")
    with subprocess.Popen([program, *options], cwd=folder, stdout=subprocess.DEVNULL) as process:
        for _ in range(200):
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
        process.terminate()


@pytest.fixture(params=["redis", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty remote store."""
    if request.param == "redis":
        found: str = request.getfixturevalue("server")
        import redis

        redis.Redis.from_url(found).flushall()
        return found
    return f"file://{tmp_path}/remote" if request.param == "file" else f"memory://{tmp_path.name}"


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1) + 1


def call(folder: Path, url: str, key: str = KEY, **options: Any) -> None:
    """Compile and call a function anew with this remote cache, compare it with eager, and send what is new."""
    torch._dynamo.reset()
    given = {"cache_dir": str(folder), "cache_remote": url, "cache_remote_key": key, "fallback": "error"}
    with litz.config.patch(**{**given, **options}) as config, torch.no_grad():
        x = torch.randn(7, 33)
        torch.testing.assert_close(torch.compile(function, backend="litz")(x), function(x))
        remote = signed.remote_cache(config) if key and config.uses_disk else None
    assert remote is None or remote.finish(5.0)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a cache folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_second_machine_compiles_nothing(
    url: str, tmp_path: Path, lowered: list[str], lines: Callable[[], list[str]]
) -> None:
    call(tmp_path / "one", url)
    torch._dynamo.utils.counters.clear()
    call(tmp_path / "two", url)
    assert len(lowered) == 1 and lines() == []
    assert content(tmp_path / "two") == content(tmp_path / "one")
    found = {each.kind: each for each in stats() if each.tier == "remote" and each.hits}
    assert set(found) == {"graphs", "binaries", "fx_graphs"}
    torch._dynamo.utils.counters.clear()
    call(tmp_path / "two", url)
    assert not [each for each in stats() if each.tier == "remote"], "the cache folder has all of it"


def test_entries_of_another_key_are_not_used(
    url: str, tmp_path: Path, lowered: list[str], lines: Callable[[], list[str]]
) -> None:
    call(tmp_path / "one", url, key="of other machines")
    call(tmp_path / "two", url)
    assert len(lowered) == 2
    assert len(lines()) == 1 and "the key did not sign" in lines()[0]


def test_without_a_key_the_remote_is_not_used(tmp_path: Path, lines: Callable[[], list[str]]) -> None:
    for _ in range(2):
        call(tmp_path / "own", f"file://{tmp_path}/remote", key="")
    assert len(lines()) == 1 and "LITZ_CACHE_REMOTE_KEY" in lines()[0]
    assert not (tmp_path / "remote").exists()


@pytest.mark.parametrize("lie", ["truncated", "flipped", "another name", "unsigned", "empty", "garbage"])
def test_lies_are_compiled_anew(
    lie: str, tmp_path: Path, lowered: list[str], lines: Callable[[], list[str]]
) -> None:
    remote = tmp_path / "remote"
    call(tmp_path / "one", f"file://{remote}")
    for path in [each for each in remote.rglob("*") if each.is_file()]:
        data = path.read_bytes()
        others = (each.read_bytes() for each in remote.rglob("*") if each.is_file() and each != path)
        changed = {
            "truncated": data[:-1],
            "flipped": data[:100] + bytes([data[100] ^ 1]) + data[101:],
            "another name": next(others),
            "unsigned": data[32:],
            "empty": b"",
            "garbage": os.urandom(5000),
        }
        path.write_bytes(changed[lie])
    call(tmp_path / "two", f"file://{remote}")
    assert len(lowered) == 2 and len(lines()) == 1
    assert content(tmp_path / "two").keys() == content(tmp_path / "one").keys()


class Slow:
    """A store that does not answer before it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = threading.Event()

    def get(self, key: str) -> bytes | None:
        self.asked += 1
        self.go.wait(30)
        return None

    def put(self, key: str, data: bytes) -> None:
        self.go.wait(30)


class Broken:
    """A store that fails."""

    def get(self, key: str) -> bytes | None:
        raise ConnectionError("redis://:password@host refused")

    def put(self, key: str, data: bytes) -> None:
        raise ConnectionError


def test_a_store_that_hangs_costs_little_and_is_dropped(lines: Callable[[], list[str]]) -> None:
    store = Slow()
    cache = SignedCache(store, b"key", "slow://there")
    start = time.perf_counter()
    for _ in range(50):
        begun = time.perf_counter()
        assert cache.fetch("graphs", "a") is None
        assert time.perf_counter() - begun < LOOKUP_SECONDS + SPARE
    assert time.perf_counter() - start < MOST_FAILURES * (LOOKUP_SECONDS + SPARE) + SPARE
    assert store.asked == MOST_FAILURES
    store.go.set()
    assert len(lines()) == 1 and "slow://there is not used any more" in lines()[0]


def test_entries_that_cannot_be_sent_delay_no_exit() -> None:
    store = Slow()
    cache = SignedCache(store, b"key", "slow://there")
    start = time.perf_counter()
    for number in range(1000):
        cache.offer("graphs", str(number), ENTRY)
    assert time.perf_counter() - start < 1.0
    assert not cache.finish(0.1) and time.perf_counter() - start < 1.5
    store.go.set()


def test_the_exit_of_a_process_is_not_delayed_by_a_server_that_hangs(tmp_path: Path) -> None:
    with socket.socket() as mute:  # it accepts connections and says nothing
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        program = (
            "import time, litz\n"
            "from litz.cache.remote.signed import remote_cache\n"
            f"c = remote_cache(litz.config.current())\nfor n in range(9): c.offer('graphs', str(n), {ENTRY})\n"
            "print(time.time())"
        )
        environment = {
            **os.environ,
            "LITZ_CACHE_REMOTE": f"redis://127.0.0.1:{mute.getsockname()[1]}",
            "LITZ_CACHE_REMOTE_KEY": KEY,
        }
        pytest.importorskip("redis", reason="the package redis is not installed")
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    torchs_own = 10.0  # seconds that torch may take to end on a busy machine
    assert time.time() - float(done.stdout) < signed.EXIT_SECONDS + torchs_own


def test_a_store_that_fails_is_dropped_and_its_password_not_shown(lines: Callable[[], list[str]]) -> None:
    cache = SignedCache(Broken(), b"key", signed._shown("redis://user:password@host:1/0?password=x"))
    for _ in range(10):
        assert cache.fetch("graphs", "a") is None
    assert len(lines()) == 1 and "redis://host:1/0" in lines()[0] and "password" not in lines()[0]
    cache.offer("graphs", "a", ENTRY)
    assert cache.finish(0.0), "nothing waits"


def test_a_failure_now_and_then_drops_nothing(lines: Callable[[], list[str]]) -> None:
    asked = 0

    class Flaky:
        def get(self, key: str) -> bytes | None:
            nonlocal asked
            asked += 1
            if asked % MOST_FAILURES:
                raise TimeoutError
            return None

        def put(self, key: str, data: bytes) -> None: ...

    cache = SignedCache(Flaky(), b"key", "flaky://there")
    for _ in range(20):
        cache.fetch("graphs", "a")
    assert asked == 20 and lines() == []


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "nosuch://there", "file:///proc/nothing"])
def test_a_remote_that_is_not_there_is_one_log_line(
    url: str, tmp_path: Path, lines: Callable[[], list[str]]
) -> None:
    call(tmp_path / "own", url)
    call(tmp_path / "own", url)
    assert len([each for each in lines() if "remote cache" in each]) == 1


def test_what_others_read_of_a_file_is_whole(tmp_path: Path) -> None:
    store = FileStore.at(f"file://{tmp_path}")
    sizes, stop = set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            data = store.get("graphs/a")
            if data is not None:
                sizes.add(len(data))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(100):
        store.put("graphs/a", b"x" * 100_000)
    stop.set()
    reader.join()
    assert sizes == {100_000} and [path.name for path in (tmp_path / "graphs").iterdir()] == ["a"]


@pytest.mark.parametrize("off", ["cache", "torch"])
@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")  # torch says so of its own profile
def test_nothing_is_asked_or_sent_where_caches_are_off(off: str, tmp_path: Path, lowered: list[str]) -> None:
    remote = f"file://{tmp_path}/remote"
    call(tmp_path / "one", remote)
    before = content(tmp_path)
    with torch.compiler.config.patch(force_disable_caches=off == "torch"):  # type: ignore[attr-defined]
        call(tmp_path / "two", remote, cache=off != "cache")
    assert len(lowered) == 2 and content(tmp_path) == before and not (tmp_path / "two").exists()
    assert not [each for each in stats() if each.tier == "remote" and each.hits]
