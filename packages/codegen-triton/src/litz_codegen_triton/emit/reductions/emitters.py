"""Emitters of reductions by kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.reductions.reduction import ReductionEmitter
from litz_codegen_triton.emit.reductions.relative_sums import RelativeSumEmitter
from litz_codegen_triton.emit.reductions.softmax import SoftmaxEmitter
from litz_codegen_triton.emit.reductions.welford import WelfordEmitter
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate

EMITTERS: Mapping[str, type[ReductionEmitter]] = MappingProxyType(
    {"welford": WelfordEmitter, "online_softmax": SoftmaxEmitter, "softmax_sum": SoftmaxEmitter}
)
"""The emitters of kinds that tiles reduce by another formula than the merge of states."""


def reduction_emitter(
    body: TileEmitter,
    statement: Accumulate,
    all_dims: frozenset[str],
    function: str,
    *,
    relative: bool = False,
) -> ReductionEmitter:
    """Return the writer of one ``Accumulate``, which ``relative_sums`` names if it is ``relative``; see
    :class:`ReductionEmitter`."""
    if relative:
        return RelativeSumEmitter(body, statement, all_dims, function)
    combiner = statement.combiner
    name = combiner.name if isinstance(combiner, NamedCombiner) else ""
    return EMITTERS.get(name, ReductionEmitter)(body, statement, all_dims, function)
