"""Errors of eager that a compiled program must not lose, and processes that must not end."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from reports.table import Compile, attempt, counted, drawn, report


@report("pytorch#131321", "scatter_reduce takes negative indices for positions from the end")
def scatter_reduce_of_a_negative_index(compiled: Compile) -> object:
    index, source = torch.tensor([0, 1, 0, 2, -1]), counted(5)
    kinds = (lambda x: x.scatter_reduce(0, index, source, "sum"), lambda x: x.scatter_add(0, index, source))
    return [attempt(compiled(each), counted(4)) for each in kinds]


@report("pytorch#185885", "index_add takes negative indices for positions from the end")
def index_add_of_a_negative_index(compiled: Compile) -> object:
    def program(index: torch.Tensor) -> torch.Tensor:
        return torch.index_add(torch.zeros(4, 3), 0, index, torch.ones(2, 3)).clamp_max(1)

    call = compiled(program)
    return (
        attempt(call, torch.tensor([0, 3])),
        attempt(call, torch.tensor([0, -1])),
        attempt(call, torch.tensor([4, 0])),
    )


@report("pytorch#183769", "select beyond the end of a dimension reads what is behind it")
def select_out_of_range(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        base = x.unsqueeze(1)
        return torch.cat((torch.select(base, 1, 0), torch.select(base, 1, 1)), -1)

    return attempt(compiled(program), counted(3, 4))


@report("pytorch#111952", "an index beyond the end reads what is behind it")
def index_out_of_range(compiled: Compile) -> object:
    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i + 1]

    call = compiled(program)
    return [attempt(call, counted(2), torch.tensor([i])) for i in (0, 1, -4, -2)]


@report("pytorch#183608", "embedding takes negative indices for rows from the end")
def embedding_of_a_negative_index(compiled: Compile) -> object:
    call = compiled(F.embedding)
    weight = counted(5, 2)
    return [attempt(call, torch.tensor([2, i, 4]), weight) for i in (1, -2, 5)]


@report("pytorch#100831", "embedding beyond its table")
def embedding_beyond_its_table(compiled: Compile) -> object:
    layer = nn.Embedding(1, 2).eval()
    with torch.no_grad():
        return attempt(compiled(layer), torch.tensor([[0, 7]]))


@report("pytorch#98978", "a linear layer takes integers under no_grad")
def linear_of_integers(compiled: Compile) -> object:
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        return attempt(compiled(lambda x: layer(x.permute(1, 2, 0))), counted(3, 3, 3, dtype=torch.int64))


@report("pytorch#172183", "a matmul of two dtypes in attention is computed")
def attention_of_two_dtypes(compiled: Compile) -> object:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8, -1).half()
        return weights @ v

    return attempt(compiled(program), drawn(1, 2, 8, 8), drawn(1, 2, 8, 8, seed=1), drawn(1, 2, 8, 8, seed=2))


@report("pytorch#121251", "index_select beyond the end reads what is behind it")
def index_select_out_of_range(compiled: Compile) -> object:
    call = compiled(lambda x, i: torch.index_select(x, 1, i) * 2)
    return [attempt(call, counted(2, 3), torch.tensor([0, i])) for i in (2, 3, -1)]


@report("pytorch#193757", "binary cross-entropy of targets above one gives a value")
def targets_of_binary_cross_entropy(compiled: Compile) -> object:
    call = compiled(F.binary_cross_entropy)
    p = torch.tensor([0.2, 0.9])
    return [attempt(call, p, torch.tensor([1.0, t])) for t in (1.0, 1.5, -0.5)] + [attempt(call, p + 0.2, p)]


@report("pytorch#126691", "an exception inside a parallel loop ends the process")
def error_inside_a_parallel_loop(compiled: Compile) -> object:
    def program(a: torch.Tensor) -> torch.Tensor:
        return a[torch.arange(1, -a.numel() - 1, -1)]

    return attempt(compiled(program), drawn(64, 32))


@report("pytorch#150993", "a matmul of different dtypes is computed")
def matmul_of_two_dtypes(compiled: Compile) -> object:
    pairs = ((torch.float32, torch.float64), (torch.bfloat16, torch.float32), (torch.int64, torch.float32))
    return [attempt(compiled(torch.matmul), counted(2, 3).to(a), counted(3, 2).to(b)) for a, b in pairs]


@report(
    "pytorch#94830",
    "indexing a tensor without elements by [[0]] ends the process",
    differs="torch's meta kernels raise another class for a maximum of no elements (under `aot_eager` too)",
)
def index_of_an_empty_tensor(compiled: Compile) -> object:
    programs = (
        lambda a: a[[0]],
        lambda a: a.max(),
        lambda a: a.argmax(),
        lambda a: a[0],
        lambda a: a.gather(0, a.long()),
    )
    return [attempt(compiled(each), torch.tensor([])) for each in programs]


@report("pytorch#99686", "a split whose sizes do not add up is computed where its parts are concatenated")
def split_of_wrong_sizes(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        parts = torch.split(x, [2, 1, 1], 1)
        return torch.cat((parts[0], parts[1], parts[2]), 1)

    return attempt(compiled(program), counted(1, 5)), attempt(compiled(program), counted(1, 4))


@report("pytorch#197095", "interpolation of an image without pixels reads memory at random")
def interpolation_of_no_pixels(compiled: Compile) -> object:
    x = torch.ones(1, 2, 0, 4)
    kinds = ("nearest", "bilinear", "bicubic", "area")
    return [attempt(compiled(lambda t, m=mode: F.interpolate(t, size=(3, 3), mode=m)), x) for mode in kinds]


@report(
    "pytorch#100225", "a transposed convolution with impossible output padding is computed where tanh follows"
)
def impossible_output_padding(compiled: Compile) -> object:
    layer = nn.ConvTranspose2d(2, 3, 3, stride=1, padding=1, output_padding=1).eval()
    with torch.no_grad():
        return attempt(compiled(lambda x: torch.tanh(layer(x))), drawn(1, 2, 6, 6))


@report(
    "pytorch#144013",
    "a transposed convolution whose result has no elements is computed where sigmoid follows",
)
def transposed_convolution_without_result(compiled: Compile) -> object:
    layers = (nn.ConvTranspose1d(1, 1, 2, padding=1), nn.ConvTranspose2d(1, 1, 2, padding=1))
    with torch.no_grad():
        return [
            attempt(compiled(lambda x, f=f: torch.sigmoid(f(x))), torch.ones([1] * n))
            for f, n in zip(layers, (3, 4))
        ]


@report("pytorch#98835", "out= of a tensor that is too small ends the process")
def out_of_another_size(compiled: Compile) -> object:
    def program(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.abs(x, out=out)

    empty = torch.empty(0)
    return attempt(compiled(program), -counted(8, 8), empty), empty.shape


@report("pytorch#147206", "a remainder of a number by tensors with zeros ends the process")
def remainder_of_a_number_by_zeros(compiled: Compile) -> object:
    return attempt(compiled(lambda x: torch.remainder(1, x <= 1)), torch.eye(3)), attempt(
        compiled(lambda x: torch.remainder(7, x)), torch.tensor([2, 0])
    )


@report("pytorch#193816", "a scatter of an index larger than its source fails inside the compiler")
def scatter_of_a_small_source(compiled: Compile) -> object:
    def program(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.scatter(1, index, source)

    return attempt(compiled(program), torch.zeros(4, 8), torch.zeros(2, 8, dtype=torch.int64), drawn(2, 4))


@report("pytorch#197554", "validation of arguments is lost in decompositions")
def validation_of_arguments(compiled: Compile) -> object:
    x, i = drawn(4, 4), torch.tensor([5])
    programs = (
        lambda: F.cross_entropy(x, torch.tensor([0, 1, 2, 9])),
        lambda: F.nll_loss(x, torch.tensor([0, 1, 2, -7])),
        lambda: F.one_hot(i, 3),
        lambda: torch.gather(x, 0, i.view(1, 1)),
        lambda: x.index_fill(0, i, 1.0),
        lambda: torch.take(x, torch.tensor([99])),
        lambda: x.index_copy(0, i, x[:1]),
        lambda: F.pixel_shuffle(x.view(1, 4, 2, 2), 3),
    )
    return [attempt(compiled(each)) for each in programs]


@report("pytorch#188224", "cummin of a window without elements does not compile")
def scan_without_elements(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        window = torch.bartlett_window(0, periodic=False)
        return torch.clone(window), torch.cummin(window.clone(), -1)[0], window.cumsum(0), window.sum()

    return compiled(program)()
