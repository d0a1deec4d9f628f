"""Text tests: cases in `*.litz` files, in the style of LLVM's FileCheck.

A file holds cases, divided by lines `# -----`. A case is an input, the command that runs on it, and what has to be
found in its output; every line of it that is no part of the input is a comment of the text form:

    # Two reductions of one tensor become one.
    # RUN: online-reductions gpu long_row=32
    graph g(%x: f32[8, 40] fixed) -> (%a, %b) { ... }
    # CHECK: reduce.online_softmax
    # CHECK-NOT: reduce.sum

The first line is the title, which names the test. A test module says which commands there are. With `--update-golden`
the checks of a case that fails are replaced by its whole output, to be read in the diff.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

SEPARATOR = "# -----"
RUN = "# RUN:"
CHECK = re.compile(r"# CHECK(-[A-Z]+(-\d+)?)?(\{LITERAL\})?:")
SPECIAL = re.compile(r"\[\[|\{\{")
"""Start of a variable or of an expression in FileCheck."""

Command = Callable[[str, Sequence[str]], str]
"""A function from the input and the arguments of the command to the output that is checked."""


@dataclass(frozen=True)
class Case:
    """A case of a file: its text, comments and all, and the number of its first line."""

    path: Path
    line: int
    text: str

    @property
    def title(self) -> str:
        """Return the first line's sentence."""
        return self.text.lstrip("\n").split("\n", 1)[0].removeprefix("#").strip().rstrip(".")

    @property
    def command(self) -> Sequence[str]:
        """Return the command and its arguments; raises `ValueError` for a case without one, or with several."""
        found = [line.removeprefix(RUN) for line in self.text.splitlines() if line.startswith(RUN)]
        if len(found) != 1:
            raise ValueError(f"{self.path}:{self.line}: {len(found)} lines start with {RUN}, one is wanted")
        return shlex.split(found[0])

    @property
    def source(self) -> str:
        """Return the input, with an empty line for each comment, so that line numbers stay."""
        return "\n".join("" if line.startswith("#") else line for line in self.text.splitlines()) + "\n"

    def with_checks(self, output: str) -> str:
        """Return the text with checks for all lines of an output, one after another."""
        kept = [line for line in self.text.rstrip("\n").splitlines() if not CHECK.match(line)]
        while kept and not kept[-1]:
            kept.pop()
        wanted, gap = [], True
        for line in output.splitlines():
            if line.strip():
                wanted.append(f"# CHECK{'' if gap else '-NEXT'}: {SPECIAL.sub(_escaped, line)}")
            gap = not line.strip()
        return "\n".join([*kept, *wanted]) + "\n"


def cases(folder: Path) -> list[Case]:
    """Return all cases of the files `*.litz` of a folder, in order of their names."""
    return [case for path in sorted(folder.glob("*.litz")) for case in _of(path)]


def titles(found: Iterable[Case]) -> list[str]:
    """Return the names of the cases' tests."""
    return [f"{case.path.stem}: {case.title}" for case in found]


def check(case: Case, commands: Mapping[str, Command], *, update: bool = False) -> None:
    """Run a case's command and look for what it wants in the output; raises `AssertionError` where that is not there.

    ``update`` writes the output into the case's file instead.
    """
    name, *arguments = case.command
    if name not in commands:
        raise ValueError(
            f"{case.path}:{case.line}: no command {name}; there are {', '.join(sorted(commands))}"
        )
    output = commands[name](case.source, arguments)
    missed = _missed(case, output)
    if missed and update:
        whole = case.path.read_text(encoding="utf-8")
        case.path.write_text(whole.replace(case.text, case.with_checks(output)), encoding="utf-8")
        return
    assert not missed, f"{case.path}:{case.line}: {missed}\nthe output:\n{output}"


def _of(path: Path) -> Iterable[Case]:
    line = 1
    for text in re.split(rf"^{SEPARATOR}\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        yield Case(path, line, text)
        line += text.count("\n") + 1


def _escaped(match: re.Match[str]) -> str:
    return "{{" + re.escape(match.group()) + "}}"


def _missed(case: Case, output: str) -> str:
    """Return FileCheck's message on missing text; empty where nothing is missing."""
    options = Options(match_filename=str(case.path))
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        wanted = Parser(options, io.StringIO(case.text), *pattern_for_opts(options))
        failed = Matcher(options, FInput("output", output), wanted).run()
    return said.getvalue().strip() or "FileCheck fails" if failed else ""
