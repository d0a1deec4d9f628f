"""A graph that is tuned while it is called: as it is at first, with the best tiles in the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from litz.artifact import Artifact, TileChoice
from litz.cache.artifacts import ArtifactCache
from litz.host.externs import NO_ROUTINES
from litz.host.load import HostFunction
from litz.loading import NO_CONSTANTS, Compiled, Loader, loader_of
from litz.settings import Config
from litz.targets import TargetSet
from litz.timing import Sample, sampler
from litz.tuning.applied import applied, changes
from litz.tuning.search import Search
from litz.tuning.subjects import subjects_of
from litz_ir.errors import LitzError
from litz_ir.plan.program import kernels_in
from litz_ir.target.protocol import TunableTarget

log = logging.getLogger("litz")


def load(
    artifact: Artifact,
    name: str,
    targets: TargetSet,
    config: Config,
    cache: ArtifactCache,
    constants: Mapping[str, torch.Tensor] = NO_CONSTANTS,
    routines: Mapping[str, Callable[..., Any]] = NO_ROUTINES,
    clock: Callable[[], Sample] | None = None,
) -> Compiled:
    """A plan and its binaries as a callable that tracebacks know by ``name``, tuned by what ``clock`` makes where the
    options ask for that. Raises ``LitzError``."""
    loader = loader_of(artifact, name, targets, config, constants, routines)
    return with_tuning(loader, cache, clock) if config.autotune else loader.compiled()


def with_tuning(loader: Loader, cache: ArtifactCache, clock: Callable[[], Sample] | None = None) -> Compiled:
    """The graph with the tiles that are known to be quickest; where some are not known, they are sought in its next
    calls, timed by what ``clock`` makes. Raises ``LitzError``."""
    plan = loader.artifact.plan
    if not kernels_in(plan):
        return loader.compiled()
    target = loader.targets[plan.device]
    if not isinstance(target, TunableTarget):
        return loader.compiled()
    subjects = subjects_of(plan, target)
    known = {each.kernel.name: cache.tiles.read(each.key) for each in subjects}
    choices = {name: choice for name, choice in known.items() if choice is not None}
    loader = _with_choices(loader, choices, cache)
    unknown = [each for each in subjects if each.kernel.name not in choices]
    if not unknown:
        return loader.compiled()
    if clock is None:
        clock = partial(sampler, "events" if plan.device.kind == "cuda" else "host")
    search = Search(loader, unknown, cache, clock, loader.config.autotune_seconds)
    return loader.compiled(Tuned(loader, search, cache))


def _with_choices(loader: Loader, choices: Mapping[str, TileChoice], cache: ArtifactCache) -> Loader:
    """The loader of the same graph with these choices; itself where they cannot be made, which is said."""
    plan = loader.artifact.plan
    try:
        artifact = applied(loader.artifact, choices, loader.targets[plan.device], cache)
    except LitzError as error:
        log.warning("litz: %s keeps the tiles that it had before it was tuned: %s", plan.name, error)
        return loader
    return replace(loader, artifact=artifact)


class Tuned:
    """A graph as a function of its list of arguments, which it empties.

    The first call runs it as it is, so that a graph that is called once is never tuned. The next ones search; when
    that is over, the graph is loaded anew with what was found and, where options ask for it, recorded from then on.
    Meanwhile other threads, and calls that somebody records, run it as it is.
    """

    def __init__(self, loader: Loader, search: Search, cache: ArtifactCache) -> None:
        self._loader = loader
        self._search = search
        self._cache = cache
        self._plain = loader.call()
        self._final: HostFunction | None = None
        self._on_gpu = loader.artifact.plan.device.kind == "cuda"
        self._ordinal = torch.cuda.current_device() if self._on_gpu else -1
        self._called = False
        self._turn = threading.Lock()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._final is not None:
            return self._final(args)
        if self._called and not self._is_recorded() and self._turn.acquire(blocking=False):
            try:
                # What is loaded meanwhile is for the device that the graph was compiled for.
                with torch.cuda.device(self._ordinal):
                    return self._searched(args)
            finally:
                self._turn.release()
        results = self._plain(args)
        self._called = True
        return results

    def _searched(self, args: list[Any]) -> Sequence[Any]:
        """A call that searches, unless another thread has ended that just now."""
        if self._final is not None:
            return self._final(args)
        results = self._search.run(args)
        if self._search.over:
            self._final = self._settled()
        return results

    def _is_recorded(self) -> bool:
        """True while somebody records this stream, who can neither be waited for nor timed."""
        return self._on_gpu and torch.cuda.is_current_stream_capturing()

    def _settled(self) -> HostFunction:
        """The graph as it runs from now on."""
        found, loader = self._search.found, self._loader
        plan = loader.artifact.plan
        gains = changes(plan, found)
        said = "litz: %s: %d kernels tuned in %.1f s, %d made quicker"
        log.info(said, plan.name, len(found), self._search.spent, len(gains))
        call = _with_choices(loader, found, self._cache).call() if gains else self._plain
        return loader.replayed(call)
