"""Loops of frozen parameters, computed once."""
