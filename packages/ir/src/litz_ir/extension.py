"""Scalar operations and kinds of reductions of other packages.

    register_operation(ScalarOp("softplus", 1, accepts="float", cost=20), lambda x: np.log1p(np.exp(x)))

A registered row is like litz's own: expressions, text form, JSON, verifiers and the interpreter know it. What is an
expression of known operations needs no row. Tables belong to the process, so a package registers when it is imported,
and a program that reads its graphs imports it first. A target computes a registered operation if its capabilities name
it; every target combines by a registered kind, since kinds are defined by expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, product
from typing import get_args

from litz_ir.builder import GraphBuilder
from litz_ir.dtypes import ALL, DType, f32
from litz_ir.errors import ConfigError, DTypeError, VerifyError
from litz_ir.interp.encoding import Array
from litz_ir.interp.scalar import add_meaning
from litz_ir.loops.reduction_kinds import BUILT_IN as BUILT_IN_KINDS
from litz_ir.loops.reduction_kinds import REDUCTION_KINDS, ReductionKind, StateDefinition, add_kind
from litz_ir.scalar.expr import Const
from litz_ir.scalar.node import Expr
from litz_ir.scalar.ops_table import BUILT_IN, OPS, AcceptedDTypes, ScalarOp, add_operation
from litz_ir.scalar.verify import BodyScope, ErrorLocation, verify_bodies

__all__ = ["register_operation", "register_reduction", "registered"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")

_WORDS = frozenset(
    "index masked checked indirect nested_reduce let true false inf nan combine user sort".split()
).union(dtype.name for dtype in ALL)
"""Words of the text form that no row may be called."""

_METHODS = frozenset(dir(GraphBuilder("methods")))
"""Attributes of builders, which would hide the method of an operation of that name."""

_RULES = ("same", "compare", "test")
"""Rules of rows that may be registered: the others need an operand's or the caller's dtype."""

_TRIED = 1000
"""Combinations of dtypes that a definition is tried with, after equal dtypes."""


def register_operation(row: ScalarOp, meaning: Callable[..., Array]) -> None:
    """Add a scalar operation to :data:`litz_ir.scalar.OPS`.

    ``meaning`` computes it for the reference interpreter: a function of as many arrays as the row has arguments, which
    broadcast; floats of less than 32 bits come as ``f32``, and its result is rounded to the result's dtype. Registering
    the same row again changes nothing. Raises :class:`~litz_ir.errors.ConfigError` for a name that is taken, that the
    text form cannot have or that a method of :class:`~litz_ir.builder.GraphBuilder` has, a row that is wrong, and a
    meaning that is no function.
    """
    if not isinstance(row, ScalarOp):
        raise ConfigError(
            f"{row!r:.60} is no row of a scalar operation",
            hint='give litz_ir.scalar.ScalarOp("name", 1) and its meaning',
        )
    _check_name(row.name)
    if OPS.get(row.name) == row and row.name not in BUILT_IN:
        return
    _check_free(row.name, row.name in OPS)
    if row.name in _METHODS:
        raise ConfigError(
            f"GraphBuilder has an attribute {row.name!r}, which would hide the operation's method",
            hint="give the row another name",
        )
    fault = _row_fault(row)
    if fault:
        raise ConfigError(f"the row {row} cannot be registered", hint=fault)
    if not callable(meaning):
        raise ConfigError(
            f"the meaning of {row.name} is {meaning!r:.60}, but a function belongs there",
            hint="give a function from NumPy arrays to the array of results",
        )
    add_meaning(row.name, meaning)
    add_operation(row)


def register_reduction(kind: ReductionKind) -> None:
    """Add a kind of reductions to :data:`litz_ir.loops.REDUCTION_KINDS`; its definition is its meaning.

    The definition is checked for ``f32``, or else for the first dtypes that it accepts. Registering the same row again
    changes nothing. Raises :class:`~litz_ir.errors.ConfigError` for a name that is taken or that the text form cannot
    have, and a row without a definition or with a wrong one.
    """
    if not isinstance(kind, ReductionKind):
        raise ConfigError(
            f"{kind!r:.60} is no row of a reduction",
            hint='give litz_ir.loops.ReductionKind("name", define)',
        )
    _check_name(kind.name)
    if REDUCTION_KINDS.get(kind.name) == kind:
        return
    _check_free(kind.name, kind.name in REDUCTION_KINDS)
    if not callable(kind.define) or not all(_is_count(each, 1) for each in (kind.inputs, kind.results)):
        raise ConfigError(
            f"the kind {kind.name} has no definition, inputs or results",
            hint="define is a function from dtypes to a StateDefinition, inputs and results are at least 1",
        )
    if type(kind.merges_states) is not bool or (kind.merges_states and kind.inputs != kind.results):
        raise ConfigError(
            f"the kind {kind.name} has merges_states {kind.merges_states!r:.60}",
            hint="it is a bool, true only for a kind of as many inputs as results, whose states are its elements",
        )
    dtypes, definition = _accepted(kind.name, kind.define, kind.inputs)
    _check_definition(kind, dtypes, definition)
    add_kind(kind)


def registered() -> tuple[str, ...]:
    """Names of the operations and reductions that packages registered in this process."""
    return (*sorted(OPS.keys() - BUILT_IN), *sorted(REDUCTION_KINDS.keys() - BUILT_IN_KINDS))


# --- names and rows ------------------------------------------------------------------------------------------


def _check_name(name: object) -> None:
    """Raise ``ConfigError`` for a name that no row can have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r:.60} is no name of a row",
            hint="names are of lower-case letters, digits and underscores, and begin with a letter",
        )


