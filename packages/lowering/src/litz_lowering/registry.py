"""The one registry of lowering rules: each says the ATen overloads it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from litz_ir.errors import GraphError
from litz_lowering.context import Declined, Lowered, LoweringContext

Result = Lowered | Declined
Rule = Callable[..., Result]
"""Called with the context and the node's arguments, named as in the operator's schema; defaults are the rule's own."""


class Registry:
    """Rules by overload name (``"aten.add.Tensor"``). Filled while the rule modules are imported, then only read."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._complex: dict[str, Rule] = {}

    def add(self, rule: Rule, *overloads: str) -> None:
        """Serve ``overloads`` by ``rule``; raises :class:`GraphError` when one is served already."""
        for overload in overloads:
            if overload in self._rules:
                raise GraphError(f"two lowering rules serve {overload}", node=overload)
            self._rules[overload] = rule

    def add_complex(self, rule: Rule, *overloads: str) -> None:
        """Serve uses of ``overloads`` with complex operands or results; no other rule ever sees those.

        Raises :class:`GraphError` when one is served already.
        """
        for overload in overloads:
            if overload in self._complex:
                raise GraphError(f"two complex rules serve {overload}", node=overload)
            self._complex[overload] = rule

    def find(self, overload: str, *, is_complex: bool = False) -> Rule | None:
        """The rule that serves an overload; ``is_complex``: where an operand or result is complex."""
        return (self._complex if is_complex else self._rules).get(overload)

    @property
    def served(self) -> Mapping[str, Rule]:
        """All rules by overload."""
        return MappingProxyType(self._rules)


REGISTRY = Registry()


def rule(*overloads: str) -> Callable[[Rule], Rule]:
    """Register the decorated function for ``overloads``.

    It is called as ``f(ctx, *args, **kwargs)`` with the FX node's arguments: tensors as :class:`Tensor`, symbolic sizes
    as terms, symbolic floats as bodies, lists as tuples, dtypes and devices as litz's, Python scalars as they are.
    It returns what the node becomes, or :class:`Declined`.
    """

    def register(function: Rule) -> Rule:
        REGISTRY.add(function, *overloads)
        return function

    return register


def complex_rule(*overloads: str) -> Callable[[Rule], Rule]:
    """Register the decorated function for uses of ``overloads`` with complex operands or results.

    It is called as other rules are: complex tensors are :class:`Complex`, and a complex result's type, in the context,
    is that of its pairs.
    """

    def register(function: Rule) -> Rule:
        REGISTRY.add_complex(function, *overloads)
        return function

    return register


def apply(
    rule_function: Rule, ctx: LoweringContext, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Result:
    """Call a rule; whatever it adds before it declines is taken back."""
    before = len(ctx.builder.operations)
    result = rule_function(ctx, *args, **kwargs)
    if isinstance(result, Declined):
        del ctx.builder.operations[before:]
    return result
