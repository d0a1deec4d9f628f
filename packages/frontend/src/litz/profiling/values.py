"""Values that the steps of a compiled graph compute, reported as log lines; imported where ``config.debug_values`` asks
for them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from litz.devices import gpu, is_gpu
from litz.host.program import Computed, ObservedStep
from litz.profiling.calls import described
from litz.profiling.line_map import user_lines
from litz_ir.origin import Origin
from litz_ir.plan import CallStep

log = logging.getLogger("litz")


def has_nan(tensor: Tensor) -> bool:
    """Report whether a tensor contains NaN; waits for its device."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    with torch.no_grad():
        return bool(torch.isnan(_widened(tensor)).any())


class ValueReport:
    """Reports the tensors that the steps of one graph compute.

    With ``nan`` a result that contains NaN or infinity is reported once, with ``all`` every result in every call.
    Nothing is read while a CUDA graph is captured.
    """

    def __init__(self, graph: str, chosen: Literal["nan", "all"]) -> None:
        self._graph = graph
        self._all = chosen == "all"
        self._reported: set[tuple[str, str]] = set()

    def computed(self, what: Computed, results: Sequence[Any]) -> None:
        """Report the tensors that a step has just computed; waits for their device."""
        for name, tensor in zip(what.values, results, strict=True):
            if not isinstance(tensor, Tensor):
                continue  # routines of other packages may return anything
            if is_gpu(tensor.device.type) and gpu.is_current_stream_capturing():
                continue
            with torch.no_grad():
                self._report(what, name, tensor)

    def _report(self, what: Computed, name: str, tensor: Tensor) -> None:
        """Report one tensor, if it is one to be reported."""
        summary = Summary(tensor)
        odd = summary.nans + summary.infinite > 0
        if not self._all and (not odd or (what.name, name) in self._reported):
            return
        self._reported.add((what.name, name))
        lines = [f"litz: {name} of {self._graph}, {described([tensor])}: {summary}", *_source(what.step)]
        log.warning("%s", "\n".join(lines))


class Summary:
    """Counts of special values of a tensor, and the range and mean of the others."""

    def __init__(self, tensor: Tensor) -> None:
        special = tensor.is_floating_point() or tensor.is_complex()
        values = _widened(tensor)
        self.size = values.numel()
        self.nans = int(torch.isnan(values).sum()) if special else 0
        self.infinite = int(torch.isinf(values).sum()) if special else 0
        if tensor.is_complex():
            values = values.abs()
        self.what = "magnitudes" if tensor.is_complex() else "values"
        finite = values[torch.isfinite(values)].double() if special else values.double()
        self.least, self.greatest, self.mean = math.nan, math.nan, math.nan
        if finite.numel():
            self.least, self.greatest = (float(each) for each in torch.aminmax(finite))
            self.mean = float(finite.mean())

    def __str__(self) -> str:
        if not self.size:
            return "no elements"
        counts = f"{self.nans} NaN and {self.infinite} infinite of {self.size}"
        if math.isnan(self.mean):
            return counts
        return f"{counts}, {self.what} from {self.least:g} to {self.greatest:g}, mean {self.mean:g}"


def unobserved(step: ObservedStep, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step's function as it is, for programs that also give a native call the shapes of buffers."""
    if isinstance(step, CallStep):
        return call
    return lambda addresses, symbols, shapes: call(addresses, symbols)


def _source(step: ObservedStep) -> list[str]:
    """Return lines that name the step, its operations and the user's lines."""
    if isinstance(step, CallStep):
        return [f"  by the library call {step.target}", *_from((step.origin,))]
    operations = " ".join(dict.fromkeys(each.operation for each in step.origins))
    fused = f", which fuses {operations}" if operations else ""
    return [f"  by the kernel {step.kernel}{fused}", *_from(each.origin for each in step.origins)]


def _from(origins: Iterable[Origin]) -> list[str]:
    """Return a line for each of the user's lines."""
    return [f"  from: {line}" for line in user_lines(origins)]


def _widened(tensor: Tensor) -> Tensor:
    """Return values of a dtype that has ``isnan``, which fp8 has not."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor
