"""Tensors that a program has computed so far, and the choice of a statement among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

T = TypeVar("T")
Choose = Callable[[int, int], int]
"""Draws an integer from a closed range, by a seed or by Hypothesis."""


@dataclass(slots=True)
class Draws:
    """Choices of one program."""

    choose: Choose
    count: int = field(default=0, kw_only=True)

    def one(self, items: Sequence[T]) -> T:
        """Draw an item."""
        return items[self.choose(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        """Draw a decision."""
        return self.choose(1, 100) <= percent

    def fresh(self) -> str:
        """Return a new name."""
        self.count += 1
        return f"t{self.count}"


@dataclass(slots=True)
class Scope(Draws):
    """The tensors that a program has made so far, as eager computed them; ``choose`` picks among them.

    ``rough`` holds the storages whose values depend on how sums are associated or on a maths library, so that they
    must not decide anything: no comparison, index or bit pattern may come from them.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    rough: set[int] = field(default_factory=set)

    def is_exact(self, name: str) -> bool:
        return storage_of(self.tensors[name]) not in self.rough

    def pick(
        self, accept: Callable[[torch.Tensor], bool] = lambda t: True, *, exact: bool = False
    ) -> str | None:
        """Draw the name of a tensor; later ones are likelier."""
        names = [n for n, t in self.tensors.items() if accept(t) and (not exact or self.is_exact(n))]
        if not names:
            return None
        recent = names[-3:] if self.chance(50) else names
        return self.one(recent)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that identifies a tensor's storage while it is alive."""
    storage: int = tensor.untyped_storage()._cdata
    return storage
