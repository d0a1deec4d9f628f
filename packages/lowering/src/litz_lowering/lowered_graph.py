"""Result of lowering a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph
from litz_lowering.aten.fallback import Fallback
from litz_lowering.higher_order.hop_calls import HopRoutine


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """Result of lowering: a loop graph, its constants and its fallbacks."""

    graph: LoopGraph
    """The loop graph."""
    constants: Mapping[str, torch.Tensor]
    """Tensor of each constant's name."""
    fallbacks: tuple[Fallback, ...] = ()
    """Operations that run as ATen kernels, with reasons."""
    operations_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the loop operations made for each FX node, by its name."""
    routines: Mapping[str, HopRoutine] = field(default_factory=dict)
    """Routines of calls that have no name of their own: higher-order operators with their traced functions."""
    decisions: tuple[Decision, ...] = ()
    """Rewrites that were made or rejected, with reasons."""
