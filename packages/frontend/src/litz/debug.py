"""What runs between passes when the options ask for it."""

from __future__ import annotations

from importlib import import_module

from litz.settings import Config
from litz_ir.passes import Hook
from litz_ir.verifier import verify

CHECK = "litz_ir.passes.check"
"""The module that runs the reference interpreter, loaded where the options ask for that."""


def hooks_for(config: Config) -> tuple[Hook, ...]:
    """The hooks that ``config`` asks for: the verifiers, the reference interpreter."""
    hooks: list[Hook] = []
    if config.verify:
        hooks.append(verify_result)
    if config.check:
        hooks.append(import_module(CHECK).check_hook)
    return tuple(hooks)


def verify_result(name: str, before: object, after: object) -> None:
    """Check the invariants of what a pass gave; raises ``VerifyError``."""
    verify(after)
