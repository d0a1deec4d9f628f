"""Hash-consing: immutable values of which equal ones are one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref


class Interned:
    """Base of values that are made once for each key, and live as long as something else refers to them."""

    __slots__ = ("__weakref__", "_hash")
    _hash: int

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set '{name}'")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Interned)
        return self._hash == other._hash and self._fields() == other._fields()

    def _fields(self) -> tuple[Any, ...]:
        """The fields that make the value."""
        raise NotImplementedError


class _Reference(ref[Interned]):
    """A weak reference with its key in the table, to remove the entry of a collected value."""

    __slots__ = ("slot",)
    slot: tuple[Any, ...]


_values: dict[tuple[Any, ...], _Reference] = {}
_set_hash: Callable[[Interned, int], None] = Interned.__dict__["_hash"].__set__


def interned(slot: tuple[Any, ...]) -> Any:
    """The value with this key, or None."""
    reference = _values.get(slot)
    return None if reference is None else reference()


def enter(slot: tuple[Any, ...], fresh: Interned) -> None:
    """Complete a value whose fields are set, and enter it in the table under its key."""
    _set_hash(fresh, hash(slot))
    reference = _Reference(fresh, _forget)
    reference.slot = slot
    _values[slot] = reference


def _forget(dead: ref[Interned]) -> None:
    assert isinstance(dead, _Reference)
    if _values.get(dead.slot) is dead:
        _values.pop(dead.slot, None)
