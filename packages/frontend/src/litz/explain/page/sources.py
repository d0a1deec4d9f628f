"""Source texts of a page: excerpts of the user's files, and the generated code of each kernel."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from litz.explain.report import KernelReport
from litz.profiling.line_map import SourceLines
from litz_ir.origin import Origin

_FOLDERS = re.compile(r"(?<!\S)/\S*/(?=[^/\s]+/[^/\s]+:\d+)")
"""Folders before the last one of a path that a line number follows."""

_CONTEXT = 3
"""Lines of a file that are shown before and after each line that something comes from."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a user's file."""

    number: int
    """Its number, from 1; 0 for a gap between excerpts."""

    text: str
    """Its text."""

    keys: str = ""
    """Keys of the steps that come from it, separated by spaces; empty for none."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """Excerpts of a user's file."""

    path: str
    """Path of the file."""

    name: str
    """Its last parts."""

    lines: tuple[SourceLine, ...]
    """Lines in order, with gaps."""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Generated source of one kernel, or what precedes the first one in a file."""

    kernel: str
    """Name of the kernel; empty for what belongs to none."""

    text: str
    """The source."""

    keys: str
    """Keys of the steps that launch it, separated by spaces."""


def source_files(origins: Iterable[tuple[Origin, str]]) -> tuple[SourceFile, ...]:
    """Return the excerpts around lines, given each line with the key of a step that comes from it.

    The files are in the order of their first steps. A line whose file cannot be read is shown alone.
    """
    keys: dict[str, dict[int, dict[str, None]]] = {}
    texts: dict[tuple[str, int], str] = {}
    for origin, key in origins:
        if origin.file:
            keys.setdefault(origin.file, {}).setdefault(origin.line, {})[key] = None
            texts.setdefault((origin.file, origin.line), origin.source)
    return tuple(
        SourceFile(file, shortened_path(file), tuple(_excerpts(file, own, texts)))
        for file, own in keys.items()
    )


def code_blocks(units: Sequence[str], kernels: Iterable[tuple[KernelReport, str]]) -> tuple[CodeBlock, ...]:
    """Return the sources of units, divided at the kernels, given each launch's kernel with the key of its step."""
    keys: dict[SourceLines, dict[str, str]] = {}
    for report, key in kernels:
        if report.source is not None:
            keys.setdefault(report.source, {})[key] = report.kernel.name
    blocks: list[CodeBlock] = []
    for number, text in enumerate(units):
        lines, done = text.splitlines(), 0
        for at in sorted((each for each in keys if each.unit == number), key=lambda each: each.first):
            blocks.append(CodeBlock("", _joined(lines[done : at.first - 1]), ""))
            name, *_ = keys[at].values()
            blocks.append(CodeBlock(name, _joined(lines[at.first - 1 : at.last]), " ".join(keys[at])))
            done = at.last
        blocks.append(CodeBlock("", _joined(lines[done:]), ""))
    return tuple(block for block in blocks if block.text)


def _joined(lines: Sequence[str]) -> str:
    """Return lines as a text, without empty ones at both ends."""
    return "\n".join(lines).strip("\n")


def shortened(text: str) -> str:
    """Return a text with the paths in it shortened to file and folder."""
    return _FOLDERS.sub("", text)


def _excerpts(
    file: str, keys: Mapping[int, Iterable[str]], texts: Mapping[tuple[str, int], str]
) -> Iterator[SourceLine]:
    """Yield the lines around those with keys, and a gap wherever some are left out."""
    known = linecache.getlines(file)
    reach = _CONTEXT if known else 0
    shown = sorted({at for line in keys for at in range(line - reach, line + reach + 1)})
    before = 0
    for number in shown:
        if number < 1 or (known and number > len(known)):
            continue
        if before and number > before + 1:
            yield SourceLine(0, "")
        text = known[number - 1].rstrip("\n") if known else texts[file, number]
        yield SourceLine(number, text, " ".join(keys.get(number, ())))
        before = number


def shortened_path(file: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(PurePath(file).parts[-2:])
