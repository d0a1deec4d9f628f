"""Values of FX nodes during lowering: tensors, sizes, symbolic scalars, and arguments for calls only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Axis, Layout, TensorType, Value
from litz_ir.scalar import Expr, build, indirects_in
from litz_ir.symbols import Size, product, symbol

Axes = tuple[Size, ...]
"""Index with one term per dimension; that of a dimension of size 1 is 0."""


def raises(index: Sequence[Size]) -> bool:
    """True for an index that may raise an error."""
    return any(atom.check == "raised" for term in index for atom in indirects_in(term))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor during lowering: a named value from which bodies load."""

    value: Value

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def type(self) -> TensorType:
        return self.value.type

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.value.type.shape

    @property
    def device(self) -> Device:
        return self.value.type.device

    @property
    def rank(self) -> int:
        return len(self.value.type.shape)

    @property
    def numel(self) -> Size:
        return product(self.shape)

    @property
    def is_empty(self) -> bool:
        """True for a tensor that is known to have no elements."""
        return any(isinstance(size, int) and size == 0 for size in self.shape)

    def load(self, index: Sequence[Size]) -> Expr:
        """Load the element at a logical index; ``index`` has one term per dimension.

        A tensor without elements is read by loops without points, or where a mask is false or an index raises an
        error: its element is 0 unless there is such an index.

        Raises :class:`UnsupportedOperation` for another number of terms.
        """
        if len(index) != self.rank:
            raise UnsupportedOperation(f"%{self.name} has {self.rank} dimensions, indexed with {len(index)}")
        if self.is_empty and not raises(index):
            return build.const(0, self.dtype)
        return build.load(self.name, tuple(index), self.dtype)

    def at(self, axes: Axes) -> Expr:
        """Load the element that broadcasting puts at ``axes`` of a shape of at least as many dimensions."""
        tail = axes[len(axes) - self.rank :]
        return self.load([0 if size == 1 else axis for size, axis in zip(self.shape, tail, strict=True)])


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex tensor during lowering, stored as pairs (real, imaginary) in a last dimension of size 2.

    Shape and rank are those of the complex tensor; ``dtype`` is that of the parts.
    """

    pairs: Tensor

    @property
    def name(self) -> str:
        return self.pairs.name

    @property
    def dtype(self) -> DType:
        return self.pairs.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.pairs.shape[:-1]

    @property
    def device(self) -> Device:
        return self.pairs.device

    @property
    def rank(self) -> int:
        return self.pairs.rank - 1

    @property
    def type(self) -> TensorType:
        return self.pairs.type

    @property
    def numel(self) -> Size:
        return product(self.shape)

    def load(self, index: Sequence[Size], part: Size) -> Expr:
        """Load part ``part`` (0: real, 1: imaginary) of the element at a logical index."""
        return self.pairs.load((*index, part))

    def at(self, axes: Axes, part: Size) -> Expr:
        """Load part ``part`` of the element that broadcasting puts at ``axes``."""
        tail = axes[len(axes) - self.rank :]
        return self.load(
            [0 if size == 1 else axis for size, axis in zip(self.shape, tail, strict=True)], part
        )


@dataclass(frozen=True, slots=True)
class ObjectArgument:
    """An argument that only calls can use: a generator or a script object."""

    name: str


@dataclass(frozen=True, slots=True)
class Declined:
    """Refusal of a rule to lower one use of its operator, which then runs in ATen."""

    reason: str
    """Reason that users read."""
    is_intended: bool = False
    """Intended fallback, which is no error under ``fallback="error"``."""


class Refusal(Exception):
    """Exception by which a helper makes the rule that called it decline."""

    def __init__(self, declined: Declined) -> None:
        super().__init__(declined.reason)
        self.declined = declined


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A traced function that a higher-order operator runs."""

    path: str
    """Name of the attribute that holds the function."""
    module: GraphModule


Lowered = (
    Tensor
    | Complex
    | ObjectArgument
    | Subgraph
    | Expr
    | Size
    | float
    | complex
    | str
    | None
    | tuple["Lowered", ...]
)
"""Value of an FX node: a tensor, a size, a symbolic float or bool (a body), or several of these."""

ResultType = TensorType | None


def has_complex(argument: object) -> bool:
    """True for complex tensors and numbers, and for sequences and mappings that contain one."""
    if isinstance(argument, tuple):
        return any(map(has_complex, argument))
    if isinstance(argument, dict):
        return any(map(has_complex, argument.values()))
    return isinstance(argument, Complex | complex)


def axes_of(shape: Sequence[Size], letter: str = "i") -> tuple[Axis, ...]:
    """Loop axes over a shape, named ``i0``, ``i1``, … after ``letter``."""
    return tuple(Axis(f"{letter}{k}", size) for k, size in enumerate(shape))


def terms_of(axes: Sequence[Axis]) -> Axes:
    """Axes as index terms; an axis of size 1 has index 0."""
    return tuple(0 if axis.size == 1 else symbol(axis.name) for axis in axes)


def rejoined(outer: Axes, inner: Axes, dims: Collection[int], rank: int, keepdim: bool) -> Axes:
    """Index of a reduction's operand: dimensions ``dims`` from ``inner``, others from the result's index
    ``outer``.

    With ``keepdim``, ``outer`` has dimensions ``dims`` too, of size 1.
    """
    outer_terms, inner_terms = iter(outer), iter(inner)
    index: list[Size] = []
    for d in range(rank):
        if d in dims:
            index.append(next(inner_terms))
            if keepdim:
                next(outer_terms)
        else:
            index.append(next(outer_terms))
    return tuple(index)


def fixed(kind: TensorType) -> TensorType:
    """Fix the layout of a type, as a promise to callers and routines."""
    layout = kind.layout
    return TensorType(kind.dtype, kind.shape, Layout(layout.strides, layout.offset, fixed=True), kind.device)
