"""The parts of a program, collected while AOTAutograd passes the graphs of a captured function to litz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import torch
from torch._functorch._aot_autograd.descriptors import (
    AOTInput,
    BufferAOTInput,
    ParamAOTInput,
    PlainAOTInput,
)
from torch._functorch._aot_autograd.schemas import OutputType, ViewAndMutationMeta
from torch._guards import TracingContext
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import GraphModule

from litz.artifact import AotWrapping, CompiledCapture
from litz.capture.compile_fx import returns_tuple
from litz.host.runtime.gpus import ONE_GPU
from litz.loading import Compiled
from litz.standalone.compiled_program import CallForm
from litz_ir.loops import ObjectInput
from litz_ir.plan import CallStep, plans_in

_TENSORS = (torch.Tensor, torch.nn.Parameter, FunctionalTensor)
"""Classes of plain results during tracing."""

_OF_INPUTS = (OutputType.is_input, OutputType.alias_of_input)
"""Kinds of results that are inputs, or views of their memory."""

_OWN = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)
"""Kinds of results in memory of their own."""


@dataclass(slots=True)
class CapturedParts:
    """The compiled graphs of a captured function and the form of its calls, or the reason that they do not suffice."""

    captured: GraphModule
    """The captured function."""

    graphs: CompiledCapture | None = None
    """The compiled graphs with the work to do around them; ``None`` where AOTAutograd's wrapper has to do more."""

    form: CallForm | None = None
    """The form of calls, where ``graphs`` is given."""

    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """Constants of the graphs, and parameters and buffers of the function, by name."""

    seen: list[Compiled] = field(default_factory=list)
    """All compiled graphs so far, the forward before its backward."""

    why_not: str = "no graph was compiled"
    """Reason that ``graphs`` is ``None``, as a sentence."""

    def take(self, gm: GraphModule, compiled: Compiled, kind: str) -> None:
        """Add an inference graph of AOTAutograd's, while its metadata is known."""
        context = TracingContext.try_get()
        known = None if context is None else context.fw_metadata
        if kind != "inference":
            self.why_not = (
                "AOTAutograd's wrapper of this training graph does more than litz can save; "
                "compiled under torch.no_grad(), it is an inference graph"
            )
        elif known is None:
            self.why_not = "AOTAutograd gave no metadata of the graph"
        else:
            descriptors = [node.meta.get("desc") for node in gm.graph.nodes if node.op == "placeholder"]
            self.why_not = _obstacle(compiled) or _wrapper_obstacle(known) or _input_obstacle(descriptors)
            if not self.why_not:
                self._take(compiled, known, descriptors)

    def take_plain(self, graphs: CompiledCapture) -> None:
        """Set the compiled form of a plain graph."""
        forward, backward = graphs.constants_of(0), graphs.constants_of(1 if graphs.backward else 0)
        shared = forward.keys() & backward.keys()
        clash = next((name for name in sorted(shared) if not _equal(forward[name], backward[name])), "")
        two = f"its forward and its backward have a constant {clash} each" if clash else ""
        self.why_not = next(filter(None, map(_obstacle, self.seen)), two)
        self.graphs = None if self.why_not else graphs
        self.form, self.constants = CallForm(returns_tuple(self.captured)), {**forward, **backward}

    def _take(
        self, compiled: Compiled, known: ViewAndMutationMeta, descriptors: Sequence[AOTInput | None]
    ) -> None:
        """Set the graph and the form of its calls."""
        assert compiled.artifact is not None and compiled.loader is not None
        owned = [each.target for each in descriptors if isinstance(each, ParamAOTInput | BufferAOTInput)]
        bound = {f"bound {name}": attrgetter(name)(self.captured) for name in owned}
        results = enumerate(known.output_info)
        returned = [(k, each.base_idx) for k, each in results if each.output_type is OutputType.is_input]
        pairs = tuple((k, source) for k, source in returned if source is not None)
        written = tuple(known.mutated_graph_handled_indices_seen_by_autograd)
        wrapping = AotWrapping(len(known.output_info), (), written)
        self.graphs = CompiledCapture(compiled.artifact, wrapping)
        self.form = CallForm(returns_tuple(self.captured), pairs, tuple(bound))
        self.constants = {**compiled.loader.constants, **bound}


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Report whether two constants have the same elements and geometry."""
    return left.dtype == right.dtype and left.stride() == right.stride() and torch.equal(left, right)


def _obstacle(compiled: Compiled) -> str:
    """Return the reason that a compiled graph cannot be saved; empty where it can."""
    loader = compiled.loader
    if compiled.artifact is None or loader is None:
        return "a graph runs as ATen operations"
    if loader.routines:
        return f"it calls functions of this process: {', '.join(sorted(loader.routines))}"
    if loader.gpus != ONE_GPU:
        return "it is on several GPUs"
    steps = (step for plan in plans_in(compiled.artifact.plan) for step in plan.steps)
    if any(isinstance(step, CallStep) and step.target == "triton_kernel" for step in steps):
        return "it launches Triton kernels of the program, which this process alone knows"
    if any(isinstance(each, ObjectInput) and each.kind != "none" for each in compiled.artifact.plan.inputs):
        return "an input is an object that is neither a tensor nor a number"
    return ""


def _wrapper_obstacle(known: ViewAndMutationMeta) -> str:
    """Return the reason that calls need more of AOTAutograd's wrapper than litz can save; empty where they do not."""
    if known.tokens or known.num_backward_tokens:
        return "it has operators with effects"
    if known.num_mutated_inp_runtime_indices or any(each.mutates_metadata for each in known.input_info):
        return "it changes an input's sizes or storage, or an input that shares memory with another"
    if known.is_rng_op_functionalized or known.grad_enabled_mutation is not None:
        return "it changes the state of random numbers or of autograd"
    if not all(each.output_type in (*_OWN, *_OF_INPUTS) for each in known.output_info):
        return "results that are views of each other need gradients"
    if any(
        each.output_type is OutputType.alias_of_input and each.requires_grad for each in known.output_info
    ):
        return "a result is a view of an argument that needs gradients"
    if any(
        issubclass(each.raw_type, torch.Tensor) and each.raw_type not in _TENSORS
        for each in known.output_info
    ):
        return "a result is a subclass of a tensor"
    return ""


def _input_obstacle(descriptors: Sequence[AOTInput | None]) -> str:
    """Return the reason that a graph takes other inputs than the captured function; empty where it does not."""
    own = [each for each in descriptors if not isinstance(each, ParamAOTInput | BufferAOTInput)]
    if own == [PlainAOTInput(k) for k in range(len(own))]:
        return ""
    return "inputs are the same tensor, share memory that is overwritten, or are subclasses of tensors"
