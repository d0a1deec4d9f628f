"""Events of the steps of a host program: a range around each launch and each library call, with its operations and the
user's lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any

from torch import Tensor

from litz.host.program import ObservedStep
from litz.profiling.calls import Event
from litz.profiling.line_map import user_lines
from litz_ir.origin import Origin, abbreviated_list
from litz_ir.plan import CallStep, Kernel, Launch, Plan, kernels_in

_DROPPED = str.maketrans({'"': "'", "\\": "/", "\n": " ", "\r": " ", "\t": " "})
"""Characters of a value for which the profiler drops it from a trace, and what is written instead."""

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the buffers of a launch."""


class StepEvents:
    """Puts an event around each launch and library call of a plan and its subplans."""

    def __init__(self, plan: Plan) -> None:
        self._kernels = {kernel.name: kernel for kernel in kernels_in(plan)}

    def around(self, step: ObservedStep, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step's function as an event."""
        if isinstance(step, CallStep):
            return _call_event(step, call)
        return _launch_event(step, self._kernels[step.kernel], call)


def _launch_event(step: Launch, kernel: Kernel, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a native call that launches one kernel as an event; it is given the shapes of the buffers."""
    origins = [each.origin for each in step.origins]
    operations = tuple(dict.fromkeys(each.operation for each in step.origins))
    name = _event_name(step.kernel, operations, origins)
    facts = {"kernel": step.kernel, **_facts(operations, origins)}
    described = lru_cache(partial(_shapes, kernel))

    def run(addresses: Sequence[int], symbols: Sequence[int | float], shapes: Shapes) -> None:
        with Event(name, [], {**facts, "shapes": described(shapes)}):
            call(addresses, symbols)

    return run


def _call_event(step: CallStep, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a routine as an event, with the tensors among its arguments as inputs."""
    operations = (step.origin.node,) if step.origin.node else ()
    name = _event_name(step.target, operations, [step.origin])
    facts = {"routine": step.target, "reason": _printable(step.reason), **_facts(operations, [step.origin])}

    def run(*args: Any, **kwargs: Any) -> Any:
        with Event(name, [each for each in args if isinstance(each, Tensor)], facts):
            return call(*args, **kwargs)

    return run


def _event_name(called: str, operations: Sequence[str], origins: Iterable[Origin]) -> str:
    """Return a short name: ``k0_softmax: mul, _softmax (model.py:3)``."""
    named = dict.fromkeys(f"{PurePath(each.file).name}:{each.line}" for each in origins if each.file)
    fused = f": {abbreviated_list(operations)}" if operations else ""
    where = f" ({abbreviated_list(named)})" if named else ""
    return f"{called}{fused}{where}"


def _facts(operations: Sequence[str], origins: Iterable[Origin]) -> dict[str, str]:
    """Return the operations and the user's lines in full."""
    lines = "; ".join(user_lines(origins))
    return {"operations": _printable(" ".join(operations)), "lines": _printable(lines)}


def _shapes(kernel: Kernel, shapes: Shapes) -> str:
    """Return dtypes and shapes of the buffers that a launch reads and writes: ``float32[4, 8] -> float32[4]``."""
    texts = [
        f"{parameter.dtype.torch_name}{list(shape)}"
        for parameter, shape in zip(kernel.parameters, shapes, strict=True)
    ]
    uses = list(zip(kernel.parameters, texts, strict=True))
    read = ", ".join(text for parameter, text in uses if parameter.access in ("in", "inout"))
    written = ", ".join(text for parameter, text in uses if parameter.access in ("out", "inout"))
    return f"{read} -> {written}"


def _printable(text: str) -> str:
    """Return a text that the profiler keeps."""
    return text.translate(_DROPPED)
