"""Symbols and sizes that a program knows only when it has computed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from litz_ir.loops import ScalarInput, TensorType
from litz_ir.plan import Allocate, CallStep, DefineStep, Plan, RegionStep
from litz_ir.scalar import Expr
from litz_ir.symbols import free_symbols


def late_symbols(plan: Plan) -> frozenset[str]:
    """Return the symbols that steps of a plan compute, or find as sizes of a call's result."""
    bound = {item.symbol for item in plan.inputs if isinstance(item, ScalarInput)}
    given = {item.name for item in (*plan.inputs, *plan.constants)}
    found = set()
    for step in plan.steps:
        if isinstance(step, DefineStep) and step.symbol not in bound:
            if isinstance(step.source, Expr) or step.source[1] not in given:
                found.add(step.symbol)
    return frozenset(found)


def is_late(type_: TensorType, late: frozenset[str]) -> bool:
    """Report whether a size or stride of a type depends on such symbols."""
    terms = (*type_.shape, *type_.layout.strides, type_.layout.offset)
    return any(free_symbols(term) & late for term in terms)


def late_owners(plan: Plan, late: frozenset[str], operators: Iterable[CallStep]) -> Mapping[str, int]:
    """Return a number for each owner that takes memory when its step runs, and not in the workspace.

    These are the results of ``operators``, which allocate them, and storages and results of late sizes.
    """
    of_operators = {id(step) for step in operators}
    sizes = {storage.name: storage.nbytes for storage in plan.storages}
    placements = dict(plan.buffers)
    found: dict[str, int] = {}
    for step in plan.steps:
        if isinstance(step, Allocate) and free_symbols(sizes[step.storage]) & late:
            found.setdefault(step.storage, len(found))
        elif isinstance(step, CallStep | RegionStep):
            for name in step.results:
                if name is None or placements[name].base is not None:
                    continue
                if id(step) in of_operators or is_late(placements[name].type, late):
                    found.setdefault(name, len(found))
    return found
