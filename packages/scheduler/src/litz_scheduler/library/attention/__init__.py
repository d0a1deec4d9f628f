"""Attention: as calls or as loops, forward and backward."""
