"""Verdict on a graph: it is compiled and called, and judged against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from litz.cache.artifacts import ArtifactCache
from litz.debugging.probe import failure_of
from litz.debugging.replay import Replay, backward
from litz.self_check.judge import difference
from litz.self_check.reference import in_double_precision
from litz.self_check.snapshot import copied_leaves
from litz.settings import Config
from litz.timing import bench

Check = Literal["crash", "wrong", "slow"]
"""Kind of failure that is looked for: an exception, values that differ from eager's, or calls that take longer."""

SEED = 0
"""Seed of the elements of inputs and of random operations."""


class TooSlow(Exception):
    """Calls of a compiled graph take more than some multiple of eager's time; ``ratio`` is theirs."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        super().__init__(f"a call takes {ratio:.2f} times as long as in eager")


def run(gm: GraphModule, inputs: Sequence[Any], replay: Replay, check: Check, ratio: float = 1.0) -> None:
    """Compile and call a graph, and raise what a ``check`` looks for.

    ``crash`` raises the exception of the compilation or the call; ``wrong`` raises ``AssertionError`` where results,
    inputs that the graph writes to or gradients are outside the bound of the self-check; ``slow`` raises
    :class:`TooSlow` where a call takes more than ``ratio`` times eager's time. Errors of the graph in eager raise
    :class:`EagerFails`.
    """
    given = inputs if replay.through_aot else [_plain(each) for each in inputs]
    _CHECKS[check](gm, given, replay, ratio)


class EagerFails(Exception):
    """The graph fails in eager too."""


def failure(gm: GraphModule, inputs: Sequence[Any], replay: Replay, check: Check, ratio: float = 1.0) -> str:
    """Return the kind of the failure that :func:`run` raises, as :func:`~litz.debugging.probe.failure_of` names it;
    empty for a graph that does not fail, or does so in eager too."""
    try:
        run(gm, inputs, replay, check, ratio)
    except EagerFails:
        return ""
    except Exception as error:
        return failure_of(error)
    return ""


@cache
def _binaries(options: Config) -> ArtifactCache:
    """Return the cache of binaries for graphs that this process judges, in which no graph is found."""
    return ArtifactCache.open(options).without_graphs()


def _compiled(gm: GraphModule, inputs: Sequence[Any], replay: Replay, fallback: str) -> Callable[..., Any]:
    """Compile a copy of a graph."""
    options = replay.config(fallback=fallback, autotune=False, self_check="off")
    return replay.compiled(copy.deepcopy(gm), inputs, options, _binaries(options))


def _values(call: Callable[..., Any], inputs: Sequence[Any]) -> Mapping[str, Any]:
    """Return the values after a call of ``call`` on copies of inputs, by name: results, inputs, gradients."""
    torch.manual_seed(SEED)
    given = copied_leaves(inputs)
    results = pytree.tree_leaves(call(*given))
    backward(results)
    found = {f"result {k}": _plain(each) for k, each in enumerate(results) if each is not None}
    found |= {f"input {k}": _plain(each) for k, each in enumerate(given)}
    gradients = ((k, getattr(each, "grad", None)) for k, each in enumerate(given))
    return found | {f"gradient {k}": each for k, each in gradients if each is not None}


def _plain(value: Any) -> Any:
    """Return a tensor without its gradient function."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def _in_eager(gm: GraphModule, inputs: Sequence[Any]) -> Mapping[str, Any]:
    """Return the values after a call in eager; raise :class:`EagerFails`."""
    try:
        return _values(copy.deepcopy(gm), inputs)
    except Exception as error:
        raise EagerFails(f"{type(error).__name__}: {error}") from error


def _crash(gm: GraphModule, inputs: Sequence[Any], replay: Replay, ratio: float) -> None:
    """Raise the exception of a compilation and a call."""
    _in_eager(gm, inputs)
    _values(_compiled(gm, inputs, replay, "error"), inputs)


def _wrong(gm: GraphModule, inputs: Sequence[Any], replay: Replay, ratio: float) -> None:
    """Raise ``AssertionError`` for a value outside the bound of the self-check."""
    expected = _in_eager(gm, inputs)
    found = _values(_compiled(gm, inputs, replay, "silent"), inputs)

    def exact() -> Mapping[str, Any]:
        values = in_double_precision(gm, copied_leaves(inputs))
        if values is None:
            return expected
        results = {f"result {k}": value for k, value in enumerate(pytree.tree_leaves(values))}
        own = {name: _plain(value) for name, value in results.items() if name in expected}
        return {**expected, **own}

    if text := difference(found, expected, exact, lambda: ()):
        raise AssertionError(text)


def _slow(gm: GraphModule, inputs: Sequence[Any], replay: Replay, ratio: float) -> None:
    """Raise :class:`TooSlow` where calls take more than ``ratio`` times eager's time."""
    plain = [_plain(each) for each in inputs]
    own = replace(replay, calls=1)
    compiled = _compiled(gm, plain, own, "silent")
    with torch.no_grad():
        _in_eager(gm, plain)
        eager = bench(gm, *plain, seconds=0.05)
        found = bench(compiled, *plain, seconds=0.05)
    # The slowest tenth of eager's calls and the fastest of litz's, since machines are noisy.
    if found.low > ratio * eager.high:
        raise TooSlow(found.median / eager.median)


_CHECKS: Mapping[str, Callable[[GraphModule, Sequence[Any], Replay, float], None]] = MappingProxyType(
    {"crash": _crash, "wrong": _wrong, "slow": _slow}
)
"""The function of each check."""
