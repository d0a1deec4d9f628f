"""Torch's log artifacts for graphs that litz compiles, as ``TORCH_LOGS="output_code,fusion"`` turns them on.

Each record begins with the name of the graph. An artifact that is off costs one comparison a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType

from litz.artifact import Artifact
from litz.loading import Compiled
from litz.notices import FORMS, is_shown, log_artifact
from litz_ir.loops import Axis, references
from litz_ir.origin import describe_locations
from litz_ir.plan import CallStep, Kernel, Launch, leaf_kernels, plans_in


def log_artifacts(compiled: Compiled) -> None:
    """Log what torch's artifacts show of a compiled graph, as far as they are on."""
    artifact = compiled.artifact
    if artifact is not None:
        for name, texts in _TEXTS.items():
            log_artifact(name, artifact.plan.name, partial(texts, compiled, artifact))


def forms_shown() -> bool:
    """Report whether an artifact of a form that graphs have while they are compiled is on."""
    return any(map(is_shown, FORMS))


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
    named = {(fallback.target, fallback.reason) for fallback in artifact.fallbacks}
    for plan in plans_in(artifact.plan):
        for step in plan.steps:
            if isinstance(step, CallStep) and step.reason and (step.target, step.reason) not in named:
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


def _loop_order(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield the loops of each kernel in the order in which they are nested, and the user's lines."""
    for plan in plans_in(artifact.plan):
        for step in plan.steps:
            if isinstance(step, Launch):
                loops = [_loops(each) for each in leaf_kernels(plan.kernel(step.kernel))]
                lines = describe_locations(each.origin for each in step.origins)
                yield "\n  ".join((f"kernel {step.kernel} runs {'; '.join(dict.fromkeys(loops))}", *lines))


def _loops(kernel: Kernel) -> str:
    """Return the loops of a kernel: those of its outer points, then those of each phase."""
    outer = _axes(kernel.outer) or "one point"
    phases = [_axes(phase.axes) for phase in kernel.phases if phase.axes]
    return f"over {outer}" + "".join(f", then {each} inside" for each in phases)


def _axes(axes: Iterable[Axis]) -> str:
    """Return axes with their extents, the outermost first."""
    return ", ".join(f"{axis.name}: {axis.size}" for axis in axes)


def _dependencies(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield each launch and library call with what it reads, what it writes, and the earlier steps that wrote that."""
    for plan in plans_in(artifact.plan):
        writers: dict[str, str] = {}
        for step in plan.steps:
            if isinstance(step, Launch):
                uses = tuple(zip(step.buffers, plan.kernel(step.kernel).parameters, strict=True))
                reads = [name for name, each in uses if each.access in ("in", "inout")]
                writes = [name for name, each in uses if each.access != "in"]
                name, lines = step.kernel, describe_locations(each.origin for each in step.origins)
            elif isinstance(step, CallStep):
                reads = list(references((*step.arguments, *(value for _, value in step.attributes))))
                writes = [each for each in step.results if each is not None]
                name, lines = step.target, (step.origin.describe(),)
            else:
                continue
            after = dict.fromkeys(writers[each] for each in reads if each in writers)
            waits = f", after {', '.join(after)}" if after else ""
            text = f"{name} reads {', '.join(dict.fromkeys(reads)) or 'nothing'}"
            yield "\n  ".join((f"{text} and writes {', '.join(writes) or 'nothing'}{waits}", *lines))
            writers.update(dict.fromkeys(writes, name))


def _metrics(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield the numbers of a graph: kernels, launches, calls, fallbacks, peak memory and time of the compilation."""
    steps = [step for plan in plans_in(artifact.plan) for step in plan.steps]
    launches = sum(isinstance(step, Launch) for step in steps)
    calls = sum(isinstance(step, CallStep) for step in steps)
    kernels = sum(len(plan.kernels) for plan in plans_in(artifact.plan))
    yield (
        f"{kernels} kernels, {launches} launches, {calls} library calls, {len(artifact.fallbacks)} fallbacks, "
        f"modelled peak {artifact.plan.peak} B, {sum(artifact.seconds.values()):.3f} s"
    )


_FROM_CACHE = "it was found in the cache, which keeps plans and sources alone: LITZ_CACHE=0 shows it"


def _from_cache(compiled: Compiled, artifact: Artifact) -> Iterator[str]:
    """Yield the reason that a form of a graph is not shown, where the cache had it; else the recorder has shown it."""
    if artifact.cached:
        yield _FROM_CACHE


_TEXTS: Mapping[str, Callable[[Compiled, Artifact], Iterator[str]]] = MappingProxyType(
    {
        "output_code": _code,
        "kernel_code": _kernels,
        "fusion": _fusion,
        "schedule": _schedule,
        "perf_hints": _hints,
        "cudagraphs": _cuda_graphs,
        "caching": _cache,
        "loop_ordering": _loop_order,
        "compute_dependencies": _dependencies,
        "inductor_metrics": _metrics,
        **dict.fromkeys(FORMS, _from_cache),
    }
)
"""The texts that each artifact shows of a graph."""
