"""Rules and decompositions that users registered, for keys of caches; nothing is lowered or loaded to find them."""

from __future__ import annotations

from litz_lowering.contexts.registry import REGISTRY
from litz_lowering.decompose.table import users_decompositions


def registered() -> dict[str, object]:
    """Rules and decompositions that the user registered, by the operator that each serves.

    Cache keys contain them next to the versions of litz and torch. None stands for a removed rule.
    """
    return {**users_decompositions(), **REGISTRY.users()}
