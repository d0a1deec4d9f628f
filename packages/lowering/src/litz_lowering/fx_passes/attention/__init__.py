"""Attention that was written by hand runs as the library's kernel."""
