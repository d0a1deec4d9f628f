"""Arguments of operators that are computed from a dynamic size: one compilation serves all sizes, as without litz."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError
from torch.utils._pytree import tree_leaves

from litz_ir.contraction import convolution_call
from litz_ir.dtypes import f32
from litz_ir.loops import ContractionCall, Ref, Value, tensor_type
from litz_ir.symbols import Size, symbol

aten = torch.ops.aten

SIZES = (3, 5)
"""The dynamic size of each call, none of them 0, 1 or 2, which torch itself specialises."""

Program = Callable[[Tensor], Any]


def waves(*shape: int) -> Tensor:
    """Return distinct numbers between -1 and 1."""
    return torch.arange(math.prod(shape), dtype=torch.float32).add(len(shape)).sin().reshape(shape)


LINE, IMAGE, VOLUME = waves(1, 4, 12), waves(1, 4, 12, 12), waves(1, 4, 7, 7, 7)
W1, W2, W3 = waves(4, 4, 2), waves(4, 4, 2, 2), waves(4, 4, 2, 2, 2)
LINES, ROW = waves(6, 30), waves(30)

PARAMETER = torch.nn.Parameter(waves(4, 4, 3, 3))
"""A weight that litz freezes where no gradient is wanted."""

CONVOLUTIONS: dict[str, Program] = {
    "conv1d dilation": lambda x: F.conv1d(LINE, W1, dilation=x.size(0)),
    "conv1d padding, stride": lambda x: F.conv1d(LINE, W1, padding=x.size(0), stride=x.size(0)),
    "conv2d dilation by batch": lambda x: F.conv2d(
        x[:, None, None, None] * IMAGE[:, :1], W2[:, :1], dilation=[x.size(0)]
    ),
    "conv2d dilation list of one": lambda x: F.conv2d(IMAGE, W2, dilation=[x.size(0)]),
    "conv2d one of two dilations": lambda x: F.conv2d(IMAGE, W2, dilation=[2, x.size(0)]),
    "conv2d one of two paddings": lambda x: F.conv2d(IMAGE, W2, padding=[x.size(0), 1]),
    "conv2d one of two strides": lambda x: F.conv2d(IMAGE, W2, stride=[x.size(0), 2]),
    "conv2d groups": lambda x: F.conv2d(
        x.view(1, -1, 1, 1) * waves(1, 1, 8, 8), x.view(-1, 1, 1, 1) * waves(1, 1, 2, 2), groups=x.size(0)
    ),
    "conv2d result of fixed size": lambda x: F.conv2d(
        IMAGE, PARAMETER, dilation=x.size(0), padding=x.size(0)
    ),
    "conv2d between loops": lambda x: F.conv2d(
        IMAGE.relu(), PARAMETER, dilation=x.size(0), padding=x.size(0)
    ).relu(),
    "conv2d padding beyond": lambda x: F.conv2d(IMAGE, PARAMETER, padding=2 * x.size(0) + 1),
    "conv2d channels last": lambda x: F.conv2d(
        IMAGE.to(memory_format=torch.channels_last), PARAMETER, dilation=x.size(0)
    ),
    "conv2d bfloat16": lambda x: F.conv2d(IMAGE.bfloat16(), W2.bfloat16(), dilation=x.size(0)),
    "conv3d dilation": lambda x: F.conv3d(VOLUME, W3, dilation=[1, x.size(0), 1]),
    "conv3d padding": lambda x: F.conv3d(VOLUME, W3, padding=x.size(0)),
    "conv_transpose1d stride": lambda x: F.conv_transpose1d(LINE, W1, stride=x.size(0)),
    "conv_transpose2d stride, output_padding": lambda x: F.conv_transpose2d(
        IMAGE, W2, stride=x.size(0), output_padding=x.size(0) - 1
    ),
    "conv_transpose2d padding": lambda x: F.conv_transpose2d(IMAGE, PARAMETER, padding=x.size(0) - 1),
    "conv_transpose2d dilation": lambda x: F.conv_transpose2d(IMAGE, W2, dilation=(x.size(0), 1)),
    "conv_transpose3d stride": lambda x: F.conv_transpose3d(VOLUME, W3, stride=(x.size(0), 1, 2)),
}

POOLS: dict[str, Program] = {
    "max_pool2d kernel": lambda x: F.max_pool2d(IMAGE, x.size(0)),
    "max_pool2d dilation": lambda x: F.max_pool2d(IMAGE, 2, dilation=x.size(0)),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(IMAGE, x.size(0)),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(VOLUME, x.size(0)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(IMAGE, x.size(0)),
    "im2col kernel": lambda x: F.unfold(IMAGE, x.size(0)),
    "col2im": lambda x: F.fold(waves(1, 8, 1).expand(1, 8, x.size(0) * x.size(0)), x.size(0) + 1, 2),
}


def resampled(image: Tensor, size: Callable[[int], Any], mode: str) -> Program:
    return lambda x: F.interpolate(image, size(x.size(0)), mode=mode)


def padded(mode: str) -> Program:
    return lambda x: F.pad(IMAGE, (x.size(0), 0, 1, x.size(0) - 1), mode=mode)


RESAMPLING: dict[str, Program] = {
    **{
        f"interpolate {mode}": resampled(LINE, lambda n: 7 * n, mode)
        for mode in ("nearest", "nearest-exact", "linear")
    },
    **{
        f"interpolate {mode}": resampled(IMAGE, lambda n: (7, 2 * n), mode)
        for mode in ("bilinear", "bicubic", "area")
    },
    "interpolate antialias": lambda x: F.interpolate(IMAGE, x.size(0), mode="bilinear", antialias=True),
    "interpolate bicubic antialias": lambda x: F.interpolate(
        IMAGE, x.size(0), mode="bicubic", antialias=True
    ),
    "interpolate trilinear": lambda x: F.interpolate(VOLUME, x.size(0), mode="trilinear"),
    **{f"pad {mode}": padded(mode) for mode in ("constant", "reflect", "replicate", "circular")},
    "pad reflect line": lambda x: F.pad(LINE, (x.size(0), 1), mode="reflect"),
    "pad negative": lambda x: F.pad(IMAGE, (-x.size(0), 1, 0, -x.size(0) + 1)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(waves(1, 1, 2, 2).expand(1, x.size(0) ** 2, 2, 2), x.size(0)),
    "channel_shuffle": lambda x: F.channel_shuffle(x.view(1, -1, 1, 1) * waves(1, 1, 2, 3), x.size(0)),
}

SHAPES: dict[str, Program] = {
    "roll": lambda x: torch.roll(LINES, x.size(0), 1),
    "roll flat": lambda x: torch.roll(LINES, x.size(0)),
    "roll two": lambda x: torch.roll(LINES, (x.size(0), -x.size(0)), (0, 1)),
    "roll channels last": lambda x: torch.roll(
        IMAGE.to(memory_format=torch.channels_last), (x.size(0), 1), (2, 3)
    ),
    "rot90": lambda x: torch.rot90(x[:, None] + ROW, 1),
    "repeat_interleave": lambda x: torch.repeat_interleave(ROW, x.size(0)),
    "repeat": lambda x: LINES.repeat(x.size(0), 2),
    "tile": lambda x: torch.tile(LINES, (x.size(0),)),
    "tensor.unfold size": lambda x: ROW.unfold(0, x.size(0), 2),
    "slice": lambda x: LINES[:, x.size(0) : 2 * x.size(0)] + 1,
    "slice step": lambda x: LINES[:, :: x.size(0)] + 1,
    "slice negative": lambda x: LINES[:, -x.size(0) :] + 1,
    "narrow": lambda x: LINES.narrow(1, x.size(0), 4) + 1,
    "select": lambda x: LINES.select(1, x.size(0)) + 1,
    "select negative": lambda x: LINES.select(1, -x.size(0)) + 1,
    "select_scatter": lambda x: LINES.select_scatter(waves(6), 1, x.size(0)),
    "slice_scatter": lambda x: LINES.slice_scatter(waves(6, 4), 1, x.size(0), x.size(0) + 4),
    "as_strided": lambda x: torch.as_strided(ROW.clone(), (x.size(0), 4), (4, 1), x.size(0)) + 1,
    "as_strided_scatter": lambda x: torch.as_strided_scatter(ROW, waves(4), (4,), (x.size(0),), 1),
    "diagonal": lambda x: LINES.diagonal(x.shape.numel()) + 1,
    "tril": lambda x: LINES.tril(x.size(0)),
    "triu": lambda x: LINES.triu(-x.size(0)),
    "expand": lambda x: ROW.expand(x.size(0), 30) + 1,
    "broadcast_to": lambda x: torch.broadcast_to(ROW, (x.size(0), 30)) + 1,
    "view": lambda x: (x[:, None] * ROW).view(x.size(0) * 5, 6) + 1,
    "reshape": lambda x: (x[:, None] * ROW).t().reshape(x.size(0), -1) + 1,
    "unflatten": lambda x: (x[:, None] * ROW).flatten().unflatten(0, (x.size(0), 30)) + 1,
    "split with sizes": lambda x: [each + 1 for each in ROW.split([x.size(0), 30 - x.size(0)])],
    "chunk of symbolic": lambda x: [each + 1 for each in (x[:, None] * ROW).chunk(3, 1)],
    "tensor_split": lambda x: [each + 1 for each in ROW.tensor_split((x.size(0), 2 * x.size(0)))],
    "constant of a size": lambda x: ROW * x.size(0),
}

FACTORIES: dict[str, Program] = {
    "arange": lambda x: torch.arange(x.size(0)),
    "arange start, step": lambda x: torch.arange(x.size(0), 40, x.size(0)),
    "full": lambda x: torch.full((x.size(0), 2), 1.5),
    "full of a size": lambda x: torch.full((3,), x.size(0)),
    "zeros": lambda x: torch.zeros(x.size(0), x.size(0)),
    "empty": lambda x: torch.empty(x.size(0), 3).fill_(1.0),
    "new_full": lambda x: ROW.new_full((x.size(0),), 2.0),
    "new_zeros": lambda x: ROW.new_zeros(2, x.size(0)),
    "empty_strided": lambda x: torch.empty_strided((2, x.size(0)), (x.size(0), 1)).fill_(1.0),
    "eye": lambda x: torch.eye(x.size(0), 2 * x.size(0)),
    "tril_indices": lambda x: torch.tril_indices(4, 4, 1) + x.size(0),
    "randint high": lambda x: torch.randint(x.size(0), (4,)) * 0,
    "randint shape": lambda x: torch.randint(0, 9, (x.size(0),)) * 0,
    "randn": lambda x: torch.randn(x.size(0), 2) * 0,
    "randperm": lambda x: torch.randperm(x.size(0)).sort()[0],
    "one_hot": lambda x: F.one_hot(torch.tensor([0, 2, 1]), x.size(0)),
    "bincount": lambda x: torch.bincount(torch.tensor([0, 2, 1]), minlength=x.size(0)),
    "vander": lambda x: torch.linalg.vander(waves(3), N=x.size(0)),
    "nonzero_static": lambda x: torch.nonzero_static(torch.tensor([0, 1, 2, 0, 4]), size=x.size(0)),
}

OTHERS: dict[str, Program] = {
    "topk": lambda x: torch.topk(LINES, x.size(0)),
    "topk smallest": lambda x: torch.topk(LINES, x.size(0), 0, largest=False),
    "kthvalue": lambda x: torch.kthvalue(LINES, x.size(0)),
    "fft n": lambda x: torch.fft.fft(ROW, n=40 * x.size(0)).abs(),
    "rfft n": lambda x: torch.fft.rfft(ROW, n=40 * x.size(0)).abs(),
    "irfft n": lambda x: torch.fft.irfft(torch.fft.rfft(ROW), n=40 * x.size(0)),
    "fft2 s": lambda x: torch.fft.fft2(LINES, s=(4, x.size(0))).abs(),
    "layer_norm": lambda x: F.layer_norm((x[:, None] * ROW).t(), (x.size(0),)),
    "rms_norm": lambda x: F.rms_norm((x[:, None] * ROW).t(), (x.size(0),)),
    "group_norm": lambda x: F.group_norm(
        x.view(1, -1, 1).expand(1, x.size(0), 6) * waves(1, 1, 6), x.size(0)
    ),
    "embedding padding_idx": lambda x: F.embedding(torch.tensor([0, 2]), LINES, padding_idx=x.size(0)),
    "embedding gradient": lambda x: aten.embedding_dense_backward(
        waves(3, 4), torch.tensor([0, 2, 2]), x.size(0), -1, False
    ),
    "nll_loss ignore": lambda x: F.nll_loss(LINES, torch.tensor([0, 5, 2, 4, 3, 1]), ignore_index=x.size(0)),
    "cross_entropy ignore": lambda x: F.cross_entropy(
        LINES, torch.tensor([0, 5, 2, 4, 3, 1]), ignore_index=x.size(0)
    ),
    "multinomial": lambda x: torch.multinomial(LINES.abs() + 1, x.size(0)) * 0,
    "matmul": lambda x: (x[:, None] * ROW) @ LINES.t(),
    "bmm": lambda x: (x[:, None, None] * LINES) @ LINES.t(),
    "addmm": lambda x: torch.addmm(waves(6), x[:, None] * ROW, LINES.t()),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(
        *(x[None, None, :, None] * waves(1, 2, 1, 8),) * 3
    ),
    "to_padded_tensor": lambda x: torch.nn.utils.rnn.pad_sequence([ROW[: x.size(0)], ROW]),
    "cdist": lambda x: torch.cdist(x[:, None] * ROW, LINES),
    "cumsum": lambda x: torch.cumsum(x[:, None] * ROW, 0),
    "sort": lambda x: torch.sort(x[:, None] * ROW, dim=0, stable=True)[0],
    "bucketize": lambda x: torch.bucketize(ROW, torch.arange(x.size(0)).float()),
    "embedding_bag": lambda x: F.embedding_bag(
        torch.arange(x.size(0)), LINES, torch.tensor([0, 2]), mode="sum"
    ),
}

PROGRAMS = CONVOLUTIONS | POOLS | RESAMPLING | SHAPES | FACTORIES | OTHERS

NO_GRADIENT = frozenset({"conv2d groups", "conv2d bfloat16", "conv2d dilation by batch", "col2im"})
"""Names of programs in the first tables that read no leaf, or not in f32."""

SPECIALISED_BY_TORCH = frozenset(
    {
        "max_pool2d kernel", "max_pool2d dilation", "adaptive_max_pool2d", "im2col kernel", "pixel_shuffle",
        "tensor.unfold size", "diagonal", "one_hot", "group_norm",
    }
)  # fmt: skip
"""Names of programs whose schema, or torch's tracing of them, requires a number."""


