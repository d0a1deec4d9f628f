"""Through AOTAutograd: decompositions, the joint graph, the min-cut partition; litz compiles what comes out."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch._dynamo import disable
from torch._dynamo.utils import counters, flatten_graph_inputs
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext
from torch.fx import GraphModule

from litz.artifact import Artifact, CompiledCapture
from litz.cache.artifacts import ArtifactCache
from litz.cache.key import option_facts
from litz.capture.bases import as_long_as, bases, layouts
from litz.capture.descriptors import leading_tokens, parameter_inputs, parameter_positions
from litz.capture.donated import SavedTensors, allow_retained_graphs, saved_alone
from litz.capture.fx_graph_cache import fx_graph_key, own_views, plain_device
from litz.capture.layouts import expect, given_as_traced, saved_in_any_layout
from litz.capture.plain import PlainGraph, with_gradients
from litz.capture.runtime_wrappers import Strides, with_own_results
from litz.capture.strided_results import strides_a_view
from litz.capture.tokens import make_undeclared_tokens
from litz.compilation import Compilation
from litz.failures import GraphSource
from litz.host.devices import first_gpu
from litz.host.load import HostFunction
from litz.loading import Compiled
from litz.settings import Config
from litz.stage_options import scheduler_options
from litz.targets import TargetSet, targets_for
from litz.tuning.tuned_graph import load_tuned
from litz_ir.errors import NotCompiled
from litz_ir.loops import ComplexRef, Ref
from litz_ir.plan import Plan
from litz_ir.symbols import floordiv
from litz_lowering import correct_metadata, decompositions, partition

Observer = Callable[[Compiled], None]
_COUNT = itertools.count()

SELF_CHECK = "litz.self_check.checked"
"""The module that compares calls with ATen, loaded where the options ask for that."""

NAN_ASSERTS = "litz.nan_asserts"
"""The module that looks for NaN, loaded where the options ask for that."""


@dataclass(slots=True)
class CompileSession:
    """One call of the backend: its options and cache, shared by the forward and the backward that may come later.

    ``observers`` see every compiled graph (``litz.explain`` is one). ``plain`` is what is known of a graph that may be
    called, and found the next time, without AOTAutograd. ``saved`` is what passes between a forward and its backward,
    of which the forward may lay out ``any_layout`` as it likes. ``parameters`` are the positions of those of
    the captured graph's inputs that are parameters or buffers of modules. Where inputs ``share`` memory that the graph
    overwrites, or have elements found by their positions in memory, a call looks at their extents.
    """

    config: Config
    cache: ArtifactCache
    observers: Sequence[Observer] = ()
    number: int = field(default_factory=lambda: next(_COUNT))
    plain: PlainGraph | None = None
    saved: SavedTensors = field(default_factory=SavedTensors)
    any_layout: frozenset[str] = frozenset()
    parameters: frozenset[int] = frozenset()
    share: bool = False

    def partition(
        self, joint: GraphModule, inputs: Sequence[Any], **options: Any
    ) -> tuple[GraphModule, GraphModule]:
        """The forward and the backward of a joint graph."""
        failures, outputs = (
            self.cache.failures.of(GraphSource(joint, f"joint_{self.number}")),
            options["num_fwd_outputs"],
        )
        try:
            forward, backward = partition(joint, inputs, **options)
        except Exception as error:
            failures.report(error, "partition", "all that the backward wants is saved")
            forward, backward = default_partition(joint, inputs, **options)
        saved = partial(saved_in_any_layout, forward, backward, outputs)
        self.any_layout = failures.attempt(
            "partition", saved, frozenset(), "what is saved is laid out as in eager"
        )
        return forward, backward

    def compile(
        self, gm: GraphModule, example_inputs: Sequence[Any], *, kind: str
    ) -> Callable[[list[Any]], Any]:
        """An AOT graph as a boxed callable, which runs as it came where anything fails."""
        traced: dict[int, Strides] = {}
        if kind == "inference":
            make_undeclared_tokens(gm)
        if kind != "backward":
            self.share = bool(bases(gm))
        context = TracingContext.try_get()
        told = [] if context is None or context.output_strides is None else context.output_strides
        before = len(told)
        try:
            if kind == "forward" and strides_a_view(gm):
                raise NotCompiled(
                    "the gradient of a result that as_strided makes of a view depends on that view"
                )
            call = self._compiled(gm, example_inputs, kind, traced)
            if self.share:
                call = self._of_bases(gm, kind, call, traced)
        except Exception as error:
            name = f"{kind}_{self.number}"
            instead = f"graph {name} runs as ATen operations"
            self.cache.failures.of(GraphSource(gm, name)).report(error, "capture", instead)
            del told[before:]
            self.saved.names = frozenset()
            call = _with_plain_tangents(gm, given_as_traced(run_in_aten(gm), traced))
        call._boxed_call = True  # type: ignore[attr-defined]  # torch's mark of a callable that takes a list
        return call

    def _compiled(
        self, gm: GraphModule, example_inputs: Sequence[Any], kind: str, traced: dict[int, Strides]
    ) -> HostFunction:
        """An AOT graph as AOTAutograd wants it called; ``traced`` takes the strides of :func:`expect`."""
        with collection_paused(), torch.utils._python_dispatch._disable_current_modes():
            if kind == "backward":
                traced.update(expect(gm, example_inputs))
            correct_metadata(gm)
            keeps = kind == "inference" and self.config.prepack_weights
            frozen = parameter_inputs(gm, self.parameters) if keeps else frozenset()
            # A replay reads what is saved where it lay when it was recorded: nothing may be written over that.
            spare = kind == "backward" and not self.config.cuda_graphs
            donated = self.saved.names if spare else frozenset()
            saved = self.any_layout if kind == "forward" and not self.share else frozenset()
            name = f"{kind}_{self.number}"
            given = (frozen, donated, saved)
            compiled = compile_or_fall_back(gm, name, self.config, self.cache, *given)
        for observe in self.observers:
            observe(compiled)  # which may put another call in the place of its own
        if self.plain is not None and compiled.artifact is not None and not self.share:
            take = partial(self._take, self.plain, gm, compiled, kind)
            failures = self.cache.failures.of(GraphSource(gm, name))
            failures.attempt("capture", take, None, f"{name} is called through AOTAutograd")
        if kind == "forward":
            return self._forward(gm, compiled)
        if kind == "backward":
            return self._backward(gm, compiled, traced)
        return compiled.call

    def _forward(self, gm: GraphModule, compiled: Compiled) -> HostFunction:
        """The call of a forward as AOTAutograd wants it."""
        allow_retained_graphs()
        if compiled.artifact is None:
            return compiled.call
        plan = compiled.artifact.plan
        _report_strides(gm, plan)
        # A forward that runs as it came saves what others see too.
        self.saved.names = frozenset() if self.share else saved_alone(gm, plan)
        call = with_own_results(compiled.call, own_views(gm, plan, settled=compiled.settled))
        return self.saved.watched(call)

    def _backward(self, gm: GraphModule, compiled: Compiled, traced: Mapping[int, Strides]) -> HostFunction:
        """The call of a backward, whatever AOTAutograd gives it; one that runs as it came takes the strides that it was
        ``traced`` with."""
        call, artifact = compiled.call, compiled.artifact
        guarded = (
            given_as_traced(call, traced) if artifact is None else self.saved.guarded(call, artifact.plan)
        )
        return _with_plain_tangents(gm, guarded)

    def _of_bases(
        self, gm: GraphModule, kind: str, call: HostFunction, traced: Mapping[int, Strides]
    ) -> HostFunction:
        """The call of a graph with bases, or of its backward: as it came, where a base is another than it was."""
        plain = run_in_aten(gm)
        if kind != "backward":
            # Only the inputs' elements of a base are written in place; a forward returns all of it.
            return as_long_as(call, bases(gm), plain, or_longer=kind == "inference")
        return as_long_as(call, layouts(gm), _with_plain_tangents(gm, given_as_traced(plain, traced)))

    def _take(self, plain: PlainGraph, gm: GraphModule, compiled: Compiled, kind: str) -> None:
        """Note what a plain graph was compiled to; a training graph when both its halves are."""
        artifact, call = compiled.artifact, compiled.call
        assert artifact is not None
        whole: CompiledCapture | None = None
        if kind == "inference":
            whole = plain.inference(gm, artifact, call)
        elif kind == "forward":
            plain.forward(gm, artifact, plain.uncast(call), settled=compiled.settled)
        else:
            whole = plain.backward(gm, artifact, plain.uncast(call), self.saved)
        settled = compiled.settled and (plain.half is None or plain.half.settled)
        if whole is not None and plain.key is not None and settled:
            self.cache.store_fx_graph(plain.key, whole)

    def lookup(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """What was compiled for this graph before, in this process or another, found without tracing it; None, too,
        where looking for it fails."""
        find = partial(self._found, gm, inputs)
        return self.cache.failures.attempt("recall", find, None, "the graph is traced anew")

    def _found(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        device = plain_device(gm, inputs)
        if device is None or torch._dynamo.config.compiled_autograd:
            # Compiled autograd takes AOTAutograd's graphs into its own.
            return None
        self.plain = PlainGraph.of(inputs)
        if self.cache.fx_graphs is None or self.config.self_check != "off" or self.config.nan_asserts:
            return None  # a check needs the graph that AOTAutograd traces
        # What is computed on the CPU in a graph on a GPU is compiled too.
        targets = targets_for((device, "cpu"), self.config)
        if self.cache.uncacheable(targets):
            return None
        facts = self.cache.facts(targets, scheduler_options(self.config, targets))
        # What a process compiled that times nothing says nothing of what is quicker.
        facts = [*facts, *option_facts(self.config), f"autotune {self.config.autotune}"]
        self.plain.key = fx_graph_key(gm, inputs, facts)
        found = None if self.plain.key is None else self.cache.lookup_fx_graph(self.plain.key, targets)
        if found is None:
            return None
        with first_gpu(each.device for each in inputs):
            return self._recalled(self.plain, found, targets)

    def _recalled(self, plain: PlainGraph, found: CompiledCapture, targets: TargetSet) -> Callable[..., Any]:
        if found.backward is None:
            return plain.without_gradients(found, self._loaded(found.forward, "inference", targets))
        forward, backward = (
            plain.uncast(self._loaded(half, kind, targets))
            for half, kind in ((found.forward, "forward"), (found.backward, "backward"))
        )
        return with_gradients(found, forward, backward, self.saved)

    def _loaded(self, artifact: Artifact, kind: str, targets: TargetSet) -> HostFunction:
        """An artifact as a callable."""
        compiled = load_tuned(artifact, f"{kind}_{self.number}", targets, self.config, self.cache)
        for observe in self.observers:
            observe(compiled)
        return compiled.call


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's cyclic collector where it is on. It finds nothing while a graph is compiled, and one pass over a
    process that has loaded a model takes a quarter of a second; tracing makes enough objects for several."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def compile_or_fall_back(
    gm: GraphModule,
    name: str,
    config: Config,
    cache: ArtifactCache,
    frozen: frozenset[str] = frozenset(),
    donated: frozenset[str] = frozenset(),
    saved: frozenset[str] = frozenset(),
) -> Compiled:
    """Compile a graph; when that fails as a whole, run it as it came, unless ``config.fallback`` is ``error``.

    Its calls are checked as the options ask for.
    """
    made = _compiled_or_as_it_came(Compilation(gm, name, config, cache, frozen, donated, saved))
    if not config.nan_asserts:
        return made
    asserted: HostFunction = import_module(NAN_ASSERTS).without_nan(gm, name, made.call)
    return replace(made, call=asserted)


def _compiled_or_as_it_came(compilation: Compilation) -> Compiled:
    try:
        made = compilation.run()
        if compilation.config.self_check == "off":
            return made
        checked: Compiled = import_module(SELF_CHECK).checked(compilation, made)
        return checked
    except Exception as error:
        instead = f"graph {compilation.name} runs as ATen operations"
        compilation.failures.report(error, "compilation", instead, compilation.loops)
        return Compiled(run_in_aten(compilation.gm), None)


def _with_plain_tangents(
    gm: GraphModule, call: Callable[[list[Any]], Sequence[Any]]
) -> Callable[[list[Any]], Sequence[Any]]:
    """The call of a backward graph, whose incoming gradients may have a negative bit that no guard speaks of."""
    inputs = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    tangents = [position for position, name in enumerate(inputs) if name.startswith("tangents")]

    def run(args: list[Any]) -> Sequence[Any]:
        for position in tangents:
            given = args[position]
            if isinstance(given, torch.Tensor) and given.is_neg():
                args[position] = given.resolve_neg()
        return call(args)

    return run


def run_in_aten(gm: GraphModule) -> HostFunction:
    """A graph run by torch, node by node."""

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        results: Sequence[Any] = gm(*given)
        return results

    return run


def aot_backend(session: CompileSession) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
    """The backend that Dynamo calls: what is known already, or what AOTAutograd makes of the graph."""

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        with collection_paused():
            return session.lookup(gm, inputs) or through_aot(session, gm, inputs)

    return backend


def through_aot(session: CompileSession, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Let AOTAutograd trace and divide a graph, and the session compile the parts.

    ``torch._dynamo.backends.common`` has a helper for this. It loads the tools that debug torch's own compiler, which
    takes a tenth of a second.
    """
    if any(isinstance(each, list | tuple | dict) for each in inputs):
        return flatten_graph_inputs(gm, inputs, partial(through_aot, session))
    session.parameters = parameter_positions(gm, inputs)
    counters["aot_autograd"]["total"] += 1
    table: dict[Any, Callable[..., Any]] = {**decompositions()}
    compiled = aot_module_simplified(
        gm,
        inputs,
        fw_compiler=partial(session.compile, kind="forward"),
        bw_compiler=partial(_compile_backward, session),
        inference_compiler=partial(session.compile, kind="inference"),
        decompositions=table,
        partition_fn=session.partition,
        keep_inference_input_mutations=True,
    )
    counters["aot_autograd"]["ok"] += 1
    wrapped: Callable[..., Any] = disable(compiled, reason="it is compiled")
    plain = session.plain
    if plain is None:
        return wrapped

    def call(*args: Any) -> Any:
        return (plain.call or wrapped)(*args)

    return call


def _compile_backward(session: CompileSession, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backward is compiled when it is first run: in the midst of what Dynamo may trace."""
    compile_it = disable(partial(session.compile, kind="backward"), reason="it compiles")
    result: Callable[..., Any] = disable(compile_it(gm, inputs), reason="it is compiled")
    return result


def _report_strides(gm: GraphModule, plan: Plan) -> None:
    """Tell AOTAutograd the strides of a forward's outputs, since its backward is traced with what it is told.

    litz keeps eager's strides wherever memory can have them; symbolic ones are eager's by construction. Effect tokens,
    which stand before all other outputs, are taken off again before anyone looks, so they are left out.
    """
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    placements = dict(plan.buffers)
    node = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    for output, result in list(zip(plan.outputs, node.args[0], strict=True))[leading_tokens(gm) :]:
        strides: tuple[Any, ...] | None = None
        if isinstance(output, Ref) and output.name in placements:
            strides = placements[output.name].type.layout.strides
            if isinstance(output, ComplexRef):
                strides = tuple(floordiv(stride, 2) for stride in strides[:-1])
            if not all(isinstance(stride, int) for stride in strides):
                strides = tuple(result.meta["val"].stride())
        context.output_strides.append(strides)
