"""Plain graphs, found again by the graph that Dynamo captured, before AOTAutograd traces it.

Plain means: tensors of fixed size on one device go in, of torch's own class; tensors come out that share no memory with
what went in; what is overwritten has no gradient. For such a graph AOTAutograd's wrapper does next to nothing at run
time (``wrapped`` does it). It is found again where only torch's own functions are called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import OutputType
from torch._guards import TracingContext
from torch.fx import GraphModule, Node
from torch.library import _impls

from litz.artifact import AotWrapping
from litz.cache.key import text_key
from litz.capture.descriptors import leading_tokens, takes_captured_inputs
from litz.capture.device_keys import DeviceKeys
from litz_ir.loops import Ref, Value
from litz_ir.plan import Plan

_OWN_RESULTS = (OutputType.non_alias, OutputType.unsafe_view_alias)
"""Results in memory that is nobody else's: the second kind shows all of what an operation has made."""

_OWN_NAMESPACES = ("aten", "prims")
_TRACED_KEYS = ("Composite", "Autograd", "PreDispatch")
"""How the names of the dispatch keys begin whose kernels run while a graph is traced. Those of devices do not."""

_OWN_MODULES = ("torch", "_operator", "operator", "math", "builtins")
_LITERALS = (
    int, float, bool, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None),
    type(Ellipsis),
)  # fmt: skip


_DEVICES = ("cpu", "cuda")


class _NotPlain(Exception):
    """The graph holds something that its text does not determine."""


def fx_graph_key(gm: GraphModule, inputs: Sequence[Any], facts: Iterable[str]) -> str | None:
    """The digest of a plain graph as Dynamo captured it, of its inputs, which are all on one device, and of torch's
    settings; None where something else than torch's own functions is called, or a program has replaced how operators of
    ATen's are traced.

    ``facts`` are what else the compiled graph depends on. Which GPU it is on is no part of the key (``places``).
    """
    if _operators_are_replaced():
        return None
    places = DeviceKeys(inputs[0].device)
    try:
        told = (*places.facts(gm.graph), *_settings(places), *map(_described, inputs), _shared(inputs))
        return text_key(*facts, *told, *_lines(gm, places))
    except _NotPlain:
        return None


def plain_device(gm: GraphModule, inputs: Sequence[Any]) -> str | None:
    """The kind of the device that all inputs of a graph are on; None where one is not plain, or there is none."""
    if not all(map(_is_plain, inputs)) or len(set(map(id, inputs))) != len(inputs):
        return None
    placeholders = (node for node in gm.graph.nodes if node.op == "placeholder")
    if torch._C._len_torch_dispatch_stack() or any(
        _is_symbolic(node.meta.get("example_value")) for node in placeholders
    ):
        return None
    devices = {each.device for each in inputs}
    return devices.pop().type if len(devices) == 1 else None


def wrapping_of(gm: GraphModule, plan: Plan, inputs: int) -> AotWrapping | None:
    """What AOTAutograd, which has just traced the inference graph or forward ``gm`` of ``plan``, would do around it.

    None where that is more than :mod:`litz.capture.runtime_wrappers` does, or ``plan`` takes other than the
    ``inputs`` tensors.
    """
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None or known.tokens or known.num_backward_tokens or known.num_intermediate_bases:
        return None
    if known.num_mutated_inp_runtime_indices or any(each.mutates_metadata for each in known.input_info):
        return None
    if known.num_symints_saved_for_bw or getattr(known, "num_tensors_saved_with_no_vc_check", 0):
        return None
    if known.is_rng_op_functionalized or known.grad_enabled_mutation is not None:
        return None
    results = known.output_info
    if not all(each.output_type in _OWN_RESULTS for each in results):
        return None
    # What AOTAutograd knows of a graph with synthetic bases says nothing of its tokens: their number misleads.
    if len(plan.inputs) != inputs or not takes_captured_inputs(gm, inputs):
        return None
    tensors = all(issubclass(each.raw_type, torch.Tensor) for each in results)
    if not (tensors and is_static(plan)):
        return None
    wanted = [getattr(each, "requires_grad_for_backward", each.requires_grad) for each in results]
    differentiable = tuple(k for k, each in enumerate(wanted) if each)
    return AotWrapping(
        len(results), differentiable, tuple(known.mutated_graph_handled_indices_seen_by_autograd)
    )


