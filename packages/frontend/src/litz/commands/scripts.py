"""Scripts that commands run as Python itself would, with litz as the default backend of ``torch.compile``."""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends import registry

from litz.backend import NAME
from litz_ir.errors import ConfigError

Backend = Callable[..., Callable[..., Any]]
"""A backend of ``torch.compile``."""


def require_script(script: str) -> None:
    """Raise ``ConfigError`` where there is no such file."""
    if not Path(script).is_file():
        raise ConfigError(f"there is no script {script!r}", hint="give the path of a Python file")


def require_folder(output: str) -> None:
    """Raise ``ConfigError`` where a file could not be written after the script has run, for lack of its folder."""
    if not Path(output).parent.is_dir():
        raise ConfigError(
            f"{output!r} cannot be written: there is no such folder", hint="make the folder first"
        )


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Run a script with these arguments as ``__main__``; return its exit status.

    An exception of the script is raised as it is.
    """
    argv, search = sys.argv, list(sys.path)
    sys.argv, sys.path[0] = [script, *arguments], os.fspath(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        return _status(ended.code)
    finally:
        sys.argv, sys.path[:] = argv, search
    return 0


@contextmanager
def default_backend() -> Iterator[None]:
    """Make litz the backend of calls of ``torch.compile`` that name none, inside a ``with`` block."""
    if hasattr(torch.compiler, "set_default_backend"):
        before = torch.compiler.get_default_backend()
        torch.compiler.set_default_backend(NAME)
        try:
            yield
        finally:
            torch.compiler.set_default_backend(before)
        return
    given: Callable[..., Any] = torch.compile

    @functools.wraps(given)
    def compile_by_litz(*args: Any, **kwargs: Any) -> Any:
        return given(*args, **{"backend": NAME, **kwargs})

    vars(torch)["compile"] = compile_by_litz  # torch before 2.13 has no default that can be set
    try:
        yield
    finally:
        vars(torch)["compile"] = given


@contextmanager
def backend_instead(backend: Backend) -> Iterator[None]:
    """Have torch call another backend wherever a program names litz, inside a ``with`` block."""
    known: dict[str, Any] = registry._COMPILER_FNS
    before = registry.lookup_backend(NAME)
    known[NAME] = backend
    try:
        yield
    finally:
        known[NAME] = before


def _status(code: object) -> int:
    """Return the exit status of a ``SystemExit``; a text is printed to stderr, as Python does."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1
