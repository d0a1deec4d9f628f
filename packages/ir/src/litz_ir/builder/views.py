"""Shapes of views, and the index of the base at each of their points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from litz_ir.errors import GraphError
from litz_ir.symbols.polynomials import add, mul, product
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size, Term

Shape = tuple[Size, ...]
IndexMap = Callable[[Shape], Shape]
"""A function from the index terms of a view to those of its base."""


def as_int(value: object) -> int | None:
    """Return an integer of Python or NumPy as Python's; ``None`` for anything else, and for bools."""
    try:
        return None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def normalized(axis: object, ndim: int) -> int:
    """Return an axis counted from 0; raises ``GraphError`` for one outside ``[-ndim, ndim)`` or no integer."""
    found = as_int(axis)
    if found is None:
        raise GraphError(
            f"axis {axis!r:.60} is no integer", hint="axes count from 0, negative ones from the end"
        )
    if not -ndim <= found < ndim:
        raise GraphError(
            f"axis {found} is outside a tensor of {ndim} dimensions",
            hint=f"axes are {-ndim} to {ndim - 1}" if ndim else "a 0-d tensor has no axis",
        )
    return found % ndim


def normalized_axes(axis: object, ndim: int) -> tuple[int, ...]:
    """Return one axis, several, or all (``None``), in order; raises ``GraphError`` for one given twice."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, Sequence) and not isinstance(axis, str) else (axis,)
    found = sorted(normalized(each, ndim) for each in given)
    if len(set(found)) != len(found):
        raise GraphError(f"axis {axis!r:.60} has a dimension twice", hint="give each dimension once")
    return tuple(found)


def unpacked(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments that are given one by one, or as one list or tuple."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], list | tuple) else values


def sizes_of(values: Sequence[object], user: str, low: int = 0) -> Shape:
    """Return sizes as ints and terms; raises ``GraphError`` for anything else, and for ints below ``low``."""
    found: list[Size] = []
    for each in values:
        size = each if isinstance(each, Term) else as_int(each)
        if size is None or (isinstance(size, int) and size < low):
            raise GraphError(
                f"{user} has the size {each!r:.60}, but sizes are integers of at least {low}, and terms",
                hint="a size that is known at run time is one of GraphBuilder.size",
            )
        found.append(size)
    return tuple(found)


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape of tensors together; raises ``GraphError`` for sizes that differ and are not 1."""
    rank = max(map(len, shapes), default=0)
    padded = [(*(1,) * (rank - len(shape)), *shape) for shape in shapes]
    found: list[Size] = []
    for sizes in zip(*padded, strict=True):
        others = dict.fromkeys(size for size in sizes if size != 1)
        if len(others) > 1:
            raise GraphError(
                f"shapes {' and '.join(map(described, shapes))} do not broadcast",
                hint="sizes must be equal, or 1; write equal symbolic sizes by one symbol",
            )
        found.append(next(iter(others), 1))
    return tuple(found)


def described(shape: Shape) -> str:
    """Return a shape as text."""
    return f"({', '.join(map(str, shape))})"


def broadcast_index(shape: Shape, point: Shape) -> Shape:
    """Return the index of a tensor of ``shape`` that broadcasting puts at a point of a larger shape."""
    tail = point[len(point) - len(shape) :]
    return tuple(0 if size == 1 else term for size, term in zip(shape, tail, strict=True))


def expanded(shape: Shape, sizes: Sequence[object]) -> tuple[Shape, IndexMap]:
    """Return the view of a shape broadcast to another one."""
    wanted = sizes_of(sizes, "expand")
    if broadcast(shape, wanted) != wanted:
        raise GraphError(
            f"shape {described(shape)} does not expand to {described(wanted)}",
            hint="sizes of 1 and new first dimensions expand",
        )
    return wanted, lambda point: broadcast_index(shape, point)


def permuted(shape: Shape, dimensions: Sequence[int]) -> tuple[Shape, IndexMap]:
    """Return the view of a shape with its dimensions in another order."""
    order = [normalized(dimension, len(shape)) for dimension in dimensions]
    if sorted(order) != list(range(len(shape))):
        raise GraphError(
            f"{tuple(dimensions)} is no order of {len(shape)} dimensions",
            hint=f"give each of 0 to {len(shape) - 1} once"
            if shape
            else "a 0-d tensor has one order: permute()",
        )
    return tuple(shape[d] for d in order), lambda point: tuple(
        point[order.index(d)] for d in range(len(shape))
    )


def flipped(shape: Shape, axis: int) -> tuple[Shape, IndexMap]:
    """Return the view of a shape in reverse order along an axis."""
    dimension = normalized(axis, len(shape))

    def index_map(point: Shape) -> Shape:
        return tuple(
            add(size, mul(term, -1), -1) if d == dimension else term
            for d, (size, term) in enumerate(zip(shape, point, strict=True))
        )

    return shape, index_map


