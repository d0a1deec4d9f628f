"""The one registry of lowering rules: each says the ATen overloads it serves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from litz_ir.errors import GraphError
from litz_lowering.context import Declined, Lowered, LoweringContext
from litz_lowering.values import Refusal, Tensor

RuleResult = Lowered | Declined
Rule = Callable[..., RuleResult]
"""Called with the context and the node's arguments, named as in the operator's schema; defaults are the rule's own."""

R = TypeVar("R", bound=Rule)

LoweringKind = Literal["loops", "library", "stream"]
"""What a rule makes: loops; a contraction, which a library computes; or draws from ATen's stream, loops under
``rng="fast"``. Where it declines, only loops are missed."""

AcceptedInputs = Literal["real", "floats"]
"""The dtypes of the first tensor for which a rule serves: all but complex ones, or floating-point ones alone."""


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule, what it makes and what it takes; ``moves``: tensors of other devices than the result's too."""

    rule: Rule
    how: LoweringKind = "loops"
    takes: AcceptedInputs = "real"
    moves: bool = False

    def refusal(self, args: tuple[Any, ...]) -> Declined | None:
        """Why the rule is not asked about these arguments."""
        if self.takes == "floats":
            dtype = next((a.dtype for a in args if isinstance(a, Tensor)), None)
            if dtype is not None and not dtype.is_float:
                return Declined(f"{dtype} is not floating-point")
        return None


class Registry:
    """Rules by overload name (``"aten.add.Tensor"``). Filled while the rule modules are imported; what comes after
    that is a user's."""

    def __init__(self) -> None:
        self._rules: dict[str, RuleEntry] = {}
        self._complex: dict[str, RuleEntry] = {}
        self._own: tuple[dict[str, RuleEntry], dict[str, RuleEntry]] = {}, {}

    def seal(self) -> None:
        """Take the rules that are there for litz's own."""
        self._own = dict(self._rules), dict(self._complex)

    def users(self) -> dict[str, RuleEntry | None]:
        """The rules that were registered since :meth:`seal`, by what they serve; None stands for a rule of litz's own
        that is gone."""
        found: dict[str, RuleEntry | None] = {}
        for kind, now, own in zip(("rule", "complex rule"), (self._rules, self._complex), self._own):
            # Equal dicts are told in some microseconds, and nearly all are: their entries are the same objects.
            if now != own:
                changed = sorted(
                    name for name in now.keys() | own.keys() if now.get(name) is not own.get(name)
                )
                found |= {f"{kind} of {name}": now.get(name) for name in changed}
        return found

    def add(
        self,
        rule: Rule,
        *overloads: str,
        how: LoweringKind = "loops",
        takes: AcceptedInputs = "real",
        moves: bool = False,
    ) -> None:
        """Serve ``overloads`` by ``rule``; raises :class:`GraphError` when one is served already."""
        for overload in overloads:
            if overload in self._rules:
                raise GraphError(f"two lowering rules serve {overload}", node=overload)
            self._rules[overload] = RuleEntry(rule, how, takes, moves)

    def add_complex(self, rule: Rule, *overloads: str, how: LoweringKind = "loops") -> None:
        """Serve uses of ``overloads`` with complex operands or results; no other rule ever sees those.

        Raises :class:`GraphError` when one is served already.
        """
        for overload in overloads:
            if overload in self._complex:
                raise GraphError(f"two complex rules serve {overload}", node=overload)
            self._complex[overload] = RuleEntry(rule, how)

    def find(self, overload: str, *, is_complex: bool = False) -> RuleEntry | None:
        """The entry that serves an overload; ``is_complex``: where an operand or result is complex."""
        return (self._complex if is_complex else self._rules).get(overload)

    @property
    def served(self) -> Collection[str]:
        """All overloads with a rule."""
        return self._rules.keys()


REGISTRY = Registry()


def rule(
    *overloads: str, how: LoweringKind = "loops", takes: AcceptedInputs = "real", moves: bool = False
) -> Callable[[R], R]:
    """Register the decorated function for ``overloads``; it makes ``how`` of arguments that it ``takes``. Tensors of
    another device are brought to the result's before, but for a rule that ``moves`` them itself, or reads none of them.

    It is called as ``f(ctx, *args, **kwargs)`` with the FX node's arguments: tensors as :class:`Tensor`, symbolic sizes
    as terms, symbolic floats as bodies, lists as tuples, dtypes and devices as litz's, Python scalars as they are.
    It returns what the node becomes, or :class:`Declined`.
    """

    def register(function: R) -> R:
        REGISTRY.add(function, *overloads, how=how, takes=takes, moves=moves)
        return function

    return register


def complex_rule(*overloads: str, how: LoweringKind = "loops") -> Callable[[R], R]:
    """Register the decorated function for uses of ``overloads`` with complex operands or results.

    It is called as other rules are: complex tensors are :class:`Complex`, and a complex result's type, in the context,
    is that of its pairs.
    """

    def register(function: R) -> R:
        REGISTRY.add_complex(function, *overloads, how=how)
        return function

    return register


def apply(
    entry: RuleEntry, ctx: LoweringContext, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> RuleResult:
    """Ask a rule; whatever it adds before it declines is taken back."""
    if refused := entry.refusal(args):
        return refused
    before = len(ctx.builder.operations)
    try:
        result = entry.rule(ctx, *args, **kwargs)
    except Refusal as refusal:
        result = refusal.declined
    if isinstance(result, Declined):
        del ctx.builder.operations[before:]
    return result
