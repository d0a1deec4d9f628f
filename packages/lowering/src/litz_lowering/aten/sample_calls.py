"""Calls of operators on a few elements: the dtypes, sizes and numbers of a traced call, with made-up elements.

A call is made as it is where its arguments and its result have few elements, else with short axes.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch._dispatch.python import no_python_dispatcher
from torch.utils._python_dispatch import _disable_current_modes

_FEW_ELEMENTS = 1024
"""Most elements of the arguments of a call that is made as it is, and largest product of its numbers, which may be
sizes of the result. The result may have the square of as many."""

_MOST_POINTS = 1 << 16
"""Largest product of the numbers among the arguments of such a call and of the sizes of its tensors when broadcast."""

_SHORT = 2
"""Largest size of other calls: indices and divisors of one are valid, and axes of one element stay what they are."""

_LAST_AXIS = -64
"""Least number of an axis, of a tensor of as many: smaller integers are sizes or bounds of them."""

_FILLS = (0, 1)
"""Elements of arguments. Zero is first, a valid index: some kernels check none. One is a divisor too."""

_KINDS = (
    int,
    float,
    complex,
    bool,
    str,
    torch.dtype,
    torch.layout,
    torch.memory_format,
    type(None),
)
"""Types of arguments that calls are made with, besides tensors and symbols."""

_T = TypeVar("_T")

Call = list[Any]
"""List of the arguments by position, and dictionary of those by name. Lists may be among them."""


class Skipped(Exception):
    """Raised for an argument that no call is made with."""


@dataclass(frozen=True, slots=True)
class Sized:
    """Argument of a call: a tensor by dtype and shape, of which ``None`` is a symbolic size."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]

    def tensor(self, fill: int, longest: int | None) -> torch.Tensor:
        """Return a tensor of one value whose sizes are at most ``longest``."""
        sizes = (_SHORT if size is None else size for size in self.shape)
        shape = [size if longest is None else min(size, longest) for size in sizes]
        return torch.full(shape, fill, dtype=self.dtype, device="cpu")


@dataclass(frozen=True, slots=True)
class _Symbolic:
    """Argument of a call: a symbolic number, with one of its values."""

    value: float


def sized(argument: Any) -> Any:
    """Argument of a call without its elements; raises ``Skipped``."""
    match argument:
        case torch.Tensor():
            if argument.layout != torch.strided or argument.is_quantized:
                raise Skipped
            return Sized(
                argument.dtype, tuple(size if type(size) is int else None for size in argument.shape)
            )
        case torch.SymInt():
            return _Symbolic(_SHORT)
        case torch.SymFloat():
            return _Symbolic(1.0)
        case torch.SymBool():
            return _Symbolic(True)
        case torch.device():
            return torch.device("cpu")
    if not isinstance(argument, _KINDS):
        raise Skipped
    return argument


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to all that nested lists and dictionaries hold; tuples become lists."""
    if isinstance(value, list | tuple):
        return [mapped(function, element) for element in value]
    if isinstance(value, dict):
        return {name: mapped(function, element) for name, element in value.items()}
    return function(value)


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield all that nested lists and dictionaries hold."""
    if isinstance(value, list | tuple | dict):
        for element in value.values() if isinstance(value, dict) else value:
            yield from leaves_of(element)
    else:
        yield value


def list_elements(call: Call) -> Iterator[Any]:
    """Yield the elements of lists among the arguments."""
    args, kwargs = call
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, list | tuple):
            yield from argument


def exact_calls(call: Call) -> list[Call]:
    """Calls with any of the fills, otherwise as it is; none for a call that has symbols, or might take long."""
    return [_filled(call, fill, None, False) for fill in _FILLS] if _is_small(call) else []


def short_calls(call: Call) -> list[Call]:
    """Calls with any of the fills and short axes, with short integers first, then with the integers as they are."""
    shortened = (True, False) if _point_count(call) <= _FEW_ELEMENTS else (True,)
    return [_filled(call, fill, _SHORT, shortens) for shortens in shortened for fill in _FILLS]


def _point_count(call: Call) -> float:
    """Product of the integers and of the numbers in lists, which may be sizes, or factors of sizes, of the result."""
    integers = [abs(leaf) for leaf in leaves_of(call) if type(leaf) is int]
    return math.prod(max(1, number) for number in (*integers, *_factors(call)))


def _factors(call: Call) -> list[float]:
    """Floats in lists among the arguments."""
    return [leaf for leaf in list_elements(call) if type(leaf) is float]


def _is_small(call: Call) -> bool:
    """True for a call whose arguments have known sizes and few elements, also if they are broadcast, and whose numbers
    are known and have a small product."""
    points, leaves = _point_count(call), list(leaves_of(call))
    shapes: list[Any] = [leaf.shape for leaf in leaves if isinstance(leaf, Sized)]
    if any(isinstance(leaf, _Symbolic) for leaf in leaves) or any(None in shape for shape in shapes):
        return False
    axes = itertools.zip_longest(*map(reversed, shapes), fillvalue=1)
    elements = sum(map(math.prod, shapes))
    return max(elements, points) <= _FEW_ELEMENTS and points * math.prod(map(max, axes)) <= _MOST_POINTS


def _filled(call: Call, fill: int, longest: int | None, shortens: bool) -> Call:
    """Arguments with elements; ``shortens`` numbers too, which may be sizes, their products or factors of them."""
    products, factors = (_short_products(call), _factors(call)) if shortens else ({}, [])

    def argument(leaf: Any) -> Any:
        if isinstance(leaf, Sized):
            return leaf.tensor(fill, longest)
        if isinstance(leaf, _Symbolic):
            return leaf.value
        if shortens and type(leaf) is int:
            return products.get(leaf, max(_LAST_AXIS, min(leaf, _SHORT)))
        if type(leaf) is float and leaf in factors and leaf > 0:
            return max(1.0, min(leaf, float(_SHORT)))
        return leaf

    filled: Call = mapped(argument, call)
    return filled


def _short_products(call: Call) -> dict[int, int]:
    """Products of sizes of consecutive axes of each argument, with those of its short axes."""
    found: dict[int, int] = {}
    for leaf in leaves_of(call):
        if isinstance(leaf, Sized):
            sizes = [_SHORT if size is None else size for size in leaf.shape]
            for first, last in itertools.combinations(range(len(sizes) + 1), 2):
                axes = sizes[first:last]
                found[math.prod(axes)] = math.prod(min(size, _SHORT) for size in axes)
    return found


def call_unobserved(function: Callable[[], _T]) -> _T:
    """Call a function that calls kernels, without gradients, modes, autocast, and warnings of the program."""
    results: list[_T] = []

    def call(element: float) -> float:
        results.append(function())
        return element

    always = torch.is_warn_always_enabled()
    with (
        warnings.catch_warnings(), _disable_current_modes(), no_python_dispatcher(), torch._C.DisableTorchFunction(),
        torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast(),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        torch.set_warn_always(True)  # else a warning that is given once would be none in the program
        try:
            # A kernel leaves its warnings to the innermost method of a tensor around it: without this one to that of
            # the program's own call, which issues them when it returns.
            torch.zeros(1, device="cpu").apply_(call)
        finally:
            torch.set_warn_always(always)
    return results[0]
