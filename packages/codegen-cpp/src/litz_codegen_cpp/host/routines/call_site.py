"""The interface of the table of routines and the writer of host programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from litz_ir.dtypes import f32
from litz_ir.loops import Argument, Ref, TensorType
from litz_ir.plan import CallStep, Plan
from litz_ir.symbols import Size


class CallSite(Protocol):
    """The host program around a call."""

    def term(self, size: Size) -> str:
        """Return an index term as C++."""

    def type(self, name: str) -> TensorType:
        """Return the type of a buffer or input."""

    def data(self, name: str) -> str:
        """Return the first element of a buffer, as a ``char*``."""

    def prepacked(self, name: str, form: str, nbytes: str, fill: Callable[[str], str]) -> str | None:
        """Return the pointer to the prepacked form of a buffer, which ``fill(pointer)`` writes once, when the model is
        opened; ``None`` for a buffer that is no constant."""


@dataclass(frozen=True, slots=True)
class Routine:
    """A row of the table: which calls the library runs, and their text."""

    refuses: Callable[[Plan, CallStep], str]
    """Returns the reason against a call; empty for one that the library runs."""
    emit: Callable[[CallSite, CallStep], tuple[list[str], str | None]]
    """Returns the lines of a call, and the bytes of scratch that it takes, as C++."""
    header: str
    """The header of ``litz/library`` that has the routine, without its suffix."""
    result_bytes: Callable[[Plan, CallStep], str] | None = None
    """Returns the bytes of a result that only routines read, as C++; ``None`` where results have their type's."""


def bound_arguments(
    step: CallStep, names: tuple[str, ...], defaults: Mapping[str, Argument]
) -> dict[str, Argument]:
    """Return the arguments of a call by name; ``names`` are those of its positions.

    Raises :class:`KeyError` for an argument that is neither passed nor has a default.
    """
    found = {**defaults, **dict(zip(names, step.arguments)), **dict(step.attributes)}
    return {name: found[name] for name in (*names, *(key for key, _ in step.attributes))}


def tensor_types(plan: Plan, step: CallStep) -> dict[str, TensorType]:
    """Return the types of the tensors that a call reads and returns."""
    given = {item.name: item.type for item in (*plan.inputs, *plan.constants) if hasattr(item, "type")}
    placed = {name: placement.type for name, placement in plan.buffers}
    names = [argument.name for argument in step.arguments if isinstance(argument, Ref)]
    names += [value.name for _, value in step.attributes if isinstance(value, Ref)]
    names += [name for name in step.results if name is not None]
    return {name: (given | placed)[name] for name in names}


def not_f32(plan: Plan, step: CallStep) -> str:
    """Return the reason against a call of tensors that are not all ``f32``; empty for others."""
    others = sorted({type_.dtype.name for type_ in tensor_types(plan, step).values() if type_.dtype != f32})
    return f"the C runtime has it for f32 alone, not for {', '.join(others)}" if others else ""
