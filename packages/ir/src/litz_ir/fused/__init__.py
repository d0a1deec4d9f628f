"""The fused graph: groups of operations, and the choices that made them."""
