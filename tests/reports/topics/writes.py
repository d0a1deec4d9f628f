"""Writes in place, to inputs, views and intermediates."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from reports.table import Compile, counted, drawn, report


@report("pytorch#94777", "a value computed before an in-place operation is computed from the written tensor")
def value_before_a_write(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        before = torch.log(x)
        x.log_()
        return before

    x = torch.tensor(3.0)
    return compiled(program)(x), x


@report("pytorch#101950", "a copy of the flipped tensor into itself reads what it has written")
def copy_of_own_flip(compiled: Compile) -> object:
    x = counted(11)
    return compiled(lambda t: t.copy_(torch.flip(t, (0,))))(x), x


@report("pytorch#198270", "an index_put and a sum with the flipped tensor are fused into one pass over it")
def scatter_then_flip(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.index_put_((torch.arange(x.size(0)),), x * 3)
        x += x.flip(0)
        return x

    def rolled(x: torch.Tensor) -> torch.Tensor:
        x.index_copy_(0, torch.tensor([1, 3]), x[:2] + 5)
        x[1:] = x[:-1].clone()
        return x

    x, y = counted(6, 40), counted(6, 40)
    return compiled(program)(x), compiled(rolled)(y)


@report("pytorch#198131", "a copy from a tensor that is written later has the later values")
def copy_before_the_source_changes(compiled: Compile) -> object:
    def program(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        target[:, :] = source[:, :]
        source.mul_(-1)
        return source

    target, source = torch.zeros(3, 5), counted(3, 5)
    return compiled(program)(target, source), target, source


@report("pytorch#198101", "a view as another dtype, read after a write to its base, has the bits of before")
def dtype_view_after_a_write(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        words = x.view(torch.int32)
        x.add_(1)
        sign = words & 0x7F800000
        words.bitwise_xor_(1 << 31)
        return sign, x * 2

    x = counted(9)
    return compiled(program)(x), x


@report("pytorch#198033", "a foreach operation reads the flip of a tensor that the same kernel writes")
def foreach_of_a_flip(compiled: Compile) -> object:
    def program(a: torch.Tensor, b: torch.Tensor) -> None:
        torch._foreach_add_([a, b], [b.flip(0), a.flip(0)])
        torch._foreach_copy_([a, b], [a.flip(0), b.roll(2)])

    a, b = counted(17), counted(17, start=50)
    compiled(program)(a, b)
    return a, b


@report(
    "pytorch#94693", "two overlapping slices of an input are written one after the other, one write is lost"
)
def overlapping_slices(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[:, 20:40] += 1
        x[:, 10:30] *= 2
        return x.sum()

    x = counted(2, 50)
    return compiled(program)(x), x


@report("pytorch#93824", "reciprocal_ of a tensor that is read before and after")
def reciprocal_in_place(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.unsqueeze(0).expand(3, 4) * 2
        x.reciprocal_()
        return y, y + x

    x = counted(4, start=1)
    return compiled(program)(x), x


@report("pytorch#97083", "a squeezed view of a tensor that is written on both sides of a branch on its value")
def squeeze_and_a_branch(compiled: Compile) -> object:
    def program() -> torch.Tensor:
        a = torch.tensor([1, 5])[0:1]
        b = a.squeeze()
        a[0] = 0
        if a[0] < 100:
            a[0] = a[0] + 7
        return b

    with torch.no_grad():
        return compiled(program)()


@report(
    "pytorch#97130", "a write in a nested function, followed by a graph break, is missing in another view"
)
def write_in_a_nested_function(compiled: Compile) -> object:
    def program() -> torch.Tensor:
        a = torch.ones(3)
        b, c = a.reshape(3), a[0:2]

        def write() -> None:
            b[0] = 2
            if b.sum() >= 0:
                b[1] = 9

        write()
        return c

    return compiled(program)()


@report("pytorch#96064", "an unrolled loop of writes to rows reads rows of an earlier iteration")
def unrolled_loop_of_row_writes(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[1])
        out = torch.zeros_like(x)
        for row in range(x.shape[0]):
            state = state * 0.5 + x[row]
            out[row] = state
            out[0] += state
        return out

    return compiled(program)(counted(5, 3))


@report("pytorch#174074", "x[[0, 0]] += x[[0, 0]] adds twice")
def duplicate_rows_written(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[[0, 0]] += x[[0, 0]]
        return x

    x = counted(2, 3, start=1).double()
    return compiled(program)(x), x


@report("pytorch#138908", "y[i] += y[i] with equal elements in i accumulates, under dynamic shapes")
def duplicate_indices_under_dynamic_shapes(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        y[x + 10] += y[x + 10]

    y = counted(2, 32)
    compiled(program, dynamic=True)(torch.tensor([[-10, -10]]), y)
    return y


@report("pytorch#183575", "the buffer of a lerp_ is given to a later value while it is still read")
def lerp_and_reuse(compiled: Compile) -> object:
    def program(p: torch.Tensor, m: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        g = (x.to(torch.bfloat16).t() @ p.to(torch.bfloat16)).float()
        m.lerp_(g, 0.05)
        p.add_(m, alpha=-0.25)
        later = (x.to(torch.bfloat16).t() @ p.to(torch.bfloat16)).float()
        return later.relu().sum(0)

    p, m, x = counted(4, 4), torch.ones(4, 4), torch.eye(4)
    return compiled(program)(p, m, x), p, m


@report(
    "pytorch#108963", "the second of two results, one a copy of the other, is zero after index_add with alpha"
)
def index_add_returned_twice(compiled: Compile) -> object:
    def program(source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = torch.zeros(2, dtype=torch.double)
        out = zeros.index_add(0, torch.tensor([1]), source, alpha=2.0) / 2
        return out, out.clone()

    return compiled(program)(torch.tensor([0.75], dtype=torch.double))


@report(
    "pytorch#115774", "a tensor attribute that is written and later replaced is the one of the first call"
)
def replaced_attribute(compiled: Compile) -> object:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = torch.tensor([0, 0])

        def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            self.cache[position] = x
            return self.cache

    module = Cache()
    call = compiled(module)
    first = call(torch.tensor([2]), torch.tensor([0])).clone()
    module.cache = torch.tensor([0, 0])
    return first, call(torch.tensor([1]), torch.tensor([1])), module.cache


@report(
    "pytorch#195422",
    "a write through the result of an inactive dropout, which is its input, is lost",
)
def write_through_inactive_dropout(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.dropout(x, 0.5, False)
        y += 1
        return x * 2

    x = torch.ones(3)
    return compiled(program)(x), x


@report("pytorch#162410", "a copy of the transposed tensor into itself reads written elements")
def copy_of_own_transpose(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.copy_(x.t() + 1)
        x[1:, :] = x[:-1, :] * 2
        return x.diagonal()

    x = counted(7, 7)
    return compiled(program)(x), x


@report("", "rotation of halves of a tensor in place")
def rotated_halves(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        a, b = x[..., :4], x[..., 4:]
        a.add_(b)
        b.sub_(a)
        x.copy_(torch.cat((-b, a), -1))
        return x

    x = counted(3, 8)
    return compiled(program)(x), x


@report("pytorch#98835", "out= of a tensor of another shape or dtype")
def out_arguments(compiled: Compile) -> object:
    def program(a: torch.Tensor, wide: torch.Tensor, row: torch.Tensor) -> None:
        torch.add(a, 1, out=wide)
        torch.sum(a, 0, out=row)

    wide, row = torch.empty(3, 4, dtype=torch.double), torch.empty(8)[::2]
    compiled(program)(counted(3, 4), wide, row)
    return wide, row


@report("pytorch#110842", "an input is resized or replaced by set_ in the graph")
def replaced_data(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.data = y * 2
        return x + 1

    x = torch.zeros(2, 3)
    return compiled(program)(x, counted(4)), x


@report("", "an input written under no_grad keeps requires_grad and its gradient")
def write_under_no_grad(compiled: Compile) -> object:
    def program(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            w.mul_(0.5)
        return (w * x).sum()

    w: Any = counted(4, start=1).requires_grad_()
    loss = compiled(program)(w, counted(4))
    loss.backward()
    return loss.detach(), w.detach(), w.grad


@report("", "several writes to slices of one buffer in a loop with changing positions")
def growing_cache(compiled: Compile) -> object:
    def program(cache: torch.Tensor, value: torch.Tensor, position: int) -> torch.Tensor:
        cache[:, position : position + value.shape[1]] = value
        return cache[:, : position + 1].sum(1)

    cache = torch.zeros(2, 8, 3)
    call = compiled(program)
    results = [call(cache, drawn(2, 2, 3, seed=k), 2 * k) for k in range(3)]
    return results, cache
