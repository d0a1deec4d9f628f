"""Pipelines: passes that run in order."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from litz_ir.errors import LitzError, PassError
from litz_ir.passes.base import Pass, PassContext
from litz_ir.passes.fuel import FuelKind

_REPORT = "report this with the graph's text form, if its arguments and the graph are right"
"""Next step after a failure of one of litz's own passes."""

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Pipeline(Generic[In, Out]):
    """Passes in order as one pass, from the input of the first to the output of the last."""

    name: str
    """Name of the pipeline as a pass."""
    passes: tuple[Pass[Any, Any], ...]
    """Passes in the order in which they run."""
    counted: FuelKind | None = None
    """Kind of fuel that each pass takes, as in :func:`run_passes`; ``None`` where they take none."""
    always: Collection[str] = ()
    """Names of passes that take no fuel."""

    @property
    def ulp(self) -> int:
        """The sum of the bounds of the passes."""
        return sum(item.ulp for item in self.passes)

    def apply(self, data: In, context: PassContext) -> Out:
        """Apply the passes in order, with the context's hooks after each."""
        result: Any = data
        for item in self.passes:
            if _runs(item, context, self.counted, self.always):
                result = run_pass(item, result, context)
        return cast(Out, result)


def run_passes(
    passes: Sequence[Pass[T, T]],
    data: T,
    context: PassContext,
    *,
    fuel: int | None = None,
    counted: FuelKind | None = None,
    always: Collection[str] = (),
) -> T:
    """Apply ``passes`` to ``data``, with the context's hooks after each.

    ``fuel`` is the number of passes to run, for bisecting; by default all. ``counted`` is the kind of the context's
    fuel (:class:`litz_ir.passes.Fuel`) that each pass takes, except those named in ``always``; a pass without fuel is
    left out. Raises the errors of :func:`run_pass`.
    """
    for item in passes if fuel is None else passes[:fuel]:
        if _runs(item, context, counted, always):
            data = run_pass(item, data, context)
    return data


def _runs(
    item: Pass[Any, Any], context: PassContext, counted: FuelKind | None, always: Collection[str]
) -> bool:
    """Return True for a pass that takes no fuel, or for which there is some."""
    return counted is None or item.name in always or context.allows(counted, item.name)


def run_pass(item: Pass[In, Out], data: In, context: PassContext) -> Out:
    """Apply one pass to ``data``, then the context's hooks.

    An exception that is not a litz error is raised as :class:`PassError` with the name of the pass.
    """
    start = time.perf_counter()
    try:
        result = item.apply(data, context)
    except LitzError:
        raise
    except Exception as error:
        raise PassError(
            f"pass {item.name} failed: {type(error).__name__}: {error}",
            hint=_REPORT if type(item).__module__.startswith("litz_") else "mend the pass, or its input",
        ) from error
    if context.timings is not None:
        context.timings.add(item.name, time.perf_counter() - start)
    for hook in context.hooks:
        hook(item.name, data, result)
    return result
