"""A call of the backend: the graphs that AOTAutograd passes to litz are compiled, or found in the cache before."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext
from torch.fx import GraphModule

import litz_lowering
from litz.artifact import Artifact, CompiledCapture
from litz.cache.artifacts import ArtifactCache
from litz.cache.key import option_facts
from litz.capture.artifact_logs import log_artifacts
from litz.capture.bases import bases, layouts, with_extent_guard
from litz.capture.counters import count_graph
from litz.capture.descriptors import make_undeclared_tokens, parameter_inputs
from litz.capture.donated import SavedTensors, allow_retained_graphs, overwritten_inputs, saved_alone
from litz.capture.fx_graph_cache import floats_are_guarded, fx_graph_key, own_views, plain_device
from litz.capture.gradients.double_backward import connected
from litz.capture.graph_fallback import compile_or_fall_back
from litz.capture.layouts import (
    expect,
    given_as_traced,
    report_strides,
    saved_in_any_layout,
    with_resolved_tangents,
    with_traced_strides,
)
from litz.capture.plain import PlainGraph, with_gradients
from litz.capture.runtime_wrappers import Strides, with_own_results
from litz.capture.strided_results import strides_a_view
from litz.compilation.aten import run_in_aten
from litz.debug import NO_INSTRUMENTS, Instrument
from litz.host.runtime.graph_devices import first_gpu
from litz.host.runtime.load import HostFunction
from litz.loading import Compiled
from litz.reports.failures import GraphSource
from litz.settings import Config
from litz.stage_options import scheduler_options
from litz.targets import TargetSet, targets_for
from litz.tuning.tuned_graph import load_tuned
from litz_ir.collection import collection_paused
from litz_ir.errors import NotCompiled
from litz_ir.stack_chunk import in_own_chunk

if TYPE_CHECKING:
    from litz.passes.hooks import GraphHooks
    from litz.trace.recorder import GraphRecord, Recorder
    from litz_ir.fused import Decision

Observer = Callable[[Compiled], None]
"""Function called with every compiled graph, such as that of ``litz.explain``."""

AotObserver = Callable[[GraphModule, Compiled, str], None]
"""Function called with an AOT graph, its compiled form and its kind, while AOTAutograd's metadata is known."""

_COUNT = itertools.count()

_BEHIND = "litz.schemes.behind"
"""Module of compilation behind calls; imported where the options ask for it."""


