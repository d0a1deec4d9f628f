"""Registration of lowerings for operators, however these are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

import litz_lowering
from litz_ir.errors import ConfigError, GraphError

Operator = str | OpOverload | OpOverloadPacket | CustomOpDef
"""An operator: ``"mylib::op"`` (all its overloads), ``"mylib::op.overload"``, an object of ``torch.ops``, or what
``torch.library.custom_op`` returns."""

F = TypeVar("F", bound=Callable[..., Any])


def rule(
    *operators: Operator,
    how: Literal["loops", "library"] = "loops",
    takes: Literal["real", "floats"] = "real",
    replace: bool = False,
) -> Callable[[F], F]:
    """Register the decorated function as the lowering rule of operators.

    It is called as ``f(ctx, *args, **kwargs)``: ``ctx`` is a :class:`litz_lowering.LoweringContext`, tensors are
    :class:`litz_lowering.Tensor`, symbolic sizes terms, lists tuples. It returns the result, or ``Declined(reason)``
    for arguments that it does not serve, which then go to the operator itself. ``how`` says that it makes loops or a
    call of a library, ``takes`` that it accepts all dtypes except complex ones or floats alone. ``replace`` allows
    operators that have a rule, of litz or of the program.

    Raises :class:`~litz_ir.errors.ConfigError` for an operator that is not defined or has a rule.
    """
    overloads = [str(each) for operator in operators for each in overloads_of(operator)]

    def register(function: F) -> F:
        try:
            return litz_lowering.rule(*overloads, how=how, takes=takes, replace=replace)(function)
        except GraphError as error:
            raise _taken(error) from error

    return register


def decomposition(*operators: Operator, replace: bool = False) -> Callable[[F], F]:
    """Register the decorated function to be traced instead of operators that have no lowering rule.

    It takes the operator's arguments and computes its result by other operators, which are compiled with the rest of
    the program. It holds for litz alone; one that ``torch._decomp.register_decomposition`` registers is used too.
    ``replace`` allows operators that have such a function.

    Raises :class:`~litz_ir.errors.ConfigError` for an operator that is not defined or has a decomposition.
    """
    overloads = [each for operator in operators for each in overloads_of(operator)]

    def register(function: F) -> F:
        try:
            return litz_lowering.decomposition(*overloads, replace=replace)(function)
        except GraphError as error:
            raise _taken(error) from error

    return register


def overloads_of(operator: Operator) -> tuple[OpOverload, ...]:
    """Return the overloads of an operator; raise :class:`~litz_ir.errors.ConfigError` where it is not defined."""
    if isinstance(operator, CustomOpDef):
        return (operator._opoverload,)
    if isinstance(operator, OpOverload):
        return (operator,)
    if isinstance(operator, OpOverloadPacket):
        return tuple(getattr(operator, name) for name in operator.overloads())
    if not isinstance(operator, str) or "::" not in operator:
        raise ConfigError(f"{operator!r:.60} is no operator", hint='name it as "library::operator"')
    namespace, _, rest = operator.partition("::")
    name, _, overload = rest.partition(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        return (getattr(packet, overload),) if overload else overloads_of(packet)
    except AttributeError as error:
        raise ConfigError(
            f"no operator is called {operator!r}",
            hint="import the library that defines it before its lowering",
        ) from error


def _taken(error: GraphError) -> ConfigError:
    """Return the error of an operator that has a lowering already."""
    return ConfigError(error.message, node=error.node, hint="say replace=True to put this one in its place")
