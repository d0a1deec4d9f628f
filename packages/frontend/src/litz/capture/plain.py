"""Plain graphs, called without the wrapper that AOTAutograd puts around every graph.

That wrapper handles views, mutations, tokens, subclasses and symbols in every call, none of which a plain graph has,
and takes as long as several kernels. :mod:`litz.capture.runtime_wrappers` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule

from litz.artifact import CompiledCapture
from litz.capture.donated import SavedTensors, overwritten_inputs
from litz.capture.fx_graph_cache import is_static, saved_names, takes_what_is_saved, wrapping_of
from litz.capture.runtime_wrappers import (
    gradient_strides,
    inference_call,
    inputs_among_saved,
    training_call,
    without_autograd,
)
from litz.host.runtime.load import HostFunction
from litz.loading import Compiled


@dataclass(frozen=True, slots=True)
class Half:
    """The forward of a training graph, while its backward is not compiled yet."""

    compiled: CompiledCapture
    """Its compiled form."""

    saved: list[str]
    """Nodes whose tensors it saves, in order."""

    call: HostFunction
    """Its call."""

    settled: bool
    """False where later calls may find a faster plan."""


@dataclass(slots=True)
class PlainGraph:
    """A plain graph that Dynamo captured, while AOTAutograd passes its parts to litz."""

    arity: int
    """Number of tensors that it takes."""

    gradients: bool
    """True where an input needs a gradient and autograd is on."""

    autocast: bool
    """True where autocast is on."""

    key: str | None = None
    """Key in the FX graph cache; ``None`` where it cannot be cached."""

    call: Callable[..., Any] | None = None
    """Its call, once all parts are compiled."""

    half: Half | None = None
    """The forward, once it is compiled."""

    @staticmethod
    def of(inputs: Sequence[torch.Tensor]) -> PlainGraph:
        """Return the state for a graph that is called with such tensors, under the present settings."""
        listening = torch.is_grad_enabled() and any(each.requires_grad for each in inputs)
        return PlainGraph(len(inputs), listening, torch._C._is_any_autocast_enabled())

    def take(
        self, gm: GraphModule, compiled: Compiled, kind: str, saved: SavedTensors
    ) -> CompiledCapture | None:
        """Add a compiled part; return the compiled form of the whole once all parts are there, where it is plain."""
        if kind == "inference":
            return self.inference(gm, compiled)
        if kind == "backward":
            return self.backward(gm, compiled, saved)
        self.forward(gm, compiled)
        return None

    def inference(self, gm: GraphModule, compiled: Compiled) -> CompiledCapture | None:
        """Add a graph without gradients; return its compiled form where it is plain."""
        found = self._wrapped(gm, compiled)
        if found is None:
            return None
        self.call = self.without_gradients(found[0], compiled.call)
        return _without_empty_constants(found[0])

    def forward(self, gm: GraphModule, compiled: Compiled) -> None:
        """Add the forward of a training graph."""
        found = self._wrapped(gm, compiled)
        self.half = None if found is None else Half(*found, self.uncast(compiled.call), compiled.settled)

    def backward(self, gm: GraphModule, compiled: Compiled, saved: SavedTensors) -> CompiledCapture | None:
        """Add the backward; return the compiled form of both where they are plain and fit each other."""
        artifact = compiled.artifact
        assert artifact is not None
        half, plan = self.half, artifact.plan
        if half is None or not is_static(plan) or len(plan.outputs) != self.arity:
            return None
        if not takes_what_is_saved(gm, half.saved, half.compiled.wrapping):
            return None
        first = half.compiled
        constants = (*first.constants, _constants_of(compiled))
        whole = CompiledCapture(first.forward, first.wrapping, artifact, constants)
        self.call = with_gradients(whole, half.call, self.uncast(compiled.call), saved)
        return _without_empty_constants(whole)

    def without_gradients(self, compiled: CompiledCapture, call: HostFunction) -> Callable[..., Any]:
        """Return a graph without gradients as a function of tensors."""
        call = self.uncast(call)
        return inference_call(compiled.wrapping, without_autograd(call) if self.gradients else call)

    def uncast(self, call: HostFunction) -> HostFunction:
        """Return a call with autocast off where it was on: tracing has inserted the casts."""
        if not self.autocast:
            return call

        def run(args: list[Any]) -> Sequence[Any]:
            with torch._C._DisableAutocast():
                return call(args)

        return run

    def _wrapped(self, gm: GraphModule, compiled: Compiled) -> tuple[CompiledCapture, list[str]] | None:
        """Return the compiled form of a graph and the nodes that it saves; ``None`` where it is not plain."""
        artifact = compiled.artifact
        assert artifact is not None
        wrapping = wrapping_of(gm, artifact.plan, self.arity)
        names = None if wrapping is None else saved_names(gm, wrapping.outputs)
        if wrapping is None or names is None:
            return None
        return CompiledCapture(artifact, wrapping, constants=(_constants_of(compiled),)), names


def _constants_of(compiled: Compiled) -> Mapping[str, torch.Tensor]:
    """Return the tensors that a compiled graph contains."""
    return {} if compiled.loader is None else compiled.loader.constants


def _without_empty_constants(compiled: CompiledCapture) -> CompiledCapture:
    """Return the compiled form of a graph without lists of constants where all of them are empty."""
    return compiled if any(compiled.constants) else replace(compiled, constants=())


def with_gradients(
    compiled: CompiledCapture, forward: HostFunction, backward: HostFunction, saved: SavedTensors
) -> Callable[..., Any]:
    """Return both halves of a training graph as a function of tensors."""
    assert compiled.backward is not None
    plan = compiled.backward.plan
    forward, backward = saved.watched(forward), saved.guarded(backward, plan)
    return training_call(
        compiled.wrapping,
        forward,
        backward,
        gradient_strides(compiled, plan),
        inputs_among_saved(compiled),
        overwritten_inputs(plan),
    )
