"""Conditions for fusion: the order between groups, and reads within one."""
