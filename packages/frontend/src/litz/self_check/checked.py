"""A compiled graph whose calls are compared with ATen's, and which demotes the operations of wrong kernels."""

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
from litz.devices import gpu, is_gpu
from litz.host.runtime.load import HostFunction
from litz.loading import Compiled
from litz.self_check.demotion import demoted
from litz.self_check.judge import difference
from litz.self_check.reference import Reference, check_obstacle, gpus_of, unjudged_nodes
from litz.self_check.snapshot import RandomState, Snapshot, can_be_copied, undisturbed
from litz_ir.device import Device

log = logging.getLogger("litz")

T = TypeVar("T")

_UNCHECKED = "litz: %s is not checked: %s"
"""Log line about a call without a reference run."""

SAMPLE_INTERVAL = 64
"""Calls from one check to the next with ``sample``: ATen's two runs then take a few percent of the time."""


def checked(compilation: Compilation, made: Compiled) -> Compiled:
    """Return the compiled graph with checked calls, as the options of its ``compilation`` say."""
    if made.artifact is None:
        return made
    obstacle = check_obstacle(compilation.gm)
    if obstacle:
        log.info(_UNCHECKED, compilation.name, obstacle)
        return made
    unjudged = unjudged_nodes(compilation.gm, own_random=compilation.config.rng == "fast")
    check = Comparison(compilation, made, unjudged, gpus_of(compilation.gm))
    every = SAMPLE_INTERVAL if compilation.config.self_check == "sample" else math.inf
    call = SelfCheckedGraph(made.call, check, every, made.artifact.plan.device)
    # A replacement may return views where this graph returns tensors with memory of their own.
    return replace(made, call=call, settled=False)


@dataclass(slots=True)
class Comparison:
    """The comparison of a call with ATen's."""

    compilation: Compilation
    """Compilation of the graph, for its FX graph, options and demotion."""

    made: Compiled
    """The compiled graph that is called at present; replaced after a wrong result."""

    unjudged: frozenset[str]
    """Nodes whose values are not compared."""

    gpus: tuple[torch.device, ...]
    """Ordinals of the graph's GPUs, whose random generators are restored."""

    def run(self, args: list[Any]) -> Sequence[Any]:
        """Run a call and return its results, or ATen's where they are wrong; then ``made`` is replaced.

        Arguments that the call overwrites get ATen's values too. Raises ``WrongResult`` where the options say so.
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
        return self._corrected_call(*found, results, arguments)

    def _called(self, args: list[Any]) -> list[Any] | None:
        """Return a call's results; ``None`` where memory is short, which the copies of arguments may have caused."""
        try:
            return list(self.made.call(args))
        except Exception as error:
            if not _wants_memory(error):
                raise
            self._log_unchecked(error)
            return None

    def _snapshot(self, args: Sequence[Any]) -> Snapshot | None:
        """Return a snapshot of the arguments; ``None`` where one cannot be copied."""
        if can_be_copied(args):
            return Snapshot.of(args, self.gpus)
        log.info(_UNCHECKED, self.compilation.name, "an argument is no strided tensor of torch's own class")
        return None

    def _judged(
        self, snapshot: Snapshot, results: Sequence[Any], arguments: Sequence[Any]
    ) -> tuple[Reference, str] | None:
        """Return ATen's run and the error that it shows; ``None`` where ATen cannot run these arguments."""
        try:
            reference = Reference(self.compilation.gm, snapshot, self.unjudged)
        except (RuntimeError, IndexError, ValueError) as error:
            self._log_unchecked(error)
            return None
        with undisturbed():
            found = reference.labelled(results, arguments)
            exact = partial(getattr, reference, "exact")
            return reference, difference(found, reference.expected, exact, reference.nearby)

    def _corrected_call(
        self, reference: Reference, wrong: str, results: Sequence[Any], arguments: Sequence[Any]
    ) -> Sequence[Any]:
        """Return ATen's results of a call that was ``wrong``, and recompile the graph for later calls."""
        right = self._guarded(
            partial(_corrected, reference, results, arguments), "ATen's results are returned"
        )
        try:
            self.made = demoted(self.compilation, self.made, reference, wrong)
        finally:
            reference.after.restore()
        return reference.results if right is None else right

    def _guarded(self, work: Callable[[], T | None], instead: str) -> T | None:
        """Return the result of a step of the check; ``None`` where it fails, which costs the check alone."""
        try:
            return work()
        except Exception as error:
            if _wants_memory(error):
                self._log_unchecked(error)
            else:
                text = f"{self.compilation.name} runs unchecked and {instead}"
                self.compilation.failures.report(error, "self-check", text)
            return None

    def _log_unchecked(self, error: Exception) -> None:
        """Log the reason that a call is not checked, where that is no failure of litz."""
        quiet = self.compilation.config.fallback == "silent"
        text = f"{type(error).__name__}: {error}"
        log.log(logging.INFO if quiet else logging.WARNING, _UNCHECKED, self.compilation.name, text)


class SelfCheckedGraph:
    """A graph as a function of its list of arguments, which it empties.

    The first call is checked, then one in ``every`` calls. Meanwhile other threads run it unchecked; so do calls
    that are being captured as a CUDA graph.
    """

    def __init__(self, call: HostFunction, check: Comparison, every: float, device: Device) -> None:
        self._call = call
        self._check: Comparison | None = check
        self._every = every
        self._on_gpu = is_gpu(device.kind)
        self._unchecked: float = 0
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._unchecked > 0:
            self._unchecked -= 1
            return self._call(args)
        if self._on_gpu and gpu.is_current_stream_capturing():
            return self._call(args)
        if not self._lock.acquire(blocking=False):
            return self._call(args)
        try:
            if self._check is None or self._unchecked > 0:
                return self._call(args)  # another thread has just run the check
            results = self._check.run(args)
            self._call = self._check.made.call
            # A graph that runs as ATen operations needs no check.
            last = self._check.made.artifact is None or self._every == math.inf
            self._unchecked = math.inf if last else self._every - 1
            if last:
                self._check = None
            return results
        finally:
            self._lock.release()


def _wants_memory(error: Exception) -> bool:
    """Report whether an error is one of an allocator: Python's, the CPU's or a GPU's."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _corrected(reference: Reference, results: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Return a call's results with ATen's values, and give these to the arguments that it overwrites."""
    with torch.no_grad():
        for k in reference.written:
            arguments[k].copy_(reference.arguments[k])
        return [_filled(own, right) for own, right in zip(results, reference.results, strict=True)]


def _filled(own: Any, right: Any) -> Any:
    """Return a result in its own memory with the right values; the right one where that memory cannot contain them."""
    if not isinstance(own, Tensor) or not isinstance(right, Tensor) or own.shape != right.shape:
        return right
    if own.dtype != right.dtype or torch._debug_has_internal_overlap(own):
        return right
    return own.copy_(right)
