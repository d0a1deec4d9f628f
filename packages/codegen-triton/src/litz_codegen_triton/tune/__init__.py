"""Candidate configs of kernels, for autotuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_codegen_triton.tune.candidate_configs import candidates, describe_tiling

__all__ = ["candidates", "describe_tiling"]

__getattr__, __dir__ = deferred(
    __name__, dict.fromkeys(("candidates", "describe_tiling"), "litz_codegen_triton.tune.candidate_configs")
)
