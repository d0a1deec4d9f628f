"""Index maps of reshapes and strided views."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.symbols import Size, add, floordiv, mod, mul, product
from litz_lowering.contexts.context import Axes


def unflatten(position: Size, shape: Sequence[Size]) -> tuple[Size, ...]:
    """Index in a row-major ``shape`` of the element at ``position``; zeros where the shape has no elements."""
    if 0 in shape:
        return (0,) * len(shape)
    index: list[Size] = []
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] == 1:
            index.append(0)
            continue
        outermost = all(size == 1 for size in shape[:d])
        index.append(position if outermost else mod(position, shape[d]))
        position = 0 if outermost else floordiv(position, shape[d])
    return tuple(reversed(index))


def flatten(index: Sequence[Size], shape: Sequence[Size]) -> Size:
    """Row-major position of an index."""
    position: Size = 0
    for i, size in zip(index, shape, strict=True):
        position = add(mul(position, size), i)
    return position


def reshaped(axes: Axes, new: Sequence[Size], old: Sequence[Size]) -> tuple[Size, ...]:
    """Index in ``old`` of the element at ``axes`` of ``new``, both row-major.

    Dimensions are matched in runs of equal extent, so dimensions that a reshape does not change keep their index.
    """
    if any(size == 0 for size in old):
        return tuple(0 for _ in old)
    index: list[Size] = []
    for new_run, old_run in _runs(new, old):
        here = flatten([axes[d] for d in new_run], [new[d] for d in new_run])
        index.extend(unflatten(here, [old[d] for d in old_run]))
    return tuple(index)


def _runs(new: Sequence[Size], old: Sequence[Size]) -> list[tuple[range, range]]:
    """Pairs of dimension ranges with equal numbers of elements, as short as is provable."""
    runs: list[tuple[range, range]] = []
    n = o = 0
    while n < len(new) or o < len(old):
        n_end, o_end = _close(new, n, old, o)
        runs.append((range(n, n_end), range(o, o_end)))
        n, o = n_end, o_end
    return runs


def _close(new: Sequence[Size], n: int, old: Sequence[Size], o: int) -> tuple[int, int]:
    """Ends of the shortest run that starts at dimensions ``n`` and ``o``."""
    if o < len(old) and old[o] == 1:
        return n, o + 1
    if n < len(new) and new[n] == 1:
        return n + 1, o
    n_end, o_end = min(n + 1, len(new)), min(o + 1, len(old))
    new_extent, old_extent = product(new[n:n_end]), product(old[o:o_end])
    while new_extent != old_extent:
        grow_new = o_end == len(old) or (
            isinstance(new_extent, int) and isinstance(old_extent, int) and new_extent < old_extent
        )
        if not (isinstance(new_extent, int) and isinstance(old_extent, int)):
            return _close_symbolic(new, n, old, o)
        if grow_new and n_end < len(new):
            new_extent = product((new_extent, new[n_end]))
            n_end += 1
        elif o_end < len(old):
            old_extent = product((old_extent, old[o_end]))
            o_end += 1
        else:
            return len(new), len(old)
    return n_end, o_end


def _close_symbolic(new: Sequence[Size], n: int, old: Sequence[Size], o: int) -> tuple[int, int]:
    """Shortest pair of runs whose products are equal as terms; all remaining dimensions where there is none."""
    products = {product(new[n:end]): end for end in range(len(new), n, -1)}
    for o_end in range(o + 1, len(old) + 1):
        n_end = products.get(product(old[o:o_end]))
        if n_end is not None:
            return n_end, o_end
    return len(new), len(old)


def strided(
    axes: Axes,
    offset: Size,
    strides: Sequence[Size],
    base_shape: Sequence[Size],
    base_strides: Sequence[Size],
) -> tuple[Size, ...] | None:
    """Index in the base of the element that ``as_strided`` shows at ``axes``; None where no term expresses it.

    The base must be dense, so that the memory offset is a mixed-radix number of its index.
    """
    dims = [d for d in range(len(base_shape)) if base_shape[d] != 1]
    if not all(isinstance(base_strides[d], int) for d in dims):
        if list(base_strides) != list(_row_major(base_shape)):
            return None
    else:
        dims.sort(key=lambda d: -int(str(base_strides[d])))
    expected = _row_major([base_shape[d] for d in dims])
    if [base_strides[d] for d in dims] != list(expected):
        return None
    position = add(offset, *(mul(axis, stride) for axis, stride in zip(axes, strides, strict=True)))
    found = unflatten(position, [base_shape[d] for d in dims])
    index: list[Size] = [0] * len(base_shape)
    for d, term in zip(dims, found, strict=True):
        index[d] = term
    return tuple(index)


def _row_major(shape: Sequence[Size]) -> tuple[Size, ...]:
    strides: list[Size] = []
    stride: Size = 1
    for size in reversed(shape):
        strides.append(stride)
        if size != 1:
            stride = mul(stride, size)
    return tuple(reversed(strides))
