"""Compiled programs: the graphs of one captured function and what to do around them, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from litz.artifact import CompiledCapture


@dataclass(frozen=True, slots=True)
class CallForm:
    """The form of a program's calls, around those of its graphs."""

    returns_tuple: bool
    """True where the program returns its results as a tuple; False where it returns the only one by itself."""

    returned_inputs: tuple[tuple[int, int], ...] = ()
    """Positions of results that are inputs of the graph, each with the position of that input."""

    bound: tuple[str, ...] = ()
    """Constants that are passed to the graph before the arguments: parameters and buffers of the captured module."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of devices as code is compiled for it."""

    kind: str
    """Kind of the devices (``cpu``)."""

    name: str
    """Name of the instruction set or chip (``avx512``)."""

    features: tuple[str, ...] = ()
    """Names of optional instructions that the code may contain (``avx512_vnni``), in order."""

    def __str__(self) -> str:
        return " with ".join(filter(None, (f"{self.kind} {self.name}", ", ".join(self.features))))

    def runs(self, code: Machine) -> bool:
        """Report whether devices of this kind run what was compiled for others."""
        return (self.kind, self.name) == (code.kind, code.name) and {*self.features} >= {*code.features}


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A compiled program: what a saved artifact contains."""

    graphs: CompiledCapture
    """The graph, or a forward and its backward, and the work that AOTAutograd leaves to do around them."""

    form: CallForm
    """The form of calls."""

    machines: tuple[Machine, ...]
    """Devices that kernels were compiled for, one of each kind."""

    constants: Mapping[str, torch.Tensor]
    """Tensors that the graph contains, and those of ``form.bound``, by name."""

    cuda_graphs: bool = False
    """The option ``cuda_graphs`` that it was compiled with."""

    freezing: bool = False
    """The option ``freezing`` that it was compiled with."""
