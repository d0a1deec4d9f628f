"""Higher-order operators: control flow, FlexAttention, gradients of captured tensors."""
