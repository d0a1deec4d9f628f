"""Values of symbols, solved from the arguments of a graph or plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from litz_ir.errors import GraphError
from litz_ir.loops.nodes import Input, ScalarInput, TensorType, Value
from litz_ir.symbols.polynomials import coefficient
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.term import Size, evaluate, free_symbols

Geometry = Callable[[Any], tuple[tuple[int, ...], tuple[int, ...]]]
"""A function that returns shape and strides of a tensor; strides are in elements."""
Symbols = dict[str, Any]
"""Values of symbols by name."""


def bind_inputs(inputs: Sequence[Input], arguments: Sequence[Any], geometry: Geometry) -> Symbols:
    """Values of the symbols that ``arguments`` determine: scalars first, then sizes, then strides.

    Raises :class:`GraphError` if the number of arguments, a rank or a size disagrees with the inputs.
    """
    if len(inputs) != len(arguments):
        raise GraphError(f"the graph takes {len(inputs)} inputs, got {len(arguments)}", stage="inputs")
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
    for description, size, actual in equations:
        if description and free_symbols(size) <= symbols.keys() and evaluate(size, symbols) != actual:
            raise GraphError(
                f"{description} is {actual}, expected {size} = {evaluate(size, symbols)}", stage="inputs"
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
    """Yield (description, size, actual value); the description is empty if a difference is not an error."""
    strides: list[tuple[str, Size, int]] = []
    for each, argument in zip(inputs, arguments):
        if isinstance(each, ScalarInput) and each.term is not None:
            yield f"argument {each.name}", each.term, int(argument)
        if not isinstance(each, Value):
            continue
        shape, actual_strides = geometry(argument)
        if len(shape) != len(each.type.shape):
            raise GraphError(
                f"input {each.name} has {len(shape)} dimensions, expected {len(each.type.shape)}",
                stage="inputs",
            )
        for dimension, (size, actual) in enumerate(zip(each.type.shape, shape)):
            yield f"size {dimension} of input {each.name}", size, actual
        strides += [("", stride, actual) for stride, actual in zip(each.type.layout.strides, actual_strides)]
    yield from strides


def _solve(size: Size, actual: int, symbols: Symbols) -> None:
    """Bind the only unknown symbol of ``size == actual``, if the equation is linear with an integer solution."""
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
    """Bind the symbols that a call's result determines, such as the length of ``nonzero``'s result."""
    shape, strides = geometry(tensor)
    for size, actual in zip((*type_.shape, *type_.layout.strides), (*shape, *strides)):
        _solve(size, actual, symbols)


def numpy_geometry(array: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a NumPy array, in elements."""
    return tuple(array.shape), tuple(step // array.itemsize for step in array.strides)
