"""Compilation of an AOT graph that runs as ATen operations where it fails as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module

from torch.fx import GraphModule

from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
from litz.compilation.aten import run_in_aten
from litz.debug import NO_INSTRUMENTS, Instruments
from litz.host.runtime.load import HostFunction
from litz.loading import Compiled
from litz.settings import Config
from litz_ir.fused import Decision

_SELF_CHECK = "litz.self_check.checked"
"""Module that compares calls with ATen; imported where the options ask for it."""

NAN_ASSERTS = "litz.self_check.nan_asserts"
"""Module of NaN checks; imported where the options ask for them."""


def compile_or_fall_back(
    gm: GraphModule,
    name: str,
    config: Config,
    cache: ArtifactCache,
    frozen: frozenset[str] = frozenset(),
    donated: frozenset[str] = frozenset(),
    saved: frozenset[str] = frozenset(),
    decisions: tuple[Decision, ...] = (),
    instruments: Instruments = NO_INSTRUMENTS,
    *,
    behind: bool = False,
) -> Compiled:
    """Compile a graph; where that fails as a whole, run it as ATen operations, unless ``config.fallback`` is
    ``error``.

    ``decisions`` are those of passes that changed the graph before. The options decide whether calls are checked for
    NaN and compared with ATen. Under ``behind`` these are off, and the result may be one to be completed
    (:attr:`Compiled.later`).
    """
    if instruments.whole:
        return Compiled(run_in_aten(gm), None)
    made = _compiled_or_aten(
        Compilation(
            gm, name, config, cache, frozen, donated, saved,
            decisions=decisions, instruments=instruments, behind=behind,
        )
    )  # fmt: skip
    if not config.nan_asserts:
        return made
    asserted: HostFunction = import_module(NAN_ASSERTS).with_nan_checks(gm, name, made.call)
    return replace(made, call=asserted)


def _compiled_or_aten(compilation: Compilation) -> Compiled:
    """Compile a graph, or return it to run as ATen operations."""

    def run() -> Compiled:
        made = compilation.run()
        if made.later is not None:
            return replace(made, later=partial(_or_aten, compilation, made.later))
        if compilation.config.self_check == "off":
            return made
        checked: Compiled = import_module(_SELF_CHECK).checked(compilation, made)
        return checked

    return _or_aten(compilation, run)


def _or_aten(compilation: Compilation, work: Callable[[], Compiled]) -> Compiled:
    """Return the result of ``work`` on a compilation, or the graph to run as ATen operations where that fails."""
    try:
        return work()
    except Exception as error:
        instead = f"graph {compilation.name} runs as ATen operations"
        compilation.failures.report(error, "compilation", instead, compilation.loops)
        return Compiled(run_in_aten(compilation.gm), None)
