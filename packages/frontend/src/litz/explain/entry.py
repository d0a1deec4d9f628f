"""``litz.explain`` and ``litz.diff``, which load the modules of reports when they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from litz.explain.explanation import Explanation

_OBSERVATION = "litz.explain.observation"
"""Modules that programs need only for a report."""


def explain(
    function: Callable[..., Any],
    *args: Any,
    backward: bool = False,
    measure: bool = False,
    others: Sequence[Sequence[Any]] = (),
    **kwargs: Any,
) -> Explanation:
    """Compile ``function`` for these arguments, call it once, and report its compiled form.

    ``backward`` also runs the backward of the results' sum. ``measure`` times each kernel and library call alone
    during the call, on a GPU with an empty cache and without CUDA graphs, and measures the limits of the machine once
    per process. ``others`` gives further positional arguments, a sequence for each further call: the report then tells
    which of them made Dynamo compile again, and why. With the option ``autotune`` the schedules are those that earlier
    processes or calls found; a single call tunes nothing. The compiled state of ``function`` itself is not changed.

    The report prints as text; ``to_html(path)`` writes it as a page, ``to_json()`` returns it as a document.
    """
    run = import_module(_OBSERVATION).explain
    return cast("Explanation", run(function, args, kwargs, backward=backward, measure=measure, others=others))
