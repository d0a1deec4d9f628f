"""Passes that simplify loop graphs."""
