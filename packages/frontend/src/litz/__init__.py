"""litz: a layered backend for ``torch.compile``.

``torch.compile(model, backend="litz")`` needs no import of this package, except in programs that first compile in
several threads at once: the import registers the backend. ``litz.explain(fn, *args)`` reports the compiled form of a
function, ``litz.bench(fn, *args)`` times it, and ``litz.config`` holds the options. `docs/index.md` in the repository
of litz lists the pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from litz.backend import mark_step_begin, register
from litz.configuration import config
from litz.explain.entry import diff, explain
from litz.options import list_mode_options, list_options
from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz.capture.compile_fx import compile_fx, compile_fx_inner
    from litz.debugging.bisect import bisect
    from litz.debugging.culprit import Culprit
    from litz.debugging.minify import Minified, minify
    from litz.deployment.aot_compile import aot_compile
    from litz.deployment.load import load
    from litz.deployment.model import LoadedModel
    from litz.explain.difference import Difference
    from litz.explain.explanation import Explanation
    from litz.service.waiting import wait
    from litz.standalone.artifact import CompiledArtifact
    from litz.standalone.compile_graph import compile, standalone_compile
    from litz.timing import Timing, bench

__version__ = "0.2.0"

__all__ = [
    "CompiledArtifact",
    "Culprit",
    "Difference",
    "Explanation",
    "LoadedModel",
    "Minified",
    "Timing",
    "__version__",
    "aot_compile",
    "bench",
    "bisect",
    "compile",
    "compile_fx",
    "compile_fx_inner",
    "config",
    "diff",
    "explain",
    "list_mode_options",
    "list_options",
    "load",
    "mark_step_begin",
    "minify",
    "standalone_compile",
    "wait",
]

_LAZY: Mapping[str, str] = MappingProxyType(
    {
        "CompiledArtifact": "litz.standalone.artifact",
        "Culprit": "litz.debugging.culprit",
        "Difference": "litz.explain.difference",
        "Explanation": "litz.explain.explanation",
        "LoadedModel": "litz.deployment.model",
        "Minified": "litz.debugging.minify",
        "Timing": "litz.timing",
        "aot_compile": "litz.deployment.aot_compile",
        "bench": "litz.timing",
        "bisect": "litz.debugging.bisect",
        "compile": "litz.standalone.compile_graph",
        "compile_fx": "litz.capture.compile_fx",
        "compile_fx_inner": "litz.capture.compile_fx",
        "load": "litz.deployment.load",
        "minify": "litz.debugging.minify",
        "standalone_compile": "litz.standalone.compile_graph",
        "wait": "litz.service.waiting",
    }
)
"""Modules of public names that few processes need; each is imported when its name is first used."""

register()

__getattr__, __dir__ = deferred(__name__, _LAZY)
