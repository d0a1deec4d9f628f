"""A target of litz: plans become Python functions over NumPy's scalars, a template for a language of one's own."""
