"""Hooks between passes: the IR verifier and the reference interpreter, where the options turn them on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from litz.settings import Config
from litz_ir.passes import Hook

VERIFIER = "litz_ir.verifier"
CHECK = "litz_ir.passes.check"
"""Modules of the verifier, and of the hook that runs the reference interpreter; imported where an option turns them
on."""


def hooks_for(config: Config) -> tuple[Hook, ...]:
    """Return the hooks that ``config`` turns on."""
    hooks: list[Hook] = []
    if config.verify:
        hooks.append(partial(_verify_result, import_module(VERIFIER).verify))
    if config.check:
        hooks.append(import_module(CHECK).check_hook)
    return tuple(hooks)


def _verify_result(verify: Callable[[object], None], name: str, before: object, after: object) -> None:
    """Check the invariants of a pass's result; raise ``VerifyError`` where one is violated."""
    verify(after)
