"""Decisions of the compiler: the choice, its reason, and the bytes at stake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.symbols.term import Size

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "inline.view": "a view is only an index map, which costs nothing in its reader's loop",
        "inline.single": "its only reader computes it at no extra cost",
        "inline.loop_invariant": "its only reader computes it outside its inner loop",
        "inline.operand": "a matmul computes it while it loads tiles of its operand, at almost no cost",
        "inline.cheap": "recomputing it costs less than a round trip through memory",
        "realise.expensive": "it has several readers and is too expensive to recompute",
        "realise.size": "inlining it would exceed the statement limit of its reader's kernel",
        "realise.raises": "it may report an error at an element that its readers do not read",
        "realise.called": "a call reads it, so it must be in memory",
        "realise.output": "the graph returns it",
        "realise.matmul": "it is the epilogue of a matmul, whose full-precision sums are not stored",
        "realise.operand": "a matmul that inlined it would recompute it for every tile",
        "realise.version": "it is the new content of an existing buffer",
        "fuse.producer": "it reads a value that the group computes, at the same points",
        "fuse.sibling": "it reads a buffer that the group reads, over the same points",
        "fuse.foreach": "both run over the same points and move too few bytes for a launch each",
        "refuse.domain": "the loops do not run over the same points",
        "refuse.order": "fusing them would create a dependency cycle",
        "refuse.index": "it reads another element of a value that the group computes",
        "refuse.version": "one overwrites a buffer that the other reads",
        "refuse.device": "they run on different devices",
        "refuse.parallel": "the fused kernel would have too few points to run in parallel",
        "refuse.size": "the fused kernel would exceed the statement limit",
        "refuse.buffers": "the fused kernel would access too many buffers",
        "refuse.matmul": "a matmul is fused only with operations that use its result",
        "refuse.traffic": "they share too few bytes for fusion to pay off",
        "refuse.kind": "this kind of operation is not fused",
        "alias.view": "it is a view of existing memory",
        "copy.layout": "its reader needs another layout",
        "memory.reuse": "it takes the memory of a value that is dead",
        "memory.inplace": "it overwrites an input after that input's last use",
        "memory.arena": "only kernels access it, so it is placed in an allocation with other values",
        "memory.fresh": "no dead memory fits",
        "order.eager": "no other order that was tried has a clearly lower memory peak",
        "order.peak": "its memory peak is lower than that of eager's order",
        "sink.constant": "it is a constant, so it is created on the device that it was copied to",
        "share.kernel": "it equals an existing kernel, up to buffer names",
        "scan.lookback": "its rows are few and long, so thread blocks scan chunks of them by decoupled look-back",
        "reduce.cluster": "its rows or columns are too few or too long for a block each, so a cluster reduces each",
        "fuse.horizontal": "the kernels are independent and move too few bytes for a launch each",
        "refuse.peak": "one launch of the independent kernels would raise the memory peak",
        "merge.online": "both reductions read elements that leave the registers, so one online reduction computes both",
        "split.threads": "it has too few results for the threads, so chunks are reduced in parallel and combined",
        "library.linear": "the host's routine for linear layers is faster than ATen's at this size",
        "library.bias": "its readers add the bias in their loops, and a matmul without bias has more library routines",
        "library.generated": "it was chosen to run as a loop, which its prologue and epilogue can be fused into",
        "library.padding": "library routines read rows faster that start at a cache line",
        "library.convolution": "its weight is prepacked once, and the host's routine is fastest on channels-last data",
        "library.channels_last": "channels-last saves its routine more reordering than the conversions around it cost",
        "library.frozen": "it depends only on parameters, so it is computed once and reused until one of them changes",
        "library.scale": "its scale and shift of each channel become part of the convolution's weight and bias",
        "library.activation": "the convolution's routine applies it",
        "attention.kernel": "it is attention of matmuls and a softmax, which a library kernel runs where masks allow",
        "attention.read": "another operation reads a value between the matmuls, which the fused kernel does not return",
        "attention.step": "the fused kernel does not support an operation between the matmuls",
        "attention.scale": "the scale of its scores is not known before the graph runs",
        "attention.mask": "the fused kernel does not support its mask",
        "attention.order": "an operation between the matmuls has its dimensions in another order",
        "attention.dimension": "its softmax is not over the keys",
        "attention.dtype": "eager rounds scores and weights to a low-precision float, which the fused kernel does not",
        "attention.heads": "its queries and values have different head dimensions",
        "attention.symbols": "its sizes are not known before the graph runs",
        "attention.device": "the fused kernel runs on the CPU only",
        "attention.small": "it has too few operations for the fused kernel to pay off",
        "flex_attention.fused": "the loop that uses its scores computes them, so they are never in memory",
        "flex_attention.function": "its score_mod or mask_mod is not an expression of one query and one key",
        "flex_attention.dtype": "its operands are not all 16-bit or 32-bit floats of one dtype",
        "flex_attention.empty": "one of its operands has no elements",
        "flex_attention.gradient": "its gradient is unused, must be deterministic, or reads a whole captured tensor",
        "library.no_template": "the target cannot generate this contraction, so a library routine runs it",
    }
)
"""Explanations of the reasons for decisions, by key: complete sentences about the subject, as ``explain``
prints them.
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice of the compiler about one subject, with its reason."""

    stage: str
    """Pass or stage that decided."""
    subject: str
    """A value, a group, or two groups as ``"g0 + g1"``."""
    verdict: str
    """The choice, such as ``fuse`` or ``inline``."""
    reason: str
    """A key of :data:`REASONS`."""
    bytes: Size = 0
    """Memory traffic at stake in one call, in bytes."""
    note: str = ""
    """Details of this case that the reason does not say."""

    def describe(self) -> str:
        """The decision as one line of text."""
        stake = f" ({self.bytes} B)" if self.bytes != 0 else ""
        note = f"; {self.note}" if self.note else ""
        return f"{self.stage}: {self.verdict} {self.subject}: {REASONS.get(self.reason, self.reason)}{stake}{note}"
