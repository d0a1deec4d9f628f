"""Autotuning on the CPU, by a stopwatch that the test sets: kernels, times, inputs and cached choices."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from tuning_target import BROKEN, Stopwatch, TunableCpu

import litz.compilation.compilation
import litz.pipeline
from litz.artifact import TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.cache.store import Store
from litz.cache.tiles import FILE, TileChoices
from litz.compilation import Compilation
from litz.explain.graphs import graph_report
from litz.loading import Compiled
from litz.notices import artifact_log
from litz.settings import Config
from litz.targets import TargetSet
from litz.timing import Timer
from litz.tuning.launches import planned_launches
from litz.tuning.search import LAST_ROUNDS, PATIENCE, ROUNDS, TileSearch
from litz.tuning.tunable_kernels import tunable_kernels
from litz.tuning.tuned_graph import TunedGraph, load_tuned
from litz_ir.plan import Foreach, InnerTile, Kernel, Tile, TileLoops, TileRequest
from litz_ir.target import SourceUnit
from litz_ir.text import parse_plan

UNTUNED = 1
QUICK = {UNTUNED: 1.0, 2: 0.5, 4: 0.9}
Function = Callable[..., Sequence[Tensor]]


def two_kernels(x: Tensor, y: Tensor) -> Sequence[Tensor]:
    """Compute a sum, and an elementwise function of a matmul that a library runs."""
    return [x.sum(1), torch.tanh(y @ y)]


def written(x: Tensor, y: Tensor) -> Sequence[Tensor]:
    """Overwrite an input by a value that depends on it."""
    return [x.copy_(x * 2 + y)]


@dataclass
class Process:
    """A compiled function in one simulated process."""

    compiled: Compiled
    target: TunableCpu
    watch: Stopwatch

    def __call__(self, *args: Tensor) -> Sequence[Any]:
        """Call the function; ``target.launched`` then contains its launches."""
        self.target.launched.clear()
        return self.compiled.call(list(args))

    @property
    def launched(self) -> set[int]:
        return set(self.target.launched)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Process]:
    """Return a function that compiles in a new simulated process: only the disk is shared."""

    def make(
        function: Function,
        *args: Tensor,
        seconds: Mapping[int, float] = QUICK,
        clock: Any = None,
        **options: Any,
    ) -> Process:
        target = TunableCpu(tuple(each for each in seconds if each != UNTUNED))
        watch = Stopwatch(target, seconds)
        monkeypatch.setattr(
            litz.compilation.compilation, "targets_for", lambda *_: TargetSet({"cpu": target})
        )
        monkeypatch.setattr(litz.pipeline, "load_tuned", partial(load_tuned, clock=clock or watch))
        given = {"autotune": True, "autotune_seconds": 1000.0, **options}
        config = Config(fallback="error", cache_dir=str(tmp_path)).replaced(given)
        graph = make_fx(function, tracing_mode="fake")(*args)
        compiled = Compilation(graph, "graph", config, ArtifactCache.open(config)).run()
        return Process(compiled, target, watch)

    return make


X, Y = torch.linspace(-1, 1, 6000).reshape(60, 100), torch.linspace(0, 1, 3600).reshape(60, 60)


def test_the_first_call_runs_unchanged_and_later_ones_the_fastest(process: Callable[..., Process]) -> None:
    made = process(two_kernels, X, Y)
    assert_close(made(X, Y), two_kernels(X, Y))
    assert made.launched == {UNTUNED} and made.watch.samples == 0
    assert_close(made(X, Y), two_kernels(X, Y))
    assert made.launched == {UNTUNED, 2, 4} and made.watch.samples > 0
    samples = made.watch.samples
    for _ in range(2):
        assert_close(made(X, Y), two_kernels(X, Y))
        assert made.launched == {2} and made.watch.samples == samples


def test_times_and_choices_are_shown_by_torchs_artifacts(
    process: Callable[..., Process], caplog: pytest.LogCaptureFixture
) -> None:
    logs = [artifact_log("benchmarking"), artifact_log("autotuning")]
    for log in logs:
        assert log is not None
        caplog.set_level(logging.DEBUG, log.name)
        log.addHandler(caplog.handler)
    made = process(two_kernels, X, Y)
    try:
        for _ in range(4):
            made(X, Y)
    finally:
        for log in logs:
            assert log is not None
            log.removeHandler(caplog.handler)
    told = {each.name.rpartition(".")[2].strip("_"): each.message for each in caplog.records}
    assert "us with CpuLoops(" in told["benchmarking"] and told["benchmarking"].startswith(
        "litz: graph: kernel k"
    )
    assert "is faster with" in told["autotuning"] and "us before" in told["autotuning"]
    assert "tanh (aten.tanh.default)" in told["autotuning"], "what the kernel computes, and where"


@pytest.mark.parametrize(("other", "kept"), [(0.98, UNTUNED), (0.96, 2)])
def test_less_than_three_percent_is_no_gain(process: Callable[..., Process], other: float, kept: int) -> None:
    made = process(two_kernels, X, Y, seconds={UNTUNED: 1.0, 2: other})
    for _ in range(3):
        made(X, Y)
    assert made.launched == {kept}


def test_benchmarks_write_nothing_that_a_caller_reads(process: Callable[..., Process]) -> None:
    x, y = X.clone(), X + 1
    made = process(written, x.clone(), y)
    for calls in range(1, 5):
        wanted = x * 2 + y
        (found,) = made(x, y)
        assert found.data_ptr() == x.data_ptr(), calls
        assert_close(x, wanted)
    assert made.launched == {2}


def test_a_second_process_starts_with_the_fastest_schedule(process: Callable[..., Process]) -> None:
    first = process(two_kernels, X, Y)
    for _ in range(2):
        first(X, Y)
    second = process(two_kernels, X, Y)
    assert_close(second(X, Y), two_kernels(X, Y))
    assert second.launched == {2} and not isinstance(second.compiled.call, TunedGraph)
    for _ in range(2):
        second(X, Y)
    assert second.watch.samples == 0
    assert second.compiled.artifact is not None
    assert {
        each.unroll for _, choice in second.compiled.artifact.tuned_tiles for each in choice.schedules
    } == {2}
    said = graph_report(second.compiled).kernels[0]
    assert (said.tiles, said.tuned) == ("unroll 2", "was unroll 1, 2.00 times as long")
    untuned = process(two_kernels, X, Y, autotune=False)
    untuned(X, Y)
    assert untuned.launched == {UNTUNED}, "the artifact itself is cached without tuned schedules"


def test_a_default_that_was_fastest_is_cached_too(process: Callable[..., Process]) -> None:
    slow = {UNTUNED: 1.0, 2: 2.0}
    first = process(two_kernels, X, Y, seconds=slow)
    for _ in range(2):
        first(X, Y)
    second = process(two_kernels, X, Y, seconds=slow)
    for _ in range(3):
        second(X, Y)
        assert second.launched == {UNTUNED}
    assert second.watch.samples == 0


@pytest.mark.parametrize("damage", ["", "{}", '{"version": 0}'])
def test_unreadable_choices_are_searched_for_again(
    process: Callable[..., Process], tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = process(two_kernels, X, Y)
    for _ in range(2):
        first(X, Y)
    store = Store(tmp_path / "tiles")
    keys = [path.name for path in (tmp_path / "tiles").iterdir()]
    assert len(keys) == 2
    for key in keys:
        store.drop(key)
        store.write(key, {FILE: damage.encode()})
    with caplog.at_level(logging.ERROR):
        second = process(two_kernels, X, Y)
    for _ in range(3):
        assert_close(second(X, Y), two_kernels(X, Y))
    assert second.watch.samples > 0 and second.launched == {2}


def test_choices_are_json(tmp_path: Path) -> None:
    tiles = TileLoops((Tile(("i0",), 4),), (InnerTile(("r0",), 256, persistent=True), None), warps=8)
    choice = TunedTiles((Foreach(8), tiles), 1e-6, 2e-6, (TileRequest(), TileRequest(cluster=2)))
    TileChoices(Store(tmp_path)).write("key", choice)
    assert TileChoices(Store(tmp_path)).read("key") == choice
    data = json.loads((tmp_path / "key" / FILE).read_text())
    text = "tile_loops outer((i0: 4)) inner((r0: 256) persistent, point) warps 8"
    assert data["schedules"] == ["foreach warps 8", text] and data["version"] == 5


def test_candidates_that_cannot_be_built_are_skipped(process: Callable[..., Process]) -> None:
    made = process(two_kernels, X, Y, seconds={UNTUNED: 1.0, BROKEN: 0.1, 2: 0.5})
    for _ in range(3):
        assert_close(made(X, Y), two_kernels(X, Y))
    assert made.launched == {2}


def test_without_time_schedules_stay(process: Callable[..., Process]) -> None:
    made = process(two_kernels, X, Y, autotune_seconds=0.0)
    for _ in range(3):
        assert_close(made(X, Y), two_kernels(X, Y))
        assert made.launched == {UNTUNED}


def test_without_memory_schedules_stay(process: Callable[..., Process]) -> None:
    def clock() -> Timer:
        raise torch.OutOfMemoryError

    made = process(two_kernels, X, Y, clock=clock)
    for _ in range(3):
        assert_close(made(X, Y), two_kernels(X, Y))
    assert made.launched == {UNTUNED}


def test_kernels_not_tuned_in_time_keep_their_schedules(
    process: Callable[..., Process], tmp_path: Path
) -> None:
    made = process(two_kernels, X, Y)
    loader = made.compiled.loader
    assert loader is not None
    tunable = tunable_kernels(loader.artifact.plan, made.target)
    assert [each.kernel.name for each in tunable] == ["k1_tanh", "k0_sum"], "the slowest come first"
    cache = ArtifactCache(None, None)
    timings = 3 * ROUNDS + 2 * LAST_ROUNDS
    # Each timed launch takes one second: there is enough time for the first kernel that is launched.
    search = TileSearch(
        loader, tunable, cache, made.watch, 1.5 * timings, now=lambda: float(made.watch.samples)
    )
    assert_close(search.run([X, Y]), two_kernels(X, Y))
    assert made.watch.samples < 1.5 * timings + 3
    assert list(search.found) == ["k0_sum"] and len(cache.tiles.known) == 1 and search.over


def test_choices_without_late_candidates_are_not_cached(
    process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = process(two_kernels, X, Y)
    loader = made.compiled.loader
    assert loader is not None
    tunable = tunable_kernels(loader.artifact.plan, made.target)
    build, slow = made.target.build, threading.Event()

    def building(unit: SourceUnit, folder: Path) -> Path:
        if "unrolled 4" in unit.flags:
            slow.wait(60)
        return build(unit, folder)

    def waiting(futures: Mapping[Future[Any], Kernel], timeout: float) -> None:
        for future, kernel in futures.items():
            if kernel.schedule.unroll != 4:
                future.result()

    monkeypatch.setattr(made.target, "build", building)
    monkeypatch.setattr("litz.tuning.search.wait", waiting)
    monkeypatch.setattr(made.target, "prepare", lambda: 8, raising=False)
    cache = ArtifactCache(None, None)
    search = TileSearch(loader, tunable, cache, made.watch, 1000.0)
    assert_close(search.run([X, Y]), two_kernels(X, Y))
    slow.set()
    assert {each.unroll for choice in search.found.values() for each in choice.schedules} == {2}
    assert not cache.tiles.known


def test_kernels_that_move_few_bytes_are_not_tuned(process: Callable[..., Process]) -> None:
    made = process(two_kernels, X, Y)
    assert made.compiled.artifact is not None
    plan = made.compiled.artifact.plan
    moved = {launch.kernel.name: launch.nbytes for launch in planned_launches(plan)}
    assert moved == {"k0_sum": 4 * (6000 + 60), "k1_tanh": 4 * 2 * 3600}
    names = [each.kernel.name for each in tunable_kernels(plan, made.target, least=25e-3)]
    assert names == ["k1_tanh"]


GROWING = """
plan growing on cpu "avx2" (%x: f32[s0] fixed) -> (%o) {
  symbols { s0: int from 1 hint 1000 }
  storage st0: s0*4
  buffer %x: f32[s0] fixed
  buffer %o: f32[s0] fixed in st0
  kernel k(in %p0: f32, out %p1: f32) {
    symbols { s0: int from 1 }
    outer [i0: s0]
    phase [] {
      %p1[i0] = %p0[i0] + 1.0;
    }
  }
  allocate st0
  launch k(%x, %o; s0)
}
"""


def test_launches_of_another_size_class_do_not_fit() -> None:
    (tunable,) = tunable_kernels(parse_plan(GROWING), TunableCpu())
    assert tunable.classes == (10,)
    assert [size for size in (1, 512, 513, 1000, 1024, 1025) if tunable.fits([size])] == [513, 1000, 1024]


def test_a_search_ends_for_kernels_that_no_call_launches(process: Callable[..., Process]) -> None:
    made = process(two_kernels, X, Y)
    loader = made.compiled.loader
    assert loader is not None
    (kernel, *_) = tunable_kernels(loader.artifact.plan, made.target)
    elsewhere = replace(kernel, kernel=replace(kernel.kernel, name="elsewhere"))
    search = TileSearch(loader, [elsewhere], ArtifactCache(None, None), made.watch, 60.0)
    calls = 0
    while not search.over:
        assert_close(search.run([X, Y]), two_kernels(X, Y))
        calls += 1
    assert calls == PATIENCE and not search.found


def test_a_target_without_candidates_is_not_tuned(tmp_path: Path) -> None:
    graph = make_fx(two_kernels, tracing_mode="fake")(X, Y)
    config = Config(fallback="error", cache_dir=str(tmp_path), autotune=True)
    compiled = Compilation(graph, "graph", config, ArtifactCache.open(config)).run()
    assert not isinstance(compiled.call, TunedGraph)
    for _ in range(3):
        assert_close(compiled.call([X, Y]), two_kernels(X, Y))
