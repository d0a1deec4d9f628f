"""Checks of the arguments of compiled graphs that no guards of Dynamo protect.

Kernels are compiled for the dtypes, sizes and strides that a graph was captured with, and would access other memory
for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from litz_ir.errors import ArtifactError
from litz_ir.loops import ScalarInput, Value
from litz_ir.plan import Plan
from litz_ir.symbols import Size, Symbol, SymbolTable, evaluate, free_symbols

ArgumentCheck = Callable[[Sequence[Any]], None]
"""Function that raises :class:`ArtifactError` for arguments that a graph was not compiled for."""

_FAR = 1 << 20
"""Value at which terms of floors and remainders differ from the line through their values at 1 and 2."""

_NUMBERS = {"int": int, "float": float, "bool": bool}


@dataclass(frozen=True, slots=True)
class _FixedTensor:
    """A tensor argument of fixed size."""

    position: int
    dtype: torch.dtype
    device: str
    shape: torch.Size
    strides: tuple[int, ...]

    def fits(self, given: Any) -> bool:
        """Report whether an argument is such a tensor; strides of axes with one element do not matter."""
        return (
            isinstance(given, torch.Tensor)
            and given.dtype is self.dtype
            and given.shape == self.shape
            and given.device.type == self.device
            and (given.stride() == self.strides or _equal_strides(self.shape, given.stride(), self.strides))
        )


@dataclass(frozen=True, slots=True)
class _SizedTensor:
    """A tensor argument whose sizes have symbols."""

    position: int
    dtype: torch.dtype
    device: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]

    def bind(self, given: Any, symbols: dict[str, int]) -> None:
        """Add the symbols that are sizes of this argument."""
        if isinstance(given, torch.Tensor) and given.dim() == len(self.shape):
            for size, actual in zip(self.shape, given.shape, strict=True):
                if isinstance(size, Symbol):
                    symbols.setdefault(size.name, actual)

    def solve(self, given: Any, symbols: dict[str, int]) -> None:
        """Add the symbols of which sizes of this argument are linear terms, such as ``2*s0``; the term of a size that
        it never has gets another value, which does not fit."""
        if isinstance(given, torch.Tensor) and given.dim() == len(self.shape):
            for size, actual in zip(self.shape, given.shape, strict=True):
                unknown = free_symbols(size) - symbols.keys()
                if len(unknown) == 1:
                    (name,) = unknown
                    found = _solution(size, name, symbols, actual)
                    if found is not None:
                        symbols[name] = found

    def fits(self, given: Any, symbols: dict[str, int]) -> bool:
        """Report whether an argument is such a tensor for these values of symbols."""
        if not isinstance(given, torch.Tensor) or given.dtype is not self.dtype:
            return False
        if given.device.type != self.device or given.dim() != len(self.shape):
            return False
        terms = (*self.shape, *self.strides)
        if any(not free_symbols(term) <= symbols.keys() for term in terms):
            return True  # of a symbol that the graph itself defines
        shape = tuple(evaluate(size, symbols) for size in self.shape)
        strides = tuple(evaluate(stride, symbols) for stride in self.strides)
        return given.shape == shape and _equal_strides(shape, given.stride(), strides)


@dataclass(frozen=True, slots=True)
class Described:
    """Words for the arguments of a graph, in messages."""

    name: str
    """Name of the graph."""

    arguments: Sequence[str]
    """Description of each argument."""

    other_size: str = "compile the graph for this size with dynamic_shapes='from_example_inputs'"
    """Hint for sizes outside of those that the graph was compiled for."""

    other: str = "compile the graph for such arguments"
    """Hint for other arguments that do not fit."""


def argument_check(plan: Plan, words: Described | None = None, first: int = 0) -> ArgumentCheck:
    """Return the check of a plan's arguments: number, dtypes, device kinds, sizes, strides and ranges of symbols.

    ``words`` describe them in messages. Those before the argument ``first`` are not passed to the check.
    """
    inputs = plan.inputs[first:]
    if words is None:
        words = Described(plan.name, [f"{k} ({each.name})" for k, each in enumerate(inputs)])
    fixed: list[_FixedTensor] = []
    sized: list[_SizedTensor] = []
    for position, each in enumerate(inputs):
        if type(each) is Value:
            kind = each.type
            facts = (position, getattr(torch, kind.dtype.torch_name), kind.device.kind)
            terms = (*kind.shape, *kind.layout.strides)
            if all(isinstance(term, int) for term in terms):
                shape, strides = (
                    tuple(term for term in axes if isinstance(term, int))
                    for axes in (kind.shape, kind.layout.strides)
                )
                fixed.append(_FixedTensor(*facts, torch.Size(shape), strides))
            else:
                sized.append(_SizedTensor(*facts, kind.shape, kind.layout.strides))
    numbers = [(k, each) for k, each in enumerate(inputs) if isinstance(each, ScalarInput)]
    count = len(inputs)
    derived = [each for each in sized if not all(isinstance(size, int | Symbol) for size in each.shape)]

    def check(args: Sequence[Any]) -> None:
        if len(args) != count:
            raise ArtifactError(f"{words.name} takes {count} arguments, got {len(args)}")
        for tensor in fixed:
            if not tensor.fits(args[tensor.position]):
                raise _refused(words, tensor, args[tensor.position])
        if numbers or sized:
            symbols = _bound(words, numbers, sized, derived, args)
            _check_symbols(words, plan.symbols, symbols, sized)
            for each in sized:
                if not each.fits(args[each.position], symbols):
                    raise _refused(words, each, args[each.position])

    return check


def _bound(
    words: Described,
    numbers: Sequence[tuple[int, ScalarInput]],
    sized: Sequence[_SizedTensor],
    derived: Sequence[_SizedTensor],
    args: Sequence[Any],
) -> dict[str, int]:
    """Return the values of a plan's symbols that its arguments determine; ``derived`` are those of ``sized`` with terms
    of symbols as sizes."""
    symbols: dict[str, int] = {}
    for position, each in numbers:
        what = f"argument {words.arguments[position]} of {words.name}"
        if type(args[position]) is not _NUMBERS[each.kind]:
            given = type(args[position]).__name__
            raise ArtifactError(f"{what} is a number ({each.kind}), got {given}")
        if each.symbol is not None and each.kind == "int":
            symbols[each.symbol] = args[position]
    for tensor in sized:
        tensor.bind(args[tensor.position], symbols)
    known = -1
    while known < len(symbols):
        known = len(symbols)
        for tensor in derived:
            tensor.solve(args[tensor.position], symbols)
    for position, each in numbers:
        if each.term is not None and free_symbols(each.term) <= symbols.keys():
            expected = evaluate(each.term, symbols)
            if args[position] != expected:
                what = f"argument {words.arguments[position]} of {words.name}"
                raise ArtifactError(f"{what} is {args[position]}, not {expected}")
    return symbols


def _solution(size: Size, name: str, symbols: dict[str, int], actual: int) -> int | None:
    """Return the value of a symbol, rounded down, for which a linear term has a value; ``None`` for other terms."""
    one, two, far = (evaluate(size, {**symbols, name: value}) for value in (1, 2, _FAR))
    slope = two - one
    if not slope or far - one != slope * (_FAR - 1):
        return None
    return 1 + (actual - one) // slope


def _check_symbols(
    words: Described, table: SymbolTable, symbols: dict[str, int], sized: Sequence[_SizedTensor]
) -> None:
    """Raise :class:`ArtifactError` for sizes that the graph was not compiled for."""
    for info in table:
        value = symbols.get(info.name)
        if value is None or info.kind != "int":
            continue
        low, high = info.low, info.high
        if (low is not None and value < low) or (high is not None and value > high) or value % info.divisor:
            allowed = f"{'any' if low is None else low} to {'any' if high is None else high}"
            multiple = f", multiples of {info.divisor}" if info.divisor > 1 else ""
            where = _where(words, info.name, sized)
            message = f"{words.name} was compiled for sizes {allowed}{multiple}, got {value}{where}"
            raise ArtifactError(message, hint=words.other_size)
    for left, right in table.equalities:
        if free_symbols(left) | free_symbols(right) <= symbols.keys():
            if evaluate(left, symbols) != evaluate(right, symbols):
                named = [
                    _where(words, name, sized) for name in sorted(free_symbols(left) | free_symbols(right))
                ]
                message = f"{words.name} was compiled for sizes with {left} = {right}{' and'.join(named)}"
                raise ArtifactError(message, hint=words.other_size)


def _where(words: Described, symbol: str, sized: Sequence[_SizedTensor]) -> str:
    """Return the first dimension whose size has a symbol, as words."""
    found = [
        (size, f" in dimension {axis} of argument {words.arguments[tensor.position]}")
        for tensor in sized
        for axis, size in enumerate(tensor.shape)
        if symbol in free_symbols(size)
    ]
    for size, where in found:
        if isinstance(size, Symbol):
            return where
    return f" for {symbol}, where {found[0][0]} is the size{found[0][1]}" if found else ""


def _equal_strides(shape: Sequence[int], given: Sequence[int], expected: Sequence[int]) -> bool:
    """Report whether strides address the same elements: those of axes with one element do not matter."""
    if 0 in shape:
        return True
    return all(size == 1 or a == b for size, a, b in zip(shape, given, expected, strict=True))


def _refused(words: Described, tensor: _FixedTensor | _SizedTensor, given: Any) -> ArtifactError:
    """Return the error about an argument that does not fit."""
    sizes = ", ".join(map(str, tensor.shape))
    strides = ", ".join(map(str, tensor.strides))
    expected = f"{tensor.dtype} of ({sizes}) with strides ({strides}) on {tensor.device}"
    got = type(given).__name__
    if isinstance(given, torch.Tensor):
        got = f"{given.dtype} of {tuple(given.shape)} with strides {given.stride()} on {given.device.type}"
    return ArtifactError(
        f"argument {words.arguments[tensor.position]} of {words.name} is {expected}, got {got}",
        hint=words.other,
    )
