"""PyTorch's published tests with litz as the compiler: `python -m upstream --help` with `tests/` on the path."""