@dataclass(slots=True)
class CompileSession:
    """One call of the backend: options and cache, shared by a forward and its later backward."""

    config: Config
    """Options of the call, also for a later backward."""

    cache: ArtifactCache
    """Cache of compiled graphs."""

    observers: Sequence[Observer] = ()
    """Functions called with every compiled graph."""

    instrument: Instrument | None = None
    """Function that gives each AOT graph the instruments of a debugging tool; ``None`` without one."""

    recorder: Recorder | None = None
    """Recorder of debug files and of torch's structured trace; ``None`` where both are off."""

    number: int = field(default_factory=lambda: next(_COUNT))
    """Number of the session in this process, part of the names of its graphs."""

    plain: PlainGraph | None = None
    """State of a plain graph, which may be called, and found in the cache, without AOTAutograd."""

    saved: SavedTensors = field(default_factory=SavedTensors)
    """Tensors between the forward and its backward."""

    any_layout: frozenset[str] = frozenset()
    """Nodes of the forward whose saved tensors may have any layout."""

    parameters: frozenset[int] = frozenset()
    """Positions of the captured graph's inputs that are parameters or buffers of modules; where they are given, the
    graph was exported, and is not looked up in the cache before it is traced."""

    hooks: GraphHooks | None = None
    """Users' passes over FX graphs; ``None`` without some."""

    share: bool = False
    """True where inputs share memory that the graph overwrites, or are accessed by storage position, so that each
    call compares their extents."""

    specialised: bool = False
    """True where the sizes and numbers of the inputs are constants, although a graph was captured with symbols."""

    guarded: bool = False
    """True where Dynamo reads the guards of the graph's symbols after the compilation."""

    whole: CompiledCapture | None = None
    """Compiled form of a plain graph, once all its parts are compiled or found in the cache."""

    compiled: AotObserver | None = None
    """Function called with each AOT graph, its compiled form and its kind; ``None`` without one."""

    def partition(
        self, joint: GraphModule, inputs: Sequence[Any], **options: Any
    ) -> tuple[GraphModule, GraphModule]:
        """Divide a joint graph into forward and backward; where that fails, by torch's default partition."""
        failures, outputs = (
            self.cache.failures.of(GraphSource(joint, f"joint_{self.number}")),
            options["num_fwd_outputs"],
        )
        self._bound_sizes(joint)
        if self.recorder is not None:
            self.recorder.before["joint"] = joint
        rewrite, hooks = None, self.hooks
        if hooks is not None:
            hooks.before_joint(joint)
            rewrite = hooks.after_joint
        try:
            forward, backward = litz_lowering.partition(joint, inputs, rewrite=rewrite, **options)
        except Exception as error:
            failures.report(error, "partition", "everything that the backward needs is saved")
            forward, backward = default_partition(joint, inputs, **options)
        if hooks is not None and hooks.rewrites_aot:
            return forward, backward  # what the backward will read is not known yet
        saved = partial(saved_in_any_layout, forward, backward, outputs)
        self.any_layout = failures.attempt(
            "partition", saved, frozenset(), "saved tensors have eager's layouts"
        )
        return forward, backward

    def _bound_sizes(self, gm: GraphModule) -> None:
        """Bound the sizes of a graph on a GPU, whose kernels are slow with indices of 64 bits."""
        if self.guarded and litz_lowering.gpus_of(gm):
            bound = partial(litz_lowering.bound_sizes, gm)
            self.cache.failures.attempt("capture", bound, None, "indices have 64 bits")

    def compile(
        self, gm: GraphModule, example_inputs: Sequence[Any], *, kind: str
    ) -> Callable[[list[Any]], Any]:
        """Compile an AOT graph to a boxed callable, which runs as ATen operations where that fails."""
        traced: dict[int, Strides] = {}
        if kind == "inference":
            make_undeclared_tokens(gm)
            self._bound_sizes(gm)
        if kind != "backward":
            self.share = bool(bases(gm))
            if self.plain is not None and floats_are_guarded():
                self.plain.key = None
        context = TracingContext.try_get()
        strides = [] if context is None or context.output_strides is None else context.output_strides
        before = len(strides)
        try:
            if kind == "forward" and strides_a_view(gm):
                raise NotCompiled(
                    "the gradient of a result that as_strided makes of a view depends on that view"
                )
            call = in_own_chunk(lambda: self._compiled(gm, example_inputs, kind, traced))
            if self.share:
                call = self._of_bases(gm, kind, call, traced)
        except Exception as error:
            name = f"{kind}_{self.number}"
            instead = f"graph {name} runs as ATen operations"
            self.cache.failures.of(GraphSource(gm, name)).report(error, "capture", instead)
            del strides[before:]
            self.saved.names = frozenset()
            call = with_resolved_tangents(gm, given_as_traced(run_in_aten(gm), traced))
        call._boxed_call = True  # type: ignore[attr-defined]  # torch's mark of a callable that takes a list
        return call

    def _compiled(
        self, gm: GraphModule, example_inputs: Sequence[Any], kind: str, traced: dict[int, Strides]
    ) -> HostFunction:
        """Compile an AOT graph for AOTAutograd; ``traced`` receives the strides that :func:`expect` returns."""
        with collection_paused(), torch.utils._python_dispatch._disable_current_modes():
            if kind == "backward":
                traced.update(expect(gm, example_inputs))
            litz_lowering.correct_metadata(gm)
            decisions = () if self.hooks is None else self._users_passes(self.hooks, gm, kind)
            freezes = kind == "inference" and self.config.prepack_weights
            frozen = parameter_inputs(gm, self.parameters) if freezes else frozenset()
            # A replayed CUDA graph reads saved tensors at their captured addresses: that memory is not reused.
            donated = self.saved.names if kind == "backward" and not self.config.cuda_graphs else frozenset()
            behind = self._behind
            saved = self.any_layout if kind == "forward" and not (self.share or behind) else frozenset()
            name = f"{kind}_{self.number}"
            given, record = (frozen, donated, saved), None
            instruments = NO_INSTRUMENTS if self.instrument is None else self.instrument(gm, kind)
            if self.recorder is not None:
                instruments, record = self.recorder.instruments(GraphSource(gm, name, False, *given))
            compiled = compile_or_fall_back(
                gm, name, self.config, self.cache, *given, decisions, instruments, behind=behind
            )
        later, used = compiled.later, partial(self._used, gm, name, kind, traced, record)
        if later is None:
            return used(compiled)
        aten, failures = (
            self._adapted(gm, compiled, kind, traced),
            self.cache.failures.of(GraphSource(gm, name)),
        )
        swapped: HostFunction = import_module(_BEHIND).compiled_behind(
            aten,
            lambda: used(later(), late=True),
            failures.callback("capture"),
            f"graph {name} runs as ATen operations",
        )
        return swapped

    @property
    def _behind(self) -> bool:
        """True where graphs may run as ATen before they are compiled: nothing looks at compiled graphs, and no option
        promises something about results or calls that ATen does not."""
        config = self.config
        if config.compile_scheme != "async" or config.self_check != "off":
            return False
        watched = self.observers or self.compiled or self.recorder or self.instrument
        return not (watched or config.replaced({"numerics": "eager"}).promises())

    def _used(
        self,
        gm: GraphModule,
        name: str,
        kind: str,
        traced: Mapping[int, Strides],
        record: GraphRecord | None,
        compiled: Compiled,
        *,
        late: bool = False,
    ) -> HostFunction:
        """Record the compiled form of an AOT graph, and return its call as AOTAutograd expects it; ``late`` where the
        graph has run as ATen before."""
        self._observe(name, compiled, record)
        layouts_differ = False
        if late and kind == "forward" and compiled.artifact is not None:
            call = with_traced_strides(gm, compiled.artifact.plan, compiled.call)
            layouts_differ = call is not compiled.call
            compiled = replace(compiled, call=call)
        if self.plain is not None and compiled.artifact is not None and not (self.share or layouts_differ):
            take = partial(self._take, self.plain, gm, compiled, kind)
            failures = self.cache.failures.of(GraphSource(gm, name))
            failures.attempt("capture", take, None, f"{name} is called through AOTAutograd")
        if self.compiled is not None:
            self.compiled(gm, compiled, kind)
        return self._adapted(gm, compiled, kind, traced, late=late)

    def _adapted(
        self,
        gm: GraphModule,
        compiled: Compiled,
        kind: str,
        traced: Mapping[int, Strides],
        *,
        late: bool = False,
    ) -> HostFunction:
        """Return the call of a compiled AOT graph as AOTAutograd expects it."""
        if kind == "forward":
            return self._forward(gm, compiled, late=late)
        if kind == "backward":
            return self._backward(gm, compiled, traced)
        return compiled.call

    def _users_passes(self, hooks: GraphHooks, gm: GraphModule, kind: str) -> tuple[Decision, ...]:
        """Run users' passes over an AOT graph; return their decisions."""
        decisions = hooks.aot(gm, kind)
        litz_lowering.correct_metadata(gm)  # of the nodes that passes made
        return decisions

    def _forward(self, gm: GraphModule, compiled: Compiled, *, late: bool) -> HostFunction:
        """Return the call of a forward as AOTAutograd expects it."""
        allow_retained_graphs()
        if compiled.artifact is None:
            return connected(compiled.call, gm)
        plan = compiled.artifact.plan
        if not late:
            report_strides(gm, plan)
        # A forward that runs as ATen operations saves tensors that others may refer to.
        self.saved.names = frozenset() if self.share or late else saved_alone(gm, plan)
        call = with_own_results(compiled.call, own_views(gm, plan, settled=compiled.settled))
        return self.saved.watched(connected(call, gm))

    def _backward(self, gm: GraphModule, compiled: Compiled, traced: Mapping[int, Strides]) -> HostFunction:
        """Return the call of a backward, valid for all arguments that AOTAutograd passes.

        One that runs as ATen operations needs the strides that it was ``traced`` with.
        """
        if compiled.artifact is None:
            return with_resolved_tangents(gm, given_as_traced(compiled.call, traced))
        plan = compiled.artifact.plan
        return with_resolved_tangents(gm, self.saved.guarded(compiled.call, plan), overwritten_inputs(plan))

    def _of_bases(
        self, gm: GraphModule, kind: str, call: HostFunction, traced: Mapping[int, Strides]
    ) -> HostFunction:
        """Return the call of a graph with bases, or of its backward; for other extents it runs as ATen operations."""
        plain = run_in_aten(gm)
        if kind != "backward":
            # An inference graph overwrites only the inputs' elements of a base; a forward returns the whole base.
            return with_extent_guard(call, bases(gm), plain, or_longer=kind == "inference")
        return with_extent_guard(
            call, layouts(gm), with_resolved_tangents(gm, given_as_traced(plain, traced))
        )

    def _take(self, plain: PlainGraph, gm: GraphModule, compiled: Compiled, kind: str) -> None:
        """Note the compiled form of a plain graph, and cache it; for a training graph once both halves are compiled."""
        whole = self.whole = plain.take(gm, compiled, kind, self.saved)
        settled = compiled.settled and (plain.half is None or plain.half.settled)
        if whole is not None and plain.key is not None and settled:
            self.cache.store_fx_graph(plain.key, whole)

    def lookup(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """Return the compiled form of this graph from the cache, without tracing; ``None`` on a miss or a failure."""
        find = partial(self._found, gm, inputs)
        return self.cache.failures.attempt("lookup", find, None, "the graph is traced again")

    def _found(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """Look a plain graph up in the FX graph cache."""
        device = plain_device(gm, inputs)
        if device is None or torch._dynamo.config.compiled_autograd or self.parameters:
            # Compiled autograd inlines AOTAutograd's graphs into its own.
            return None
        self.plain = PlainGraph.of(inputs)
        watched = self.config.nan_asserts or self.config.debug_files or self.instrument is not None
        if self.cache.fx_graphs is None or self.config.self_check != "off" or watched:
            return None  # these need the graph that AOTAutograd traces
        # A graph on a GPU may contain CPU operations, which are compiled too.
        targets = targets_for((device, "cpu"), self.config)
        if self.cache.uncacheable(targets):
            return None
        facts = self.cache.facts(targets, scheduler_options(self.config, targets))
        # Graphs compiled without autotuning are not the fastest, so they have another key.
        facts = [*facts, *option_facts(self.config), f"autotune {self.config.autotune}"]
        if self._behind and self.plain.gradients:
            facts.append("saved tensors have eager's layouts and memory of their own")
        if self.config.freezing and any(each.is_inference() for each in inputs):
            facts.append("parameters without versions are frozen")
        self.plain.key = fx_graph_key(gm, inputs, facts)
        found = None if self.plain.key is None else self.cache.lookup_fx_graph(self.plain.key, targets, gm)
        if found is None:
            if self.config.compile_scheme == "in_process":
                with contextlib.suppress(Exception):  # the stages report what fails
                    # Compiler processes start while the graph is traced.
                    targets.prepare(self.config.compile_threads)
            return None
        with first_gpu(each.device for each in inputs):
            return self._from_cache(self.plain, found, targets)

    def _from_cache(
        self, plain: PlainGraph, found: CompiledCapture, targets: TargetSet
    ) -> Callable[..., Any]:
        """Return a cached graph as a function of tensors."""
        self.whole = found
        if found.backward is None:
            call = self._loaded(found.forward, "inference", targets, found.constants_of(0))
            return plain.without_gradients(found, call)
        halves = (found.forward, "forward"), (found.backward, "backward")
        forward, backward = (
            plain.uncast(self._loaded(half, kind, targets, found.constants_of(number)))
            for number, (half, kind) in enumerate(halves)
        )
        return with_gradients(found, forward, backward, self.saved)

    def _loaded(
        self, artifact: Artifact, kind: str, targets: TargetSet, constants: Mapping[str, torch.Tensor]
    ) -> HostFunction:
        """Load an artifact as a callable."""
        name = f"{kind}_{self.number}"
        compiled = load_tuned(artifact, name, targets, self.config, self.cache, constants)
        self._observe(name, compiled, None)
        return compiled.call

    def _observe(self, name: str, compiled: Compiled, record: GraphRecord | None) -> None:
        """Count, log and record a compiled graph, and show it to the observers, which may replace its call."""
        count_graph(compiled)
        log_artifacts(compiled)
        if self.recorder is not None:
            self.recorder.compiled(name, compiled, record)
        for observe in self.observers:
            observe(compiled)
