"""Registry of lowering rules by ATen overload."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

from litz_ir.errors import GraphError, LitzError
from litz_lowering.contexts.context import Declined, Lowered, LoweringContext
from litz_lowering.contexts.values import Refusal, Tensor

RuleResult = Lowered | Declined
Rule = Callable[..., RuleResult]
"""Function of the context and the node's arguments, named as in the operator's schema. A rule states its own
defaults."""

Decomposition = Callable[..., Any]
"""Function of an operator's arguments that computes its result by other operators."""

R = TypeVar("R", bound=Rule)
D = TypeVar("D", bound=Decomposition)

LoweringKind = Literal["loops", "library", "stream"]
"""Result of a rule: loops; a contraction that a library computes; or draws from ATen's generator, which are loops
under ``rng="fast"``. Only a rule for loops that declines counts as a missing rule."""

AcceptedInputs = Literal["real", "floats"]
"""Dtypes of the first tensor that a rule accepts: all except complex ones, or floating-point ones only."""


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule with its kind and the inputs that it accepts."""

    rule: Rule
    """Function that lowers a node."""
    how: LoweringKind = "loops"
    """Kind of operations that the rule makes."""
    takes: AcceptedInputs = "real"
    """Dtypes that the rule accepts."""
    moves: bool = False
    """Accept tensors of devices other than the result's; the driver does not move them first."""

    def refusal(self, args: tuple[Any, ...]) -> Declined | None:
        """Reason for not applying the rule to these arguments; None where it accepts them."""
        if self.takes == "floats":
            dtype = next((a.dtype for a in args if isinstance(a, Tensor)), None)
            if dtype is not None and not dtype.is_float:
                return Declined(f"{dtype} is not floating-point")
        return None


class Registry:
    """Lowering rules by overload name (``"aten.add.Tensor"``), and the user's decompositions by overload.

    Rules that are added after :meth:`seal` are the user's.
    """

    def __init__(self) -> None:
        self._rules: dict[str, RuleEntry] = {}
        self._complex: dict[str, RuleEntry] = {}
        self._sealed = False
        self._own: tuple[dict[str, RuleEntry], dict[str, RuleEntry]] = {}, {}
        self._decompositions: dict[torch._ops.OperatorBase, Decomposition] = {}

    def seal(self) -> None:
        """Mark the present rules as litz's own."""
        self._sealed = True
        self._own = dict(self._rules), dict(self._complex)

    def users(self) -> dict[str, RuleEntry | Decomposition | None]:
        """Rules and decompositions that the user registered since :meth:`seal`; None stands for a removed rule of
        litz.

        Before :meth:`seal` there are none: users register after litz's own rules are loaded.
        """
        if not self._sealed:
            return {}
        found: dict[str, RuleEntry | Decomposition | None] = {
            f"decomposition of {overload}": how for overload, how in self._decompositions.items()
        }
        for kind, now, own in zip(("rule", "complex rule"), (self._rules, self._complex), self._own):
            # Comparing equal dicts takes microseconds, since their entries are the same objects.
            if now != own:
                changed = sorted(
                    name for name in now.keys() | own.keys() if now.get(name) is not own.get(name)
                )
                found |= {f"{kind} of {name}": now.get(name) for name in changed}
        return found

    def is_own(self, overload: str) -> bool:
        """Report whether the rule of an overload is litz's, and not one that the user registered since :meth:`seal`."""
        return overload in self._own[0] and self._rules.get(overload) is self._own[0][overload]

    def add(
        self,
        rule: Rule,
        *overloads: str,
        how: LoweringKind = "loops",
        takes: AcceptedInputs = "real",
        moves: bool = False,
        replace: bool = False,
    ) -> None:
        """Register ``rule`` for ``overloads``; raises :class:`GraphError`, and registers none, when one has a rule
        already, unless that is to be replaced."""
        taken = None if replace else next((each for each in overloads if each in self._rules), None)
        if taken is not None:
            raise GraphError(f"two lowering rules serve {taken}", node=taken)
        self._rules |= dict.fromkeys(overloads, RuleEntry(rule, how, takes, moves))

    def add_complex(self, rule: Rule, *overloads: str, how: LoweringKind = "loops") -> None:
        """Register a rule for uses of ``overloads`` with complex operands or results. Other rules never see
        these.

        Raises :class:`GraphError` when an overload has such a rule already.
        """
        for overload in overloads:
            if overload in self._complex:
                raise GraphError(f"two complex rules serve {overload}", node=overload)
            self._complex[overload] = RuleEntry(rule, how)

    def add_decomposition(
        self, how: Decomposition, *overloads: torch._ops.OpOverload, replace: bool = False
    ) -> None:
        """Register a function of ATen operations to be traced instead of ``overloads``.

        Raises :class:`GraphError`, and registers none, when one has such a function already, unless that is to be
        replaced.
        """
        taken = None if replace else next((each for each in overloads if each in self._decompositions), None)
        if taken is not None:
            raise GraphError(f"two decompositions serve {taken}", node=str(taken))
        self._decompositions |= dict.fromkeys(overloads, how)

    def find(self, overload: str, *, is_complex: bool = False) -> RuleEntry | None:
        """Entry that serves an overload; ``is_complex`` where an operand or result is complex."""
        return (self._complex if is_complex else self._rules).get(overload)

    @property
    def served(self) -> Collection[str]:
        """All overloads with a rule."""
        return self._rules.keys()

    @property
    def served_complex(self) -> Collection[str]:
        """All overloads with a rule for complex tensors."""
        return self._complex.keys()

    @property
    def decompositions(self) -> Mapping[torch._ops.OperatorBase, Decomposition]:
        """The user's decompositions."""
        return self._decompositions


