"""Record and replay of calls during a check of a pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litz_ir.interp.calls import Externs
from litz_ir.interp.encoding import Array
from litz_ir.loops.nodes import Call, LoopGraph
from litz_ir.passes.samples import draw_array

_CLOSE = 1e-3
"""Relative and absolute difference of floats up to which two calls have the same arguments."""


@dataclass(frozen=True)
class _Record:
    """Arguments before and after a call, and its results."""

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    returned: Any


class CallRecorder:
    """Routines for two runs of the same calls.

    A call of the first run goes to ``externs``, or returns random tensors of the result types if the routine is
    missing. The second run returns the results of the first one for the same arguments.
    """

    def __init__(
        self, graph: LoopGraph, externs: Externs, symbols: Mapping[str, int], rng: np.random.Generator
    ) -> None:
        self._externs = externs
        self._symbols = symbols
        self._rng = rng
        self._records: dict[str, list[_Record]] = defaultdict(list)
        self._pending: dict[str, list[Call]] = defaultdict(list)
        for operation in graph.operations:
            if isinstance(operation, Call):
                self._pending[operation.target].append(operation)

    def recording(self) -> dict[str, Callable[..., Any]]:
        """Routines for the first run."""
        return {target: self._recorder(target) for target in self._pending}

    def replaying(self) -> dict[str, Callable[..., Any]]:
        """Routines for the second run, which raise ``KeyError`` for arguments that did not occur in the first one."""
        return {target: self._player(target) for target in self._records}

    def _recorder(self, target: str) -> Callable[..., Any]:
        def routine(*arguments: Any, **attributes: Any) -> Any:
            everything = (*arguments, *attributes.values())
            before = _frozen(everything)
            call = self._pending[target].pop(0)
            if target in self._externs:
                returned = self._externs[target](*arguments, **attributes)
            else:
                returned = self._random_results(call)
            self._records[target].append(_Record(before, _frozen(everything), _frozen(returned)))
            return returned

        return routine

    def _random_results(self, call: Call) -> Any:
        values = [value for value in call.results if value.name not in call.unreturned]
        found = tuple(draw_array(value.type, self._symbols, 2, self._rng) for value in values)
        return found if call.unpack else found[0] if found else None

    def _player(self, target: str) -> Callable[..., Any]:
        def routine(*arguments: Any, **attributes: Any) -> Any:
            everything = (*arguments, *attributes.values())
            for record in self._records[target]:
                if _equal(record.before, everything):
                    _restore(everything, record.after)
                    return _frozen(record.returned)
            raise KeyError(f"{target} is called with arguments that it was not called with before the pass")

        return routine


def _frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return tuple(map(_frozen, value)) if isinstance(value, (tuple, list)) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and _close(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and bool(a == b)


def _close(a: Array, b: Array) -> bool:
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, rtol=_CLOSE, atol=_CLOSE, equal_nan=True))


def _restore(value: Any, content: Any) -> None:
    """Write the contents of the recorded call's arguments after the call."""
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            np.copyto(value, content)
    elif isinstance(value, tuple):
        for part, old in zip(value, content):
            _restore(part, old)
