"""Reads and writes by index: gather, scatter, masks, searches, sorts, concatenations."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from reports.table import Compile, attempt, counted, drawn, report


@report("pytorch#191571", "a row that scatter_add_ has written is gathered before it is written")
def gather_after_a_scatter(compiled: Compile) -> object:
    def program(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(1, x.shape[1])
        total.scatter_add_(0, index.unsqueeze(-1).expand(-1, x.shape[1]), x)
        return torch.index_select(total, 0, index)

    return compiled(program)(counted(8, 4), torch.zeros(8, dtype=torch.int64))


@report("pytorch#93823", "masked_fill by a mask that is broadcast over the last dimension fills nothing")
def masked_fill_of_a_broadcast_mask(compiled: Compile) -> object:
    mask = torch.tensor([True, False, True, True] * 2).view(2, 4, 1)
    return compiled(lambda x, m: (x.masked_fill(m, 0), torch.where(m, x, -1), x * m))(counted(2, 4, 8), mask)


@report("pytorch#182343", "searchsorted in a slice of a sorted tensor searches the whole tensor")
def searchsorted_in_a_slice(compiled: Compile) -> object:
    def program(offsets: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        right = torch.searchsorted(offsets[1:], values, right=True)
        return (
            right,
            torch.searchsorted(offsets[::2], values),
            torch.searchsorted(offsets.flip(0)[:0], values),
        )

    return compiled(program)(torch.tensor([0, 3, 7, 12]), torch.arange(12))


@report("pytorch#160964", "bucketize by a slice of boundaries uses all of them")
def bucketize_by_a_slice(compiled: Compile) -> object:
    def program(x: torch.Tensor, bounds: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.bucketize(x, bounds[1:]),
            torch.bucketize(x, bounds[2:8:3], right=True),
            torch.bucketize(x, bounds + 0.5),
        )

    return compiled(program)(torch.tensor([2.5, 4.0, 5.5, float("nan"), -1.0]), counted(10))


@report("pytorch#142384", "isin with assume_unique does not compile from a certain size on")
def membership(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.isin(x, y, assume_unique=True),
            torch.isin(x, y, invert=True),
            torch.isin(x, 50),
            torch.isin(x[:1], y[:2]),
        )

    return compiled(program)(torch.arange(40, 52).unsqueeze(1), torch.arange(50, 64))


@report("pytorch#93274", "a histogram over several dimensions raises")
def histograms(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = torch.histogramdd(x, [2, 1, 3])
        return (
            h.hist,
            *h.bin_edges,
            torch.histc(x, 4, -1.0, 1.0),
            torch.bincount((x[:, 0] * 0 + 2).long(), minlength=5),
        )

    return compiled(program)(drawn(5, 3))


@report("pytorch#184089", "flip of a tensor without dimensions does not compile")
def views_without_dimensions(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.flip(0) * 2, x.cumsum(0), x.sum(-1), x.softmax(0), x.sort(0).values, x.roll(1), x.argmax(0),
            x.cumprod(-1), x.unsqueeze(0).squeeze(0), x.log_softmax(-1), x.view(1, 1).expand(2, 3),
            torch.logcumsumexp(x, 0), x.mean(0), x.max(0).values,
        )  # fmt: skip

    return [
        compiled(lambda t: program(t))(torch.tensor(5.0)),
        attempt(compiled(lambda t: t.flip(0)), torch.tensor(True)),
    ]


@report(
    "pytorch#181621",
    "gather by an index that is computed from what is gathered uses a variable outside its scope",
)
def gather_by_a_computed_index(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = F.pad(F.leaky_relu(F.elu(x)), (1, 2))
        return torch.gather(y, 2, (y.abs() * 3).long() % y.shape[2])

    return compiled(program)(drawn(2, 5, 6))


@report("pytorch#186850", "unsqueeze of a value in an unusual layout reads beyond it")
def unusual_layouts(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x.permute(2, 0, 1).contiguous() * 2).permute(1, 2, 0)
        z = y.unsqueeze(1).repeat_interleave(2, 1)
        return (
            z.reshape(x.shape[0], -1),
            (z + y.unsqueeze(1)).sum(2),
            y.unsqueeze(-1).expand(-1, -1, -1, 2).flatten(2),
        )

    return compiled(program)(counted(2, 3, 4))


@report(
    "pytorch#183888",
    "abs_ of an overlapping unfold does not compile",
    differs="AOTAutograd cannot capture the write to an overlapping view; litz warns, and runs it as eager does",
)
def write_into_an_unfold(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + x).unfold(1, 4, 2).abs_()

    return attempt(compiled(program), torch.linspace(-3, 3, 7).reshape(1, 7))


@report("pytorch#147842", "slice_scatter of integers into floats fails")
def slice_scatter_of_another_dtype(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.slice_scatter(torch.zeros(3), x, 0), torch.select_scatter(torch.zeros(2, 3), x, 0, 1)

    return attempt(compiled(program), torch.tensor([4, 5, 6]))


@report("pytorch#122379", "split and cat of all parts of a tensor have the shape of some of them")
def split_and_chosen_parts(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = torch.split(x, 1, 0)
        return torch.cat([parts[i] for i in range(10)], 0), torch.stack([parts[i] for i in (9, 0, 0)], 1)

    return compiled(program)(counted(10, 2, 3))


@report("pytorch#178676", "split, reshape and cat with sizes that follow from the rest do not compile")
def split_reshape_and_cat(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = torch.split(x, [3, 4, 5], 1)
        flat = [part.reshape(x.shape[0], -1) * 2 for part in parts]
        return torch.cat(flat, 1), torch.cat([part.reshape(-1, 2) for part in parts], 0).sum(1)

    return compiled(program)(counted(2, 12, 2))


@report("", "sort, topk, kthvalue, median and unique of equal elements and NaN")
def orders_of_equal_elements(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[object, ...]:
        return (
            torch.sort(x, stable=True, dim=1), torch.sort(x, stable=True, dim=0, descending=True).values,
            x.topk(2, 1).values, x.kthvalue(2, 1).values, x.median(1).values,
            x.argsort(stable=True, dim=1), x.cummax(1), x.nanmedian(), x.mode(1).values, x.msort(),
        )  # fmt: skip

    x = torch.tensor([[3.0, 1.0, 3.0, float("nan")], [2.0, 2.0, 2.0, -float("inf")], [0.0, -0.0, 5.0, 5.0]])
    return compiled(program)(x)


@report("", "masks, negative indices and indices of several kinds mixed")
def mixed_indices(compiled: Compile) -> object:
    def program(x: torch.Tensor, i: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        y[i, :, -1] = 5
        y[:, m] += 1
        return (
            x[i],
            x[:, i[:2]],
            x[i, None, :2],
            x[..., i, 1],
            x[m.nonzero().squeeze(1)],
            y,
            x[i[:, None], i, 0],
            x[-1, m],
        )

    mask = torch.tensor([True, False, True, True])
    return compiled(program)(counted(4, 4, 3), torch.tensor([0, -1, 2]), mask)


@report(
    "", "scatter_reduce of each kind, with and without the tensor's own elements, into integers and floats"
)
def kinds_of_scatter_reduce(compiled: Compile) -> object:
    index = torch.tensor([0, 2, 2, 0, 4, 2])

    def program(x: torch.Tensor, source: torch.Tensor) -> list[torch.Tensor]:
        kinds = ("sum", "prod", "mean", "amax", "amin")
        return [
            x.scatter_reduce(0, index, source, kind, include_self=own)
            for kind in kinds
            for own in (True, False)
        ]

    source = torch.tensor([3, -2, 5, 7, 1, 2])
    return [
        compiled(program)(counted(5, start=1, dtype=t), source.to(t)) for t in (torch.float32, torch.int64)
    ]


@report("", "index_put with accumulate, equal indices and a broadcast value")
def accumulated_index_put(compiled: Compile) -> object:
    def program(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.index_put((i, i), torch.tensor(2.0), accumulate=True)
        x.index_put_((i,), torch.ones(4), accumulate=True)
        return (
            y,
            x,
            x.index_add(1, i, x[:, :3], alpha=2),
            x.put(torch.tensor([0, 0, 15]), torch.ones(3), accumulate=True),
        )

    return compiled(program)(counted(4, 4), torch.tensor([1, 1, -1]).remainder(4))


@report("pytorch#129820", "the result of a comparison with out= has the shape of the tensor that it replaced")
def comparison_with_out(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.lt(x, y, out=out)
        return found, found + 1

    out = torch.empty(3, 4)
    return compiled(program)(counted(3, 4), torch.tensor(5.0), out), out
