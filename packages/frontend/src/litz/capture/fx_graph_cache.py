"""The FX graph cache: plain graphs are found by the graph that Dynamo captured, before AOTAutograd traces it.

A graph is plain where its inputs are tensors of torch's own class, of fixed size and on one device, its results are
tensors that share no memory with inputs, and inputs that it overwrites need no gradient. AOTAutograd's wrapper does
next to nothing for it at run time (:mod:`litz.capture.runtime_wrappers` does that). Only graphs that call nothing
but torch's own functions are cached, and only graphs that are valid for all values of the floats that they take.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch._functorch._aot_autograd.schemas import OutputType
from torch._guards import TracingContext
from torch.fx import GraphModule, Node
from torch.library import _impls
from torch.utils._sympy.symbol import SymT, symbol_is_type

from litz.artifact import AotWrapping
from litz.cache.key import LAUNCH, keywords_of, text_key
from litz.capture.descriptors import leading_tokens, takes_captured_inputs
from litz.capture.device_keys import DeviceKeys
from litz_ir.loops import Ref, Value
from litz_ir.plan import Plan
from litz_ir.target import target_entries

_OWN_RESULTS = (OutputType.non_alias, OutputType.unsafe_view_alias)
"""Kinds of results in memory that nothing else refers to: the second kind is a view of all of a new tensor."""

_OWN_NAMESPACES = ("aten", "prims")
_TRACED_KEYS = ("Composite", "Autograd", "PreDispatch")
"""Prefixes of dispatch keys whose kernels run during tracing; those of devices do not."""

_OWN_MODULES = ("torch", "_operator", "operator", "math", "builtins")
_LITERALS = (
    int, float, bool, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None),
    type(Ellipsis),
)  # fmt: skip


class _NotPlain(Exception):
    """Raised for a graph with content that its text does not determine."""


def fx_graph_key(gm: GraphModule, inputs: Sequence[Any], facts: Iterable[str]) -> str | None:
    """Return the digest of a plain graph, its inputs, which are all on one device, and torch's settings.

    ``None`` where the graph calls other functions than torch's own, or a program replaced kernels that tracing uses.
    ``facts`` are further facts that the compiled graph depends on. The key does not depend on the ordinal of the
    GPU; see :class:`DeviceKeys`.
    """
    if _operators_are_replaced():
        return None
    devices = DeviceKeys(inputs[0].device)
    try:
        texts = (*devices.facts(gm.graph), *_settings(devices), *map(_described, inputs), _shared(inputs))
        return text_key(*facts, *texts, *_lines(gm, devices))
    except _NotPlain:
        return None


def plain_device(gm: GraphModule, inputs: Sequence[Any]) -> str | None:
    """Return the kind of the device of all inputs; ``None`` where one is not plain, or there is none, or no target."""
    if not all(map(_is_plain, inputs)) or len(set(map(id, inputs))) != len(inputs):
        return None
    placeholders = (node for node in gm.graph.nodes if node.op == "placeholder")
    if torch._C._len_torch_dispatch_stack() or any(
        _is_symbolic(node.meta.get("example_value")) for node in placeholders
    ):
        return None
    devices = {each.device for each in inputs}
    kind = devices.pop().type if len(devices) == 1 else None
    return kind if kind in target_entries() else None


def wrapping_of(gm: GraphModule, plan: Plan, inputs: int) -> AotWrapping | None:
    """Return the wrapping that AOTAutograd would give the inference or forward graph ``gm`` of ``plan``, just
    traced.

    ``None`` where that is more than :mod:`litz.capture.runtime_wrappers` does, or ``plan`` takes other inputs than
    the ``inputs`` tensors.
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
    # The metadata of a graph with synthetic bases lacks its effect tokens, so their number is wrong.
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


def floats_are_guarded() -> bool:
    """Report whether the graph that AOTAutograd is tracing, or was traced, is valid for some floats only.

    Dynamo passes a Python float as a tensor whose element the graph reads. The program may branch on its value, and an
    operator may need it while it is traced: both guard it in the ShapeEnv, which a graph found in the cache would not.
    """
    context = TracingContext.try_get()
    env = None if context is None or context.fake_mode is None else context.fake_mode.shape_env
    guards = () if env is None else env.guards
    return any(symbol_is_type(leaf, SymT.FLOAT) for each in guards for leaf in each.expr.free_symbols)


def own_views(gm: GraphModule, forward: Plan, *, settled: bool) -> tuple[int, ...]:
    """Return the positions of a forward's results that are views in its plan, of memory that nothing else refers to.

    Where another plan may replace it (not ``settled``), all results that may become such views are included.
    """
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
    """Report whether a plan takes only tensors of fixed size, on one GPU at most."""
    tensors = all(isinstance(each, Value) for each in plan.inputs)
    tensors = tensors and not any(placement.type.device.index for _, placement in plan.buffers)
    return tensors and not list(plan.symbols)


