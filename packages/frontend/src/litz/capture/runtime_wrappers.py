"""Runtime wrappers of plain graphs: the part of AOTAutograd's wrapper that such graphs need.

They raise the version counters of overwritten inputs, and make a forward and its backward one autograd function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.graph import increment_version

from litz.artifact import AotWrapping, CompiledCapture
from litz.capture.gradients.batched import in_batches
from litz.capture.gradients.double_backward import has_derivatives, refused_if_differentiated
from litz.host.runtime.load import HostFunction
from litz.host.runtime.torch_memory import materialised, strided_copy
from litz_ir.loops import Ref, Value
from litz_ir.plan import Plan, memory_root

Strides = tuple[int, ...]
"""Strides of a tensor, in elements."""


def inference_call(wrapping: AotWrapping, forward: HostFunction) -> Callable[..., Any]:
    """Return a graph without gradients as a function of tensors."""
    written = wrapping.written
    if not written:
        return lambda *inputs: forward(list(inputs))

    def call(*inputs: Any) -> Any:
        increment_version([inputs[k] for k in written])
        return forward(list(inputs))

    return call


def zero_tensors(inputs: Sequence[Any]) -> list[int]:
    """Return the positions of zero tensors, which have no memory. Dynamo's guards tell them from others."""
    return [k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x._is_zerotensor()]


def with_materialised(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call of a graph that gives memory to zero tensors among its inputs.

    Raises eager's ``RuntimeError`` for one that the graph wrote.
    """
    materialise: Callable[..., Any] = _Materialised.apply

    def run(*inputs: Any) -> Any:
        zeros = zero_tensors(inputs)
        if not zeros:
            return call(*inputs)
        given = list(inputs)
        for k in zeros:
            given[k] = materialise(given[k])
        versions = [given[k]._version for k in zeros]
        results = call(*given)
        if versions != [given[k]._version for k in zeros]:
            raise RuntimeError(
                "ZeroTensors are immutable. Please use the materialized zero tensor obtained using .clone() if you "
                "want a mutable tensor."
            )
        return results

    return run


class _Materialised(Function):
    """Zero tensor with memory, which has the gradient of one without."""

    @staticmethod
    def forward(ctx: Any, zero: torch.Tensor) -> torch.Tensor:
        return materialised(zero)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def uncast(call: HostFunction) -> HostFunction:
    """Return a call with autocast off: tracing has inserted the casts of the mode that was on when it traced."""

    def run(args: list[Any]) -> Sequence[Any]:
        if not torch._C._is_any_autocast_enabled():
            return call(args)
        with torch._C._DisableAutocast():
            return call(args)

    return run


def without_autograd(call: HostFunction) -> HostFunction:
    """Return a call that runs without autograd: the program was compiled without gradients."""

    def run(args: list[Any]) -> Sequence[Any]:
        if not torch.is_grad_enabled():
            return call(args)
        with torch.no_grad():
            return call(args)

    return run


def training_call(
    wrapping: AotWrapping,
    forward: HostFunction,
    backward: HostFunction,
    gradients: Sequence[Strides],
    saved_inputs: Sequence[int | None],
    overwritten: Sequence[int],
) -> Callable[..., Any]:
    """Return the forward as a function of tensors whose results have the backward as gradient.

    ``gradients`` are the strides of incoming gradients for which the backward was compiled, ``saved_inputs`` those of
    :func:`inputs_among_saved`, ``overwritten`` the positions of the saved tensors that the backward may write.
    """
    outputs, differentiable = wrapping.outputs, wrapping.differentiable
    constants = [k for k in range(outputs) if k not in differentiable]
    run_forward = inference_call(wrapping, forward)

    class Compiled(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> Any:
            results = run_forward(*inputs)
            returned = tuple(map(_as_own, results[:outputs]))
            anchor = torch.empty(0, device="cpu")
            ctx.save_for_backward(*(x.detach() if x._is_view() else x for x in results[outputs:]), anchor)
            ctx.mark_non_differentiable(*(returned[k] for k in constants))
            ctx._materialize_non_diff_grads = False
            return *returned, anchor

        @staticmethod
        def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
            given = [incoming[k] for k in differentiable]
            *args, anchor = ctx.saved_tensors
            # The anchor is a result of this node, whose gradient is that of all inputs.
            reached = [anchor, *given] if torch.is_grad_enabled() and depends_on_inputs(ctx, args) else given
            args += given

            def run() -> Any:
                ctx.maybe_clear_saved_tensors()
                return tuple(run_backward(args))

            return refused_if_differentiated(run, *reached) if torch.is_grad_enabled() else run()

    def traced_backward(args: list[Any]) -> Sequence[Any]:
        for k, strides in enumerate(gradients, len(saved_inputs)):
            args[k] = as_traced(args[k], strides)
        return backward(args)

    incoming_positions = range(len(saved_inputs), len(saved_inputs) + len(gradients))
    run_backward = in_batches(traced_backward, incoming_positions, overwritten)

    def depends_on_inputs(ctx: Any, saved: Sequence[torch.Tensor]) -> bool:
        return any(
            has_derivatives(each) and (source is None or ctx.needs_input_grad[source])
            for each, source in zip(saved, saved_inputs, strict=True)
        )

    apply: Callable[..., tuple[torch.Tensor, ...]] = Compiled.apply

    def run_differentiably(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        if torch.is_grad_enabled():
            return apply(*inputs)[:-1]
        # The program turns gradients on inside: a graph without a result that needs one has no backward.
        with torch.enable_grad():
            return apply(*inputs)[:-1]

    return run_differentiably


def with_own_results(call: HostFunction, positions: Sequence[int]) -> HostFunction:
    """Return the call of a forward whose results at ``positions`` are views of memory that nothing else refers to."""
    if not positions:
        return call

    def run(args: list[Any]) -> Sequence[Any]:
        results = list(call(args))
        for k in positions:
            results[k] = _as_own(results[k])
        return results

    return run


def _as_own(result: torch.Tensor) -> torch.Tensor:
    """Return a result that autograd does not treat as a view, so that the caller may overwrite it."""
    own: torch.Tensor = torch.ops.aten._unsafe_view(result, result.shape) if result._is_view() else result
    return own


def inputs_among_saved(captured: CompiledCapture) -> list[int | None]:
    """Return for each tensor that a forward saves the position of the input of whose memory it is, or ``None``."""
    plan = captured.forward.plan
    positions, placements = {each.name: k for k, each in enumerate(plan.inputs)}, dict(plan.buffers)
    saved = plan.outputs[captured.wrapping.outputs :]
    return [
        positions.get(memory_root(each.name, placements)) if isinstance(each, Ref) else None for each in saved
    ]


def gradient_strides(captured: CompiledCapture, backward: Plan) -> list[Strides]:
    """Return the strides of incoming gradients for which a backward was compiled."""
    saved = len(captured.forward.plan.outputs) - captured.wrapping.outputs
    given = [each for each in backward.inputs[saved:] if isinstance(each, Value)]
    return [tuple(int(str(stride)) for stride in each.type.layout.strides) for each in given]


def as_traced(gradient: torch.Tensor, strides: Strides) -> torch.Tensor:
    """Return a gradient with memory and the strides that its backward was compiled for; a copy where it has others."""
    has_bits = gradient.is_neg() or gradient.is_conj() or gradient._is_zerotensor()
    if gradient.stride() == strides and not has_bits:
        return gradient
    return strided_copy(gradient, strides)
