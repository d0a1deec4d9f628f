"""Plain graphs, called without what AOTAutograd puts around every graph.

Its wrapper looks, at every call, for views, mutations, tokens, subclasses and symbols that a plain graph has not: it
takes as long as several kernels. What is left to do is in :mod:`litz.capture.runtime_wrappers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from litz.artifact import Artifact, CompiledCapture
from litz.capture.donated import SavedTensors
from litz.capture.fx_graph_cache import is_static, saved_names, takes_what_is_saved, wrapping_of
from litz.capture.runtime_wrappers import gradient_strides, inference_call, training_call
from litz.host.load import HostFunction


@dataclass(frozen=True, slots=True)
class Half:
    """The forward of a training graph, the names of what it saves, and its call. ``settled`` is false where its next
    calls may find a better plan."""

    compiled: CompiledCapture
    saved: list[str]
    call: HostFunction
    settled: bool


@dataclass(slots=True)
class PlainGraph:
    """A plain graph that Dynamo captured, while AOTAutograd hands over its parts.

    It takes ``arity`` tensors; ``gradients`` says that some of them want gradients and autograd listens, ``autocast``
    that torch casts as operators ask. ``key`` is what it may be found by the next time, where it may. ``call`` runs it,
    once all of its parts are compiled.
    """

    arity: int
    gradients: bool
    autocast: bool
    key: str | None = None
    call: Callable[..., Any] | None = None
    half: Half | None = None

    @staticmethod
    def of(inputs: Sequence[torch.Tensor]) -> PlainGraph:
        """A graph that is to be called on such tensors, under the settings of this moment."""
        listening = torch.is_grad_enabled() and any(each.requires_grad for each in inputs)
        return PlainGraph(len(inputs), listening, torch._C._is_any_autocast_enabled())

    def inference(self, gm: GraphModule, artifact: Artifact, call: HostFunction) -> CompiledCapture | None:
        """Take the graph as a whole, without gradients; what it was compiled to, where it turns out to be plain."""
        found = self._wrapped(gm, artifact)
        if found is None:
            return None
        self.call = self.without_gradients(found[0], call)
        return found[0]

    def forward(self, gm: GraphModule, artifact: Artifact, call: HostFunction, *, settled: bool) -> None:
        """Take the first half."""
        found = self._wrapped(gm, artifact)
        self.half = None if found is None else Half(*found, call, settled)

    def backward(
        self, gm: GraphModule, artifact: Artifact, call: HostFunction, saved: SavedTensors
    ) -> CompiledCapture | None:
        """Take the second half; what both were compiled to, where they are plain and fit one another."""
        half, plan = self.half, artifact.plan
        if half is None or not is_static(plan) or len(plan.outputs) != self.arity:
            return None
        if not takes_what_is_saved(gm, half.saved, half.compiled.wrapping):
            return None
        whole = CompiledCapture(half.compiled.forward, half.compiled.wrapping, artifact)
        self.call = with_gradients(whole, half.call, call, saved)
        return whole

    def without_gradients(self, compiled: CompiledCapture, call: HostFunction) -> Callable[..., Any]:
        """A graph as a whole as a function of tensors."""
        call = self.uncast(call)
        return inference_call(compiled.wrapping, unheard(call) if self.gradients else call)

    def uncast(self, call: HostFunction) -> HostFunction:
        """A call for which autocasting was done while it was traced, if there is any."""
        if not self.autocast:
            return call

        def run(args: list[Any]) -> Sequence[Any]:
            with torch._C._DisableAutocast():
                return call(args)

        return run

    def _wrapped(self, gm: GraphModule, artifact: Artifact) -> tuple[CompiledCapture, list[str]] | None:
        wrapping = wrapping_of(gm, artifact.plan, self.arity)
        names = None if wrapping is None else saved_names(gm, wrapping.outputs)
        if wrapping is None or names is None:
            return None
        return CompiledCapture(artifact, wrapping), names


def with_gradients(
    compiled: CompiledCapture, forward: HostFunction, backward: HostFunction, saved: SavedTensors
) -> Callable[..., Any]:
    """Both halves of a training graph as a function of tensors."""
    assert compiled.backward is not None
    plan = compiled.backward.plan
    forward, backward = saved.watched(forward), saved.guarded(backward, plan)
    return training_call(compiled.wrapping, forward, backward, gradient_strides(compiled, plan))


def unheard(call: HostFunction) -> HostFunction:
    """A call of which autograd hears nothing, though arguments want gradients: none of the results has any."""

    def run(args: list[Any]) -> Sequence[Any]:
        with torch.no_grad():
            return call(args)

    return run
