"""Calls of matmuls: one or a batch of them, with a bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeGuard

from litz_codegen_cpp.host.routines.call_site import CallSite, Routine, bound_arguments, not_f32, tensor_types
from litz_ir.loops import Argument, Ref, TensorType
from litz_ir.plan import CallStep, Plan
from litz_ir.symbols import Size

_NAMES: dict[str, tuple[str, ...]] = {
    "aten.mm.default": ("left", "right"),
    "aten.bmm.default": ("left", "right"),
    "matmul": ("left", "right"),
    "aten.addmm.default": ("bias", "left", "right"),
    "aten.baddbmm.default": ("bias", "left", "right"),
    "linear": ("left", "weight", "bias"),
}
"""Names of the arguments of each routine, by position."""


@dataclass(frozen=True, slots=True)
class _Operands:
    """The arguments of a matmul call."""

    left: str
    """Name of the left matrix."""
    right: str
    """Name of the right matrix."""
    transposed: bool
    """True if the right matrix has a row for each column of the result."""
    bias: str | None
    """Name of the bias."""
    alpha: float
    """Factor of the product."""
    beta: float
    """Factor of the bias."""


def _operands(step: CallStep) -> _Operands | None:
    """Return the arguments of a call; ``None`` where some are no tensors or literals."""
    found = bound_arguments(step, _NAMES[step.target], {"bias": None})
    left, right, bias = found["left"], found.get("right", found.get("weight")), found.get("bias")
    beta, alpha = found.get("beta", 1), found.get("alpha", 1)
    if not isinstance(left, Ref) or not isinstance(right, Ref) or not isinstance(bias, Ref | None):
        return None
    if not _is_number(alpha) or not _is_number(beta):
        return None
    name = None if bias is None else bias.name
    return _Operands(left.name, right.name, "weight" in found, name, float(alpha), float(beta))


def _is_number(value: Argument) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and isfinite(value)


def _refuses(plan: Plan, step: CallStep) -> str:
    operands = _operands(step)
    if operands is None:
        return "an argument is neither a tensor nor a finite number"
    types = tensor_types(plan, step)
    ranks = (len(types[operands.left].shape), len(types[operands.right].shape))
    if ranks not in ((2, 2), (3, 3)):
        return f"the C runtime multiplies matrices and batches of them, not tensors of {ranks} dimensions"
    return not_f32(plan, step)


def _emit(site: CallSite, step: CallStep) -> tuple[list[str], str | None]:
    operands, result = _operands(step), step.results[0]
    assert operands is not None
    if result is None:
        return [], None
    left, right, out = site.type(operands.left), site.type(operands.right), site.type(result)
    right_strides = list(right.layout.strides)
    if operands.transposed:
        right_strides[-2:] = reversed(right_strides[-2:])
    batch: Size = left.shape[0] if len(left.shape) == 3 else 1
    rows, depth = left.shape[-2:]
    columns = out.shape[-1]
    m, n, k = site.term(rows), site.term(columns), site.term(depth)
    strides = [site.term(stride) for stride in right_strides[-2:]]
    data = site.data(operands.right)
    prepacked = None
    if len(right.shape) == 2 and all(isinstance(size, int) for size in right.shape):
        prepacked = site.prepacked(
            operands.right,
            f"prepacked {' '.join(strides)}",
            f"litz_prepacked_bytes({n}, {k})",
            lambda to: f"litz_prepack(rt, {n}, {k}, {data}, {', '.join(strides)}, {to});",
        )
    bias = "nullptr, 0, 0, 0"
    if operands.bias is not None:
        own = broadcast_strides(site.type(operands.bias), out.shape)
        bias = f"{site.data(operands.bias)}, {_strides(site, own)}"
    fields = [
        f"{site.term(batch)}, {m}, {n}, {k}",
        f"{site.data(operands.left)}, {_strides(site, left.layout.strides)}",
        f"{data}, {_strides(site, right_strides)}",
        bias,
        f"{site.data(result)}, {_strides(site, out.layout.strides)}",
        f"{operands.alpha!r}f, {operands.beta!r}f, {prepacked or 'nullptr'}",
    ]
    lines = [
        f"const litz_product product = {{{', '.join(fields)}}};",
        "litz_multiply(rt, &product, scratch);",
    ]
    shape = (
        f"litz_product{{{site.term(batch)}, {m}, {n}, {k}, nullptr, {_strides(site, left.layout.strides)}}}"
    )
    return lines, f"litz_product_scratch(rt, {shape}, {'true' if prepacked else 'false'})"


def broadcast_strides(type_: TensorType, shape: Sequence[Size]) -> tuple[Size, ...]:
    """Return the strides by which a tensor is read as one of ``shape``: 0 where it is broadcast."""
    own = [0 if size == 1 else stride for size, stride in zip(type_.shape, type_.layout.strides)]
    return (*(0 for _ in range(len(shape) - len(own))), *own)


def _strides(site: CallSite, strides: Sequence[Size]) -> str:
    """Return three strides: those of a batch, rows and columns."""
    return ", ".join(site.term(stride) for stride in (*(0 for _ in range(3 - len(strides))), *strides))


MATMULS = {target: Routine(_refuses, _emit, "gemm") for target in _NAMES}
"""The routines by name."""
