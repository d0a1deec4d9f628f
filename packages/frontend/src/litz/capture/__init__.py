"""Capture: what torch hands over, and how litz asks for it."""
