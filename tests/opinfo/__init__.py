"""Tests of litz by PyTorch's operator database: `python -m opinfo --help` with `tests/` on the path."""
