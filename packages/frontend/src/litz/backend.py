"""The function behind ``torch.compile(..., backend="litz")``, and its name in torch's registry."""

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


def litz(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured.

    ``mode`` takes torch's names; on CPUs they all mean the default, on GPUs ``reduce-overhead`` and ``max-autotune``
    replay CUDA graphs, and the modes with ``max-autotune`` tune kernels. ``options`` holds litz's options and, so that
    existing scripts run, Inductor's names, which are mapped or ignored; one warning for each says so. Raises
    ``ConfigError`` for anything else.
    """
    for line in FOREIGN_VARIABLES:
        log_once(line)
    return compile_fx(gm, example_inputs, config=config_from(config.current(), mode, options))


def register() -> None:
    """Tell torch the name of the backend, unless it knows it.

    torch registers what it finds by entry point when the name is first asked for, and several threads that ask at once
    fail: each loads it, and all but the first find the name taken. ``import litz`` calls this under its import lock.
    """
    entry = getattr(registry, "_BACKENDS", {}).get(NAME)
    if entry is not None and entry.value.startswith("litz."):
        # The metadata is that of an older installation (an editable one keeps it), whose entry point lies in this
        # package: torch may be loading it at this moment, and registers the name itself.
        return
    try:
        registry.register_backend(litz, name=NAME)
    except AssertionError:
        log.debug("torch has registered %s by its entry point", NAME)
