"""The pause of Python's cyclic garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from litz_ir.collection import collection_paused
from litz_ir.deferred import deferred


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Turn the collector on, and leave it as it was."""
    was = gc.isenabled()
    gc.enable()
    yield
    gc.enable() if was else gc.disable()


def test_the_collector_is_as_it_was_after_a_pause() -> None:
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError), collection_paused():
        raise ValueError
    assert gc.isenabled()
    gc.disable()
    with collection_paused():
        pass
    assert not gc.isenabled()


def test_what_is_made_in_a_pause_is_old_afterwards() -> None:
    with collection_paused():
        made: list[list[int]] = [[number] for number in range(5000)]
    young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert young.isdisjoint(map(id, made))
    made[0].append(len(made))
    assert any(each is made[0] for each in gc.get_objects(2))


def test_what_a_program_froze_stays_frozen() -> None:
    kept: list[list[int]] = [[number] for number in range(5000)]
    gc.freeze()
    try:
        with collection_paused():
            kept.append([0])
        assert gc.get_freeze_count() >= len(kept) - 1
    finally:
        gc.unfreeze()


def test_modules_are_imported_in_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seen_by_collection.py").write_text("import gc\nenabled = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "a_package", sys)
    attribute, _ = deferred("a_package", {"enabled": "seen_by_collection"})
    assert attribute("enabled") is False and gc.isenabled()
