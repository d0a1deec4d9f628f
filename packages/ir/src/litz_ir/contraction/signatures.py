"""Arguments of calls by their role: a signature gives the role of each argument, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def by_role(signature: str, arguments: Sequence[T], attributes: Iterable[tuple[str, T]]) -> dict[str, T]:
    """The arguments of a call by role; empty if the signature does not have all of them.

    ``signature`` has ``role=name`` for each argument, in order and separated by blanks; ``attributes`` are given by
    name.
    """
    pairs = [pair.partition("=")[::2] for pair in signature.split()]
    roles = {name: role for role, name in pairs}
    given = dict(attributes)
    if len(arguments) > len(pairs) or not given.keys() <= roles.keys():
        return {}
    found = {role: value for (role, _), value in zip(pairs, arguments)}
    return found | {roles[name]: value for name, value in given.items()}
