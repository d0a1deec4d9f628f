"""Calls whose routines of ATen are deterministic, for the option ``deterministic``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from litz.host.runtime.load import HostFunction


def with_deterministic_routines(call: HostFunction) -> HostFunction:
    """Return a call that runs under ``torch.use_deterministic_algorithms(True)``.

    Torch has one setting for all threads of a process, so it is on for others too while the call runs.
    """

    def run(args: list[Any]) -> Sequence[Any]:
        before, warns = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        if before and not warns:
            return call(args)
        torch.use_deterministic_algorithms(True)
        try:
            return call(args)
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warns)

    return run
