"""Programs that are captured: a module's statements, and the calls of it, as text and data."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

Mode = Literal["grad", "no_grad", "inference", "autocast", "autocast_no_grad"]

PRELUDE = """\
class Point(NamedTuple):
    first: Tensor
    second: Any

class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + 1

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (first * y + 3 * second if wanted[0] else None), ((first * x).sum(0) if wanted[1] else None)

class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

class Added:
    def __init__(self, number):
        self.number = number

    def __enter__(self):
        return lambda t: t + self.number

    def __exit__(self, *_):
        self.number = 0

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor * 2 + 0 * ctx.saved_tensors[0], None

@torch.compiler.disable
def note(x, number=0):
    LOG.append((number, x.detach().clone()))
    return x

def twice(f, x):
    return f(f(x))
"""
"""Classes and functions that statements use; ``LOG`` holds what ``note`` was given."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the module: texts of the positional arguments, the statements before it, the mode around it, and
    names and texts of keyword arguments."""

    arguments: tuple[str, ...]
    before: tuple[str, ...]
    mode: Mode
    keywords: tuple[tuple[str, str], ...] = ()

    def as_text(self) -> str:
        """Return the call as Python."""
        keywords = (f"{name}={text}" for name, text in self.keywords)
        return f"module({', '.join((*self.arguments, *keywords))})  # {self.mode}"


@dataclass(frozen=True, slots=True)
class CapturedProgram:
    """A module and its calls.

    ``attributes`` are the lines of ``__init__``, ``statements`` those of ``forward``, each a text of one or more lines;
    ``results`` are expressions. ``dynamic`` is the option of ``torch.compile``. ``saved``: the compiled forward is
    written to a file and loaded before it is called.
    """

    attributes: tuple[str, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]
    calls: tuple[Call, ...]
    dynamic: bool | None
    saved: bool = False

    def source(self) -> str:
        """Return the classes and functions of the program as Python."""
        body = [line for text in self.statements for line in text.splitlines()]
        init = [line for text in self.attributes for line in text.splitlines()]
        results = ", ".join(self.results)
        keywords = "" if self.saved else ", options=Options(), *, by=2"
        lines = [
            "class Drawn(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in init),
            "",
            "    def scaled(self, x, *, by=1):",
            "        return x * self.s * by",
            "",
            f"    def forward(self, a, b, i, n, f, flag, items, table{keywords}):",
            *(f"        {line}" for line in body),
            f"        return [{results}]",
        ]
        return PRELUDE + "\n" + "\n".join(lines) + "\n"

    def as_text(self) -> str:
        """Return a full description, as a report of a mismatch shows it."""
        lines = [self.source().removeprefix(PRELUDE), f"# dynamic={self.dynamic}, saved={self.saved}"]
        for call in self.calls:
            lines += [*call.before, call.as_text()]
        return "\n".join(lines)

    def smaller(self) -> list[CapturedProgram]:
        """Return programs that are one step simpler, the largest steps first."""
        found = []
        for k in range(len(self.calls) - 1, -1, -1):
            if len(self.calls) > 1:
                found.append(replace(self, calls=self.calls[:k] + self.calls[k + 1 :]))
        for k in range(len(self.results)):
            if len(self.results) > 1:
                found.append(replace(self, results=self.results[:k] + self.results[k + 1 :]))
        for k in reversed(range(len(self.statements))):
            fewer = self.statements[:k] + self.statements[k + 1 :]
            later = "\n".join((*fewer[k:], *self.results))
            names = re.findall(r"^(t\d+)\b(?:, (t\d+))? = ", self.statements[k], re.MULTILINE)
            if not any(re.search(rf"\b{name}\b", later) for pair in names for name in pair if name):
                found.append(replace(self, statements=fewer))
        for k in range(len(self.attributes)):
            found.append(replace(self, attributes=self.attributes[:k] + self.attributes[k + 1 :]))
        for k, call in enumerate(self.calls):
            for j in range(len(call.before)):
                calm = replace(call, before=call.before[:j] + call.before[j + 1 :])
                found.append(replace(self, calls=(*self.calls[:k], calm, *self.calls[k + 1 :])))
            for j in range(len(call.keywords)):
                calm = replace(call, keywords=call.keywords[:j] + call.keywords[j + 1 :])
                found.append(replace(self, calls=(*self.calls[:k], calm, *self.calls[k + 1 :])))
            if call.mode != "no_grad":
                calm = replace(call, mode="no_grad")
                found.append(replace(self, calls=(*self.calls[:k], calm, *self.calls[k + 1 :])))
        if self.dynamic is not None:
            found.append(replace(self, dynamic=None))
        if self.saved:
            found.append(replace(self, saved=False))
        return found
