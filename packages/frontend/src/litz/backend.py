"""The backend behind ``torch.compile(..., backend="litz")``, and its registration with torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from wrapt import register_post_import_hook

from litz.cache import mega_cache
from litz.configuration import FOREIGN_VARIABLES, config
from litz.notices import log_once
from litz.options import config_from
from litz.settings import Config
from litz_ir.collection import collection_paused

if TYPE_CHECKING:
    from torch.fx import GraphModule

log = logging.getLogger("litz")

_COMPILE = "litz.capture.compile_fx"
"""Module that compiles graphs, with all stages; loaded when the first graph is compiled."""

_AHEAD = "litz.standalone.ahead_of_time"
"""Module that compiles graphs which torch serialises; loaded where torch does."""

_REGISTRY = "torch._dynamo.backends.registry"
"""Module of Dynamo's backends. A program that only loads saved graphs never imports Dynamo, which takes longer than all
that litz does."""

_AHEAD_SETTINGS = ("bundled_autograd_cache", "force_non_lazy_backward_lowering")
"""Settings of AOTAutograd that ``aot_compile`` turns on, and nothing else both of them."""

NAME = "litz"
"""Name of the backend in torch's registry."""


def litz(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured.

    ``mode`` takes torch's names; on CPUs they all mean the default, on GPUs ``reduce-overhead`` and ``max-autotune``
    replay CUDA graphs, and the modes with ``max-autotune`` tune kernels. ``options`` takes litz's options and, so
    that existing scripts run, Inductor's names, which are mapped to litz's or ignored with one warning each. Raises
    ``ConfigError`` for other names and wrong values.
    """
    for line in FOREIGN_VARIABLES:
        log_once(line)
    chosen = config_from(config.current(), mode, options)
    if all(getattr(torch._functorch.config, name, False) for name in _AHEAD_SETTINGS):
        return _ahead_of_time("serializable_graph", gm, example_inputs, chosen)
    if getattr(torch._dynamo.config, "caching_precompile", False) and hasattr(gm, "_backend_id"):
        return _ahead_of_time("packaged_graph", gm, example_inputs, chosen)
    with collection_paused():
        stages = import_module(_COMPILE)
    compiled: Callable[..., Any] = stages.compile_fx(gm, example_inputs, config=chosen)
    return compiled


def _ahead_of_time(
    name: str, gm: GraphModule, example_inputs: Sequence[Any], chosen: Config
) -> Callable[..., Any]:
    """Compile a graph that torch will serialise."""
    compiled: Callable[..., Any] = getattr(import_module(_AHEAD), name)(gm, example_inputs, chosen)
    return compiled


def register() -> None:
    """Register the entries of the cache with torch, and the backend as soon as Dynamo is imported.

    torch registers an entry point when its name is first used, and several threads that use it first at the same time
    fail: each loads the entry point, and all but one find the name taken. The backend is registered under the import
    lock of Dynamo's registry, or here if that is imported.
    """
    mega_cache.register(config.current)
    register_post_import_hook(_register_with, _REGISTRY)


def _register_with(registry: ModuleType) -> None:
    """Register the backend with Dynamo's registry, unless it is registered."""
    entry = getattr(registry, "_BACKENDS", {}).get(NAME)
    if entry is not None and entry.value.startswith("litz."):
        # The installed metadata is older (an editable installation keeps it), and its entry point is in this package:
        # torch may be loading it at this moment, and then registers the name itself.
        return
    try:
        registry.register_backend(litz, name=NAME)
    except AssertionError:
        log.debug("torch has registered %s by its entry point", NAME)


def mark_step_begin() -> None:
    """Do nothing: accepted so that scripts that mark their steps for other backends run unchanged.

    A CUDA graph of litz never overwrites a result that is in use, and reuses the memory of results that are not, so a
    mark has nothing to release. ``torch.compiler.cudagraph_mark_step_begin`` may stay in scripts too.
    """
