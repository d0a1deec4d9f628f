"""Compilation of one translation unit to a shared library, or of routines to an object file that units link."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from litz_codegen_cpp.toolchain.compilers import Compiler, CompilerFamily
from litz_codegen_cpp.toolchain.isa import Isa, step_down
from litz_ir.errors import CompileFailed, CompileTimeout

INCLUDE = Path(__file__).resolve().parent.parent / "include"
"""The folder that contains ``litz/*.h``."""

# No kernel uses GCC's start files and C++ library; a link without them saves a tenth of a small unit's time.
_LIBRARIES: Mapping[CompilerFamily, tuple[str, ...]] = {
    "gcc": ("-nostdlib", "-lm", "-lc", "-lgcc"),
    "clang": ("-lm",),
}
"""Linker options by compiler."""
_SHOWN_OUTPUT = 4000
"""Characters of the compiler's output that an error's message quotes."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options of compilation. Only ``contract`` relaxes IEEE semantics."""

    optimize: Literal["-O1", "-O2", "-O3"] = "-O2"
    """The optimisation level."""
    contract: bool = False
    """True to let the compiler fuse a * b + c into one rounding."""
    defines: tuple[str, ...] = ()
    """Preprocessor definitions, as ``NAME`` or ``NAME=VALUE``."""
    timeout_s: float = 300.0
    """Seconds after which the compiler is stopped."""


@dataclass(slots=True)
class StepDowns:
    """Simpler instruction sets for those that a compiler does not support.

    One object serves all builds of a process.
    """

    _known: dict[tuple[Compiler, Isa], Isa] = field(default_factory=dict)

    def usable(self, compiler: Compiler, isa: Isa) -> Isa:
        """Return ``isa``, or the simpler set that replaces it for this compiler."""
        return self._known.get((compiler, isa), isa)

    def remember(self, compiler: Compiler, isa: Isa, instead: Isa) -> None:
        """Note that ``instead`` compiles where ``isa`` does not."""
        self._known[compiler, isa] = instead


def compile_command(
    compiler: Compiler, isa: Isa, options: BuildOptions, out: Path, objects: Sequence[Path] = ()
) -> tuple[str, ...]:
    """Return the command that reads a unit from standard input and writes the library ``out``, which links
    ``objects``."""
    linked = ("-DLITZ_LINKED", "-Wl,-z,defs", "-xnone", *map(str, objects)) if objects else ()
    return (
        *compiler.command,
        *_flags(isa, options),
        f"-I{INCLUDE}",
        "-o",
        str(out),
        "-xc++",
        "-",
        *linked,
        *_LIBRARIES[compiler.kind],
    )


def object_command(compiler: Compiler, isa: Isa, options: BuildOptions, out: Path) -> tuple[str, ...]:
    """Return the command that reads routines from standard input and writes the object file ``out``."""
    flags = (flag for flag in _flags(isa, options) if flag != "-shared")
    return (*compiler.command, *flags, f"-I{INCLUDE}", "-c", "-o", str(out), "-xc++", "-")


def command_fingerprint(isa: Isa, options: BuildOptions) -> str:
    """Return a digest of the inputs of any compiler other than the source: flags and headers."""
    parts = (*_flags(isa, options), _headers_digest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def build_fingerprint(compiler: Compiler, isa: Isa, options: BuildOptions) -> str:
    """Return a digest of the compiler, the flags and the headers, which with the source determine a library."""
    parts = (compiler.kind, compiler.version, *compiler.command, command_fingerprint(isa, options))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_source(
    source: str,
    *,
    isa: Isa,
    compiler: Compiler,
    out: Path,
    options: BuildOptions = BuildOptions(),
    step_downs: StepDowns | None = None,
) -> Path:
    """Compile ``source`` to the shared library ``out``, which is written atomically, and return ``out``.

    After an internal error of the compiler (GCC 12 has one for some units at -O2), the unit is compiled again at -O1.
    When the compiler rejects the unit, the next simpler instruction set is tried and ``step_downs`` remembers it, so
    sources must take the number of lanes from ``LITZ_LANES``. Raises :class:`CompileFailed` with the compiler's
    output.
    """
    step_downs = step_downs if step_downs is not None else StepDowns()
    usable = step_downs.usable(compiler, isa)
    with _replaced(out) as temporary:
        try:
            _run(source, compile_command(compiler, usable, options, temporary), options.timeout_s)
        except CompileFailed as failure:
            simpler = usable if _crashed(failure) else step_down(usable)
            if simpler is None or not failure.output:
                raise
            again = replace(options, optimize="-O1") if simpler is usable else options
            try:
                _run(source, compile_command(compiler, simpler, again, temporary), options.timeout_s)
            except CompileFailed:
                raise failure from None
            step_downs.remember(compiler, isa, simpler)
    return out


def compile_object(source: str, *, isa: Isa, compiler: Compiler, out: Path, options: BuildOptions) -> Path:
    """Compile routines to the object file ``out``, which is written atomically, and return ``out``.

    Objects are compiled for exactly ``isa``, as are the units that link them. Raises :class:`CompileFailed`.
    """
    with _replaced(out) as temporary:
        _run(source, object_command(compiler, isa, options, temporary), options.timeout_s)
    return out


def compile_linked(
    source: str, *, isa: Isa, compiler: Compiler, out: Path, options: BuildOptions, objects: Sequence[Path]
) -> Path:
    """Compile ``source`` to the shared library ``out`` as :func:`compile_source` does, for exactly ``isa`` and with
    routines of ``objects``, and return ``out``. Raises :class:`CompileFailed`."""
    with _replaced(out) as temporary:
        _run(source, compile_command(compiler, isa, options, temporary, objects), options.timeout_s)
    return out


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """Give a temporary file beside ``out``, which replaces ``out`` where no exception leaves the context."""
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


def _crashed(failure: CompileFailed) -> bool:
    """Return True for an internal error of the compiler, in the words of GCC or Clang."""
    return any(words in failure.output for words in ("internal compiler error", "PLEASE submit a bug report"))


def _flags(isa: Isa, options: BuildOptions) -> tuple[str, ...]:
    """Return the compiler flags of these options."""
    contract = "fast" if options.contract else "off"
    return (
        "-std=c++17",
        options.optimize,
        "-shared",
        "-fPIC",
        "-pipe",
        "-w",
        "-fno-exceptions",
        "-fno-rtti",
        "-fno-threadsafe-statics",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fno-strict-aliasing",
        "-fno-ivopts",  # GCC 12 rewrites a store's address by another pointer's steps, and then drops the store
        "-fno-stack-protector",
        f"-ffp-contract={contract}",
        *isa.flags,
        f"-DLITZ_LANES={isa.lanes}",
        *(f"-D{define}" for define in options.defines),
    )


def _run(source: str, command: tuple[str, ...], timeout_s: float) -> None:
    """Run the compiler in a process group of its own, so that a timeout stops its children too."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(source, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise CompileTimeout(
                f"{command[0]} did not finish in {timeout_s:g} s",
                command=command,
                hint="raise BuildOptions.timeout_s, or cap the statements of a fused body",
            ) from None
    if process.returncode != 0:
        shown = output if len(output) <= _SHOWN_OUTPUT else output[:_SHOWN_OUTPUT] + "..."
        raise CompileFailed(
            f"{command[0]} refused a generated unit (status {process.returncode})\n{shown}{_excerpt(source, output)}",
            command=command,
            output=output or f"status {process.returncode}, no output",
            hint="this is a defect of the code generator or a compiler too old for these flags: report the output",
        )


def _excerpt(source: str, output: str) -> str:
    """Return the lines of ``source`` around the first one that the compiler's output names."""
    named = re.search(r"<stdin>:(\d+)", output)
    if named is None:
        return ""
    line = int(named.group(1))
    numbered = list(enumerate(source.splitlines(), 1))[max(0, line - 3) : line + 2]
    return "\n".join(f"{number:6} | {text}" for number, text in numbered)


@cache
def _headers_digest() -> str:
    """Return a digest of all headers."""
    digest = hashlib.sha256()
    for path in sorted((INCLUDE / "litz").rglob("*.h")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
