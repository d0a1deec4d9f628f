"""The table of reports, to which each module of a topic adds its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Turns a function or module into a compiled one, or returns it as it is. Options are ``fullgraph`` and ``dynamic``."""
Program = Callable[[Any], object]
"""Builds inputs, compiles and calls something, and returns everything that is compared."""


@dataclass(frozen=True, slots=True)
class Report:
    """A public report as a program of our own.

    ``source`` names the issue, as in ``pytorch#94777``; it is empty for a kind of fault that many issues are about.
    ``fault`` is a sentence: the wrong behaviour that the program would show. ``differs`` is the reason where litz's
    results are not eager's; an empty one promises that they are.
    """

    name: str
    topic: str
    source: str
    fault: str
    program: Program
    differs: str = ""

    @property
    def link(self) -> str:
        """Return the address of the issue."""
        repository, _, number = self.source.partition("#")
        owner = {"pytorch": "pytorch/pytorch", "torchdynamo": "pytorch/torchdynamo"}[repository]
        return f"https://github.com/{owner}/issues/{number}"


REPORTS: dict[str, Report] = {}
"""Reports by name, in the order of their modules."""


def report(source: str, fault: str, *, differs: str = "") -> Callable[[Program], Program]:
    """Add a program to the table under its own name; the topic is its module's name."""

    def add(program: Program) -> Program:
        name = program.__name__
        if name in REPORTS:
            raise ValueError(f"two reports are named {name}")
        topic = program.__module__.rpartition(".")[2].replace("_", " ")
        REPORTS[name] = Report(name, topic, source, fault, program, differs)
        return program

    return add


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception as part of what is compared: the names of its class and of the classes that it inherits from."""

    classes: tuple[str, ...]

    @staticmethod
    def of(error: Exception) -> Raised:
        """Return the classes of an exception, its own first."""
        return Raised(tuple(each.__name__ for each in type(error).__mro__))

    def is_a(self, other: object) -> bool:
        """Report that a handler of the other exception's class would catch this one."""
        return isinstance(other, Raised) and other.classes[0] in self.classes


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or the class of the exception that it raised."""
    try:
        return function(*arguments)
    except Exception as error:
        return Raised.of(error)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a float tensor's bits, in which zeros have signs."""
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().contiguous().view(size).clone()


def counted(*shape: int, dtype: torch.dtype = torch.float32, start: int = 0) -> torch.Tensor:
    """Return consecutive numbers in a shape."""
    size = torch.Size(shape).numel()
    return torch.arange(start, start + size).reshape(shape).to(dtype)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return standard normal numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
