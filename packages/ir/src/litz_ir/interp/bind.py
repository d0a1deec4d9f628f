"""Values of symbols, solved from the arguments of a graph or plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from litz_ir.dtypes import DType, bf16
from litz_ir.errors import DTypeError, GraphError
from litz_ir.interp.encoding import storage_dtype
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

    Raises :class:`GraphError` if the number of arguments, a shape or a number disagrees with the inputs.
    """
    _check_count(inputs, arguments)
    symbols: Symbols = {}
    for each, argument in zip(inputs, arguments):
        if isinstance(each, ScalarInput) and each.term is None:
            symbols[each.symbol or each.name] = _number(each, argument)
    shapes: dict[str, tuple[int, ...]] = {}
    equations = list(_equations(inputs, arguments, geometry, shapes))
    while True:
        known = len(symbols)
        for _, size, actual in equations:
            _solve(size, actual, symbols)
        if len(symbols) == known:
            break
    for described, size, actual in equations:
        if described is None or not free_symbols(size) <= symbols.keys():
            continue
        if evaluate(size, symbols) == actual:
            continue
        if isinstance(described, Value):
            raise _wrong_shape(described, shapes[described.name], symbols)
        value = evaluate(size, symbols)
        expected = f"{value}" if size == value else f"{size} = {value}"
        raise GraphError(f"argument {described.name} is {actual}, expected {expected}", stage="inputs")
    return symbols


def require_mapping(value: object, called: str) -> None:
    """Raise :class:`GraphError` unless an argument is a mapping from names."""
    if not isinstance(value, Mapping):
        raise GraphError(
            f"{called} is {_kind_of(value)}, but a dict from names to values belongs there", stage="inputs"
        )


def check_array(array: Any, dtype: DType, name: str) -> None:
    """Raise :class:`DTypeError` unless a value from outside, called ``name``, is an array that stores ``dtype``."""
    stored = storage_dtype(dtype)
    found = getattr(array, "dtype", None)
    if found == stored:
        return
    raise DTypeError(
        f"{name} is {dtype} and must be stored as a {stored} array, got "
        + (_kind_of(array) if found is None else str(found)),
        hint=BITS_HINT
        if dtype is bf16 or dtype.is_narrow
        else f"convert it by numpy.asarray(value, numpy.{stored})",
    )


BITS_HINT = "bf16 and 8-bit floats are passed as the unsigned integers of their bits (litz_ir.interp.encode)"
"""Next step for an array of another dtype than that of floats that NumPy lacks."""


def _check_count(inputs: Sequence[Input], arguments: Sequence[Any]) -> None:
    """The arguments are a sequence with one value for each input."""
    names = ", ".join(each.name for each in inputs)
    hint = f"give a list with a value for each of: {names}" if names else "give an empty list"
    if not isinstance(arguments, Sequence) or isinstance(arguments, str | bytes):
        raise GraphError(
            f"the inputs are {_kind_of(arguments)}, but a list belongs there", stage="inputs", hint=hint
        )
    if len(inputs) != len(arguments):
        raise GraphError(
            f"the graph takes {len(inputs)} inputs, got {len(arguments)}", stage="inputs", hint=hint
        )


def _number(each: ScalarInput, argument: Any) -> int | float | bool:
    """The number that an argument is, of the input's kind."""
    try:
        value = argument.item() if hasattr(argument, "item") else argument
        if hasattr(value, "__int__") or hasattr(value, "__float__"):
            if each.kind == "float":
                return float(value)
            if each.kind == "bool":
                return bool(value)
            if int(value) == value:
                return int(value)
    except (ArithmeticError, TypeError, ValueError):
        pass
    raise GraphError(
        f"argument {each.name} is {argument!r:.60}, but a number of kind {each.kind} belongs there",
        stage="inputs",
    )


def _equations(
    inputs: Sequence[Input],
    arguments: Sequence[Any],
    geometry: Geometry,
    shapes: dict[str, tuple[int, ...]],
) -> Iterator[tuple[Value | ScalarInput | None, Size, int]]:
    """Yield (input, size, actual value), and add the shapes of tensors to ``shapes``; the input is ``None`` if a
    difference is not an error.
    """
    strides: list[tuple[None, Size, int]] = []
    for each, argument in zip(inputs, arguments):
        if isinstance(each, ScalarInput) and each.term is not None:
            yield each, each.term, int(_number(each, argument))
        if not isinstance(each, Value):
            continue
        try:
            shape, actual_strides = geometry(argument)
        except GraphError as error:
            raise GraphError(f"input {each.name}: {error.message}", stage="inputs", hint=error.hint) from None
        if len(shape) != len(each.type.shape):
            raise _wrong_shape(each, shape, {})
        shapes[each.name] = shape
        for size, actual in zip(each.type.shape, shape):
            yield each, size, actual
        strides += [
            (None, stride, actual) for stride, actual in zip(each.type.layout.strides, actual_strides)
        ]
    yield from strides


def _wrong_shape(each: Value, shape: Sequence[int], symbols: Symbols) -> GraphError:
    """The error of an input of another shape, with the sizes that other inputs determine."""
    sizes = each.type.shape
    known = all(free_symbols(size) <= symbols.keys() for size in sizes)
    expected = _shown(sizes)
    values = _shown([evaluate(size, symbols) for size in sizes]) if known else expected
    return GraphError(
        f"input {each.name} has shape {_shown(shape)}, expected {expected}"
        + (f" = {values}" if values != expected else ""),
        stage="inputs",
    )


def _shown(sizes: Sequence[Size]) -> str:
    """A shape as Python writes it."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _kind_of(value: object) -> str:
    """A value in words, by its type."""
    return "None" if value is None else f"of type {type(value).__name__}"


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
    """Shape and strides of a NumPy array, in elements; raises :class:`GraphError` for another value."""
    if not isinstance(array, np.ndarray | np.generic):
        raise GraphError(
            f"expected a NumPy array, got {type(array).__name__}",
            stage="inputs",
            hint="convert it by numpy.asarray, with the dtype of the input",
        )
    return tuple(array.shape), tuple(step // array.itemsize for step in array.strides)
