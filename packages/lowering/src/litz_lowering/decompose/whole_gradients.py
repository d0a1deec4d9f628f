"""Operators whose gradients AOTAutograd traces as eager computes them.

Torch decomposes these operators before their gradients are traced. The gradient of a resized image is then a scatter
for each corner of each result: several times as slow as eager's operator, rounded at each corner, and row-major where
eager's is channels-last. The decomposition of ``multilabel_margin_loss`` counts labels after the first -1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

_Kernel = Callable[..., Tensor]

_RESIZING = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
_LABELS = "multilabel_margin_loss_forward"

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
        backward = getattr(torch.ops.aten, f"{name}_backward").default
        for op, key in ((getattr(packet, each), key) for each in ("default", "vec") for key in _KEYS):
            if key in op.py_kernels:
                kernel = _torchs[op, key] = op.py_kernels[key]
                op.py_kernels[key] = partial(_resize, kernel, backward)
    op = getattr(torch.ops.aten, _LABELS).default
    _torchs.update({(op, key): op.py_kernels.pop(key) for key in _KEYS if key in op.py_kernels})
    for op, _ in _torchs:
        op._dispatch_cache.clear()


def _restore() -> None:
    for (op, key), kernel in _torchs.items():
        op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
    _torchs.clear()


def _resize(kernel: _Kernel, backward: _Kernel, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Resize by torch's decomposition, with eager's gradient on a CPU for sizes that are known.

    Most meta kernels of these gradients refuse symbolic sizes.
    """
    traced = torch.is_grad_enabled() and x.requires_grad and x.device.type == "cpu"
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    given = [
        each
        for group in (x.shape, *args)
        for each in (group if isinstance(group, list | tuple) else (group,))
    ]
    if (
        not traced
        or transformed
        or kwargs
        or any(isinstance(each, torch.SymInt | torch.SymFloat) for each in given)
    ):
        return kernel(x, *args, **kwargs)
    found: Tensor = _Resized.apply(kernel, backward, x, args)  # type: ignore[no-untyped-call]
    return found


class _Resized(torch.autograd.Function):
    """Resizing whose gradient is one call of ATen's operator."""

    @staticmethod
    def forward(ctx: Any, kernel: _Kernel, backward: _Kernel, x: Tensor, args: Sequence[Any]) -> Tensor:
        ctx.given = backward, x.shape, args
        return kernel(x, *args)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        backward, shape, (_, *rest) = ctx.given
        corners = [each for each in rest if isinstance(each, bool)]
        scales = [each for each in rest if not isinstance(each, bool)]
        if len(scales) == 1 and isinstance(scales[0], list | tuple):
            scales = list(scales[0])  # the overload ``vec`` lists them
        return None, None, backward(gradient, gradient.shape[2:], shape, *corners, *scales), None
