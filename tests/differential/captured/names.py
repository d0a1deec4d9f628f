"""Names that a program under construction has defined, with their shapes, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from differential.scope import Draws

Shape = str
"""``nm``: as many rows as the call's size and four columns; ``m``, ``n``: a vector; an empty text: one number; ``?``: a
view of any shape."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor in the generated text.

    ``degree`` counts multiplications, so that exact values stay small; rough values, which depend on rounding, have -1
    and decide nothing. ``writable``: autograd and the caller let it be written.
    """

    name: str
    shape: Shape
    degree: int
    writable: bool = False

    @property
    def is_exact(self) -> bool:
        """Report that every backend gives the same bits."""
        return 0 <= self.degree <= 2


@dataclass(slots=True)
class Names(Draws):
    """The variables so far."""

    variables: list[Variable] = field(default_factory=list)

    def define(self, shape: Shape, degree: int, *, writable: bool = False, name: str | None = None) -> str:
        """Add a variable and return its name."""
        name = name or self.fresh()
        self.variables.append(Variable(name, shape, degree if degree <= 2 else -1, writable))
        return name

    def pick(self, *shapes: Shape, exact: bool = False, writable: bool = False) -> Variable:
        """Draw a variable of one of these shapes, later ones likelier; ``LookupError`` where there is none."""
        fit = [
            v
            for v in self.variables
            if (not shapes or v.shape in shapes)
            and (not exact or v.is_exact)
            and (not writable or v.writable)
        ]
        if not fit:
            raise LookupError("no variable fits")
        return self.one(fit[-4:] if self.chance(60) else fit)

    def forget_exactness(self, name: str) -> None:
        """Note that a variable was written with rough values, and with it all that may be its view."""
        self.variables = [
            Variable(v.name, v.shape, -1, v.writable) if v.name == name or v.shape == "?" else v
            for v in self.variables
        ]
