"""Choices and their reasons: what the scheduler decided, why, and how many bytes were at stake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.symbols.term import Size

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "inline.view": "an index map costs nothing in its reader's loop",
        "inline.single": "its only reader recomputes it for free",
        "inline.loop_invariant": "its only reader computes it outside its inner loop",
        "inline.operand": "a product of matrices computes it as it reads its tiles, for next to nothing",
        "inline.cheap": "recomputing costs less than a round trip through memory",
        "realise.expensive": "several readers and too dear to compute again",
        "realise.size": "the reader's body would exceed the statement cap",
        "realise.raises": "it may report an error at an element that its readers do not read",
        "realise.called": "a call reads it, so it must be in memory",
        "realise.output": "the graph returns it",
        "realise.matmul": "it ends a product of matrices, whose sums in full precision are not stored",
        "realise.operand": "a product of matrices would compute it again for every tile",
        "realise.version": "it is the new content of memory that exists",
        "fuse.producer": "reads what the group computes, at the same points",
        "fuse.sibling": "reads what the group reads, over the same points",
        "fuse.foreach": "both run over the same points, and move too little for a launch each",
        "refuse.domain": "the loops do not run over the same points",
        "refuse.order": "fusing would make a cycle",
        "refuse.index": "reads another point of what the group computes",
        "refuse.version": "one writes the buffer that the other reads",
        "refuse.device": "they run on different devices",
        "refuse.parallel": "too few points would be left to run side by side",
        "refuse.size": "the fused kernel would exceed the statement cap",
        "refuse.buffers": "the fused kernel would touch too many buffers",
        "refuse.matmul": "a product of matrices shares its kernel with what uses its result alone",
        "refuse.traffic": "they share too few bytes to gain from one loop",
        "refuse.kind": "this kind of operation is not fused",
        "alias.view": "a view of memory that exists",
        "copy.layout": "the reader needs another layout",
        "memory.reuse": "takes the memory of a value that is dead",
        "memory.inplace": "written over its last input",
        "memory.arena": "only kernels see it: it lies beside others in one allocation",
        "memory.fresh": "no dead memory fits",
        "order.eager": "no other order that was tried holds clearly less memory at once",
        "order.peak": "it holds less memory at once than eager's order",
        "sink.constant": "it is made of nothing, so that it is made where it was copied to",
        "share.kernel": "equal to a kernel that exists, up to buffer names",
        "scan.lookback": "its rows are few and long: programs scan parts of them, each going on from those before it",
        "reduce.cluster": "its rows or columns are too few, or too long, for a program each: several share one",
        "fuse.horizontal": "loops that have nothing to do with one another, and move too little for a launch each",
        "refuse.peak": "loops side by side would hold more memory at once",
        "merge.online": "two reductions read the same elements, which do not stay where they are read: one does both",
        "split.threads": "too few results for the threads at hand: parts are reduced side by side, then their results",
        "library.linear": "the host's routine for linear layers is faster than ATen's at this size",
        "library.bias": "kernels that read the sum add on the way, and the product alone has more routines",
        "library.generated": "it was asked for as a loop, which what surrounds it can join",
        "library.padding": "a library reads rows better that begin with a line of memory",
        "library.convolution": "its weight is packed once, and images in channels-last suit the host's routine best",
        "library.channels_last": "in channels-last its routine reorders less than is converted at other layouts",
        "library.frozen": "it depends on parameters alone: it is kept until one of them changes",
        "library.scale": "what it does to each channel is part of the convolution's weight and bias",
        "library.activation": "the convolution's routine applies it",
        "attention.kernel": "written by hand; the library's kernel runs it wherever numbers and masks allow",
        "attention.read": "something else reads what stands between the products, which the kernel does not give",
        "attention.step": "an operation between the products is none that the kernel has",
        "attention.scale": "the scores are scaled by what is not known before the graph runs",
        "attention.mask": "its mask is none that the kernel has",
        "attention.order": "a step between the products sees dimensions in another order",
        "attention.dimension": "its softmax is not over the keys",
        "attention.dtype": "eager rounds scores and weights to a narrow float, which the kernel does not",
        "attention.heads": "queries and values have different sizes",
        "attention.symbols": "its sizes are not known before the graph runs",
        "attention.device": "the kernel runs on the CPU alone",
        "attention.small": "too few operations for the kernel to pay",
        "flex_attention.fused": "who weighs by its scores computes them on the way: they are never in memory",
        "flex_attention.function": "its score or mask function is no expression of one query and one key",
        "flex_attention.dtype": "its operands are no floats of 16 or 32 bits of one dtype",
        "flex_attention.empty": "there is nothing to attend to",
        "flex_attention.gradient": "gradients are wanted that have to repeat, or are of no element that is looked up",
        "library.no_template": "the target has no template; its library routine runs it",
    }
)


@dataclass(frozen=True, slots=True)
class Decision:
    """``subject`` (a value, a group, or ``"g0 + g1"``) got ``verdict`` for ``reason`` (a key of :data:`REASONS`).

    ``bytes`` is the memory traffic at stake per call; ``note`` adds what the reason cannot know.
    """

    stage: str
    subject: str
    verdict: str
    reason: str
    bytes: Size = 0
    note: str = ""

    def describe(self) -> str:
        """One line for a person."""
        stake = f" ({self.bytes} B)" if self.bytes != 0 else ""
        note = f"; {self.note}" if self.note else ""
        return f"{self.stage}: {self.verdict} {self.subject}: {REASONS.get(self.reason, self.reason)}{stake}{note}"