def reshaped(shape: Shape, sizes: Sequence[object]) -> tuple[Shape, IndexMap]:
    """Return the view of a shape under another one with as many elements, of which one size may be -1."""
    result = _without_unknown(shape, sizes_of(sizes, "reshape", -1))

    def index_map(point: Shape) -> Shape:
        number: Size = 0
        for size, term in zip(result, point, strict=True):
            number = add(mul(number, size), term)
        found: list[Size] = []
        for size in reversed(shape):
            found.append(0 if size in (0, 1) else mod(number, size))
            number = number if size in (0, 1) else floordiv(number, size)
        return tuple(reversed(found))

    return result, index_map


def _without_unknown(shape: Shape, wanted: Sequence[Size]) -> Shape:
    """Return a shape with -1 replaced by what makes the number of elements right."""
    total, known = product(shape), product(tuple(size for size in wanted if size != -1))
    unknown = [d for d, size in enumerate(wanted) if size == -1]
    message = f"shape {described(shape)} has not as many elements as {described(tuple(wanted))}"
    if not unknown:
        if total != known:
            raise GraphError(message, hint="sizes must be equal as terms")
        return tuple(wanted)
    rest = floordiv(total, known) if known != 0 else 0
    if len(unknown) > 1 or mul(rest, known) != total:
        raise GraphError(message, hint="one size may be -1, which the others must divide")
    return tuple(rest if size == -1 else size for size in wanted)


def indexed(shape: Shape, key: Any) -> tuple[Shape, IndexMap]:
    """Return the view that a key of integers, slices, ``...`` and ``None`` selects."""
    keys = [_as_key(each) for each in (key if isinstance(key, tuple) else (key,))]
    used = sum(each is not None and each is not Ellipsis for each in keys)
    if used > len(shape) or sum(each is Ellipsis for each in keys) > 1:
        raise GraphError(f"index {key!r:.60} does not fit a tensor of shape {described(shape)}")
    if Ellipsis not in keys:
        keys.append(Ellipsis)
    at = keys.index(Ellipsis)
    keys[at : at + 1] = [slice(None)] * (len(shape) - used)
    result: list[Size] = []
    steps: list[tuple[int | None, int, Size]] = []
    """For each dimension of the base: dimension of the view, step and start."""
    for each in keys:
        if each is None:
            result.append(1)
            continue
        size = shape[len(steps)]
        if isinstance(each, slice):
            start, count, step = _sliced(size, each)
            steps.append((len(result), step, start))
            result.append(count)
        else:
            steps.append((None, 0, _element(size, each)))
    return tuple(result), lambda point: tuple(
        start if d is None else add(mul(point[d], step), start) for d, step, start in steps
    )


def _as_key(key: Any) -> Any:
    """Return a key with integers of NumPy as Python's; raises ``GraphError`` for what is no key."""
    if isinstance(key, slice):
        parts = (key.start, key.stop, key.step)
        return slice(*(each if (found := as_int(each)) is None else found for each in parts))
    if key is None or key is Ellipsis or isinstance(key, Term):
        return key
    found = as_int(key)
    if found is None:
        raise GraphError(
            f"{key!r:.60} is no index",
            hint="an index is an integer, a slice, ... or None; take reads by a tensor",
        )
    return found


def _sliced(size: Size, key: slice) -> tuple[Size, Size, int]:
    """Return start, number of elements and step of a slice of a dimension."""
    step = 1 if key.step is None else key.step
    if type(step) is not int or step < 1:
        raise GraphError(f"a step of {key.step!r} in an index; steps are positive", hint="use flip")
    if isinstance(size, int) and all(type(each) is int or each is None for each in (key.start, key.stop)):
        low, high, _ = key.indices(size)
        return low, len(range(low, high, step)), step
    first: Size = 0 if key.start is None else key.start
    stop = size if key.stop is None else key.stop
    if not all(isinstance(each, Term) or (type(each) is int and each >= 0) for each in (first, stop)):
        raise GraphError(
            f"slice {key!r:.60} of a dimension of size {size}",
            hint=f"bounds are terms or at least 0 here, such as {size} - 1 for -1",
        )
    return first, floordiv(add(stop, mul(first, -1), step - 1), step), step


def _element(size: Size, key: Size) -> Size:
    """Return the index of one element of a dimension; negative integers count from its end."""
    if isinstance(key, int) and isinstance(size, int) and not -size <= key < size:
        raise GraphError(f"index {key} is outside a dimension of size {size}")
    return add(size, key) if isinstance(key, int) and key < 0 else key
