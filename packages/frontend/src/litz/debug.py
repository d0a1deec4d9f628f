"""Instruments of a compilation: hooks between its passes, fuel, and operations that run as ATen on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from torch.fx import GraphModule

from litz.settings import Config
from litz_ir.passes import Fuel, Hook, Timings

VERIFIER = "litz_ir.verifier"
CHECK = "litz_ir.passes.check"
"""Modules of the verifier, and of the hook that runs the reference interpreter; imported where an option turns them
on."""


@dataclass(frozen=True, slots=True)
class Instruments:
    """Hooks, limits and forced operations of one graph's compilation, as a debugging tool asks for them."""

    hooks: tuple[Hook, ...] = ()
    """Functions called after each pass over the FX graph, the loop graph and the plan."""

    fuel: Fuel | None = None
    """Limits on transformations; a graph with limits is not cached. ``None`` for no limits."""

    timings: Timings | None = None
    """Collects the seconds of each pass, if given."""

    anew: bool = False
    """True to compile a graph even if it is in the cache."""

    forced: frozenset[str] = frozenset()
    """Nodes that run as ATen operations."""

    whole: bool = False
    """True where the whole graph runs as ATen operations."""

    loads: bool = True
    """False to compile for another machine: what is compiled is not loaded, and cannot be called."""


NO_INSTRUMENTS = Instruments()
"""Those of a compilation that no debugging tool watches."""

Instrument = Callable[[GraphModule, str], Instruments]
"""Function from an AOT graph and its kind (``forward``, ``backward`` or ``inference``) to its instruments."""


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
