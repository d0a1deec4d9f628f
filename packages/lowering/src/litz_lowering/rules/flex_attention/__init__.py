"""FlexAttention as loops whose bodies compute scores; importing this package registers the rules."""

from litz_lowering.rules.flex_attention import backward, forward

__all__ = ["backward", "forward"]
