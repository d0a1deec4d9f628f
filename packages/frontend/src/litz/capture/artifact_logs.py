"""Torch's log artifacts for graphs that litz compiles, as ``TORCH_LOGS="output_code,fusion"`` turns them on.

Each record begins with the name of the graph. An artifact that is off costs one comparison a graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType

from torch._logging._internal import getArtifactLogger, log_registry

from litz.artifact import Artifact
from litz.loading import Compiled
from litz_ir.origin import describe_locations
from litz_ir.plan import CallStep, Launch, plans_in


def log_artifacts(compiled: Compiled) -> None:
    """Log what torch's artifacts show of a compiled graph, as far as they are on."""
    for name, log in _LOGS.items():
        if log.isEnabledFor(logging.DEBUG) and compiled.artifact is not None:
            _attach(log)
            for text in _TEXTS[name](compiled, compiled.artifact):
                log.debug("litz: %s: %s", compiled.artifact.plan.name, text)


def _attach(log: logging.Logger) -> None:
    """Give a logger the handlers of torch's own, which ``TORCH_LOGS_OUT`` and ``set_logs`` configure."""
    if not log.handlers:
        log.propagate = False
        for handler in logging.getLogger("torch").handlers:
            log.addHandler(handler)


def _code(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield the sources of the kernels, then the host program."""
    for unit in artifact.units:
        yield f"{unit.language} of {', '.join(unit.kernels)}\n{unit.text}"
    yield f"host program\n{compiled.source}"


def _kernels(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield each launch with the operations that its kernel fuses and the user's lines."""
    for plan in plans_in(artifact.plan):
        for step in plan.steps:
            if isinstance(step, Launch):
                operations = ", ".join(dict.fromkeys(each.operation for each in step.origins))
                lines = describe_locations(each.origin for each in step.origins)
                yield "\n  ".join((f"kernel {step.kernel} fuses {operations}", *lines))


def _fusion(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield the kernels, and each fusion that was made or refused with its reason and bytes."""
    yield from _kernels(compiled, artifact)
    for plan in plans_in(artifact.plan):
        yield from (each.describe() for each in plan.decisions if each.stage == "fusion")


def _schedule(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield every other decision of the scheduler, and the plan as text."""
    for plan in plans_in(artifact.plan):
        yield from (each.describe() for each in plan.decisions if each.stage != "fusion")
    yield f"plan\n{import_module('litz_ir.text').to_text(artifact.plan)}"


def _hints(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield what costs speed: operations that run as ATen kernels, and rewrites that were nearly made."""
    for fallback in artifact.fallbacks:
        yield f"{fallback.target} runs as its ATen kernel: {fallback.reason}" + (
            f" ({fallback.line})" if fallback.line else ""
        )
    for plan in plans_in(artifact.plan):
        for step in plan.steps:
            if isinstance(step, CallStep) and step.reason:
                yield f"{step.target} is called: {step.reason} ({step.origin.describe()})"
        missed = (each for each in plan.decisions if (each.stage, each.verdict) == ("rewrite", "leave"))
        yield from (each.describe() for each in missed)


def _cuda_graphs(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield the CUDA graphs that the call replays, or the reason that it replays none."""
    if compiled.cuda_graph:
        yield compiled.cuda_graph


def _cache(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield whether the graph was found in the cache, and how long each stage took otherwise."""
    seconds = ", ".join(f"{stage} {1e3 * taken:.1f} ms" for stage, taken in artifact.seconds.items())
    why = f"; it is not stored: {artifact.uncacheable}" if artifact.uncacheable else ""
    yield "found in the cache" if artifact.cached else f"compiled ({seconds}){why}"


_TEXTS: Mapping[str, Callable[[Compiled, Artifact], Iterator[str]]] = MappingProxyType(
    {
        "output_code": _code,
        "kernel_code": _kernels,
        "fusion": _fusion,
        "schedule": _schedule,
        "perf_hints": _hints,
        "cudagraphs": _cuda_graphs,
        "caching": _cache,
    }
)
"""The texts that each artifact shows of a graph."""

_LOGS: Mapping[str, logging.Logger] = MappingProxyType(
    {
        name: getArtifactLogger(__name__, name)
        for name in _TEXTS
        if name in log_registry.artifact_names  # torch's versions differ
    }
)
"""The logger of each artifact that this torch has."""
