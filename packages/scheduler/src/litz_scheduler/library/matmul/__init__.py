"""Matmuls: as calls of a library or as loops."""
