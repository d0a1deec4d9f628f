"""Symbols from what a graph or plan is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from litz_ir.errors import GraphError
from litz_ir.loops.nodes import Input, ScalarInput, TensorType, Value
from litz_ir.symbols.term import Size, coefficient, evaluate, free_symbols, substitute

Geometry = Callable[[Any], tuple[tuple[int, ...], tuple[int, ...]]]
"""Shape and strides (both in elements) of a tensor."""
Symbols = dict[str, Any]


def bind_inputs(inputs: Sequence[Input], arguments: Sequence[Any], geometry: Geometry) -> Symbols:
    """The symbols that ``arguments`` settle: scalars, then dimensions, then strides of free layouts and fixed ones.

    Raises :class:`GraphError` when the number of arguments, a rank or a size disagrees with the inputs.
    """
    if len(inputs) != len(arguments):
        raise GraphError(f"takes {len(inputs)} inputs, got {len(arguments)}", stage="inputs")
    symbols: Symbols = {}
    for each, argument in zip(inputs, arguments):
        if isinstance(each, ScalarInput) and each.term is None:
            symbols[each.symbol or each.name] = _scalar(each, argument)
    equations = list(_equations(inputs, arguments, geometry))
    while True:
        known = len(symbols)
        for _, size, actual in equations:
            _solve(size, actual, symbols)
        if len(symbols) == known:
            break
    for what, size, actual in equations:
        if what and free_symbols(size) <= symbols.keys() and evaluate(size, symbols) != actual:
            raise GraphError(
                f"{what} is {actual}, expected {size} = {evaluate(size, symbols)}", stage="inputs"
            )
    return symbols


def _scalar(each: ScalarInput, argument: Any) -> int | float | bool:
    value = argument.item() if hasattr(argument, "item") else argument
    if each.kind == "float":
        return float(value)
    return bool(value) if each.kind == "bool" else int(value)


def _equations(
    inputs: Sequence[Input], arguments: Sequence[Any], geometry: Geometry
) -> Iterator[tuple[str, Size, int]]:
    """(what it is, or nothing where a difference is no error; size; actual value)."""
    strides: list[tuple[str, Size, int]] = []
    for each, argument in zip(inputs, arguments):
        if isinstance(each, ScalarInput) and each.term is not None:
            yield f"argument {each.name}", each.term, int(argument)
        if not isinstance(each, Value):
            continue
        shape, steps = geometry(argument)
        if len(shape) != len(each.type.shape):
            raise GraphError(
                f"input {each.name} has {len(shape)} dimensions, expected {len(each.type.shape)}",
                stage="inputs",
            )
        for dimension, (size, actual) in enumerate(zip(each.type.shape, shape)):
            yield f"size {dimension} of input {each.name}", size, actual
        strides += [("", stride, actual) for stride, actual in zip(each.type.layout.strides, steps)]
    yield from strides


def _solve(size: Size, actual: int, symbols: Symbols) -> None:
    """Bind the one unknown of ``size == actual``, if it is linear with a whole solution."""
    unknown = [name for name in free_symbols(size) if name not in symbols]
    if len(unknown) != 1:
        return
    known = {name: value for name, value in symbols.items() if name in free_symbols(size)}
    size = substitute(size, known)
    slope = coefficient(size, unknown[0])
    if not isinstance(slope, int) or slope == 0:
        return
    rest = substitute(size, {unknown[0]: 0})
    if isinstance(rest, int) and (actual - rest) % slope == 0:
        symbols[unknown[0]] = (actual - rest) // slope


def bind_result(type_: TensorType, tensor: Any, geometry: Geometry, symbols: Symbols) -> None:
    """Learn the symbols that a call's result settles, such as the length of ``nonzero``'s."""
    shape, strides = geometry(tensor)
    for size, actual in zip((*type_.shape, *type_.layout.strides), (*shape, *strides)):
        _solve(size, actual, symbols)


def numpy_geometry(array: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a NumPy array, in elements."""
    return tuple(array.shape), tuple(step // array.itemsize for step in array.strides)
