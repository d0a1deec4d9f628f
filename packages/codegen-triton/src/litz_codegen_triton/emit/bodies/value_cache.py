"""The cache of expressions that have been written, for common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

from litz_codegen_triton.emit.indexing.mask import Masks
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.scalar import Expr, indirects_in, loads
from litz_ir.symbols import Term


class ValueCache:
    """The value of each expression that has been written, by the conditions of masked expressions around it.

    A value that was loaded under a condition is valid under that condition alone. Values live as long as the scope of
    the text that defines them.
    """

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._writer = masks.writer
        self._loading: dict[Expr, bool] = {}

    def known(self, expr: Expr) -> EmittedValue | None:
        """Return the value of an expression that has been written under these conditions or under fewer."""
        conditions = self._masks.conditions
        for count in range(len(conditions) if self._loads(expr) else 0, -1, -1):
            found = self._writer.known(self._key(expr, conditions[:count]))
            if found is not None:
                return found
        return None

    def remember(self, expr: Expr, value: EmittedValue) -> EmittedValue:
        """Remember the value of an expression under these conditions, and return it."""
        return self._writer.remember(self._key(expr, self._masks.conditions), value)

    def known_approximation(self, expr: Expr) -> EmittedValue | None:
        """Return the approximate value of an expression that has been written under these conditions."""
        return self._writer.known(self._approximate_key(expr))

    def remember_approximation(self, expr: Expr, value: EmittedValue) -> EmittedValue:
        """Remember the approximate value of an expression under these conditions, and return it."""
        return self._writer.remember(self._approximate_key(expr), value)

    def forget(self, buffer: str) -> None:
        """Forget values that were loaded from a buffer, which has been overwritten since."""
        for scope in self._writer.scopes:
            for key in list(scope.memo):
                expr = key[0] if isinstance(key, tuple) else key
                if _loads_from(expr, buffer):
                    del scope.memo[key]

    def _key(self, expr: Expr, conditions: tuple[EmittedValue, ...]) -> Hashable:
        return (expr, conditions) if conditions and self._loads(expr) else expr

    def _approximate_key(self, expr: Expr) -> Hashable:
        return (expr, self._masks.conditions if self._loads(expr) else (), "approximate")

    def _loads(self, expr: Expr) -> bool:
        """True for an expression that loads from a buffer."""
        found = self._loading.get(expr)
        if found is None:
            found = self._loading[expr] = bool(loads(expr))
        return found


def _loads_from(key: object, buffer: str) -> bool:
    """True for the key of a value that was loaded from a buffer."""
    if isinstance(key, Expr):
        return any(load.buffer == buffer for load in loads(key))
    return isinstance(key, Term) and any(_loads_from(atom.value, buffer) for atom in indirects_in(key))