def outcome(run: Program, size: int, leaves: Sequence[Tensor]) -> Any:
    """Return a program's results for a size that is marked dynamic, and the gradients of ``leaves``."""
    x = torch.arange(1.0, 1 + size)
    torch._dynamo.mark_dynamic(x, 0)
    torch.manual_seed(size)
    result = run(x)
    if not leaves:
        return result
    made = [each for each in tree_leaves(result) if isinstance(each, Tensor) and each.requires_grad]
    total = sum((each.square().sum() for each in made), torch.zeros(()))
    return result, torch.autograd.grad(total, leaves, allow_unused=True)


def check(program: Program, leaves: Sequence[Tensor] = ()) -> None:
    """Assert one graph for all sizes, with eager's results."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("litz")
    compiled = torch.compile(program, backend=counter, fullgraph=True)
    for size in SIZES:
        expected = outcome(program, size, leaves)
        torch.testing.assert_close(outcome(compiled, size, leaves), expected, rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - SPECIALISED_BY_TORCH))
def test_an_argument_may_be_a_size_that_changes(name: str) -> None:
    with torch.no_grad():
        check(PROGRAMS[name])


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted((CONVOLUTIONS | POOLS).keys() - SPECIALISED_BY_TORCH - NO_GRADIENT))
def test_an_argument_may_be_a_size_that_changes_in_training(name: str) -> None:
    leaves = [each.requires_grad_() for each in (LINE, IMAGE, VOLUME, W1, W2, W3, PARAMETER)]
    try:
        check(PROGRAMS[name], leaves)
    finally:
        for each in leaves[:-1]:
            each.requires_grad_(False)


@pytest.mark.parametrize("name", sorted(SPECIALISED_BY_TORCH))
def test_what_torch_specialises_is_specialised_without_litz_too(name: str) -> None:
    for backend in ("aot_eager", "litz"):
        torch._dynamo.reset()
        compiled = torch.compile(PROGRAMS[name], backend=backend)
        with pytest.raises(ConstraintViolationError):
            outcome(compiled, SIZES[0], ())


def test_only_some_of_the_numbers_of_a_window_known_are_not_taken_for_all() -> None:
    """A stride of (2, symbol) is no stride of 2 in both directions, nor is a window that is not known a loop."""
    types = {"x": (1, 4, 12, 12), "w": (4, 4, 3, 3), "y": (1, 4, 10, 10)}
    x, w, y = (Value(name, tensor_type(f32, *shape)) for name, shape in types.items())

    def call(dilation: tuple[Size, ...]) -> ContractionCall:
        arguments = (Ref("x"), Ref("w"), None, (1, 1), (0, 0), dilation, False, (0, 0), 1)
        return ContractionCall(
            results=(y,), target="aten.convolution.default", arguments=arguments, kind="convolution"
        )

    values = {"x": x, "w": w}
    assert convolution_call(call((1, 1)), values) is not None
    assert convolution_call(call((1,)), values) is not None
    assert convolution_call(call((1, symbol("s0"))), values) is None
    assert convolution_call(call((symbol("s0"),)), values) is None
