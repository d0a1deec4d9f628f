"""A compiled graph that compares its calls with ATen's, and demotes the operations of kernels that are wrong."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from litz.compilation import Compilation
from litz.host.load import HostFunction
from litz.loading import Compiled
from litz.self_check.demotion import demoted
from litz.self_check.judge import difference
from litz.self_check.reference import Reference, gpus_of, unjudged_nodes, why_unchecked
from litz.self_check.snapshot import RandomState, Snapshot, can_be_copied, undisturbed
from litz_ir.device import Device

log = logging.getLogger("litz")

T = TypeVar("T")

UNCHECKED = "litz: %s is not checked: %s"
"""What is said of a call that no reference run was possible for."""

SAMPLE_INTERVAL = 64
"""The calls from one check to the next, where they are sampled: ATen's two runs then take a few percent of the time."""


def checked(compilation: Compilation, made: Compiled) -> Compiled:
    """The compiled graph with its call checked as the options of its ``compilation`` ask for."""
    if made.artifact is None:
        return made
    why = why_unchecked(compilation.gm)
    if why:
        log.info(UNCHECKED, compilation.name, why)
        return made
    unjudged = unjudged_nodes(compilation.gm, own_random=compilation.config.rng == "fast")
    check = Comparison(compilation, made, unjudged, gpus_of(compilation.gm))
    every = SAMPLE_INTERVAL if compilation.config.self_check == "sample" else math.inf
    call = SelfCheckedGraph(made.call, check, every, made.artifact.plan.device)
    # The graph that takes its place may return views where it returned memory of its own.
    return replace(made, call=call, settled=False)


@dataclass(slots=True)
class Comparison:
    """The comparison of a call with ATen's; values of ``unjudged`` nodes are not compared. ``made`` is what is called
    at present, on ``gpus``."""

    compilation: Compilation
    made: Compiled
    unjudged: frozenset[str]
    gpus: tuple[int, ...]

    def run(self, args: list[Any]) -> Sequence[Any]:
        """The results of a call, which are ATen's where its own are wrong; then ``made`` is another from now on.

        The arguments that the call writes to get the same. Raises ``WrongResult`` where the options ask for that.
        """
        snapshot = self._guarded(partial(self._snapshot, args), "the call is not copied")
        if snapshot is None:
            return self.made.call(args)
        arguments = list(args)
        results = self._called(args)
        if results is None:
            snapshot.restore(arguments)
            del snapshot
            return self.made.call(arguments)
        after = RandomState.now(self.gpus)
        found = self._guarded(partial(self._judged, snapshot, results, arguments), "its results stay")
        if found is None or not found[1]:
            after.restore()
            return results
        return self._righted(*found, results, arguments)

    def _called(self, args: list[Any]) -> list[Any] | None:
        """A call's results; None where there is no memory for it, which the copies of its arguments may have taken."""
        try:
            return list(self.made.call(args))
        except Exception as error:
            if not _wants_memory(error):
                raise
            self._say(error)
            return None

    def _snapshot(self, args: Sequence[Any]) -> Snapshot | None:
        if can_be_copied(args):
            return Snapshot.of(args, self.gpus)
        log.info(UNCHECKED, self.compilation.name, "an argument is no plain tensor")
        return None

    def _judged(
        self, snapshot: Snapshot, results: Sequence[Any], arguments: Sequence[Any]
    ) -> tuple[Reference, str] | None:
        """ATen's run, and what is wrong by it; None where ATen cannot run the graph on this call's arguments."""
        try:
            reference = Reference(self.compilation.gm, snapshot, self.unjudged)
        except (RuntimeError, IndexError, ValueError) as error:
            self._say(error)
            return None
        with undisturbed():
            found = reference.labelled(results, arguments)
            exact = partial(getattr, reference, "exact")
            return reference, difference(found, reference.expected, exact, reference.nearby)

    def _righted(
        self, reference: Reference, wrong: str, results: Sequence[Any], arguments: Sequence[Any]
    ) -> Sequence[Any]:
        """ATen's results of a call that was ``wrong``, whose graph is compiled anew for the next ones."""
        right = self._guarded(
            partial(_corrected, reference, results, arguments), "ATen's results are returned"
        )
        try:
            self.made = demoted(self.compilation, self.made, reference, wrong)
        finally:
            reference.after.restore()
        return reference.results if right is None else right

    def _guarded(self, work: Callable[[], T | None], instead: str) -> T | None:
        """What a part of the check gives; None where it fails, which costs no more than the check."""
        try:
            return work()
        except Exception as error:
            if _wants_memory(error):
                self._say(error)
            else:
                text = f"{self.compilation.name} runs unchecked and {instead}"
                self.compilation.failures.report(error, "self-check", text)
            return None

    def _say(self, error: Exception) -> None:
        """Tell why a call is not checked where no part of litz is to blame."""
        quiet = self.compilation.config.fallback == "silent"
        text = f"{type(error).__name__}: {error}"
        log.log(logging.INFO if quiet else logging.WARNING, UNCHECKED, self.compilation.name, text)


class SelfCheckedGraph:
    """A graph as a function of its list of arguments, which it empties: the first call is checked, and one after each
    ``every`` calls. Meanwhile other threads run it as it is; so do calls that somebody captures as a CUDA graph."""

    def __init__(self, call: HostFunction, check: Comparison, every: float, device: Device) -> None:
        self._call = call
        self._check: Comparison | None = check
        self._every = every
        self._on_gpu = device.kind == "cuda"
        self._unchecked: float = 0
        self._turn = threading.Lock()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._unchecked > 0:
            self._unchecked -= 1
            return self._call(args)
        if self._on_gpu and torch.cuda.is_current_stream_capturing():
            return self._call(args)
        if not self._turn.acquire(blocking=False):
            return self._call(args)
        try:
            if self._check is None or self._unchecked > 0:
                return self._call(args)  # another thread has just checked
            results = self._check.run(args)
            self._call = self._check.made.call
            # What ATen runs as a whole has nothing to check any more.
            last = self._check.made.artifact is None or self._every == math.inf
            self._unchecked = math.inf if last else self._every - 1
            if last:
                self._check = None
            return results
        finally:
            self._turn.release()


def _wants_memory(error: Exception) -> bool:
    """True for errors of allocators: Python's, the CPU's and a GPU's."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _corrected(reference: Reference, results: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """A call's results with ATen's values, which the arguments that it writes to get as well."""
    with torch.no_grad():
        for k in reference.written:
            arguments[k].copy_(reference.arguments[k])
        return [_filled(own, right) for own, right in zip(results, reference.results, strict=True)]


def _filled(own: Any, right: Any) -> Any:
    """A result in its own memory with the right values; the right one where that memory cannot hold it."""
    if not isinstance(own, Tensor) or not isinstance(right, Tensor) or own.shape != right.shape:
        return right
    if own.dtype != right.dtype or torch._debug_has_internal_overlap(own):
        return right
    return own.copy_(right)
