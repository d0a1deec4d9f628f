"""PyTorch's operator database as the judge of litz: `python -m opinfo --help` with `tests/` on the path."""
