"""Scalar operations and kinds of reductions of other packages.

    register_operation(ScalarOp("softplus", 1, accepts="float", cost=20), lambda x: np.log1p(np.exp(x)))

A registered row is like litz's own: expressions, text form, JSON, verifiers and the interpreter know it. What is an
expression of known operations needs no row. Tables belong to the process, so a package registers when it is imported,
and a program that reads its graphs imports it first. A target computes a registered operation if its capabilities name
it; every target combines by a registered kind, since kinds are defined by expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from litz_ir.dtypes import ALL
from litz_ir.errors import ConfigError
from litz_ir.interp.encoding import Array
from litz_ir.interp.scalar import add_meaning
from litz_ir.loops.reduction_kinds import REDUCTION_KINDS, ReductionKind, add_kind
from litz_ir.scalar.ops_table import OPS, ScalarOp, add_operation

__all__ = ["register_operation", "register_reduction"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")

_WORDS = frozenset(
    "index masked checked indirect nested_reduce let true false inf nan combine user sort".split()
).union(dtype.name for dtype in ALL)
"""Words of the text form that no row may be called."""

_RULES = ("same", "compare", "test")
"""Rules of rows that may be registered: the others need an operand's or the caller's dtype."""


def register_operation(row: ScalarOp, meaning: Callable[..., Array]) -> None:
    """Add a scalar operation to :data:`litz_ir.scalar.OPS`.

    ``meaning`` computes it for the reference interpreter: a function of as many arrays as the row has arguments, which
    broadcast; floats of less than 32 bits come as ``f32``, and its result is rounded to the result's dtype. Registering
    the same row again changes nothing. Raises :class:`~litz_ir.errors.ConfigError` for a name that is taken or that the
    text form cannot have, a row that is wrong, and a meaning that is no function.
    """
    if OPS.get(row.name) == row:
        return
    _check_name(row.name, row.name in OPS)
    if row.rule not in _RULES or type(row.arity) is not int or row.arity < 1 or row.cost < 0:
        raise ConfigError(
            f"the row {row} cannot be registered",
            hint=f"its rule is one of {', '.join(_RULES)}, its arity at least 1, its cost at least 0",
        )
    if not callable(meaning):
        raise ConfigError(f"the meaning of {row.name} is {meaning!r:.60}, but a function belongs there")
    add_meaning(row.name, meaning)
    add_operation(row)


def register_reduction(kind: ReductionKind) -> None:
    """Add a kind of reductions to :data:`litz_ir.loops.REDUCTION_KINDS`; its definition is its meaning.

    Registering the same row again changes nothing. Raises :class:`~litz_ir.errors.ConfigError` for a name that is taken
    or that the text form cannot have, and a row without a definition.
    """
    if REDUCTION_KINDS.get(kind.name) == kind:
        return
    _check_name(kind.name, kind.name in REDUCTION_KINDS)
    if kind.define is None or kind.inputs < 1 or kind.results < 1:
        raise ConfigError(
            f"the kind {kind.name} has no definition, inputs or results",
            hint="see litz_ir.loops.ReductionKind",
        )
    add_kind(kind)


def _check_name(name: str, taken: bool) -> None:
    """Raise ``ConfigError`` for a name that a row cannot have."""
    if taken:
        raise ConfigError(f"the name {name!r} is taken by another row", hint="give the row another name")
    if not _NAME.fullmatch(name) or name in _WORDS:
        raise ConfigError(
            f"{name!r} is no name of a row", hint="names are of lower-case letters, digits and underscores"
        )
