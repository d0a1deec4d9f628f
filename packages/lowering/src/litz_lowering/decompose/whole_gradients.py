"""Operators whose gradients AOTAutograd traces as eager computes them.

Torch decomposes these operators before their gradients are traced. The gradient of a resized image is then a scatter
for each corner of each result: several times as slow as eager's operator, rounded at each corner, and row-major where
eager's is channels-last. The decomposition of ``multilabel_margin_loss`` counts labels after the first -1, and that of
an inactive dropout copies its argument, so that writes to the result do not reach it.

Their arguments, and those of other operators that torch decomposes as early, are checked as eager checks them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._decomp import decomposition_table

from litz_lowering.aten.eager_checks import check_eager
from litz_lowering.aten.resampling_scales import (
    effective_scales,
    resampled_size,
    split_resampling_arguments,
)

_Kernel = Callable[..., Tensor]

_RESIZING = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
_LABELS = "multilabel_margin_loss_forward"

_EARLY = (*_RESIZING, "native_batch_norm", "hardshrink", "softshrink", "multi_margin_loss", "one_hot")
"""Operators that torch decomposes before AOTAutograd sees them, whose arguments eager checks."""

_lock = threading.Lock()
_depth = 0


@contextmanager
def whole_gradients() -> Iterator[None]:
    """Trace gradients of these operators as calls of eager's operators while the context lasts.

    Torch's table of Python kernels is of the process, so that graphs which other threads trace meanwhile may have these
    calls as well.
    """
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _install()
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _restore()


_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
"""Keys at which torch has Python kernels that are differentiated."""

_torchs: dict[tuple[torch._ops.OpOverload, DispatchKey], _Kernel] = {}
"""Kernels of torch that are replaced at present."""


def _install() -> None:
    for name in _RESIZING:
        packet = getattr(torch.ops.aten, name)
        for op, key in ((getattr(packet, overload), key) for overload in ("default", "vec") for key in _KEYS):
            if key in op.py_kernels:
                kernel = _torchs[op, key] = op.py_kernels[key]
                op.py_kernels[key] = partial(_resize, op, kernel)
    for name in _EARLY:
        packet = getattr(torch.ops.aten, name)
        for op, key in ((getattr(packet, each), key) for each in packet.overloads() for key in _KEYS):
            if key in op.py_kernels:
                _torchs.setdefault((op, key), op.py_kernels[key])
                op.py_kernels[key] = partial(_checked, op, op.py_kernels[key])
    dropout = torch.ops.aten.dropout.default
    for key in (key for key in _KEYS if key in dropout.py_kernels):
        kernel = _torchs[dropout, key] = dropout.py_kernels[key]
        dropout.py_kernels[key] = partial(_dropout, kernel)
    op = getattr(torch.ops.aten, _LABELS).default
    _torchs.update({(op, key): op.py_kernels.pop(key) for key in _KEYS if key in op.py_kernels})
    for op, _ in _torchs:
        op._dispatch_cache.clear()


def _restore() -> None:
    for (op, key), kernel in _torchs.items():
        op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
    _torchs.clear()


def _checked(op: torch._ops.OpOverload, kernel: _Kernel, *args: Any, **kwargs: Any) -> Any:
    """Call a kernel with arguments that eager accepts."""
    check_eager(op, args, kwargs)
    return kernel(*args, **kwargs)


def _dropout(kernel: _Kernel, x: Tensor, p: float, train: bool) -> Tensor:
    """Dropout that is its argument where it drops nothing, as in eager: the decomposition copies it."""
    return kernel(x, p, train) if train and p != 0 else x


def _resize(op: torch._ops.OpOverload, kernel: _Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Resize by torch's decomposition, with eager's gradient on a CPU for sizes that are known.

    Most meta kernels of these gradients refuse symbolic sizes.
    """
    args = _positional(op, args, kwargs)
    x = _cast_by_autocast(op, x)
    traced = torch.is_grad_enabled() and x.requires_grad and x.device.type == "cpu"
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    numbers = [
        number
        for group in (x.shape, *args)
        for number in (group if isinstance(group, list | tuple) else (group,))
    ]
    if not traced or transformed or any(isinstance(n, torch.SymInt | torch.SymFloat) for n in numbers):
        return _resize_as_eager(op, kernel, x, *args)
    result: Tensor = _Resized.apply(op, kernel, x, args)  # type: ignore[no-untyped-call]
    return result


def _cast_by_autocast(op: torch._ops.OpOverload, x: Tensor) -> Tensor:
    """Cast an image to f32 where autocast does so in eager.

    There an overload by lists calls the default one, which autocast casts for. Torch's Python kernel does not.
    """
    kind = x.device.type
    key = f"Autocast{torch._C._dispatch_key_for_device(kind)}"
    default = op.overloadpacket.default.name()
    casts = torch.is_autocast_enabled(kind) and torch._C._dispatch_has_kernel_for_dispatch_key(default, key)
    return x.float() if casts and x.dtype in (torch.bfloat16, torch.float16) else x


def _positional(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a call after its first by position, with defaults of the others."""
    missing = op._schema.arguments[1 + len(args) :]
    return (*args, *(kwargs.get(argument.name, argument.default_value) for argument in missing))


def _resize_as_eager(op: torch._ops.OpOverload, kernel: _Kernel, x: Tensor, *args: Any) -> Tensor:
    """Resize by torch's decomposition, without scales that eager does not use."""
    size, *rest = args
    corners, scales = split_resampling_arguments(rest)
    if None in scales and size is None:
        return kernel(x, *args)
    size = resampled_size(x, size, scales)
    packet = op.overloadpacket
    effective = effective_scales(packet.__name__, x, size, scales)
    if effective == scales:
        return kernel(x, *args)
    result: Tensor = decomposition_table[packet.default](x, size, *corners, *effective)
    return result


class _Resized(torch.autograd.Function):
    """Resizing whose gradient is one call of ATen's operator."""

    @staticmethod
    def forward(
        ctx: Any, op: torch._ops.OpOverload, kernel: _Kernel, x: Tensor, args: Sequence[Any]
    ) -> Tensor:
        ctx.call = op, x.shape, args
        return _resize_as_eager(op, kernel, x, *args)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        op, shape, (_, *rest) = ctx.call
        corners, scales = split_resampling_arguments(rest)
        backward = getattr(torch.ops.aten, f"{op.overloadpacket.__name__}_backward").default
        return None, None, backward(gradient, gradient.shape[2:], shape, *corners, *scales), None
