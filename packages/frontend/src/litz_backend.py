"""The entry point by which torch finds ``backend="litz"`` in a program that does not import litz.

It lies outside the package ``litz``, and imports that when it is first called. Importing ``litz`` registers the
backend, and torch refuses a name that is registered while it loads the entry point of that name. It also takes some
seconds less until torch knows the name, in which another thread could load the entry point too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


def litz(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured, as :func:`litz.backend.litz` does."""
    compiled: Callable[..., Any] = import_module("litz.backend").litz(gm, example_inputs, **options)
    return compiled