def saved_names(forward: GraphModule, outputs: int) -> list[str] | None:
    """Return the nodes that a forward saves, in order; ``None`` where one is no real tensor."""
    (results,) = next(iter(reversed(forward.graph.nodes))).args
    assert isinstance(results, list | tuple)
    saved = [each for each in results[outputs:] if isinstance(each, Node)]
    plain = all(_is_real(each) for each in saved) and len(saved) == len(results) - outputs
    return [each.name for each in saved] if plain else None


def takes_what_is_saved(backward: GraphModule, saved: Sequence[str], wrapping: AotWrapping) -> bool:
    """Report whether a backward's inputs are the saved tensors of its forward in order, then the gradients."""
    inputs = [node for node in backward.graph.nodes if node.op == "placeholder"]
    names = [node.name for node in inputs]
    fits = names[: len(saved)] == list(saved) and len(names) == len(saved) + len(wrapping.differentiable)
    return fits and all(map(_is_real, inputs))


def _is_real(node: Node) -> bool:
    """Report whether a node is a tensor that is not complex."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_complex()


def _is_plain(value: Any) -> bool:
    """Report whether a value is a strided tensor of torch's own class without conjugate or negative bit, and not inside
    a transform of ``torch.func``."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return False
    return value.layout == torch.strided and not (value.is_conj() or value.is_neg())


def _operators_are_replaced() -> bool:
    """Report whether a program registered kernels for ATen operators that tracing runs."""
    # Nearly all are torch's meta kernels; leaving them out takes 0.25 milliseconds.
    names = [name for name in _impls if name.startswith("aten/") and not name.endswith("/Meta")]
    keys = (name.rpartition("/")[2] for name in names)
    return any(not key or key.startswith(_TRACED_KEYS) for key in keys)


def _described(tensor: torch.Tensor) -> str:
    """Return the metadata of an input as text."""
    sizes = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return f"{tensor.dtype} {sizes} {tensor.requires_grad} {tensor.is_inference()}"


def _shared(inputs: Sequence[torch.Tensor]) -> str:
    """Return the inputs that share a storage, as text: overwriting one changes the others."""
    first: dict[int, int] = {}
    return f"memory {[first.setdefault(each.untyped_storage()._cdata, k) for k, each in enumerate(inputs)]}"


def _settings(devices: DeviceKeys) -> list[str]:
    """Return torch's settings that tracing depends on, as text."""
    sdp, kind = torch.backends.cuda, devices.base_device.type
    return [
        torch.__version__,
        f"default {torch.get_default_dtype()} {devices.spelled(torch.get_default_device())}",
        f"grad {torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}",
        f"autocast {kind} {torch.is_autocast_enabled(kind)} {torch.get_autocast_dtype(kind)}",
        f"deterministic {torch.are_deterministic_algorithms_enabled()}",
        f"attention {sdp.flash_sdp_enabled()} {sdp.math_sdp_enabled()} {sdp.mem_efficient_sdp_enabled()}",
        f"autograd {functorch_config.get_hash().hex()}",
    ]


def _lines(gm: GraphModule, devices: DeviceKeys) -> Iterable[str]:
    """Yield the graph as text, with nodes by number and functions by name."""
    numbers: dict[Node, int] = {}
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        if node.op == "placeholder":
            static = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
            yield f"placeholder {static}"
            continue
        if node.op not in ("call_function", "call_method", "output"):
            raise _NotPlain
        launches = LAUNCH in str(node.target)
        target = _function(node.target) if node.op == "call_function" and not launches else str(node.target)
        keywords = keywords_of(node)
        if launches and "process" in keywords:
            raise _NotPlain  # a kernel has no identity
        args, kwargs = (_spelled(each, numbers, devices) for each in (node.args, keywords))
        yield f"{node.op} {target} {args} {kwargs}"


def _is_symbolic(example: Any) -> bool:
    """Report whether Dynamo traced a size as a symbol, so that the graph serves other sizes too."""
    if not isinstance(example, torch.Tensor):
        return True
    return not all(
        type(size) is int for size in (*example.shape, *example.stride(), example.storage_offset())
    )


def _function(target: Any) -> str:
    """Return the name of one of torch's own functions; raise ``_NotPlain`` for another."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace in _OWN_NAMESPACES:
        return str(target)
    if isinstance(target, torch._ops.OperatorBase | torch._ops.OpOverloadPacket):
        raise _NotPlain
    # Functions that torch generates have a name, but their qualified name may contain a class that they lack.
    module, name = getattr(target, "__module__", None) or "torch", getattr(target, "__name__", "")
    if module.partition(".")[0] not in _OWN_MODULES:
        raise _NotPlain
    # Functions that torch generates may name a module that does not exist.
    if getattr(sys.modules.get(module), name, None) is not target:
        raise _NotPlain
    return f"{module}.{name}"


def _spelled(value: Any, numbers: Mapping[Node, int], devices: DeviceKeys) -> str:
    """Return an argument as text."""

    def joined(items: Iterable[Any]) -> str:
        return ",".join(_spelled(item, numbers, devices) for item in items)

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
            return f"device {devices.spelled(value)}"
    if not isinstance(value, _LITERALS):
        raise _NotPlain
    return f"{type(value).__name__}:{value!r}"
