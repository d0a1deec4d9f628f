"""Waiting for the graphs that are compiled behind calls."""

from __future__ import annotations

from litz.service.service import compile_service


def wait(timeout: float | None = None) -> bool:
    """Wait until the graphs that were called under ``compile_scheme="async"`` are compiled; report whether they are.

    Waits ``timeout`` seconds at most where that is given. The next call of each graph runs its compiled form, or ATen
    where the compilation failed. A backward is compiled once it is called, and a graph of which an operation failed is
    compiled again, without it, once it is called again: call the program, wait, and call it again to be sure.
    """
    return compile_service().background.wait(timeout)
