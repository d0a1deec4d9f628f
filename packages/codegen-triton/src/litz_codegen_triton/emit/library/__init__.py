"""Triton functions of our own, as text: what a kernel calls is written in front of it."""
