"""The entry point that ``torch.compile(..., backend="litz")`` finds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from litz.api import compile_fx, config
from litz.options import config_from

log = logging.getLogger("litz")


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
    existing scripts run, the peer's names, which are mapped or said to be ignored once. Raises ``ConfigError`` for
    anything else.
    """
    return compile_fx(gm, example_inputs, config=config_from(config.current(), mode, options))
