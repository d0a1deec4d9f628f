"""Public reports of compilers' faults, each as a small program: `python -m reports --help` with `tests/` on the
path."""
