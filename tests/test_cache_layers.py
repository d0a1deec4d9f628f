"""Read-only layers below the cache folder: graphs of an image or of a shared folder are used in place."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import litz
import litz.pipeline
from litz.cache.counts import stats
from litz.cache.layers import opened_tiers
from litz.cache.store import FOLDERS, Store
from litz.notices import log_once
from litz.settings import Config


@pytest.fixture(autouse=True)
def lines_anew() -> None:
    log_once.cache_clear()
    torch._dynamo.utils.counters.clear()


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1) + 1


def call(folder: Path, *layers: Path) -> None:
    """Compile and call a function anew with these folders, and compare it with eager."""
    torch._dynamo.reset()
    options = {"cache_dir": str(folder), "cache_layers": os.pathsep.join(map(str, layers))}
    with litz.config.patch(**options, fallback="silent"), torch.no_grad():
        x = torch.randn(7, 33)
        torch.testing.assert_close(torch.compile(function, backend="litz")(x), function(x))


def files(folder: Path) -> dict[Path, float]:
    """Return the files and folders below a folder with their modification times."""
    return {path: path.lstat().st_mtime for path in folder.rglob("*")}


@pytest.fixture
def layer(tmp_path: Path) -> Iterator[Path]:
    """A layer that has the compiled function, in which nothing was used for a day."""
    call(tmp_path / "layer")
    for path in (tmp_path / "layer").rglob("*"):
        os.utime(path, (1e9, 1e9))
    before = files(tmp_path / "layer")
    torch._dynamo.utils.counters.clear()
    yield tmp_path / "layer"
    assert files(tmp_path / "layer") == before, "a layer is never written, not even its times"


def test_an_entry_of_a_layer_is_used_in_place(layer: Path, tmp_path: Path, lowered: list[str]) -> None:
    call(tmp_path / "own", tmp_path / "missing", layer)
    assert lowered == []
    assert not [path for path in (tmp_path / "own").rglob("*") if path.is_file()], "nothing is copied"
    hits = {(each.kind, each.tier): each.hits for each in stats() if each.hits}
    assert hits == {("binaries", "layer"): 1, ("fx_graphs", "layer"): 1, ("graphs", "layer"): 1}
    assert {each.misses for each in stats() if each.tier == "local"} == {1}
    assert all(each.bytes > 0 and each.seconds > 0 for each in stats() if each.hits)


@pytest.mark.parametrize("why", ["not made", "others write"])
def test_layers_are_read_without_a_cache_folder(
    why: str, layer: Path, tmp_path: Path, lowered: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    if why == "not made":
        (tmp_path / "own").write_text("")
    else:
        (tmp_path / "own").mkdir()
        (tmp_path / "own").chmod(0o777)
    for _ in range(2):
        call(tmp_path / "own", layer)
    assert lowered == []
    lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1 and "the cache folder" in lines[0]
    assert why == "not made" or not list((tmp_path / "own").iterdir())


def test_the_cache_folder_is_asked_first_then_layers_in_order(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("own", "one", "two")]
    for number, folder in enumerate(folders):
        for key in ("a", "b", "c")[number:]:
            Store(folder / "graphs").write(key, {"f": str(number).encode()})
    layers = os.pathsep.join(map(str, folders[1:]))
    tiers = opened_tiers(Config(cache_dir=str(folders[0]), cache_layers=layers))[0]
    assert [tiers.read(key) for key in "abcd"] == [{"f": b"0"}, {"f": b"0"}, {"f": b"0"}, None]
    for key in "abc":
        tiers.local.drop(key)
    assert [tiers.read(key) for key in "abc"] == [None, {"f": b"1"}, {"f": b"1"}]
    tiers.drop("b")
    assert tiers.read("b") is None and tiers.write("b", {"f": b"3"}) and tiers.read("b") == {"f": b"3"}


@pytest.mark.parametrize("kind", ["root", *FOLDERS[:1]])
def test_a_layer_that_others_can_write_is_one_log_line(
    layer: Path, tmp_path: Path, kind: str, lowered: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    opened = layer if kind == "root" else layer / kind
    opened.chmod(0o777)
    try:
        for _ in range(2):
            call(tmp_path / "own", layer)
    finally:
        opened.chmod(0o700)
    assert len(lowered) == 1
    lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1 and "is not used" in lines[0] and "others may write to it" in lines[0]


def test_a_damaged_entry_of_a_layer_is_compiled_once(
    layer: Path, tmp_path: Path, lowered: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (plan,) = layer.glob("graphs/*/plan.json")
    whole, times = plan.read_bytes(), (plan.stat().st_atime, plan.stat().st_mtime)
    plan.write_bytes(whole[:-1])
    for _ in range(2):
        call(tmp_path / "own", layer)
    plan.write_bytes(whole)
    os.utime(plan, times)
    assert len(lowered) == 1
    assert caplog.text.count("is damaged and counts as a cache miss") == 1


def test_a_binary_of_a_layer_that_does_not_load_is_built_again(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowered: list[str]
) -> None:
    load = litz.pipeline.load_tuned

    def refused(artifact: Any, *given: Any, **named: Any) -> Any:
        if any(layer in path.parents for path in artifact.binaries):
            raise OSError("version `GLIBC_2.99' not found")
        return load(artifact, *given, **named)

    monkeypatch.setattr(litz.pipeline, "load_tuned", refused)
    monkeypatch.setattr(litz.capture.aot, "load_tuned", refused)
    call(tmp_path / "own", layer)
    assert len(lowered) == 1 and list((tmp_path / "own" / "binaries").iterdir())
    call(tmp_path / "own", layer)
    assert len(lowered) == 1