def own_views(gm: GraphModule, forward: Plan, *, settled: bool) -> tuple[int, ...]:
    """Which results of a forward ``gm`` are views in its plan, but of memory that nobody else sees; where another plan
    may take its place, which ones may come to be."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None:
        return ()
    first = leading_tokens(gm) + known.num_mutated_inp_runtime_indices
    own = (k for k, each in enumerate(known.output_info, first) if each.output_type == OutputType.non_alias)
    placements = dict(forward.buffers)
    names = [output.name if isinstance(output, Ref) else None for output in forward.outputs]
    found = ((k, placements.get(names[k] or "")) for k in own)
    return tuple(
        k for k, placement in found if placement is not None and not (settled and placement.base is None)
    )


def is_static(plan: Plan) -> bool:
    """True for a plan over tensors of fixed size, on one GPU at most, which needs nothing but them."""
    tensors = all(isinstance(each, Value) for each in plan.inputs)
    tensors = tensors and not any(placement.type.device.index for _, placement in plan.buffers)
    return tensors and not list(plan.symbols) and not plan.constants


def saved_names(forward: GraphModule, outputs: int) -> list[str] | None:
    """The nodes that a forward saves, in order; None where it saves what is no tensor of numbers that are real."""
    (results,) = next(iter(reversed(forward.graph.nodes))).args
    assert isinstance(results, list | tuple)
    saved = [each for each in results[outputs:] if isinstance(each, Node)]
    plain = all(_is_real(each) for each in saved) and len(saved) == len(results) - outputs
    return [each.name for each in saved] if plain else None


def takes_what_is_saved(backward: GraphModule, saved: Sequence[str], wrapping: AotWrapping) -> bool:
    """True when a backward's inputs are what its forward saves, in that order, and then the gradients."""
    inputs = [node for node in backward.graph.nodes if node.op == "placeholder"]
    names = [node.name for node in inputs]
    fits = names[: len(saved)] == list(saved) and len(names) == len(saved) + len(wrapping.differentiable)
    return fits and all(map(_is_real, inputs))


def _is_real(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_complex()


def _is_plain(value: Any) -> bool:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return (
        value.layout == torch.strided
        and value.device.type in _DEVICES
        and not (value.is_conj() or value.is_neg())
    )


def _operators_are_replaced() -> bool:
    """True where a program has registered kernels for operators of ATen's that decide what a trace of them holds."""
    # Nearly all of them are torch's meta kernels, which a quarter of a millisecond suffices to leave out.
    names = [name for name in _impls if name.startswith("aten/") and not name.endswith("/Meta")]
    keys = (name.rpartition("/")[2] for name in names)
    return any(not key or key.startswith(_TRACED_KEYS) for key in keys)


def _described(tensor: torch.Tensor) -> str:
    sizes = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return f"{tensor.dtype} {sizes} {tensor.requires_grad} {tensor.is_inference()}"


def _shared(inputs: Sequence[torch.Tensor]) -> str:
    """Which inputs lie in one memory: what is overwritten may be another's."""
    first: dict[int, int] = {}
    return f"memory {[first.setdefault(each.untyped_storage()._cdata, k) for k, each in enumerate(inputs)]}"


def _settings(places: DeviceKeys) -> list[str]:
    """What tracing a graph in some ``places`` depends on besides the graph."""
    sdp, kind = torch.backends.cuda, places.base_device.type
    return [
        torch.__version__,
        f"default {torch.get_default_dtype()} {places.spelled(torch.get_default_device())}",
        f"grad {torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}",
        f"autocast {kind} {torch.is_autocast_enabled(kind)} {torch.get_autocast_dtype(kind)}",
        f"deterministic {torch.are_deterministic_algorithms_enabled()}",
        f"attention {sdp.flash_sdp_enabled()} {sdp.math_sdp_enabled()} {sdp.mem_efficient_sdp_enabled()}",
    ]


def _lines(gm: GraphModule, places: DeviceKeys) -> Iterable[str]:
    """The graph as text: nodes by number, functions by name."""
    numbers: dict[Node, int] = {}
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        if node.op == "placeholder":
            held = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
            yield f"placeholder {held}"
            continue
        if node.op not in ("call_function", "call_method", "output"):
            raise _NotPlain
        target = _function(node.target) if node.op == "call_function" else str(node.target)
        args, kwargs = (_spelled(each, numbers, places) for each in (node.args, node.kwargs))
        yield f"{node.op} {target} {args} {kwargs}"


def _is_symbolic(example: Any) -> bool:
    """True where Dynamo traced a size as a symbol: other inputs than these will be given, however large these are."""
    if not isinstance(example, torch.Tensor):
        return True
    return not all(
        type(size) is int for size in (*example.shape, *example.stride(), example.storage_offset())
    )


def _function(target: Any) -> str:
    """The name of one of torch's own functions."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace in _OWN_NAMESPACES:
        return str(target)
    if isinstance(target, torch._ops.OperatorBase | torch._ops.OpOverloadPacket):
        raise _NotPlain
    # What torch generates knows its name, but not always the class that its qualified name speaks of.
    module, name = getattr(target, "__module__", None) or "torch", getattr(target, "__name__", "")
    if module.partition(".")[0] not in _OWN_MODULES:
        raise _NotPlain
    # What torch generates may name a module that nobody can import.
    if getattr(sys.modules.get(module), name, None) is not target:
        raise _NotPlain
    return f"{module}.{name}"


def _spelled(value: Any, numbers: Mapping[Node, int], places: DeviceKeys) -> str:
    def joined(items: Iterable[Any]) -> str:
        return ",".join(_spelled(item, numbers, places) for item in items)

    match value:
        case Node():
            return f"%{numbers[value]}"
        case tuple() | list():
            return f"{type(value).__name__}({joined(value)})"
        case dict():
            return f"{{{','.join(f'{key}:{joined([item])}' for key, item in value.items())}}}"
        case slice():
            return f"slice({joined((value.start, value.stop, value.step))})"
        case torch.device():
            return f"device {places.spelled(value)}"
    if not isinstance(value, _LITERALS):
        raise _NotPlain
    return f"{type(value).__name__}:{value!r}"
