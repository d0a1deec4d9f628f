"""Scalar formulas, index maps and window geometry that rules are built from."""
