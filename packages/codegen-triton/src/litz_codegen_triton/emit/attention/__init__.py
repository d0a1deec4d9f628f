"""Fused attention: its loop and its accumulators."""
