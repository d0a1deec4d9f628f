"""torchvision's operators declared without kernels, so that its Python code can be imported beside any build of torch.

torchvision's wheels are compiled for one build of torch each. Beside another one its library does not load, its
operators do not exist, and importing it fails where it registers shape rules for them.
"""

from __future__ import annotations

import importlib
from typing import Any
from unittest import mock

import torch

_DECLARED = torch.library.Library("torchvision", "FRAGMENT")


def _declare(name: str) -> None:
    """Define an operator of that name, unless there is one; nothing ever calls it."""
    namespace, _, operator = name.partition("::")
    if namespace == "torchvision" and not hasattr(torch.ops.torchvision, operator):
        _DECLARED.define(f"{operator}(Tensor self) -> Tensor")


def import_torchvision() -> None:
    """Import torchvision, whether its library loads here or not. Raises ``ImportError`` where it is not installed."""
    register = torch.library.register_fake

    def register_fake(op: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(op, str):
            _declare(op)
        return register(op, *args, **kwargs)

    with mock.patch.object(torch.library, "register_fake", register_fake):
        importlib.import_module("torchvision")
