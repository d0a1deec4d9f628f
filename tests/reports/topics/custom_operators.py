"""Operators that programs register: mutated arguments, lists, sizes from data, layouts."""

from __future__ import annotations

import torch
from torch import Tensor

from reports.table import Compile, counted, drawn, report


@torch.library.custom_op("reports::add_in_place", mutates_args={"x1", "x2"})
def add_in_place(x1: Tensor, x2: Tensor) -> None:
    """Add one and two to the arguments."""
    x1.add_(1)
    x2.add_(2)


@torch.library.custom_op("reports::sum_into", mutates_args={"out"})
def sum_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write a sum."""
    out.copy_(a + b + 2)


@torch.library.custom_op("reports::exchanged", mutates_args=())
def exchanged(a: Tensor, b: Tensor) -> Tensor:
    """Return a difference that tells the operands apart, and whether they share memory."""
    return a - 2 * b + float(a.data_ptr() == b.data_ptr())


@exchanged.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return torch.empty_like(a)


@torch.library.custom_op("reports::total", mutates_args=())
def total(x: Tensor) -> int:
    """Return a number that follows from the values."""
    return int(x.sum().item())


@total.register_fake
def _(x: Tensor) -> int:
    size = torch.library.get_ctx().new_dynamic_size()
    return size  # type: ignore[return-value]


@torch.library.custom_op("reports::restrided", mutates_args=())
def restrided(x: Tensor) -> Tensor:
    """Return a copy whose first dimension is innermost in memory."""
    return x.permute(1, 2, 0).contiguous().permute(2, 0, 1)


@restrided.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x.permute(1, 2, 0), memory_format=torch.contiguous_format).permute(2, 0, 1)


@torch.library.custom_op("reports::scaled_list", mutates_args={"tensors"})
def scaled_list(tensors: list[Tensor], other: Tensor | None, factor: float = 2.0) -> Tensor:
    """Scale tensors in place, and return the sum of the first."""
    for each in tensors:
        each.mul_(factor)
    return tensors[0].sum() + (0 if other is None else other.sum())


@scaled_list.register_fake
def _(tensors: list[Tensor], other: Tensor | None, factor: float = 2.0) -> Tensor:
    return torch.empty(())


@report(
    "pytorch#153389", "two rows of one tensor that an operator mutates, and a second operator that reads them"
)
def mutated_rows(compiled: Compile) -> object:
    def program(x1: Tensor, x2: Tensor, out: Tensor) -> Tensor:
        torch.ops.reports.add_in_place(x1, x2)
        torch.ops.reports.sum_into(x1[0], x2[0], out)
        return out

    x, out = counted(2, 3), torch.zeros(3)
    return compiled(program, fullgraph=True)(x[0], x[1], out), x, out


@report("pytorch#131192", "a view of an input that an operator mutates")
def mutated_view(compiled: Compile) -> object:
    def program(x: Tensor) -> Tensor:
        torch.ops.reports.add_in_place(x[0], x[1:].view(-1))
        return x * 2

    x = counted(3, 2)
    return compiled(program, fullgraph=True)(x), x


@report("pytorch#127821", "what an operator has mutated is read as it was before")
def mutated_intermediate(compiled: Compile) -> object:
    def program(a: Tensor, b: Tensor) -> Tensor:
        out = torch.full([4], 1.0)
        torch.ops.reports.sum_into(a, b, out)
        squares = out * out
        torch.ops.reports.sum_into(squares, b, out)
        return out + squares

    return compiled(program)(counted(4), counted(4, start=3))


@report("pytorch#198031", "an operator given a copy of a tensor and the tensor gets the tensor twice")
def copy_and_tensor(compiled: Compile) -> object:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.reports.exchanged(x.clone(), x), torch.ops.reports.exchanged(x * 1, x + 0)

    return compiled(program)(counted(4))


@report("pytorch#146457", "an operator that returns a number is not compiled")
def number_from_an_operator(compiled: Compile) -> object:
    def program(x: Tensor) -> Tensor:
        return x.repeat(2) * torch.ops.reports.total(x)

    return compiled(program)(counted(3))


@report("pytorch#144072", "an operator with an optional tensor and a list that it mutates")
def mutated_list(compiled: Compile) -> object:
    def program(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        s = torch.ones_like(a)
        first = torch.ops.reports.scaled_list([a, s], None, 3.0)
        second = torch.ops.reports.scaled_list([s, b[1:]], a)
        return first, second, s

    a, b = counted(3), counted(4)
    return compiled(program)(a, b), a, b


@report("pytorch#186850", "a result in an unusual layout is read as if it were dense")
def result_in_an_unusual_layout(compiled: Compile) -> object:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.ops.reports.restrided(x * 2)
        return y, y.unsqueeze(1) + x.unsqueeze(0), y.sum(0), y.flatten(1)

    return compiled(program)(drawn(3, 3, 4))
