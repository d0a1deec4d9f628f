"""Sizes and numbers that change between calls, and sizes that follow from data."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from reports.table import Compile, attempt, counted, drawn, report


@report("pytorch#139936", "chunk and split of sizes that change")
def chunks_of_changing_sizes(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.chunk(2)
        return a * 2, b.sum(0), *(part.mean() for part in x.split(3))

    call = compiled(program)
    return [call(counted(n, 2)) for n in (7, 8, 10, 4)]


@report("pytorch#123810", "full, arange and linspace of sizes and values that change")
def constants_of_changing_sizes(compiled: Compile) -> object:
    def program(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return (
            torch.full((n, 2), n),
            torch.arange(n, x.shape[0]) * 2,
            torch.linspace(0, n, 3),
            x.new_ones(n, x.shape[0]).sum(1),
            x[n:],
        )

    call = compiled(program)
    return [call(counted(m), n) for m, n in ((5, 2), (6, 3), (9, 1))]


@report("pytorch#194976", "clamp by a number that changes uses the number of the second call")
def clamp_by_a_changing_number(compiled: Compile) -> object:
    def program(x: torch.Tensor, limit: float) -> torch.Tensor:
        gate, up = torch.chunk(x, 2, -1)
        return F.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)

    call = compiled(program)
    return [call(drawn(3, 8) * 5, limit) for limit in (1.0, 0.25, 7.5, 0.25)]


@report("pytorch#117461", "a size that is read from a tensor")
def size_read_from_a_tensor(compiled: Compile) -> object:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        call = compiled(lambda x: torch.ones(x.item()).sum() + torch.arange(x.item()).prod())
        return [call(torch.tensor(n)) for n in (5, 3)]


@report("pytorch#145963", "elements that a mask selects, and their number")
def selected_elements(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        some = x[x > 2]
        where = x.nonzero()
        return (
            some * 2,
            some.sum(),
            where,
            where.float().mean(0),
            x.masked_select(x < 3).cumsum(0),
            torch.unique(x % 3),
        )

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        call = compiled(program)
        return [call(counted(6)), call(counted(2, 2)), call(torch.zeros(3))]


@report("", "a number read by item() that decides, scales and indexes")
def items_of_tensors(compiled: Compile) -> object:
    def program(x: torch.Tensor, s: torch.Tensor) -> Any:
        n = s.item()
        return x * n if n > 1 else x[int(n) :] + n, n

    call = compiled(program)
    return [call(counted(4), torch.tensor(v)) for v in (0.5, 2.5, 1.0, 3)]


@report("pytorch#113276", "a floor division of a float that follows from a changing int does not compile")
def floats_from_changing_ints(compiled: Compile) -> object:
    def program(x: torch.Tensor, a: int) -> torch.Tensor:
        return x + (a * 1.0) // 8.0 + (a * 1.234) // 2.5

    call = compiled(program, dynamic=True)
    return [call(torch.tensor(0.0), a) for a in (12, 33, -7)]


@report("", "sizes in masks, shifts, divisions and comparisons")
def arithmetic_of_sizes(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        n = x.shape[1]
        return (
            x[:, : n & ~3],
            x * (n | 1),
            F.pad(x, (0, -n & 3)),
            x.sum() * (n ^ 5),
            x / (n // 2),
            n << 2,
            min(n, 7),
            x[:, :: max(n // 4, 1)],
        )

    call = compiled(program)
    return [call(counted(2, n)) for n in (8, 13, 6)]


@report("pytorch#111580", "diff and other operations with tensors of sizes that change separately")
def separately_changing_sizes(compiled: Compile) -> object:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.diff(a),
            torch.cat((a, b)),
            torch.outer(a, b),
            a.repeat_interleave(2)[: b.shape[0]],
            F.pad(b, (0, a.shape[0])),
        )

    call = compiled(program, dynamic=True)
    return [call(counted(n), counted(m)) for n, m in ((3, 4), (4, 4), (2, 7), (1, 1))]


@report("", "the same function for sizes of zero, one and more, one after the other")
def sizes_of_zero_and_one(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(0),
            x.softmax(1),
            x @ x.t(),
            (x[:1] * 2).flatten(),
            x.cumsum(0),
            x.mean(1),
            x.view(-1, 3, 1),
        )

    call = compiled(program)
    return [call(counted(n, 3)) for n in (4, 1, 0, 5, 0, 1)]


@report("pytorch#165105", "matmuls of batches of half precision with several sizes")
def batched_matmuls(compiled: Compile) -> object:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(torch.matmul(a.half(), b.half()), a.mT.half()[..., :1]).float()

    call = compiled(program, dynamic=True)
    return [call(counted(n, 2, 3) / 8, counted(n, 3, 3) / 9) for n in (2, 5)]


@report("", "a table of strides, of dtypes and of ranks that change from call to call")
def changing_kinds_of_inputs(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2 + 1, x.sum(), x.reshape(-1)[:3], x.float().mean(0)

    call = compiled(program)
    inputs = [
        counted(4, 3),
        counted(3, 4).t(),
        counted(8, 3)[::2],
        counted(4, 3).int(),
        counted(4),
        counted(2, 2, 3),
        counted(5, 3).double(),
    ]
    return [call(each) for each in inputs]


@report("", "keyword arguments, defaults and containers of several structures")
def changing_structures(compiled: Compile) -> object:
    def program(
        x: torch.Tensor, *rest: torch.Tensor, scale: float = 1.0, named: dict[str, torch.Tensor] | None = None
    ) -> Any:
        total = x * scale + sum(each.sum() for each in rest)
        return {"total": total, **{k: v + 1 for k, v in (named or {}).items()}}

    call = compiled(program)
    x = counted(2)
    return [call(x), call(x, x, x), call(x, scale=2.5), call(x, named={"b": x, "a": x * 2}), attempt(call)]
