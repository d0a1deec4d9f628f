"""Scalar operations and the bodies made of them."""
