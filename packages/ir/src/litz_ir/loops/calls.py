"""Operations that run as one call of a named routine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litz_ir.loops.arguments import Argument, Attributes, references
from litz_ir.loops.operations import Operation
from litz_ir.loops.values import ComplexValue, Value
from litz_ir.symbols.term import Size

LayoutRequirement = Literal["any", "dense", "exact"]


@dataclass(frozen=True, kw_only=True)
class Call(Operation):
    """Base of operations that run as one call of a named routine.

    ``mutates`` names the values (among those referenced) that the call overwrites, each paired with the result that
    is its new version; ``aliases`` pairs results with the value whose memory they share. ``layout_requirement`` is
    what the routine wants of its arguments' layouts; ``exact`` means eager's strides. ``unpack`` is true when the
    routine returns a tuple or list, even of one; ``unreturned`` names the results that it does not return (new
    versions of what it overwrites).
    """

    results: tuple[Value | ComplexValue, ...]
    target: str
    arguments: tuple[Argument, ...]
    attributes: Attributes = ()
    mutates: tuple[tuple[str, str], ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    layout_requirement: LayoutRequirement = "any"
    unpack: bool = False
    unreturned: tuple[str, ...] = ()
    flops: Size = 0

    @property
    def reads(self) -> tuple[str, ...]:
        both = (*self.arguments, *(value for _, value in self.attributes))
        return tuple(dict.fromkeys(references(both)))


@dataclass(frozen=True, kw_only=True)
class Extern(Call):
    """Any other routine of the host, by name: ``target`` is an ATen overload or an entry of the extern table.
    ``reason`` says why nothing was generated for it."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ContractionCall(Call):
    """Matrix products, convolutions and attention, by what they mean: ``kind`` is ``matmul``, ``convolution`` or
    ``attention``. The scheduler picks how a target realises it; ``target`` is the extern that always can."""

    kind: Literal["matmul", "convolution", "attention"]


@dataclass(frozen=True, kw_only=True)
class Random(Call):
    """A draw from the host's own generator, in program order: it carries the token ``rng``."""


@dataclass(frozen=True, kw_only=True)
class Collective(Call):
    """Communication between ranks; never reordered: it carries the token ``collective``."""
