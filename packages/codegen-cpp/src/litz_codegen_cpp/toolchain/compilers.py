"""Detection of a C++ compiler, of this machine's architecture or of another."""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal

from litz_codegen_cpp.toolchain.isa import machine_name
from litz_ir.errors import CompilerNotFound

CompilerFamily = Literal["gcc", "clang"]
_SEARCHED = ("g++", "clang++")
"""Commands that are tried in this order."""
_INSTALL = (
    "install one (Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), "
    "or set CXX to the compiler's path"
)
"""The hint of an error for a missing compiler."""
_INSTALL_OTHER = (
    "install one (Debian and Ubuntu: apt install g++-aarch64-linux-gnu, for aarch64), "
    "or name a compiler for it"
)
"""The hint of an error for a missing compiler of another architecture."""
_ANSWER_TIMEOUT_S = 20.0
"""Seconds in which a compiler has to print its version or architecture."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that answered with its version."""

    path: str
    """Its absolute path."""
    kind: CompilerFamily
    """Its family, which determines the options."""
    version: str
    """Its version, such as ``12.2.0``."""
    arguments: tuple[str, ...] = ()
    """Arguments that come first in every call."""

    @property
    def command(self) -> tuple[str, ...]:
        """The words that every call starts with."""
        return (self.path, *self.arguments)


def find_compiler(
    explicit: str | None = None, *, cxx: str | None = None, machine: str | None = None
) -> Compiler:
    """Return the compiler named by ``explicit``, else by ``cxx``, else g++ or clang++ on PATH.

    ``cxx`` is the caller's value of the CXX variable and may have several words, such as ``ccache g++``. A given name
    that does not work is an error, and no other compiler is tried. With a ``machine``, such as ``aarch64``, it must
    compile for that architecture, and where none is named, that is searched for by GCC's usual prefix. Raises
    :class:`CompilerNotFound`.
    """
    for given, what in ((explicit, "the compiler option"), (cxx, "CXX")):
        if given and given.strip():
            found = _probe(tuple(shlex.split(given)))
            if isinstance(found, str):
                raise CompilerNotFound(
                    f"no C++ compiler: {what} names {given!r}, which {found}",
                    looked_for=(given,),
                    hint=_INSTALL,
                )
            if machine is not None and (own := _machine_of(found.command)) not in (machine, ""):
                raise CompilerNotFound(
                    f"no C++ compiler for {machine}: {what} names {given!r}, which compiles for {own}",
                    looked_for=(given,),
                    hint=_INSTALL_OTHER,
                )
            return found
    own = machine_name(platform.machine())
    searched = _SEARCHED if machine in (None, own) else tuple(f"{machine}-linux-gnu-{n}" for n in _SEARCHED)
    reasons = []
    for name in searched:
        found = _probe((name,))
        if not isinstance(found, str):
            return found
        reasons.append(f"{name} {found}")
    tried = "; ".join(reasons)
    raise CompilerNotFound(
        f"no C++ compiler{'' if searched is _SEARCHED else f' for {machine}'}: neither an option nor CXX names one, "
        f"and {tried}",
        looked_for=searched,
        hint=_INSTALL if searched is _SEARCHED else _INSTALL_OTHER,
    )


def _asked(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Return what a compiler answers. Raises ``OSError`` if it does not run, ``TimeoutExpired`` if it hangs."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_ANSWER_TIMEOUT_S,
        check=False,
    )


@functools.cache
def _machine_of(command: tuple[str, ...]) -> str:
    """Return the architecture that a compiler compiles for; empty where it does not say."""
    try:
        answer = _asked((*command, "-dumpmachine"))
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return machine_name(answer.stdout.strip().partition("-")[0])


def _probe(words: tuple[str, ...]) -> Compiler | str:
    """Return the compiler that ``words`` start, or the reason that they start none."""
    path = shutil.which(words[0])
    if path is None:
        return "is not on PATH" if "/" not in words[0] else "is not an executable file"
    state = os.stat(path)
    try:
        return _answer(path, words, (state.st_ino, state.st_mtime_ns, state.st_size))
    except _Unusable as error:
        return str(error)


class _Unusable(Exception):
    """The file at a path is not a compiler."""


@functools.cache
def _answer(path: str, words: tuple[str, ...], state: tuple[int, int, int]) -> Compiler:
    """Return the compiler at ``path`` by its version; cached while ``state`` (inode, time, size) is the same."""
    try:
        answer = _asked((path, *words[1:], "--version"))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unusable(f"does not run ({error})") from error
    if answer.returncode != 0:
        raise _Unusable(f"fails when asked for its version (status {answer.returncode})")
    kind: CompilerFamily = "clang" if "clang" in answer.stdout.lower() else "gcc"
    version = re.search(r"\d+(\.\d+)+", answer.stdout)
    return Compiler(path, kind, version.group() if version else "unknown", words[1:])
