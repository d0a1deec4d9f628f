"""Compiled graphs on disk: JSON, sources and binaries; never a pickle."""
