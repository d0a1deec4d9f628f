"""What FX nodes become: tensors as rules see them, sizes, symbolic scalars, and what only calls can use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Axis, Layout, TensorType, Value
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, product, symbol

Axes = tuple[Size, ...]
"""An index: one term per dimension. A dimension of size 1 has the index 0."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as rules see it: a named value that bodies load from."""

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

    def load(self, index: Sequence[Size]) -> Expr:
        """The element at a logical index of as many terms as there are dimensions."""
        if len(index) != self.rank:
            raise UnsupportedOperation(f"%{self.name} has {self.rank} dimensions, indexed with {len(index)}")
        return build.load(self.name, tuple(index), self.dtype)

    def at(self, axes: Axes) -> Expr:
        """The element that broadcasting puts at ``axes`` of a shape with at least as many dimensions."""
        tail = axes[len(axes) - self.rank :]
        return self.load([0 if size == 1 else axis for size, axis in zip(self.shape, tail, strict=True)])


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex tensor as rules see it: ``pairs`` holds its parts (real, imaginary) on a last dimension of two.

    Shape and rank are the complex tensor's; ``dtype`` is that of a part.
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
        """Part ``part`` (0: real, 1: imaginary) of the element at a logical index."""
        return self.pairs.load((*index, part))

    def at(self, axes: Axes, part: Size) -> Expr:
        """Part ``part`` of the element that broadcasting puts at ``axes``."""
        tail = axes[len(axes) - self.rank :]
        return self.load(
            [0 if size == 1 else axis for size, axis in zip(self.shape, tail, strict=True)], part
        )


@dataclass(frozen=True, slots=True)
class ObjectArgument:
    """An argument that only calls can use: a generator, a script object."""

    name: str


@dataclass(frozen=True, slots=True)
class Declined:
    """What a rule returns when it cannot serve this use of its operator: it then runs as ATen, for this reason.

    ``is_meant``: on purpose, which is no error under ``fallback="error"``.
    """

    reason: str
    is_meant: bool = False


class Refusal(Exception):
    """Raised below a rule by what cannot serve this use of its operator: as if the rule returned ``declined``."""

    def __init__(self, declined: Declined) -> None:
        super().__init__(declined.reason)
        self.declined = declined


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A traced function that a higher-order operator runs; ``path`` is the attribute that holds it."""

    path: str
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
"""What an FX node becomes: a tensor, a size, a symbolic float or bool (a body), or several of them."""

ResultType = TensorType | None


def has_complex(argument: object) -> bool:
    """True for complex tensors and numbers, and for lists and mappings that hold one."""
    if isinstance(argument, tuple):
        return any(map(has_complex, argument))
    if isinstance(argument, dict):
        return any(map(has_complex, argument.values()))
    return isinstance(argument, Complex | complex)


def axes_of(shape: Sequence[Size], letter: str = "i") -> tuple[Axis, ...]:
    """Loop axes over a shape: ``i0``, ``i1``, …"""
    return tuple(Axis(f"{letter}{k}", size) for k, size in enumerate(shape))


def terms_of(axes: Sequence[Axis]) -> Axes:
    """The axes as index terms; an axis of size 1 has nothing to index but 0."""
    return tuple(0 if axis.size == 1 else symbol(axis.name) for axis in axes)


def rejoined(outer: Axes, inner: Axes, dims: Collection[int], rank: int, keepdim: bool) -> Axes:
    """The index of what is reduced over ``dims``: those from ``inner``, the others from ``outer``, the index of the
    result, where ``dims`` are left out or kept as 1."""
    left, right = iter(outer), iter(inner)
    index: list[Size] = []
    for d in range(rank):
        if d in dims:
            index.append(next(right))
            if keepdim:
                next(left)
        else:
            index.append(next(left))
    return tuple(index)


def fixed(kind: TensorType) -> TensorType:
    """The type with its layout promised to the outside."""
    layout = kind.layout
    return TensorType(kind.dtype, kind.shape, Layout(layout.strides, layout.offset, fixed=True), kind.device)
