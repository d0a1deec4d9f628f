"""``litz.explain`` and ``litz.diff``, which load the modules of reports when they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from litz.explain.difference import Difference
    from litz.explain.explanation import Explanation

_OBSERVATION, _DIFFERENCE = "litz.explain.observation", "litz.explain.difference"
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


def diff(first: Explanation | Mapping[str, Any], second: Explanation | Mapping[str, Any]) -> Difference:
    """Compare two explanations, such as those before and after a change of litz, of an option or of shapes.

    Each is an explanation, or the document that its ``to_json()`` returned, from a file of another process too. Graphs
    are matched by their kind and order, kernels by the operations that they fuse. ``describe()`` of the result is a
    text; times count where both were measured and differ by more than 5 %. Raises ``ConfigError`` for other documents.
    """
    return cast("Difference", import_module(_DIFFERENCE).diff(first, second))
