"""Checks of arguments that eager's kernels make and that no meta kernel has: eager is asked, by a small call.

A meta kernel accepts dtypes that no kernel of the device has, and some numbers and sizes that a kernel refuses. While a
graph is traced, each operator is called once for the dtypes, sizes and numbers that it gets, on a few elements. A graph
with an operator that raises runs as it was captured, so that it raises eager's own error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from litz_lowering.aten.sample_calls import (
    Call,
    Sized,
    Skipped,
    call_unobserved,
    exact_calls,
    leaves_of,
    list_elements,
    mapped,
    short_calls,
    sized,
)
from litz_lowering.types.symbols_io import hint_of

_PRIVATE_WITH_CHECKS = frozenset(
    {
        "_adaptive_avg_pool2d",
        "_adaptive_avg_pool3d",
        "_log_softmax",
        "_softmax",
        "_upsample_bicubic2d_aa",
        "_upsample_bilinear2d_aa",
        "_upsample_nearest_exact1d",
        "_upsample_nearest_exact2d",
        "_upsample_nearest_exact3d",
    }
)
"""Private operators of ATen whose kernels compare the sizes of their arguments, as those of public operators do."""


class RefusedByEager(Exception):
    """Operator that eager refuses for the arguments that a graph has."""

    def __init__(self, operator: torch._ops.OperatorBase | str, error: Exception) -> None:
        self.reason = f"eager refuses {operator}: {type(error).__name__}: {error}"
        """The operator and eager's error as text, to which tracing adds nothing."""
        self.error = error
        """Eager's error."""
        super().__init__(self.reason)


def with_eager_checks(
    table: Mapping[torch._ops.OperatorBase, Callable[..., Any]], served: Iterable[str]
) -> dict[Any, Callable[..., Any]]:
    """Return a decomposition table that raises :class:`RefusedByEager` where eager refuses an operator.

    Besides the operators that ``table`` decomposes those named in ``served`` are checked. What a decomposition calls is
    not: eager does not call it.
    """
    checked: dict[Any, Callable[..., Any]] = {
        op: partial(_check_and_decompose, op, None) for op in _operators(frozenset(served))
    }
    return {**checked, **{op: partial(_check_and_decompose, op, how) for op, how in table.items()}}


@cache
def _operators(names: frozenset[str]) -> tuple[torch._ops.OpOverload, ...]:
    """Operators of ATen by the names of their overloads."""
    found = []
    for name in names:
        namespace, _, rest = name.partition(".")
        packet, _, overload = rest.rpartition(".")
        if namespace == "aten" and hasattr(torch.ops.aten, packet):
            each = getattr(getattr(torch.ops.aten, packet), overload, None)
            if isinstance(each, torch._ops.OpOverload):
                found.append(each)
    return tuple(found)


class _Depth(threading.local):
    """Number of decompositions that are being traced in this thread."""

    value = 0


_depth = _Depth()


def _check_and_decompose(
    op: torch._ops.OperatorBase, how: Callable[..., Any] | None, *args: Any, **kwargs: Any
) -> Any:
    """Check a call and trace its decomposition ``how``, or return ``NotImplemented``, so that the call is traced."""
    if not _depth.value and isinstance(op, torch._ops.OpOverload):
        check_eager(op, args, kwargs)
    if how is None:
        return NotImplemented
    _depth.value += 1
    try:
        return how(*args, **kwargs)
    finally:
        _depth.value -= 1


