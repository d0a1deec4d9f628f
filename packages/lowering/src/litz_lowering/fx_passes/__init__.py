"""Passes over the FX graph, before it is lowered."""
