"""Tiny models of many architectures as the judge of litz: `python -m zoo --help` with `tests/` on the path."""