def _check_free(name: str, taken: bool) -> None:
    """Raise ``ConfigError`` for a name that another row has, or that is a word of the text form."""
    if taken:
        raise ConfigError(f"the name {name!r} is taken by another row", hint="give the row another name")
    if name in _WORDS:
        raise ConfigError(
            f"{name!r} is no name of a row: the text form reserves the word", hint="give the row another name"
        )


def _row_fault(row: ScalarOp) -> str:
    """Return the rule that a row of an operation breaks; empty if it keeps them."""
    accepted = get_args(AcceptedDTypes)
    if row.rule not in _RULES:
        return f"its rule is one of {', '.join(_RULES)}"
    if row.accepts not in accepted:
        return f"it accepts one of {', '.join(accepted)}"
    if not _is_count(row.arity, 1) or not _is_count(row.cost, 0):
        return "its arity is an int of at least 1, its cost an int of at least 0"
    if type(row.commutative) is not bool or (row.commutative and row.arity != 2):
        return "commutative is a bool, true only for an operation of two arguments"
    return ""


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and value >= least


# --- definitions of reductions -------------------------------------------------------------------------------


def _accepted(
    name: str, define: Callable[[tuple[DType, ...]], StateDefinition], inputs: int
) -> tuple[tuple[DType, ...], StateDefinition]:
    """Return the first dtypes of an element that a definition accepts, and what it returns for them."""
    refusal = ""
    for dtypes in _candidates(inputs):
        try:
            return dtypes, define(dtypes)
        except DTypeError as error:
            refusal = refusal or error.message
        except Exception as error:  # the definition is another package's function
            raise ConfigError(
                f"the definition of {name} of ({', '.join(map(str, dtypes))}) raised {type(error).__name__}: {error}",
                hint="a definition takes a tuple of dtypes, and raises DTypeError for those that it does not accept",
            ) from error
    raise ConfigError(
        f"the definition of {name} accepts no dtypes; of the first it said: {refusal}",
        hint="a definition returns a StateDefinition for dtypes that it accepts",
    )


def _candidates(inputs: int) -> Iterator[tuple[DType, ...]]:
    """Yield dtypes of an element's values: equal ones, ``f32`` first, then others."""
    ordered = (f32, *(dtype for dtype in ALL if dtype != f32))
    return chain(((dtype,) * inputs for dtype in ordered), islice(product(ordered, repeat=inputs), _TRIED))


def _check_definition(kind: ReductionKind, dtypes: tuple[DType, ...], definition: object) -> None:
    """Raise ``ConfigError`` for a definition that is none of ``kind.results`` components over these dtypes."""
    said = f"the definition of {kind.name} of ({', '.join(map(str, dtypes))})"
    if not isinstance(definition, StateDefinition):
        raise ConfigError(
            f"{said} returned {definition!r:.60}, but a StateDefinition belongs there",
            hint="see litz_ir.loops.StateDefinition",
        )
    parts = {
        "identity": definition.identity,
        "initial": definition.initial,
        "merge": definition.merge,
    }
    for role, state in parts.items():
        _check_state(said, role, state, kind.results)
    components = tuple(each.dtype for each in definition.identity)
    for role, state in parts.items():
        found = tuple(each.dtype for each in state)
        if found != components:
            shown = [", ".join(map(str, each)) for each in (found, components)]
            raise ConfigError(
                f"{said}: {role} is ({shown[0]}), but identity ({shown[1]})", hint="cast the values"
            )
    if not all(isinstance(each, Const) for each in definition.identity):
        raise ConfigError(
            f"{said}: identity is {definition.identity!r:.60}", hint="it is literals: const(0, dtype)"
        )
    for role, state, parameters in (
        ("identity", definition.identity, ()),
        ("initial", definition.initial, dtypes),
        ("merge", definition.merge, components + components),
    ):
        try:
            verify_bodies(state, BodyScope(parameters=parameters), ErrorLocation("config", kind.name))
        except VerifyError as error:
            raise ConfigError(
                f"{said}: {role}: {error.message}",
                hint="initial has parameters 0 to n-1, the values of an element; merge 0 to n-1, the left state, "
                "and n to 2n-1, the right one",
            ) from error


def _check_state(said: str, role: str, state: Sequence[object], results: int) -> None:
    """Raise ``ConfigError`` for a state that is no tuple of one expression for each result."""
    if isinstance(state, tuple) and len(state) == results and all(isinstance(each, Expr) for each in state):
        return
    raise ConfigError(
        f"{said}: {role} is {state!r:.60}, but a tuple of {results} expressions belongs there",
        hint="it has one expression of litz_ir.scalar for each result; a literal is const(0, dtype)",
    )
