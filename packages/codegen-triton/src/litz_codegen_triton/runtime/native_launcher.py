"""The native launcher: a C function that makes all launches of a segment in one call.

It is one source for all segments, which a C compiler builds once a machine. Without it, Python makes each launch.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from litz_codegen_triton.runtime.loaded_kernel import LoadedKernel, described_words
from litz_ir.errors import CompileFailed, CompilerNotFound
from litz_ir.target import SourceUnit

LANGUAGE = "c"
"""Language of the launcher's source."""

_SOURCE = Path(__file__).parent / "native" / "launcher.c"

_COMPILERS = ("cc", "gcc", "clang", "g++", "clang++")
"""Commands that are tried in this order where none is named."""

MOST_DESCRIPTORS = 8
"""Most tensor descriptors of a kernel that the launcher makes; those of more are made by Python."""

_FLAGS = ("-O2", "-std=gnu99", "-fno-strict-aliasing", "-fPIC", "-shared", "-x", "c")

_TIMEOUT_S = 60.0
"""Seconds that the compiler may take; GCC 12 takes 0.1."""


def launcher_unit() -> SourceUnit:
    """Return the source of the launcher, with the machine that it is built for."""
    machine = (f"machine={platform.machine()}", f"system={sys.platform}")
    return SourceUnit("litz_launcher", LANGUAGE, _SOURCE.read_text("utf-8"), (), (*_FLAGS, *machine))


def build_launcher(unit: SourceUnit, folder: Path, compiler: str | None = None) -> Path:
    """Compile the launcher in ``folder``, by the command ``compiler`` or by the first compiler that is found.

    Raises ``CompilerNotFound`` and ``CompileFailed``.
    """
    words = shlex.split(compiler or "") or [each for each in _COMPILERS if shutil.which(each)][:1]
    if not words:
        raise CompilerNotFound("no C compiler", looked_for=_COMPILERS, hint="install one: gcc or clang")
    source, library = folder / f"{unit.name}.c", folder / f"{unit.name}.so"
    source.write_text(unit.text, "utf-8")
    command = (*words, *_FLAGS, str(source), "-o", str(library))
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        output = done.stdout + done.stderr if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        output = str(error)
    if output or not library.exists():
        raise CompileFailed("the native launcher was not compiled", command=command, output=output)
    return library


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """A launch as the native launcher makes it."""

    handle: int
    """Function handle of the driver."""

    threads: int
    """Threads of a thread block."""

    shared_bytes: int
    """Bytes of shared memory of a thread block."""

    cluster_size: int
    """Thread blocks of a cluster."""

    cleared: int
    """Number of the argument to zero before the launch; -1 for none."""

    hidden: int
    """Null pointers after the arguments."""

    buffers: tuple[int, ...]
    """Positions of its buffers among the addresses of a call."""

    symbols: tuple[tuple[int, bool], ...]
    """Positions of its symbols among those of a call, and whether it takes a float."""

    counts: tuple[int, int] | None
    """Grid size, and bytes to zero; ``None`` where each call says."""

    descriptors: tuple[tuple[int, ...], ...] = ()
    """Tensor descriptors as ``CompiledKernel`` has them, with the position of the buffer among the addresses of a
    call."""


def native_kernels(
    functions: Sequence[LoadedKernel],
    buffers: Sequence[int],
    symbols: Sequence[int],
    counts: Sequence[tuple[int, int]] | None,
) -> list[NativeKernel]:
    """Return launches as the native launcher makes them.

    ``buffers`` and ``symbols`` are the positions of all kernels' among those of a call, concatenated; ``counts`` the
    grid size and the bytes to zero of each kernel, ``None`` where each call says.
    """
    at, which = iter(buffers), iter(symbols)
    made = []
    for number, each in enumerate(functions):
        own = tuple(next(at) for _ in each.kernel.parameters)
        made.append(
            NativeKernel(
                each.handle, each.threads, each.shared_bytes, each.cluster_size, each.cleared, each.hidden, own,
                tuple((next(which), info.kind == "float") for info in each.kernel.symbols),
                None if counts is None else counts[number],
                tuple((own[buffer], *words) for buffer, *words in each.descriptors),
            )
        )  # fmt: skip
    return made


Maker = Callable[..., Callable[..., None]]
"""Function that makes the call of a described segment."""


NativeSegment = Callable[
    [Sequence[NativeKernel], Callable[..., None], Callable[[int, int], None]], Callable[..., None] | None
]
"""Function that returns the native call of kernels: given them, the call that takes its place for unaligned addresses,
and what raises the exception for the number of a kernel and the driver's error code. ``None`` without a launcher."""


@functools.cache
def launcher_maker(library: Path) -> Maker | None:
    """Load the launcher, once a process; ``None`` where this machine cannot."""
    try:
        found: Any = ctypes.PyDLL(str(library)).litz_segment
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.py_object] * 5, ctypes.py_object
    made: Maker = found
    return made


def description(kernels: Sequence[NativeKernel], entry_points: Sequence[int]) -> bytes:
    """Describe a segment to the launcher, as its source says. ``entry_points`` are those of ``Driver``."""
    used = [each for kernel in kernels for each in kernel.symbols]
    addresses = 1 + max((at for kernel in kernels for at in kernel.buffers), default=-1)
    kinds = [0] * (1 + max((at for at, _ in used), default=-1))
    for at, is_float in used:
        kinds[at] |= 2 if is_float else 1
    largest = max(
        len(each.buffers) + len(each.symbols) + each.hidden + described_words(each.descriptors)
        for each in kernels
    )
    computed = any(each.counts is None for each in kernels)
    words = [*entry_points, len(kernels), addresses, len(kinds), largest, computed]
    for each in kernels:
        sizes = len(each.buffers), len(each.symbols), each.hidden, len(each.descriptors)
        words += [each.handle, each.threads, each.shared_bytes, each.cluster_size, each.cleared, *sizes]
        words += each.counts or (0, 0)
    words += kinds
    for each in kernels:
        words += each.buffers
        words += chain.from_iterable(each.symbols)
        words += chain.from_iterable(each.descriptors)
    return struct.pack(f"={len(words)}q", *words)
