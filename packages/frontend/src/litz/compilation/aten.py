"""An AOT graph that torch runs, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from litz.host.runtime.load import HostFunction


def run_in_aten(gm: GraphModule) -> HostFunction:
    """Return a graph as a function that torch runs, node by node."""

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        results: Sequence[Any] = gm(*given)
        return results

    return run
