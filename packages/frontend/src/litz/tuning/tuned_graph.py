"""A graph that is autotuned during its calls, and then runs with the fastest schedules found."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from litz.artifact import Artifact, TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.devices import gpu, is_gpu
from litz.host.runtime.externs import NO_ROUTINES
from litz.host.runtime.gpus import ONE_GPU, Gpus
from litz.host.runtime.graph_devices import on_current_device
from litz.host.runtime.load import HostFunction
from litz.loading import NO_CONSTANTS, Compiled, Loader, loader_of
from litz.notices import log_artifact
from litz.reports.failures import Failures
from litz.settings import Config
from litz.targets import TargetSet
from litz.timing import Timer, clock_of, sampler
from litz.tuning.applied import applied, changes
from litz.tuning.tunable_kernels import tunable_kernels
from litz_ir.origin import describe_locations
from litz_ir.plan import Launch, Plan
from litz_ir.target import TunableTarget

if TYPE_CHECKING:
    from litz.tuning.search import TileSearch

log = logging.getLogger("litz")

_SEARCH = "litz.tuning.search"
"""Module that searches for schedules; loaded where a kernel is tuned, which none is on a CPU."""

Better = Callable[[Timer], Artifact | None]
"""Search for a faster plan of a graph, timed by the given timer: its artifact, or ``None``. Raises ``LitzError``."""


def load_tuned(
    artifact: Artifact,
    name: str,
    targets: TargetSet,
    config: Config,
    cache: ArtifactCache,
    constants: Mapping[str, torch.Tensor] = NO_CONSTANTS,
    routines: Mapping[str, Callable[..., Any]] = NO_ROUTINES,
    gpus: Gpus = ONE_GPU,
    clock: Callable[[], Timer] | None = None,
    better: Better | None = None,
    failures: Failures | None = None,
) -> Compiled:
    """Load an artifact as a callable, autotuned where the options say so; raise ``LitzError``.

    Tracebacks show ``name``. ``clock`` makes the timer of the search. ``better`` searches for a faster plan.
    """
    policy = cache.failures if failures is None else failures
    loader = loader_of(artifact, name, targets, config, constants, routines, gpus, policy)
    return with_tuning(loader, cache, clock, better) if config.autotune else loader.compiled()


def with_tuning(
    loader: Loader,
    cache: ArtifactCache,
    clock: Callable[[], Timer] | None = None,
    better: Better | None = None,
) -> Compiled:
    """Return the graph with the fastest schedules known; unknown ones are searched for in its next calls.

    ``clock`` makes the timer of the search. Graphs on several GPUs are not tuned. Raises ``LitzError``.
    """
    device = loader.artifact.plan.device
    if not isinstance(loader.targets[device], TunableTarget) or loader.gpus != ONE_GPU:
        return loader.compiled()
    if clock is None:
        clock = partial(sampler, clock_of(device.kind))
    begun = partial(_begun, loader, cache, clock)
    nothing: tuple[Loader, TileSearch | None] = loader, None
    loader, search = loader.failures.attempt("tuning", begun, nothing, f"{loader.name} keeps its schedules")
    if search is None and better is None:
        return loader.compiled()
    made = loader.compiled(TunedGraph(loader, search, cache, clock, better))
    return replace(made, settled=better is None)


def _begun(
    loader: Loader, cache: ArtifactCache, clock: Callable[[], Timer]
) -> tuple[Loader, TileSearch | None]:
    """Return the loader with the known schedules, and the search for the others, if there are any."""
    plan = loader.artifact.plan
    target = loader.targets[plan.device]
    tunable = tunable_kernels(plan, target)
    known = {each.kernel.name: cache.tiles.read(each.key) for each in tunable}
    choices = {name: choice for name, choice in known.items() if choice is not None}
    loader = _with_choices(loader, choices, cache)
    unknown = [each for each in tunable if each.kernel.name not in choices]
    if not unknown:
        return loader, None
    search: TileSearch = import_module(_SEARCH).TileSearch(
        loader, unknown, cache, clock, loader.config.autotune_seconds
    )
    return loader, search


def _with_choices(loader: Loader, choices: Mapping[str, TunedTiles], cache: ArtifactCache) -> Loader:
    """Return the loader with these schedules, or unchanged where they cannot be built, which is reported."""
    plan = loader.artifact.plan
    change = partial(applied, loader.artifact, choices, loader.targets[plan.device], cache)
    instead = f"{plan.name} keeps its schedules from before autotuning"
    artifact = loader.failures.attempt("tuning", change, loader.artifact, instead)
    return replace(loader, artifact=artifact)


class TunedGraph:
    """A graph as a function of its list of arguments, which it empties.

    The first call runs it unchanged, so that a graph that is called once is not tuned. The next calls search; after
    that the graph is loaded with the schedules found and, where the options say so, captured as a CUDA graph.
    Meanwhile other threads, and calls that are being captured, run it unchanged. Where ``better`` finds a faster
    plan, that replaces the graph's own before its schedules are searched for.
    """

    def __init__(
        self,
        loader: Loader,
        search: TileSearch | None,
        cache: ArtifactCache,
        clock: Callable[[], Timer],
        better: Better | None = None,
    ) -> None:
        self._loader = loader
        self._search = search
        self._cache = cache
        self._clock = clock
        self._better = better
        self._plain = loader.call()
        self._final: HostFunction | None = None
        kind = loader.artifact.plan.device.kind
        self._on_gpu = is_gpu(kind)
        # Candidates are loaded on the device that the graph was compiled for.
        self._search_call = on_current_device(self._searched, kind)
        self._called = False
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._final is not None:
            return self._final(args)
        if self._called and not self._is_capturing() and self._lock.acquire(blocking=False):
            try:
                return self._search_call(args)
            finally:
                self._lock.release()
        results = self._plain(args)
        self._called = True
        return results

    def _searched(self, args: list[Any]) -> Sequence[Any]:
        """Run a call that searches, unless another thread has just ended the search."""
        if self._final is not None:
            return self._final(args)
        attempt, instead = self._loader.failures.attempt, f"{self._loader.name} keeps its plan"
        if self._better is not None:
            better, self._better = self._better, None
            attempt("tuning", partial(self._improve, better), None, instead)
        if self._search is not None and not attempt("tuning", self._search.begun, False, instead):
            self._search = None
        results = self._plain(args) if self._search is None else self._search.run(args)
        if self._search is None or self._search.over:
            self._final = attempt("tuning", partial(self._settled, self._search), self._plain, instead)
        return results

    def _improve(self, better: Better) -> None:
        """Replace the plan of the graph by a faster one, if there is one."""
        artifact = better(self._clock())
        if artifact is None:
            return
        loader, search = _begun(self._loader.of(artifact), self._cache, self._clock)
        self._plain = loader.call()
        self._loader, self._search = loader, search

    def _is_capturing(self) -> bool:
        """True while the current stream is being captured: it can be neither waited for nor timed."""
        return self._on_gpu and gpu.is_current_stream_capturing()

    def _settled(self, search: TileSearch | None) -> HostFunction:
        """Return the graph's call for good."""
        loader = self._loader
        if search is None:
            return loader.with_cuda_graphs(self._plain)
        found, plan = search.found, loader.artifact.plan
        gains = changes(plan, found)
        text = "litz: %s: %d kernels tuned in %.1f s, %d of them faster"
        log.info(text, plan.name, len(found), search.spent, len(gains))
        log_artifact("autotuning", plan.name, lambda: _choices(plan, found))
        tuned = _with_choices(loader, found, self._cache) if gains else loader
        return tuned.with_cuda_graphs(tuned.call() if gains else self._plain)


def _choices(plan: Plan, found: Mapping[str, TunedTiles]) -> Iterator[str]:
    """Yield the schedules that tuning chose for each kernel, with times and the user's lines."""
    for name, choice in found.items():
        origins = (
            each.origin
            for s in plan.steps
            if isinstance(s, Launch) and s.kernel == name
            for each in s.origins
        )
        how = "stays with" if choice.schedules == choice.first else "is faster with"
        times = f"{1e6 * choice.seconds:.1f} us, {1e6 * choice.before:.1f} us before"
        text = f"kernel {name} {how} {' '.join(map(str, choice.schedules))}: {times}"
        yield "\n  ".join((text, *describe_locations(origins)))
