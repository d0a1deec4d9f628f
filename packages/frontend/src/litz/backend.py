"""The backend behind ``torch.compile(..., backend="litz")``, and its registration with torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._dynamo.backends import registry
from torch.fx import GraphModule

from litz.api import FOREIGN_VARIABLES, compile_fx, config
from litz.notices import log_once
from litz.options import config_from

log = logging.getLogger("litz")

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
    return compile_fx(gm, example_inputs, config=config_from(config.current(), mode, options))


def register() -> None:
    """Register the backend with torch, unless it is registered.

    torch registers an entry point when its name is first used, and several threads that use it first at the same time
    fail: each loads the entry point, and all but one find the name taken. ``import litz`` calls this under its import
    lock.
    """
    entry = getattr(registry, "_BACKENDS", {}).get(NAME)
    if entry is not None and entry.value.startswith("litz."):
        # The installed metadata is older (an editable installation keeps it), and its entry point is in this package:
        # torch may be loading it at this moment, and then registers the name itself.
        return
    try:
        registry.register_backend(litz, name=NAME)
    except AssertionError:
        log.debug("torch has registered %s by its entry point", NAME)
