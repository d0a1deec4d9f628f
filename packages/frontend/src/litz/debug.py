"""Hooks between passes: the IR verifier and the reference interpreter, where the options turn them on."""

from __future__ import annotations

from importlib import import_module

from litz.settings import Config
from litz_ir.passes import Hook
from litz_ir.verifier import verify

CHECK = "litz_ir.passes.check"
"""Module of the hook that runs the reference interpreter; imported where an option turns it on."""


def hooks_for(config: Config) -> tuple[Hook, ...]:
    """Return the hooks that ``config`` turns on."""
    hooks: list[Hook] = []
    if config.verify:
        hooks.append(_verify_result)
    if config.check:
        hooks.append(import_module(CHECK).check_hook)
    return tuple(hooks)


def _verify_result(name: str, before: object, after: object) -> None:
    """Check the invariants of a pass's result; raise ``VerifyError`` where one is violated."""
    verify(after)
