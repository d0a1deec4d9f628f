"""Lowerings of operators of other libraries: as a function of ATen operations, or as loops.

    @litz.lowering.decomposition("mylib::gelu_like")
    def gelu_like(x):
        return x * torch.sigmoid(1.7 * x)

    @litz.lowering.rule("mylib::clipped")
    def clipped(ctx, x, bound):
        return ctx.pointwise(lambda i: build.op("minimum", x.load(i), build.const(bound, x.dtype)))

Both hold for the process, from the next compilation on, and are part of cache keys. An installed package registers its
own by an entry point of the group ``litz.lowerings``, which names a module that does so when it is imported, or a
function to call. `docs/passes.md` in the repository of litz has examples.
"""

from litz.lowering.registration import Operator, decomposition, rule
from litz_lowering import Declined, LoweringContext, Tensor

__all__ = ["Declined", "LoweringContext", "Operator", "Tensor", "decomposition", "rule"]
