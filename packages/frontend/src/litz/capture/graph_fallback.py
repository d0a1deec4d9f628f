"""Compilation of an AOT graph that runs as ATen operations where it fails as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from torch.fx import GraphModule

from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
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
) -> Compiled:
    """Compile a graph; where that fails as a whole, run it as ATen operations, unless ``config.fallback`` is
    ``error``.

    ``decisions`` are those of passes that changed the graph before. The options decide whether calls are checked for
    NaN and compared with ATen.
    """
    if instruments.whole:
        return Compiled(run_in_aten(gm), None)
    made = _compiled_or_aten(
        Compilation(
            gm, name, config, cache, frozen, donated, saved, decisions=decisions, instruments=instruments
        )
    )
    if not config.nan_asserts:
        return made
    asserted: HostFunction = import_module(NAN_ASSERTS).with_nan_checks(gm, name, made.call)
    return replace(made, call=asserted)


def _compiled_or_aten(compilation: Compilation) -> Compiled:
    """Compile a graph, or return it to run as ATen operations."""
    try:
        made = compilation.run()
        if compilation.config.self_check == "off":
            return made
        checked: Compiled = import_module(_SELF_CHECK).checked(compilation, made)
        return checked
    except Exception as error:
        instead = f"graph {compilation.name} runs as ATen operations"
        compilation.failures.report(error, "compilation", instead, compilation.loops)
        return Compiled(run_in_aten(compilation.gm), None)


def run_in_aten(gm: GraphModule) -> HostFunction:
    """Return a graph as a function that torch runs, node by node."""

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        results: Sequence[Any] = gm(*given)
        return results

    return run
