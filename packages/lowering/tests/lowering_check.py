"""Capture a function, lower it, run the reference interpreter and compare with eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from litz_ir import dtypes
from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.interp.loops import run_graph
from litz_ir.loops.nodes import Call, Keyword, LoopGraph, Ref, Value
from litz_ir.loops.verify import verify_graph
from litz_lowering import LoweredGraph, LoweringOptions, decompositions, lower

_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.int8, torch.float8_e5m2: torch.int8}


def to_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's memory as the interpreter holds it, strides kept."""
    tensor = tensor.detach()
    if tensor.dtype in _BITS:
        bits = tensor.view(_BITS[tensor.dtype]).numpy()
        return bits.view(np.uint16 if tensor.dtype == torch.bfloat16 else np.uint8)
    return tensor.numpy()


def to_tensor(array: Any) -> Any:
    """The inverse for arguments of calls; 16-bit unsigned integers are taken for bf16."""
    if isinstance(array, np.ndarray):
        if array.dtype == np.uint16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if isinstance(array, tuple):
        return [to_tensor(item) for item in array]
    if isinstance(array, Keyword):
        return getattr(torch, array.name)
    if isinstance(array, DType):
        return _TORCH[array]
    if isinstance(array, Device):
        return torch.device(array.kind)
    return array


_TORCH = {
    dtypes.f64: torch.float64, dtypes.f32: torch.float32, dtypes.bf16: torch.bfloat16, dtypes.f16: torch.float16,
    dtypes.i64: torch.int64, dtypes.i32: torch.int32, dtypes.i16: torch.int16, dtypes.i8: torch.int8,
    dtypes.u8: torch.uint8, dtypes.b1: torch.bool,
}  # fmt: skip


class AtenTable(Mapping[str, Callable[..., Any]]):
    """ATen overloads by name, on arrays."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        namespace, packet, overload = name.split(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload)

        def run(*args: Any, **kwargs: Any) -> Any:
            found = operator(*map(to_tensor, args), **{k: to_tensor(v) for k, v in kwargs.items()})
            return tree_map(lambda t: to_array(t) if isinstance(t, torch.Tensor) else t, found)

        return run

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def capture(fn: Callable[..., Any], *args: Any, dynamic: bool = False) -> GraphModule:
    """The functional ATen graph of ``fn``, decomposed as AOTAutograd is asked to."""
    traced = torch.func.functionalize(fn, remove="mutations")
    mode = "symbolic" if dynamic else "fake"
    table = decompositions()
    return make_fx(traced, decomposition_table=table, tracing_mode=mode)(*tree_map(_copy, args))


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    fresh = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return fresh if any(s == 0 for s in value.stride()) else fresh.copy_(value)


def clone(value: Any) -> Any:
    """A copy with the same strides."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def calls(graph: LoopGraph) -> list[str]:
    """The targets of the graph's calls."""
    return [op.target for op in graph.operations if isinstance(op, Call)]


def check(
    fn: Callable[..., Any],
    *args: Any,
    dynamic: bool = False,
    allowed: tuple[str, ...] = (),
    rtol: float = 1e-5,
    atol: float = 1e-6,
    options: LoweringOptions | None = None,
    rounding: float = 0.0,
) -> LoweredGraph:
    """Lowered and interpreted, ``fn`` gives eager's values, dtypes, strides and mutations.

    ``allowed`` are the only calls that may remain. ``rounding`` is the tolerance for narrow floats.
    """
    lowered = lower(capture(fn, *args, dynamic=dynamic), options=options)
    verify_graph(lowered.graph)
    left = [name for name in calls(lowered.graph) if not name.startswith(allowed or ("-",))]
    assert not left, f"left to ATen: {left}"
    ours = [clone(a) for a in tree_leaves(args)]
    theirs = tree_map(clone, args)
    expected = tree_leaves(fn(*theirs))
    inputs = [to_array(a) if isinstance(a, torch.Tensor) else a for a in ours]
    constants = {name: to_array(t) for name, t in lowered.constants.items()}
    found = run_graph(lowered.graph, inputs, constants, AtenTable())
    assert len(found) == len(expected)
    values = lowered.graph.values()
    for number, (got, want, output) in enumerate(zip(found, expected, lowered.graph.outputs)):
        compare(f"output {number}", got, want, rtol, atol, rounding)
        if isinstance(want, torch.Tensor) and isinstance(output, Ref) and not dynamic:
            same_strides(values[output.name], want)
    for number, (got, want) in enumerate(zip(inputs, tree_leaves(theirs))):
        if isinstance(want, torch.Tensor):
            compare(f"input {number} afterwards", got, want, rtol, atol, rounding)
    return lowered


def same_strides(value: Value, want: torch.Tensor) -> None:
    """Eager's strides are promised wherever a dimension has more than one element."""
    assert value.type.layout.fixed, f"{value.name} is returned and its layout may change"
    pairs = zip(want.shape, value.type.layout.strides, want.stride(), strict=True)
    agree = want.numel() == 0 or all(size == 1 or a == b for size, a, b in pairs)
    assert agree, f"{value.name} has strides {value.type.layout.strides}, eager {want.stride()}"


def compare(what: str, got: Any, want: Any, rtol: float, atol: float, rounding: float) -> None:
    """Equal dtype, shape and, within the tolerance, values."""
    if not isinstance(want, torch.Tensor):
        assert got == want, f"{what}: {got!r}, eager {want!r}"
        return
    tensor = to_tensor(np.asarray(got))
    assert tensor.dtype == want.dtype, f"{what}: {tensor.dtype}, eager {want.dtype}"
    assert tensor.shape == want.shape, f"{what}: {tuple(tensor.shape)}, eager {tuple(want.shape)}"
    narrow = want.dtype in (torch.bfloat16, torch.float16)
    exact = not want.dtype.is_floating_point
    torch.testing.assert_close(
        tensor, want.detach(), rtol=0 if exact else rounding if narrow else rtol,
        atol=0 if exact else rounding if narrow else atol, equal_nan=True, msg=lambda text: f"{what}: {text}",
    )  # fmt: skip
