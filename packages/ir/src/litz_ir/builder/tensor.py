"""A tensor of a graph under construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from litz_ir.builder import views
from litz_ir.dtypes import DType
from litz_ir.errors import GraphError
from litz_ir.loops.values import TensorType
from litz_ir.symbols.term import Size

if TYPE_CHECKING:
    from litz_ir.builder.construction import Construction


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A tensor of a :class:`~litz_ir.builder.GraphBuilder`.

    Arithmetic, comparisons by ``<``, ``<=``, ``>``, ``>=``, and indexing follow NumPy's broadcasting; dtypes are not
    promoted. A literal has the dtype of the tensor that it meets, which must hold it. ``x == y`` is Python's identity,
    true if both are one tensor, so that tensors can be keys and members; ``g.eq(x, y)`` and ``g.ne(x, y)`` compare by
    element.
    """

    __array_ufunc__: ClassVar[None] = None
    """The refusal of NumPy's operators, which would apply to a tensor's elements one by one."""

    graph: Construction = field(repr=False)
    """Builder of the graph."""
    name: str
    """Name of the value in the graph."""
    type: TensorType
    """Dtype, shape and layout."""

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        """Logical shape."""
        return self.type.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.type.shape)

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self.name} has no truth value while the graph is built",
            node=self.name,
            hint="use where for a choice by element, cond for one by a 0-d tensor",
        )

    def __iter__(self) -> NoReturn:
        # Without it Python would index by 0, 1 and so on, for ever if the first size is symbolic.
        raise GraphError(f"{self.name} is one tensor, not a sequence", node=self.name, hint="index it: x[0]")

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise GraphError(
            f"{self.name} has no elements while the graph is built",
            node=self.name,
            hint="use methods of the builder for NumPy's functions; run_graph computes the graph's outputs",
        )

    def __add__(self, other: Operand) -> Tensor:
        return self.graph.op("add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return self.graph.op("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return self.graph.op("sub", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return self.graph.op("sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return self.graph.op("mul", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return self.graph.op("mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.graph.op("div", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return self.graph.op("div", other, self)

    def __floordiv__(self, other: Operand) -> Tensor:
        return self.graph.op("floor_div", self, other)

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return self.graph.op("floor_div", other, self)

    def __mod__(self, other: Operand) -> Tensor:
        return self.graph.op("remainder", self, other)

    def __rmod__(self, other: Operand) -> Tensor:
        return self.graph.op("remainder", other, self)

    def __pow__(self, other: Operand) -> Tensor:
        return self.graph.op("pow", self, other)

    def __rpow__(self, other: Operand) -> Tensor:
        return self.graph.op("pow", other, self)

    def __neg__(self) -> Tensor:
        return self.graph.op("neg", self)

    def __abs__(self) -> Tensor:
        return self.graph.op("abs", self)

    def __invert__(self) -> Tensor:
        return self.graph.op("bit_not", self)

    def __and__(self, other: Operand) -> Tensor:
        return self.graph.op("bit_and", self, other)

    def __rand__(self, other: Operand) -> Tensor:
        return self.graph.op("bit_and", other, self)

    def __or__(self, other: Operand) -> Tensor:
        return self.graph.op("bit_or", self, other)

    def __ror__(self, other: Operand) -> Tensor:
        return self.graph.op("bit_or", other, self)

    def __xor__(self, other: Operand) -> Tensor:
        return self.graph.op("bit_xor", self, other)

    def __rxor__(self, other: Operand) -> Tensor:
        return self.graph.op("bit_xor", other, self)

    def __lshift__(self, other: Operand) -> Tensor:
        return self.graph.op("shift_left", self, other)

    def __rlshift__(self, other: Operand) -> Tensor:
        return self.graph.op("shift_left", other, self)

    def __rshift__(self, other: Operand) -> Tensor:
        return self.graph.op("shift_right", self, other)

    def __rrshift__(self, other: Operand) -> Tensor:
        return self.graph.op("shift_right", other, self)

    def __lt__(self, other: Operand) -> Tensor:
        return self.graph.op("lt", self, other)

    def __le__(self, other: Operand) -> Tensor:
        return self.graph.op("le", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return self.graph.op("gt", self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return self.graph.op("ge", self, other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.graph.matmul(self, other)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return self.graph.matmul(other, self)

    def to(self, dtype: DType) -> Tensor:
        """Return the tensor in another dtype; the tensor itself if it has that."""
        return self if dtype == self.dtype else self.graph.op("cast", self, dtype=dtype)

    # --- views -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        """Return the elements that integers, slices with positive steps, ``...`` and ``None`` select, as a view."""
        return self.graph.view(self, *views.indexed(self.shape, key))

    def reshape(self, *shape: Size | Sequence[Size]) -> Tensor:
        """Return the elements in row-major order under another shape, of which one size may be -1.

        Sizes are separate arguments, or one sequence.
        """
        return self.graph.view(self, *views.reshaped(self.shape, views.unpacked(shape)), may_copy=True)

    def permute(self, *dimensions: int | Sequence[int]) -> Tensor:
        """Return the dimensions in another order: separate arguments, or one sequence."""
        return self.graph.view(self, *views.permuted(self.shape, views.unpacked(dimensions)))

    def transpose(self, first: int = -2, second: int = -1) -> Tensor:
        """Return two dimensions exchanged, by default the last two."""
        order = list(range(self.ndim))
        a, b = (views.normalized(dimension, self.ndim) for dimension in (first, second))
        order[a], order[b] = order[b], order[a]
        return self.permute(*order)

    def expand(self, *shape: Size | Sequence[Size]) -> Tensor:
        """Return the tensor broadcast to a shape, without a copy; sizes are separate arguments, or one sequence."""
        return self.graph.view(self, *views.expanded(self.shape, views.unpacked(shape)))

    def flip(self, axis: int) -> Tensor:
        """Return a copy in reverse order along an axis."""
        return self.graph.view(self, *views.flipped(self.shape, axis), may_copy=True)

    def squeeze(self, axis: int) -> Tensor:
        """Return the tensor without a dimension of size 1."""
        dimension = views.normalized(axis, self.ndim)
        if self.shape[dimension] != 1:
            raise GraphError(
                f"dimension {dimension} of {self.name} has size {self.shape[dimension]}, not 1",
                node=self.name,
            )
        return self.reshape(*self.shape[:dimension], *self.shape[dimension + 1 :])

    def sizes(self, axes: Sequence[int]) -> tuple[Size, ...]:
        """Return the sizes of some dimensions."""
        return tuple(self.shape[views.normalized(axis, self.ndim)] for axis in axes)


Operand = Tensor | int | float | bool
"""An operand of an operation by element: a tensor or a literal."""