def check_eager(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise :class:`RefusedByEager` where :func:`eager_error` returns an error."""
    error = eager_error(op, args, kwargs)
    if error is not None:
        raise RefusedByEager(op, error)


def eager_error(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Return the error that eager raises for arguments of these dtypes, sizes and numbers whatever the elements are.

    None where it raises none, or is not asked: for operators that draw random numbers or write an argument, for views,
    for large arguments of kernels that check no sizes, and for tensors on other devices than a CPU, unless one has no
    elements: the CPU is asked for these, since a kernel of a GPU that fails ends the process's use of it.
    """
    scatter = _SCATTERED_VIEWS.get(op)
    if scatter is not None and (error := _scatter_error(scatter, *args, **kwargs)) is not None:
        return error
    if op.overloadpacket is torch.ops.aten.arange and any(type(bound) is float for bound in args):
        return None  # their quotient is the number of elements
    if not _is_asked(op) or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    tensors = [leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if any(x.device.type != "cpu" for x in tensors) and not any(map(_has_empty_axis, tensors)):
        return None
    try:
        call = mapped(sized, (args, kwargs))
    except Skipped:
        return None
    if any(isinstance(each, Sized) and each.dtype is torch.bool for each in list_elements(call)):
        return None  # the number of elements selected decides
    return _error(op, _Key(call))


_SCATTERED_VIEWS: Mapping[torch._ops.OperatorBase, Callable[..., torch.Tensor]] = MappingProxyType(
    {
        torch.ops.aten.select_scatter.default: torch.select,
        torch.ops.aten.diagonal_scatter.default: torch.diagonal,
        torch.ops.aten.slice_scatter.default: torch.ops.aten.slice.Tensor,
    }
)
"""Operators that write a view of a copy, with the view. Their decompositions broadcast what is written."""


def _scatter_error(
    view: Callable[..., torch.Tensor], x: torch.Tensor, source: torch.Tensor, *args: Any, **kwargs: Any
) -> Exception | None:
    """Error of a view that ``x`` does not have, or whose sizes are not those of ``source``, in the traced call.

    The view is one of a tensor with the sizes of that call. Views of ``x`` itself would leave symbols that torch 2.11
    does not trace again.
    """
    shape, given = ([hint_of(size) for size in each.shape] for each in (x, source))
    if any(isinstance(each, torch.SymInt) for each in (*args, *kwargs.values())) or None in (*shape, *given):
        return None
    try:
        with _disable_current_modes():
            viewed = view(torch.empty(shape, device="meta"), *args, **kwargs)  # type: ignore[arg-type]  # no None
    except IndexError as error:
        return error
    if list(viewed.shape) == given:
        return None
    return RuntimeError("expected src to have a size equal to the view of self")


class _Key:
    """Call that is equal to others with the same arguments under the same settings of the process.

    Numbers of different types are not the same.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self._text = repr((call, torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@cache
def _is_asked(op: torch._ops.OpOverload) -> bool:
    """True for an operator whose errors are those of its arguments alone: not of the memory that views of it read."""
    schema = op._schema
    aliases = any(value.alias_info is not None for value in (*schema.arguments, *schema.returns))
    places = op.overloadpacket.__name__.startswith("as_strided")
    return op.namespace == "aten" and not (aliases or places or torch.Tag.nondeterministic_seeded in op.tags)


@cache
def _has_size_checks(op: torch._ops.OpOverload) -> bool:
    """True for an operator whose kernel reads no memory outside arguments of any sizes.

    Kernels of private operators and of gradients trust their callers: that of ``_weight_int8pack_mm`` reads whole
    vectors of rows of two elements.
    """
    name = op.overloadpacket.__name__
    public = not name.startswith("_") and not _is_gradient(op)
    return (
        public
        or name in _PRIVATE_WITH_CHECKS
        or name.startswith("_foreach_")
        or torch.Tag.pointwise in op.tags
    )


def _is_gradient(op: torch._ops.OpOverload) -> bool:
    return "backward" in op.overloadpacket.__name__


def _has_empty_axis(x: torch.Tensor) -> bool:
    """True for a tensor of which a size is known to be zero."""
    return any(type(size) is int and size == 0 for size in x.shape)


@cache
def _error(op: torch._ops.OpOverload, key: _Key) -> Exception | None:
    """Error of calls with any of the fills: of the call as it is, or of one with short axes whose sizes are valid."""
    return call_unobserved(lambda: _answer(op, key.call))


def _answer(op: torch._ops.OpOverload, call: Call) -> Exception | None:
    """Error of a call as it is, or with short axes; None for a large call of a kernel that checks no sizes."""
    exact = exact_calls(call)
    if exact:
        error = _raised(op, exact)
        if error is None or not _is_gradient(op):
            return error
        return error if _raised(op, map(_with_saved_in_f32, exact)) is not None else None
    if not _has_size_checks(op):
        return None
    attempts = short_calls(call)
    error = _raised(op, attempts)
    if error is None or not any(_is_accepted(op, attempt) for attempt in attempts):
        return None
    return error


def _raised(op: torch._ops.OpOverload, calls: Iterable[Call]) -> Exception | None:
    """Error of the first call; None where one of them raises none."""
    errors: list[Exception] = []
    for args, kwargs in calls:
        try:
            op(*args, **kwargs)
        except Exception as error:
            errors.append(error.with_traceback(None))
        else:
            return None
    return errors[0]


def _is_accepted(op: torch._ops.OpOverload, call: Call) -> bool:
    """True where eager accepts a call of these sizes with usual dtypes or numbers: an error is that of the dtypes or
    numbers, not one of sizes that do not fit each other when they are short."""
    return any(_raised(op, [mapped(usual, call)]) is None for usual in (_as_f32, _widened, _with_ones))


def _with_saved_in_f32(call: Call) -> Call:
    """Call of a gradient with all but the gradient and the input in f32 instead of 16-bit floats.

    A norm of 16-bit floats with weights in f32 saves its statistics in f32, in torch's meta kernels in 16 bits.
    """
    args, kwargs = call
    return [(*args[:2], *mapped(_widened_from_16_bits, args[2:])), kwargs]


def _widened_from_16_bits(leaf: Any) -> Any:
    is_narrow = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.bfloat16)
    return leaf.to(torch.float32) if is_narrow else leaf


def _as_f32(leaf: Any) -> Any:
    if isinstance(leaf, torch.dtype):
        return torch.float32
    return leaf.to(torch.float32) if isinstance(leaf, torch.Tensor) else leaf


def _widened(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.dtype == torch.bool:
        return leaf
    return leaf.to(torch.float32 if leaf.is_floating_point() else torch.int64)


def _with_ones(leaf: Any) -> Any:
    return 1.0 if isinstance(leaf, float) else leaf
