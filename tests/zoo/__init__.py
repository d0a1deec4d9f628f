"""Tests of litz by tiny models of many architectures: `python -m zoo --help` with `tests/` on the path."""
