"""Lanes of scatters that add: none along indices that memory decides, and those of rows otherwise."""

from __future__ import annotations

import torch
from compared_with_eager import Program, agrees, values

import litz
from litz_ir.plan import Store, cpu_loops


def lanes(program: Program, *arguments: torch.Tensor) -> list[str | None]:
    """Return the vector axes of the kernels that add to elements."""
    torch._dynamo.reset()
    (graph,) = litz.explain(program, *arguments).graphs
    assert graph.plan is not None
    return [
        cpu_loops(kernel.schedule).vector
        for kernel in graph.plan.kernels
        if any(isinstance(s, Store) and s.mode == "add" for phase in kernel.phases for s in phase.statements)
    ]


def test_repeated_indices_along_a_row_are_added_one_by_one() -> None:
    def program(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.scatter_add(1, at, y)

    x, y = values(5, 40), values(5, 33)
    at = torch.randint(0, 4, (5, 33), generator=torch.Generator().manual_seed(0))
    agrees(program, x, at, y)
    assert lanes(program, x, at, y) == [None]


def test_rows_are_added_by_registers() -> None:
    def program(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_add(0, at, y)

    x, y = values(6, 64), values(9, 64)
    at = torch.randint(0, 6, (9,), generator=torch.Generator().manual_seed(0))
    agrees(program, x, at, y)
    assert lanes(program, x, at, y) != [None]


def test_columns_are_added_row_by_row() -> None:
    def program(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_add(1, at, y)

    x, y = values(64, 6), values(64, 9)
    at = torch.randint(0, 6, (9,), generator=torch.Generator().manual_seed(0))
    agrees(program, x, at, y)
    assert lanes(program, x, at, y) == [None]