REGISTRY = Registry()


def rule(
    *overloads: str,
    how: LoweringKind = "loops",
    takes: AcceptedInputs = "real",
    moves: bool = False,
    replace: bool = False,
) -> Callable[[R], R]:
    """Register the decorated function as the lowering rule of ``overloads``.

    It is called as ``f(ctx, *args, **kwargs)`` with the FX node's arguments: tensors as :class:`Tensor`, symbolic
    sizes as terms, symbolic floats as bodies, lists as tuples, dtypes and devices as litz's, and Python scalars
    unchanged. It returns the node's value, or :class:`Declined`. ``how`` is the kind of operations that it makes,
    ``takes`` the dtypes that it accepts. Tensors of other devices are first copied to the result's device, unless
    ``moves`` says that the rule does so itself or reads none of them. ``replace`` allows overloads that have a rule.
    """

    def register(function: R) -> R:
        REGISTRY.add(function, *overloads, how=how, takes=takes, moves=moves, replace=replace)
        return function

    return register


def decomposition(*overloads: torch._ops.OpOverload, replace: bool = False) -> Callable[[D], D]:
    """Register the decorated function to be traced instead of ``overloads``, which have no lowering rule.

    It is called with the operator's arguments and computes its result by other operators. ``replace`` allows overloads
    that have such a function.
    """

    def register(function: D) -> D:
        REGISTRY.add_decomposition(function, *overloads, replace=replace)
        return function

    return register


def complex_rule(*overloads: str, how: LoweringKind = "loops") -> Callable[[R], R]:
    """Register the decorated function for uses of ``overloads`` with complex operands or results.

    It is called as other rules are. Complex tensors are :class:`Complex`, and the context gives a complex
    result's type as that of its pairs.
    """

    def register(function: R) -> R:
        REGISTRY.add_complex(function, *overloads, how=how)
        return function

    return register


def apply(
    entry: RuleEntry, ctx: LoweringContext, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> RuleResult:
    """Apply a rule; operations that it appended before it declined are removed.

    Raises an error that names the node where the rule raises any exception.
    """
    if refused := entry.refusal(args):
        return refused
    before = len(ctx.builder.operations)
    try:
        result = entry.rule(ctx, *args, **kwargs)
    except Refusal as refusal:
        result = refusal.declined
    except LitzError:
        raise
    except Exception as error:
        described = f"the rule for {ctx.origin.operation} failed: {type(error).__name__}: {error}"
        raise ctx.error(described) from error
    if isinstance(result, Declined):
        del ctx.builder.operations[before:]
    return result


def overload_name(target: object) -> str:
    """Name of an FX target in the rule registry: ``aten.add.Tensor`` of an overload, ``higher_order.cond`` of a
    higher-order operator, else the function's name."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    module = getattr(target, "__module__", "")
    return f"{module}.{getattr(target, '__name__', target)}".removeprefix("_")
