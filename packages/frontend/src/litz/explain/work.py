"""Work of launches and calls: floating-point operations, and the bytes of a call's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from litz.tuning.launches import symbols_of
from litz_ir.contraction import (
    CONVOLUTION_BACKWARD,
    CONVOLUTIONS,
    MATMULS,
    convolution_arguments,
    matmul_arguments,
)
from litz_ir.loops import Ref
from litz_ir.plan import (
    CallStep,
    Invocation,
    Kernel,
    Placement,
    Plan,
    Statement,
    Store,
    invocations_of,
    touched_by,
)
from litz_ir.scalar import OPS, Expr, NestedReduction, Op, walk
from litz_ir.symbols import evaluate

_FREE = frozenset({"cast", "bitcast", "where"})
"""Scalar operations that move or convert values."""

_ATTENTION = "_scaled_dot_product_"
"""Start of the names of ATen's attention."""

_FORWARD_MATMULS, _BACKWARD_MATMULS = 2, 5
"""Matmuls of attention, and of its gradients, which compute the scores again."""


def kernel_flops(kernel: Kernel, values: tuple[int | float, ...]) -> int:
    """Return the floating-point operations of a launch, for ``values`` of the kernel's symbols.

    Each scalar operation on floats counts at each point with its cost in the table of operations: an addition as 1,
    an exponential as 10.
    """
    return _flops(kernel, symbols_of(kernel, values))


def call_flops(step: CallStep, plan: Plan) -> int | None:
    """Return the floating-point operations of a matmul, convolution or attention at typical sizes, with two for
    each multiplication and addition; ``None`` for other routines.
    """
    if step.target in MATMULS:
        given = matmul_arguments(step.target, step.arguments, step.attributes)
        return _matmul_flops(step, plan, given.get("a"))
    if step.target == "linear":
        return _matmul_flops(step, plan, step.arguments[0])
    if step.target in CONVOLUTIONS:
        return _convolution_flops(step, plan)
    if _ATTENTION in step.target:
        return _attention_flops(step, plan)
    return None


def call_bytes(step: CallStep, plan: Plan) -> int:
    """Return the bytes of the tensors that a call takes and returns, each once, at typical sizes."""
    placements = dict(plan.buffers)
    names = dict.fromkeys(name for name in touched_by(step) if name in placements)
    return sum(
        prod(shape_of(name, plan, placements)) * placements[name].type.dtype.itemsize for name in names
    )


def shape_of(name: str, plan: Plan, placements: Mapping[str, Placement] | None = None) -> tuple[int, ...]:
    """Return the shape of a buffer at typical sizes."""
    type_ = (plan.placement(name) if placements is None else placements[name]).type
    return tuple(plan.symbols.hint(size) for size in type_.shape)


def _flops(kernel: Kernel, symbols: Mapping[str, int | float]) -> int:
    """Return the operations of a kernel for values of its symbols."""
    if kernel.subkernels:
        return sum(_invoked(each, call, symbols) for each, call in invocations_of(kernel))
    sizes = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}
    outer = prod(evaluate(axis.size, sizes) for axis in kernel.outer)
    total = 0
    for phase in kernel.phases:
        points = prod(evaluate(axis.size, sizes) for axis in phase.axes)
        roots = [value for each in phase.statements for value in _values(each)]
        sums = sum(len(each.values) for each in phase.statements if not isinstance(each, Store))
        total += points * (_operations(roots, sizes) + sums)
    return outer * total


def _invoked(kernel: Kernel, invocation: Invocation, symbols: Mapping[str, int | float]) -> int:
    """Return the operations of one invocation of a subkernel."""
    sizes = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}
    pairs = zip(kernel.symbols, invocation.symbols, strict=True)
    own = {info.name: 1.0 if info.kind == "float" else evaluate(term, sizes) for info, term in pairs}
    return _flops(kernel, own)


def _values(statement: Statement) -> Iterator[Expr]:
    """Yield the values that a statement computes."""
    if isinstance(statement, Store):
        yield statement.value
    else:
        yield from statement.values


def _operations(roots: list[Expr], sizes: Mapping[str, int]) -> int:
    """Return the operations on floats at one point, those of nested reductions included."""
    total = 0
    for node in walk(*roots):
        if isinstance(node, NestedReduction):
            inner = _operations([node.body], sizes) + 1
            # The walk has met the body's operations once already.
            total += inner * prod(evaluate(size, sizes) for _, size in node.axes) - (inner - 1)
        elif isinstance(node, Op) and node.dtype.is_float and node.name not in _FREE:
            total += OPS[node.name].cost
    return total


def _matmul_flops(step: CallStep, plan: Plan, operand: object) -> int | None:
    """Return two for each multiplication of a matmul."""
    result = step.results[0]
    if not isinstance(operand, Ref) or result is None:
        return None
    return 2 * prod(shape_of(result, plan)) * shape_of(operand.name, plan)[-1]


def _convolution_flops(step: CallStep, plan: Plan) -> int | None:
    """Return two operations for each multiplication of a convolution; for gradients, of each that is computed."""
    given = convolution_arguments(step.target, step.arguments, step.attributes)
    if given is None:
        return None
    weight = shape_of(given.weight.name, plan)
    output = step.results[0] if given.grad_output is None else given.grad_output.name
    points = given.input.name if given.transposed else output
    if points is None:
        return None
    once = 2 * prod(shape_of(points, plan)) * prod(weight[1:])
    return once * (sum(map(bool, given.output_mask[:2])) if step.target == CONVOLUTION_BACKWARD else 1)


def _attention_flops(step: CallStep, plan: Plan) -> int | None:
    """Return the operations of the matmuls of attention."""
    backward = "backward" in step.target
    names = [each.name for each in step.arguments if isinstance(each, Ref)][1 if backward else 0 :][:2]
    if len(names) < 2:
        return None
    query, key = (shape_of(name, plan) for name in names)
    matmuls = _BACKWARD_MATMULS if backward else _FORWARD_MATMULS
    return matmuls * 2 * prod(query) * key[-2]
