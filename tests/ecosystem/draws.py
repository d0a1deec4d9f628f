"""Runs of one program in other arithmetic: in double precision, or from numbers that are rounded otherwise.

Both begin at what the program draws at random, weights and inputs: the numbers drawn in single precision are converted,
or moved by one unit in the last place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_DRAWS = frozenset(
    """bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ log_normal_ multinomial native_dropout normal
    normal_ normal_functional poisson rand rand_like randint randint_like randn randn_like random random_ randperm
    uniform uniform_ _sample_dirichlet _standard_gamma""".split()
)
_CONTINUOUS = frozenset("normal normal_ rand rand_like randn randn_like uniform uniform_".split())
NARROW = (torch.float32, torch.bfloat16, torch.float16)


class InDouble(TorchDispatchMode):
    """Computes in double precision whatever a program computes in narrower floats.

    The default dtype has to be double. Numbers are drawn in single precision, so that they are those of the program.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Draw in single precision, and ask for double precision elsewhere."""
        kwargs = dict(kwargs or {})
        if func.overloadpacket.__name__ in _DRAWS:
            return self._drawn(func, args, kwargs)
        if kwargs.get("dtype") in NARROW:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)

    def _drawn(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        narrow = [pytree.tree_map(_single, arg) for arg in args]
        kwargs = {name: _single(value) for name, value in kwargs.items()}
        torch.set_default_dtype(torch.float32)
        try:
            result = func(*narrow, **kwargs)
        finally:
            torch.set_default_dtype(torch.float64)
        if func.overloadpacket.__name__.endswith("_"):
            return args[0].copy_(result)
        return pytree.tree_map(
            lambda leaf: leaf.double() if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW else leaf,
            result,
        )


def _single(leaf: Any) -> Any:
    if leaf is torch.float64:
        return torch.float32
    return leaf.float() if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 else leaf


class RoundedOtherwise(TorchDispatchMode):
    """Moves the numbers that a program draws by one unit in the last place, up or down at random."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noise = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Move the result of a draw."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _CONTINUOUS and result.dtype in NARROW:
            signs = torch.randint(0, 2, result.shape, generator=self._noise, dtype=torch.int8) * 2 - 1
            moved = torch.nextafter(result.float(), signs * torch.inf)
            result.copy_(torch.where(result == 0, result.float(), moved))
        return result
