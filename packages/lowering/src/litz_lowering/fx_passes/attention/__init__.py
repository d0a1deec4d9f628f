"""Replacement of attention written as separate operators by ATen's fused kernel."""
