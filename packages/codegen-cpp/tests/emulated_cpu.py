"""CPUs that this machine is not: kernels are compiled for them and run by qemu, on copies of their buffers.

Some sets of x86-64 are emulated too, by a CPU that has nothing else, so that an instruction of another set ends the
process. Kernels that access memory past the end of their buffers end it as well, also where nothing is emulated.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, pack, unpack
from typing import Any

from cpp_units import runnable

from litz_codegen_cpp.emit.source.entry_points import entry_point
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.build import INCLUDE, BuildOptions
from litz_ir.errors import KernelError
from litz_ir.faults import BY_CODE, fault_error
from litz_ir.host.launch import BufferArgument, BufferFunction
from litz_ir.plan import Kernel
from litz_ir.target import SourceUnit

SOURCE = Path(__file__).with_name("emulator.c")
"""The program that runs kernels."""


@dataclass(frozen=True)
class Emulation:
    """The commands that compile and run programs for an instruction set."""

    isa: str
    """The name of the set."""
    compiler: str = "cc"
    """The command of the C compiler."""
    command: tuple[str, ...] = ()
    """The words that a program is started with; none for a CPU that has the set."""

    def obstacle(self) -> str:
        """The reason that this machine cannot run the set; empty if it can."""
        if not self.command and self.isa not in runnable():
            return f"this CPU has no {self.isa}"
        absent = [each for each in (self.compiler, *self.command[:1]) if shutil.which(each) is None]
        packages = "qemu-user, and gcc-aarch64-linux-gnu and g++-aarch64-linux-gnu for NEON"
        return f"{' and '.join(absent)} not installed (Debian: {packages})" if absent else ""


ARM = Emulation("neon", "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"))
"""The emulation of aarch64, which the command of a program follows."""

EMULATIONS: Mapping[str, Emulation] = {
    "neon under qemu": ARM,
    "scalar under qemu": Emulation("scalar", command=("qemu-x86_64", "-cpu", "qemu64")),
    "avx512": Emulation("avx512"),
    "avx2": Emulation("avx2"),
}
"""Emulations by name. qemu has no AVX-512, and its masked loads and gathers of AVX2 access lanes that are masked."""


class Emulator:
    """A process that runs kernels. It is started again after a kernel ends it."""

    def __init__(self, emulation: Emulation, folder: Path) -> None:
        """Compile the program into ``folder``."""
        self.emulation, self.libraries = emulation, list[Path]()
        self.program = folder / f"emulator-{emulation.isa}"
        flags = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
        compiling = (self.emulation.compiler, *flags, SOURCE, "-o", self.program, "-ldl")
        subprocess.run(compiling, check=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._loaded = 0

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
        self._process = None

    def add(self, library: Path) -> int:
        """Enter a library, to be loaded when a kernel is run; its number."""
        self.libraries.append(library)
        return len(self.libraries) - 1

    def run(self, library: int, entry: str, buffers: Sequence[BufferArgument], symbols: bytes) -> int:
        """Run a kernel on a copy of the buffers, which is copied back; the kernel's error code."""
        blocks, places = _blocks(buffers)
        with self._talking(entry) as process:
            self._load_all(process)
            name = entry.encode()
            head = [pack(f"=3q{len(name)}sq", 2, library, len(name), name, len(blocks))]
            head.append(pack(f"={len(blocks)}q", *(size for _, size in blocks)))
            head += [ctypes.string_at(address, size) for address, size in blocks]
            numbers = [number for place in places for number in place]
            head.append(pack(f"={len(numbers) + 2}q", len(places), *numbers, len(symbols) // 8))
            _write(process, b"".join(head) + symbols)
            (code,) = unpack("=q", _read(process, 8))
            for address, size in blocks:
                ctypes.memmove(address, _read(process, size), size)
        return int(code)

    def _load_all(self, process: subprocess.Popen[bytes]) -> None:
        for path in self.libraries[self._loaded :]:
            name = str(path).encode()
            _write(process, pack(f"=2q{len(name)}s", 1, len(name), name))
            if unpack("=q", _read(process, 8))[0]:
                raise KernelError(_read(process, unpack("=q", _read(process, 8))[0]).decode(), code=-1)
            self._loaded += 1

    @contextmanager
    def _talking(self, entry: str) -> Iterator[subprocess.Popen[bytes]]:
        if self._process is None:
            command = (*self.emulation.command, str(self.program))
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._loaded = 0
        try:
            yield self._process
        except (OSError, EOFError) as error:
            process, self._process = self._process, None
            process.kill()
            process.communicate()
            raise KernelError(f"{entry} ended its process: status {process.returncode}", code=-1) from error


def _blocks(buffers: Sequence[BufferArgument]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Addresses and bytes of disjoint blocks of memory, and the block and offset of each buffer."""
    ranges = [
        (int(each.memory.__array_interface__["data"][0]) + each.offset, each.nbytes) for each in buffers
    ]
    blocks: list[tuple[int, int]] = []
    for address, size in sorted(ranges):
        if blocks and address < sum(blocks[-1]):
            start, length = blocks.pop()
            blocks.append((start, max(length, address + size - start)))
        else:
            blocks.append((address, size))
    places = []
    for address, size in ranges:
        holds = (k for k, (a, n) in enumerate(blocks) if a <= address and address + size <= a + n)
        block = next(holds)
        places.append((block, address - blocks[block][0]))
    return blocks, places


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def _read(process: subprocess.Popen[bytes], size: int) -> bytes:
    assert process.stdout is not None
    data = process.stdout.read(size)
    if len(data) < size:
        raise EOFError
    return data


class EmulatedModule:
    """Kernels that run in an emulator."""

    def __init__(self, emulator: Emulator, kernels: Mapping[str, Kernel], numbers: Mapping[str, int]) -> None:
        self._emulator, self._kernels, self._numbers = emulator, kernels, numbers

    def function(self, kernel: str) -> BufferFunction:
        """The launch function of a kernel; raises ``KeyError``."""
        number, known = self._numbers[kernel], self._kernels[kernel]
        values = Struct("=" + "".join("d" if info.kind == "float" else "q" for info in known.symbols))

        def run(buffers: Sequence[BufferArgument], symbols: Sequence[int | float]) -> None:
            code = self._emulator.run(number, entry_point(kernel), buffers, values.pack(*symbols))
            if code in BY_CODE:
                raise fault_error(BY_CODE[code], kernel)
            if code:
                raise KernelError(f"{kernel} reported error code {code}", code=code, node=kernel)

        return BufferFunction(run)


class EmulatedCpu(CpuTarget):
    """The target of an instruction set whose kernels run in an emulator."""

    def __init__(self, emulation: Emulation, folder: Path, build_options: BuildOptions | None = None) -> None:
        """Compile the program that runs kernels into ``folder``."""
        super().__init__(emulation.isa, build_options=build_options)
        self.emulator = Emulator(emulation, folder)

    def load(  # type: ignore[override]  # another module
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> EmulatedModule:
        """Return the kernels of built units, which are loaded when one of them is run."""
        numbers: dict[str, int] = {}
        for unit, binary in zip(units, binaries, strict=True):
            number: Any = self.emulator.add(binary)
            numbers.update(dict.fromkeys(unit.kernels, number))
        return EmulatedModule(self.emulator, kernels, numbers)
