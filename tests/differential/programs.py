"""Small programs of views, writes, reductions and scatters: their data, their Python text, their arguments."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

Mode = Literal["plain", "no_grad", "inference", "grad"]
Function = Callable[..., tuple[torch.Tensor, ...]]


def is_inexact(dtype: torch.dtype) -> bool:
    """Report that a dtype is floating-point or complex, so that gradients flow through it."""
    return dtype.is_floating_point or dtype.is_complex


def fill(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return ``count`` small integers in ``dtype``: sums and multiplications of them are exact, in any order."""
    numbers = (torch.arange(count) * (7 + 2 * (seed % 5)) + 5 * seed) % 17
    if dtype == torch.bool:
        return numbers % 2 == 0
    if dtype.is_complex:
        return torch.complex((numbers - 8).double(), (numbers.roll(1) % 5 - 2).double()).to(dtype)
    return numbers.to(dtype) if dtype == torch.uint8 else (numbers - 8).to(dtype)


@dataclass(frozen=True, slots=True)
class Base:
    """Memory that inputs are views of: ``size`` elements. ``leaf``: its one input is a leaf that gradients flow to."""

    name: str
    size: int
    dtype: torch.dtype
    seed: int
    leaf: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the program: a strided view of a base."""

    name: str
    base: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Statement:
    """One line. ``target`` is the name that it defines; ``writes`` the name whose memory it overwrites."""

    text: str
    target: str | None = None
    writes: str | None = None

    @property
    def line(self) -> str:
        return f"{self.target} = {self.text}" if self.target else self.text


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one run: the leaves that gradients flow to, the bases, and the inputs, in order."""

    leaves: tuple[torch.Tensor, ...]
    bases: tuple[torch.Tensor, ...]
    inputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A straight-line function of some tensors, and the tensors."""

    bases: tuple[Base, ...]
    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    mode: Mode = "plain"
    dynamic: bool = False

    def source(self, name: str = "program") -> str:
        """Return the function as Python."""
        lines = [statement.line for statement in self.statements]
        comma = "," if len(self.outputs) == 1 else ""
        lines.append(f"return ({', '.join(self.outputs)}{comma})")
        arguments = ", ".join(item.name for item in self.inputs)
        return f"def {name}({arguments}):\n" + "".join(f"    {line}\n" for line in lines)

    @property
    def has_bf16(self) -> bool:
        """Report that some inputs or results have eight bits of precision."""
        return any(base.dtype == torch.bfloat16 for base in self.bases) or any(
            "bfloat16" in statement.text for statement in self.statements
        )

    @property
    def views_bools_as_bytes(self) -> bool:
        """Report that it may view bytes as bools or bools as bytes: eager's copies on a GPU keep only some of them."""
        return any(
            f"view(torch.{dtype})" in each.text for each in self.statements for dtype in ("bool", "uint8")
        )

    def function(self, name: str = "program") -> Function:
        """Return the compiled Python function, with its source available to tracebacks."""
        text, file = self.source(name), f"<{name}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(text, file, "exec"), namespace)
        made: Function = namespace[name]
        return made

    def arguments(self, shift: int = 0) -> Arguments:
        """Return fresh arguments that alias one another as the program says; ``shift`` changes the values."""
        leaves: list[torch.Tensor] = []
        bases: list[torch.Tensor] = []
        made: dict[str, torch.Tensor] = {}
        for base in self.bases:
            viewers = [item for item in self.inputs if item.base == base.name]
            memory = fill(base.size, base.dtype, base.seed + shift)
            bases.append(memory)
            if len(viewers) == 1 and (base.leaf or self.mode != "grad"):
                whole = _owner(memory, viewers[0])
                made[viewers[0].name] = whole
                if base.leaf:
                    leaves.append(whole.requires_grad_())
                continue
            if self.mode == "grad" and is_inexact(base.dtype):
                leaves.append(memory.requires_grad_())
                memory = bases[-1] = memory * 1
            for item in viewers:
                made[item.name] = memory.as_strided(item.shape, item.strides, item.offset)
        return Arguments(tuple(leaves), tuple(bases), tuple(made[item.name] for item in self.inputs))

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """Set the grad mode in which arguments are built and the program runs."""
        match self.mode:
            case "no_grad":
                with torch.no_grad():
                    yield
            case "inference":
                with torch.inference_mode():
                    yield
            case _:
                yield

    def as_test(self, name: str) -> str:
        """Return a regression test that runs this program, as text."""
        body = self.source().splitlines()
        lines = [f"def test_{name}() -> None:", *(f"    {line}" for line in body), ""]
        for base in self.bases:
            leaf = ", leaf=True" if base.leaf else ""
            lines.append(
                f'    {base.name} = Base("{base.name}", {base.size}, {base.dtype}, {base.seed}{leaf})'
            )
        for i in self.inputs:
            where = f"{i.shape}, {i.strides}, {i.offset}"
            lines.append(f'    {i.name} = Input("{i.name}", "{i.base}", {where})')
        bases = ", ".join(base.name for base in self.bases)
        inputs = ", ".join(item.name for item in self.inputs)
        how = f', mode="{self.mode}"' if self.mode != "plain" else ""
        how += ", dynamic=True" if self.dynamic else ""
        lines.append(f"    check(program, [{bases}], [{inputs}]{how})")
        return "\n".join(lines) + "\n"

    def without(self, positions: set[int]) -> Program:
        """Return the program without some statements."""
        left = tuple(s for k, s in enumerate(self.statements) if k not in positions)
        return replace(self, statements=left)


def _owner(memory: torch.Tensor, item: Input) -> torch.Tensor:
    """Return a tensor over ``memory`` that autograd does not know to be a view."""
    return torch.empty(0, dtype=memory.dtype).set_(
        memory.untyped_storage(), item.offset, item.shape, item.strides
    )
