"""Passes and the runner that applies them."""
