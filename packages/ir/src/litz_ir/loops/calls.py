"""Operations that run as one call of a named routine of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litz_ir.loops.arguments import Argument, Attributes, references
from litz_ir.loops.operations import Operation
from litz_ir.loops.values import ComplexValue, Value
from litz_ir.symbols.term import Size

LayoutRequirement = Literal["any", "dense", "exact"]
"""Strides that a routine needs of its arguments: any, dense in any order, or exactly eager's."""


@dataclass(frozen=True, kw_only=True)
class Call(Operation):
    """Base of operations that run as one call of a named routine."""

    results: tuple[Value | ComplexValue, ...]
    """Values that the call defines."""
    target: str
    """The routine: an ATen overload or an entry of the extern table."""
    arguments: tuple[Argument, ...]
    """Positional arguments."""
    attributes: Attributes = ()
    """Keyword arguments."""
    mutates: tuple[tuple[str, str], ...] = ()
    """Buffers among the arguments that the call overwrites, each with the result that is its new version."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Results that share memory with a buffer, each with that buffer."""
    layout_requirement: LayoutRequirement = "any"
    """Strides that the routine needs of its arguments."""
    unpack: bool = False
    """True if the routine returns a tuple or list, even of one value."""
    unreturned: tuple[str, ...] = ()
    """Results that the routine does not return: new versions of buffers that it overwrites."""
    flops: Size = 0
    """Floating-point operations of the call, for cost models; 0 if unknown."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers among the arguments, each once."""
        both = (*self.arguments, *(value for _, value in self.attributes))
        return tuple(dict.fromkeys(references(both)))


@dataclass(frozen=True, kw_only=True)
class Extern(Call):
    """A call of an ATen overload or of an entry of the extern table."""

    reason: str = ""
    """Reason that no kernel was generated for the operation."""


@dataclass(frozen=True, kw_only=True)
class ContractionCall(Call):
    """A matmul, convolution or attention, described by its meaning.

    The scheduler decides how a target runs it; ``target`` is the extern that always can.
    """

    kind: Literal["matmul", "convolution", "attention"]
    """Kind of the contraction."""


@dataclass(frozen=True, kw_only=True)
class Random(Call):
    """A draw from the host's generator, kept in program order by the token ``rng``."""


@dataclass(frozen=True, kw_only=True)
class Collective(Call):
    """Communication between ranks, kept in program order by the token ``collective``."""
