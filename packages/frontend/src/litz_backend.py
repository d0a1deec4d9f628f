"""The entry point by which torch finds ``backend="litz"`` in a program that does not import litz.

This module is outside the package ``litz`` and imports it in the first call, for two reasons. Importing ``litz``
registers the backend, and torch refuses a name that is registered while it loads the entry point of that name. And the
entry point loads some seconds faster, in which another thread could load it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


def litz(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured, as :func:`litz.backend.litz` does."""
    compiled: Callable[..., Any] = import_module("litz.backend").litz(gm, example_inputs, **options)
    return compiled
