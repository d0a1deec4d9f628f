"""Observation of compilations: what a call, or a whole program, has litz compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from litz.capture.compile_fx import compile_fx
from litz.configuration import config
from litz.explain.call_times import CallTimes
from litz.explain.captures import Frames, without_recompile_limit
from litz.explain.explanation import Explanation
from litz.explain.graph_breaks import GraphBreaks
from litz.explain.graphs import Times, graph_report
from litz.explain.kernel_times import LaunchTimes
from litz.explain.machine import machine_limits
from litz.loading import Compiled
from litz.options import config_from


class Observation:
    """Everything that litz compiles through :meth:`backend`, from the creation of this object on."""

    def __init__(self, *, measure: bool = False) -> None:
        self._measure = measure
        self._graphs: list[tuple[Compiled, Times | None]] = []
        self._breaks, self._frames = GraphBreaks(), Frames()

    def backend(
        self,
        gm: GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile a graph as litz's backend does, and note it with its compilation by Dynamo."""
        self._frames.note()
        chosen = config_from(config.current(), mode, options)
        return compile_fx(gm, inputs, config=chosen, observers=(self._observe,))

    def _observe(self, compiled: Compiled) -> None:
        """Note a compiled graph; where times are wanted, observe its calls."""
        times = None
        if self._measure and compiled.loader is not None:
            times = Times(LaunchTimes(compiled.loader.artifact.plan), CallTimes())
            compiled.call = compiled.loader.call(times.launches.watch, times.calls.watched)
        self._graphs.append((compiled, times))

    def explanation(self) -> Explanation:
        """Return the report of all that was compiled so far."""
        graphs = tuple(graph_report(c, times) for c, times in self._graphs if c.artifact is not None)
        kinds = sorted({kernel.device for graph in graphs for kernel in graph.kernels})
        limits = tuple(machine_limits(kind) for kind in kinds) if self._measure else ()
        uncompiled = sum(compiled.artifact is None for compiled, _ in self._graphs)
        return Explanation(graphs, uncompiled, self._breaks.found(), self._frames.found(), limits)


def explain(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    backward: bool = False,
    measure: bool = False,
    others: Sequence[Sequence[Any]] = (),
) -> Explanation:
    """Compile a function, call it with ``args`` and ``kwargs``, then with ``others`` instead of ``args``, and report
    its compiled form, as :func:`litz.explain` says.
    """
    observation = Observation(measure=measure)
    compiled = torch.compile(function, backend=observation.backend)
    with without_recompile_limit(), torch.set_grad_enabled(backward or torch.is_grad_enabled()):
        for given in (args, *others):
            result = compiled(*given, **kwargs)
            if backward:
                run_backward(result)
    return observation.explanation()


def run_backward(result: Any) -> None:
    """Run the backward of the sum of all results that require a gradient."""
    leaves = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
    torch.autograd.backward([each.float().sum() for each in leaves if each.requires_grad])
