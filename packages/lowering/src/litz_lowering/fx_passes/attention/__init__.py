"""Replacement of attention written as separate operators by the library's fused kernel."""
