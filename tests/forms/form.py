"""Data of the table: a form of kernel, an extent and its tails, and a cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

Tail = Literal["exact", "over", "short", "idle"]
TAILS: tuple[Tail, ...] = ("exact", "over", "short", "idle")
"""Ends of an extent: with a tile; one element past it; one element before it; so that a thread, warp, thread block or
member of a cluster has no element."""

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
        "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "b1": torch.bool,
    }
)  # fmt: skip

FLOATS = ("f32", "bf16", "f16", "f64")
NARROW = ("f32", "bf16", "f16")

_ARGUMENT = re.compile(r"(\w+)\[([\d, ]*)\]")


@dataclass(frozen=True, slots=True)
class Extent:
    """The varied extent of a form: one that ends with a tile, and one by which a thread, warp or block has no
    element."""

    exact: int
    idle: int

    def at(self, tail: Tail) -> int:
        """Return the extent with such a tail."""
        return {"exact": self.exact, "over": self.exact + 1, "short": self.exact - 1, "idle": self.idle}[tail]


@dataclass(frozen=True, slots=True)
class Form:
    """A form of kernel and a program that makes the scheduler choose it.

    ``full`` and ``small`` are the arguments, such as ``{t}[4096, {n}] i64[{n}]``, where ``t`` is the dtype and ``n``
    the extent that ``large`` and ``little`` give. At full size the scheduler chooses the form by itself, at small size
    under the thresholds of :data:`forms.interpreted.LOWERED`. ``shows`` is a text that one of the kernels has at the
    exact full size, of which there are ``kernels``, where that number is fixed.
    ``look_back`` is how many elements of a scanned row one program has at both sizes, ``options`` are litz's,
    ``gradients`` asks for those of the first argument too. ``gpu_rules`` says that lowering makes loops of the program
    on a GPU alone. ``interpreted`` is false where the form has tests of its own in Triton's interpreter; ``slow`` forms
    take minutes there. With ``sequential`` the interpreter adds the elements of a row one after another.
    """

    name: str
    function: Callable[..., Any]
    full: str
    large: Extent
    small: str
    little: Extent
    shows: str
    kernels: int = 0
    dtypes: tuple[str, ...] = NARROW
    dynamic: bool = False
    look_back: tuple[int, int] = (0, 0)
    options: Mapping[str, Any] = field(default_factory=dict)
    gradients: bool = False
    gpu_rules: bool = False
    interpreted: bool = True
    slow: bool = False
    sequential: bool = False

    def cells(self) -> Iterator[Cell]:
        """Return the cells: every tail in every dtype."""
        for dtype in self.dtypes:
            for tail in TAILS:
                yield Cell(self, tail, dtype)


@dataclass(frozen=True, slots=True)
class Cell:
    """A form at one extent in one dtype."""

    form: Form
    tail: Tail
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.form.name} {self.tail} {self.dtype}"

    def described(self, *, full: bool) -> list[tuple[list[int], torch.dtype]]:
        """Return the shapes and dtypes of the arguments."""
        form = self.form
        text, extent = (form.full, form.large) if full else (form.small, form.little)
        found = _ARGUMENT.findall(text.format(t=self.dtype, n=extent.at(self.tail)))
        return [([int(size) for size in sizes.split(",") if size], DTYPES[name]) for name, sizes in found]

    def arguments(self, *, full: bool, device: str = "cpu") -> list[Tensor]:
        """The arguments, the same in every process: floats about 1, so that what is summed does not cancel; 64-bit
        integers are indices into the first dimension of the argument before them."""
        generator = torch.Generator(device).manual_seed(0)
        how: dict[str, Any] = {"generator": generator, "device": device}
        found: list[Tensor] = []
        for shape, dtype in self.described(full=full):
            if dtype.is_floating_point:
                found.append((torch.randn(shape, **how) * 0.5 + 1).to(dtype))
            elif dtype == torch.int64:
                found.append(torch.randint(found[-1].shape[0], shape, **how))
            elif dtype == torch.bool:
                found.append(torch.rand(shape, **how) < 0.99)
            else:
                found.append(torch.randint(-8, 8, shape, **how).to(dtype))
        return found
