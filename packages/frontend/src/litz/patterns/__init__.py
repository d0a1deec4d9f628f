"""Rewrites of patterns: a function to look for and one to compute instead, as a pass over AOT graphs.

    FUSED = litz.patterns.Rewrite(
        "rms_norm_quantise", lambda x, w, eps: quantise(rms_norm(x, w, eps)), torch.ops.mylib.rms_norm_quantise,
        (torch.empty(4, 16), torch.empty(16), 1e-6),
    )
    with litz.config.patch(passes=litz.passes.Passes(post_grad_after=(FUSED,))):
        torch.compile(model, backend="litz")(x)

`docs/passes.md` in the repository of litz shows a whole program.
"""

from litz.patterns.matching import Match
from litz.patterns.rewrite import Rewrite

__all__ = ["Match", "Rewrite"]
