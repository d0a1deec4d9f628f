"""Innermost loops of generated code, read from the compiler's assembly: their vectors, and those on the stack."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from litz_codegen_cpp.toolchain.build import BuildOptions, object_command
from litz_codegen_cpp.toolchain.compilers import find_compiler
from litz_codegen_cpp.toolchain.isa import Isa

_LABEL = re.compile(r"^([.\w$]+):")
_FUNCTION = re.compile(r"\s+\.type\s+(\S+),\s*[@%]function")
_JUMP = re.compile(r"(?:j[a-z]+|b(?:\.?[a-z]{2})?|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#?\w+,)\s+(\.L\w+)$")
_FLOATS = re.compile(
    r"v?(?:f?n?m(?:add|sub|ul)|add|sub|div|max|min)\w*p[sd]\b|f(?:mla|mls|mul|add|sub|div|max|min)\w*\s+v"
)
"""Arithmetic on vectors of floats."""
_VECTOR = re.compile(r"[%\b]?([xyz])mm\d+|\b([vqd])\d+\b")
_BYTES = {"x": 16, "y": 32, "z": 64, "v": 16, "q": 16, "d": 8}
_ON_STACK = re.compile(r"-?\d*\(%r[sb]p\)|\[(?:sp|x29)(?:,\s*#?-?\d+)?\]")
"""A place of the stack at a fixed distance: of an array there, an index is part of the address."""


@dataclass(frozen=True)
class Loop:
    """An innermost loop."""

    function: str
    """The symbol of its function."""
    instructions: tuple[str, ...]
    """Its instructions."""

    @property
    def arithmetic(self) -> tuple[str, ...]:
        """Those that compute vectors of floats."""
        return tuple(each for each in self.instructions if _FLOATS.match(each))

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vectors that are computed."""
        found = (_BYTES[a or b] for each in self.arithmetic for a, b in _VECTOR.findall(each))
        return max(found, default=0)

    @property
    def on_stack(self) -> tuple[str, ...]:
        """Those with a vector and a fixed place of the stack."""
        return tuple(each for each in self.instructions if _ON_STACK.search(each) and _VECTOR.search(each))

    @property
    def spills(self) -> tuple[str, ...]:
        """Stores of vectors to fixed places of the stack."""
        return tuple(
            each
            for each in self.on_stack
            if each.startswith("st") or ("%" in each and _ON_STACK.search(each, each.rfind(", ")))
        )


def assembly(source: str, isa: Isa) -> str:
    """The assembly of a unit; raises ``CompilerNotFound`` where no compiler has the set's architecture."""
    compiler = find_compiler(machine=isa.machine or None)
    command = [
        "-S" if word == "-c" else word for word in object_command(compiler, isa, BuildOptions(), Path("-"))
    ]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def innermost_loops(text: str) -> Iterator[Loop]:
    """Yield the innermost loops of all functions."""
    function, lines = "", list[str]()
    known = frozenset(_FUNCTION.findall(text))
    for line in [*text.splitlines(), "end:"]:
        label = _LABEL.match(line)
        if label and (label.group(1) in known or line == "end:"):
            yield from _loops(function, lines)
            function, lines = label.group(1), []
        lines.append(line)


def _loops(function: str, lines: Sequence[str]) -> Iterator[Loop]:
    places = {match.group(1): k for k, line in enumerate(lines) if (match := _LABEL.match(line))}
    ranges = []
    for k, line in enumerate(lines):
        jump = _JUMP.search(line.strip().replace("\t", " "))
        if jump and places.get(jump.group(1), k) < k:
            ranges.append((places[jump.group(1)], k))
    for begin, end in ranges:
        inside = ((a, b) for a, b in ranges if (a, b) != (begin, end) and begin <= a and b <= end)
        if not any(inside):
            body = (line.strip().replace("\t", " ") for line in lines[begin + 1 : end + 1])
            yield Loop(
                function, tuple(each for each in body if each and not each.startswith((".", "#", "//")))
            )
