"""Explanations: the compiled form of a function and the decisions behind it, as data and as text."""
