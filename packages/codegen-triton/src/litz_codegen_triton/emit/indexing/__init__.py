"""Indices, coordinates, masks and vector accesses of tiles."""
