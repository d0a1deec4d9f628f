"""Convolutions over patches on a GPU, which are matmuls of ATen: eager's values, the kernels around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import patch_convolutions
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import found_by
from narrow_convolutions import H200

from litz_ir.device import CPU
from litz_ir.host import Executor
from litz_ir.host.externs import numpy_externs
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep
from litz_ir.text import parse_graph
from litz_scheduler import schedule

CASES = patch_convolutions.CASES


found = found_by(patch_convolutions.__file__, seconds=250)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_a_plan_computes_what_eager_computes(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    assert found[name]["difference"] == ""


@pytest.mark.parametrize("name", CASES)
def test_loops_copy_nothing_but_patches(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    seen = found[name]
    # Its forward is no convolution over patches.
    calls = ["aten.convolution.default"] if name == "gradients_transposed" else ["aten.mm.default"]
    calls += ["aten.mm.default"] * (len(seen["calls"]) - 1)
    assert (seen["kernels"], seen["calls"]) == (CASES[name].kernels, calls)


@dataclass(frozen=True)
class Patches:
    """An input, a weight and a bias in f16, and the size of a patch."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    sizes: tuple[int, ...]

    @property
    def geometry(self) -> tuple[Any, ...]:
        """Parameters of the convolution, as ATen takes them."""
        zeros, ones = [0] * len(self.sizes), [1] * len(self.sizes)
        return ([*self.sizes], zeros, ones, False, zeros, 1)


@st.composite
def patches(draw: st.DrawFn) -> Patches:
    """Strategy of convolutions over patches of one to three dimensions, whose rows are aligned and channels not."""
    rank = draw(st.integers(1, 3))
    channels = draw(st.sampled_from([1, 2, 3, 4, 6]))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=rank, max_size=rank))
    while (channels * torch.Size(sizes).numel()) % 8:
        sizes[draw(st.integers(0, rank - 1))] *= 2
    counts = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    rests = [draw(st.integers(0, size - 1)) for size in sizes]
    batch, own = draw(st.integers(1, 3)), draw(st.sampled_from([8, 16]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))

    def normal(*shape: int) -> torch.Tensor:
        made = (torch.randn(shape, generator=generator) / 4).half()
        wanted = rank == 2 and draw(st.booleans())
        return made.contiguous(memory_format=torch.channels_last) if wanted and len(shape) == 4 else made

    image = [size * count + rest for size, count, rest in zip(sizes, counts, rests)]
    x, weight = normal(batch, channels, *image), normal(own, channels, *sizes)
    return Patches(x, weight, normal(own) if draw(st.booleans()) else None, tuple(sizes))


def typed(tensor: torch.Tensor) -> str:
    """Return the type of a fixed tensor in a graph's text."""
    strides = ", ".join(map(str, tensor.stride()))
    return f"f16[{', '.join(map(str, tensor.shape))}] strides({strides}) fixed"


def assert_like_eager(
    call: str,
    given: Mapping[str, torch.Tensor],
    arguments: Sequence[Any],
    expected: Sequence[torch.Tensor],
    returned: Sequence[int],
) -> None:
    """Assert that the plan of a call, whose only call is a matmul, computes eager's values in the interpreter."""
    inputs = ", ".join(f"%{name}: {typed(tensor)}" for name, tensor in given.items())
    names = [f"%o{k}" for k in range(len(expected))]
    taken = ", ".join("none" if each is None else str(each).lower() for each in arguments)
    results = ", ".join(map(typed, expected))
    outputs = ", ".join(names[k] for k in returned)
    text = (
        f"graph g({inputs}) -> ({outputs}) {{\n"
        f"  {', '.join(names)} = contraction.convolution {call}({taken}) -> {results}\n}}"
    )
    plan = schedule(parse_graph(text), PassContext({CPU: H200}))
    assert [step.target for step in plan.steps if isinstance(step, CallStep)] == ["aten.mm.default"]
    made = Executor(plan, externs=numpy_externs()).run([tensor.numpy() for tensor in given.values()])
    for k, mine in zip(returned, made, strict=True):
        theirs = expected[k].contiguous()
        torch.testing.assert_close(torch.from_numpy(mine.copy()), theirs, rtol=4e-3, atol=4e-3)


@settings(max_examples=60, deadline=None)
@given(patches())
def test_any_patches(drawn: Patches) -> None:
    expected = torch.ops.aten.convolution(drawn.x, drawn.weight, drawn.bias, *drawn.geometry)
    given = {"x": drawn.x, "w": drawn.weight} | ({} if drawn.bias is None else {"b": drawn.bias})
    arguments = ("%x", "%w", None if drawn.bias is None else "%b", *drawn.geometry)
    assert_like_eager("aten.convolution.default", given, arguments, [expected], [0])


@settings(max_examples=60, deadline=None)
@given(patches())
def test_gradients_of_any_patches(drawn: Patches) -> None:
    result = torch.ops.aten.convolution(drawn.x, drawn.weight, None, *drawn.geometry)
    gradient = (torch.cos(torch.arange(result.numel()).float()) / 4).half().view(result.shape)
    if result.ndim == 4 and not result.is_contiguous():
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    channels, mask = [result.shape[1]], [False, True, drawn.bias is not None]
    wide = (gradient.float(), drawn.x.float(), drawn.weight.float())
    every = torch.ops.aten.convolution_backward(*wide, channels, *drawn.geometry, [True, True, True])
    expected = [each.half() for each in every]
    given = {"g": gradient, "x": drawn.x, "w": drawn.weight}
    arguments = ("%g", "%x", "%w", channels, *drawn.geometry, mask)
    returned = [1, 2] if mask[2] else [1]
    assert_like_eager("aten.convolution_backward.default", given, arguments, expected, returned)
