"""A graph of the corpus with its inputs, and functions to write one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from litz_ir.builder import GraphBuilder, Tensor
from litz_ir.device import Device
from litz_ir.dtypes import DType, f32
from litz_ir.interp import encode
from litz_ir.loops import LoopGraph
from litz_ir.symbols import Size, evaluate

Array = npt.NDArray[Any]
Externs = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class GraphCase:
    """A graph with its inputs, and the accuracy required of its results."""

    name: str
    """Name, unique in the corpus."""
    graph: LoopGraph
    """Graph that is scheduled and run."""
    inputs: tuple[Array, ...]
    """Inputs in memory form, the same on every machine."""
    ulp: int = 64
    """Units in the last place of a result's largest value by which floats may differ from the reference."""
    externs: Externs = field(default_factory=dict)
    """Routines that the graph calls, on NumPy arrays."""

    def fresh(self) -> list[Array]:
        """Return copies of the inputs."""
        return [array.copy() for array in self.inputs]


class CaseBuilder(GraphBuilder):
    """Builder of a case's graph that draws an input with each argument."""

    def __init__(self, name: str, device: Device) -> None:
        super().__init__(name, device=device)
        self.arrays: list[Array] = []
        self.sizes: dict[str, int] = {}

    def dynamic(self, name: str, value: int) -> Size:
        """Return a size that is known at run time, which is ``value`` in this case."""
        term = self.size(name, 0, hint=8)
        self.sizes[name] = value
        return term

    def given(
        self, name: str, *shape: Size, dtype: DType = f32, low: float = -2.0, high: float = 2.0
    ) -> Tensor:
        """Return an argument, with an input of numbers in ``[low, high)``."""
        rng = np.random.default_rng(zlib.crc32(f"{self.name} {name}".encode()))
        concrete = [evaluate(size, self.sizes) for size in shape]
        values: Array
        if dtype.is_float:
            values = rng.uniform(low, high, concrete).astype(np.float64)
        elif dtype.is_bool:
            values = rng.random(concrete) < 0.5
        else:
            values = rng.integers(int(max(low, 0) if not dtype.is_signed else low), int(high), concrete)
        self.arrays.append(encode(np.asarray(values), dtype))
        return self.input(name, dtype, shape)


Program = Callable[[CaseBuilder], Tensor | Sequence[Tensor]]
"""A function that adds a program to a builder and returns its results."""


def case(
    name: str, device: Device, program: Program, ulp: int = 64, externs: Externs | None = None
) -> GraphCase:
    """Return the case of a program."""
    builder = CaseBuilder(name, device)
    results = program(builder)
    graph = builder.build(*((results,) if isinstance(results, Tensor) else results))
    return GraphCase(name, graph, tuple(builder.arrays), ulp, externs or {})
