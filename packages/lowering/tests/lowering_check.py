"""Comparison with eager: a function is captured, lowered and run in the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch._functorch.aot_autograd import aot_function
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves, tree_map

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.interp import run_graph
from litz_ir.interp.encoding import storage_dtype
from litz_ir.loops import Call, ComplexRef, Keyword, LoopGraph, Output, Ref
from litz_ir.verifier import verify
from litz_lowering import LoweredGraph, LoweringOptions, decompositions, lower, torch_dtype
from litz_lowering.types.torch_types import known_dtype, litz_dtype


def to_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Convert a tensor to an array of the interpreter, with equal strides."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if known_dtype(tensor.dtype):
        stored: torch.dtype = getattr(torch, storage_dtype(litz_dtype(tensor.dtype)).name)
        return tensor.view(stored).numpy() if stored != tensor.dtype else tensor.numpy()
    return tensor.numpy()


def to_tensor(array: Any) -> Any:
    """Convert an array or another argument of a call to torch; 16-bit unsigned integers are bf16."""
    if isinstance(array, np.ndarray):
        if array.dtype == np.uint16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if isinstance(array, tuple):
        return [to_tensor(item) for item in array]
    if isinstance(array, Keyword):
        return getattr(torch, array.name)
    if isinstance(array, DType):
        return torch_dtype(array)
    if isinstance(array, Device):
        return torch.device(array.kind)
    return array


class AtenTable(Mapping[str, Callable[..., Any]]):
    """Table of ATen overloads by name, over arrays."""

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


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or the pairs of a complex one."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def _returned(value: Any, output: Output, graph: LoopGraph) -> Any:
    """Convert an output of the graph to a torch value."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    if not isinstance(output, ComplexRef | Ref):
        return to_tensor(np.asarray(value))
    tensor = torch.from_numpy(np.asarray(value)).view(torch_dtype(graph.values()[output.name].type.dtype))
    return torch.view_as_complex(tensor) if isinstance(output, ComplexRef) else tensor


@dataclass
class Interpreted:
    """Compilers for AOTAutograd that lower each graph, verify it and run it in the reference interpreter."""

    options: LoweringOptions | None = None
    lowered: list[LoweredGraph] = field(default_factory=list)
    sources: list[GraphModule] = field(default_factory=list)

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        result = lower(gm, options=self.options)
        verify(result.graph)
        self.sources.append(gm)
        self.lowered.append(result)
        constants = {name: to_array(t) for name, t in result.constants.items()}

        def run(args: list[Any]) -> list[Any]:
            inputs = [to_array(_memory(a)) if isinstance(a, torch.Tensor) else a for a in args]
            found = run_graph(result.graph, inputs, constants, AtenTable())
            args.clear()
            return [
                _returned(value, output, result.graph) for value, output in zip(found, result.graph.outputs)
            ]

        run._boxed_call = True  # type: ignore[attr-defined]  # torch's mark of a callable that takes a list
        return run


def captured(
    fn: Callable[..., Any], *, dynamic: bool = False, options: LoweringOptions | None = None
) -> tuple[Callable[..., Any], Interpreted]:
    """Compile ``fn`` with AOTAutograd, the lowering and the interpreter."""
    interpreted = Interpreted(options)
    compiled = aot_function(
        fn, fw_compiler=interpreted.compile, bw_compiler=interpreted.compile, decompositions=decompositions(),
        keep_inference_input_mutations=True, dynamic=dynamic,
    )  # fmt: skip
    return compiled, interpreted


def clone(value: Any) -> Any:
    """Copy a value, with equal strides."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def calls(graph: LoopGraph) -> list[str]:
    """Targets of the graph's calls."""
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
    labels: Sequence[str] = (),
) -> LoweredGraph:
    """Check that ``fn``, lowered and interpreted, has eager's values, dtypes, strides and mutations.

    ``allowed`` are prefixes of the calls that may remain, ``rounding`` the tolerance for 16-bit floats,
    ``labels`` names of the outputs in messages. Returns the last lowered graph.
    """
    compiled, interpreted = captured(fn, dynamic=dynamic, options=options)
    ours, theirs = tree_map(clone, args), tree_map(clone, args)
    found, expected = tree_leaves(compiled(*ours)), tree_leaves(fn(*theirs))
    for result in interpreted.lowered:
        left = [name for name in calls(result.graph) if not name.startswith(allowed or ("-",))]
        assert not left, f"fallbacks: {left}"
    assert len(found) == len(expected)
    for number, (got, want) in enumerate(zip(found, expected)):
        label = labels[number] if len(labels) == len(expected) else f"output {number}"
        compare(label, got, want, rtol, atol, rounding)
    for number, (got, want) in enumerate(zip(tree_leaves(ours), tree_leaves(theirs))):
        compare(f"input {number} afterwards", got, want, rtol, atol, rounding)
    return interpreted.lowered[-1]


def check_gradients(
    fn: Callable[..., Any],
    *args: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    constants: int = 0,
    **how: Any,
) -> None:
    """Check values and gradients of ``fn`` against eager; the last ``constants`` arguments get no gradient."""
    compiled, interpreted = captured(fn, dynamic=how.get("dynamic", False), options=how.get("options"))
    results = []
    for run in (compiled, fn):
        wanted = len(args) - constants
        own = [clone(a).requires_grad_(a.is_floating_point() and k < wanted) for k, a in enumerate(args)]
        outs = [o for o in tree_leaves(run(*own)) if o.is_floating_point()]
        torch.manual_seed(0)
        torch.autograd.backward(outs, [torch.randn_like(o) for o in outs])
        results.append([*outs, *(a.grad for a in own if a.requires_grad)])
    for result in interpreted.lowered:
        left = [name for name in calls(result.graph) if not name.startswith(how.get("allowed") or ("-",))]
        assert not left, f"fallbacks: {left}"
    assert len(interpreted.lowered) == 2, "a forward and a backward graph"
    for number, (got, want) in enumerate(zip(*results)):
        compare(f"result {number}", got, want, rtol, atol, how.get("rounding", 0.0))


def compare(label: str, got: Any, want: Any, rtol: float, atol: float, rounding: float) -> None:
    """Check equal dtype, shape, strides and, within the tolerance, values."""
    if not isinstance(want, torch.Tensor):
        assert not isinstance(got, torch.Tensor)
        assert got == want, f"{label}: {got!r}, eager {want!r}"
        return
    tensor = got
    assert tensor.dtype == want.dtype, f"{label}: {tensor.dtype}, eager {want.dtype}"
    assert tensor.shape == want.shape, f"{label}: {tuple(tensor.shape)}, eager {tuple(want.shape)}"
    pairs = zip(want.shape, tensor.stride(), want.stride(), strict=True)
    # The interpreter has no memory in which elements overlap.
    same = want.numel() == 0 or 0 in want.stride() or all(size == 1 or a == b for size, a, b in pairs)
    assert same, f"{label}: strides {tensor.stride()}, eager {want.stride()}"
    if want.is_floating_point() and want.itemsize == 1:
        tensor, want = tensor.to(torch.bfloat16), want.to(torch.bfloat16)
    narrow = want.dtype in (torch.bfloat16, torch.float16)
    exact = not (want.is_floating_point() or want.is_complex())
    torch.testing.assert_close(
        tensor.detach(), want.detach(), rtol=0 if exact else rounding if narrow else rtol,
        atol=0 if exact else rounding if narrow else atol, equal_nan=True, msg=lambda text: f"{label}: {text}",
    )  # fmt: skip
