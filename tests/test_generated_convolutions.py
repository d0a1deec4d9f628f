"""Convolutions and their gradients generated for a GPU: eager's values, the generated kernels, cubins."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generated_convolutions
import pytest
import torch
from generated_matmuls import MACHINE, OPTIONS
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from interpreted import found_by, sources_of

from litz_ir.device import CPU
from litz_ir.host import Executor
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep
from litz_ir.text import parse_graph
from litz_scheduler import schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "codegen-triton" / "tests"))
import triton_assembly

CASES = generated_convolutions.CASES


found = found_by(generated_convolutions.__file__, seconds=250)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_a_plan_computes_what_eager_computes(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    assert found[name]["difference"] == ""


@pytest.mark.parametrize("name", CASES)
def test_each_convolution_is_computed_by_dot(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    case, seen = CASES[name], found[name]
    assert (seen["dot_kernels"], seen["kernels"], seen["calls"]) == (case.dot_kernels, case.kernels, [])


COMPILED = [*((name, "sm_90") for name in CASES), ("gradients", "sm_80"), ("gradients", "sm_100")]


@pytest.mark.parametrize(("name", "chip"), COMPILED)
def test_kernels_compile_and_spill_nothing(
    name: str, chip: str, found: Mapping[str, dict[str, Any]], sources: Path, tmp_path: Path
) -> None:
    for source in sources_of(sources, name, found[name]["kernels"]):
        outcome = triton_assembly.compiled(source, chip, tmp_path)
        assert (outcome.refused, outcome.spilled) == ("", 0)


@dataclass(frozen=True)
class Moved:
    """An input, a weight, and the parameters of a convolution, as ATen takes them."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    arguments: tuple[Any, ...]


@st.composite
def windows(draw: st.DrawFn) -> Moved:
    """Strategy of convolutions of one to three dimensions, transposed or not, that eager takes."""
    rank, transposed, groups = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.integers(1, 3))

    def numbers(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank))

    sizes, image = numbers(1, 4 if rank < 3 else 3), numbers(1, 9 if rank < 3 else 5)
    steps, distances, paddings = numbers(1, 4), numbers(1, 3), numbers(0, 3)
    longer = [min(n, max(a, b) - 1) for n, a, b in zip(numbers(0, 2), steps, distances)]
    batch, own, other = draw(st.tuples(*[st.integers(1, 3)] * 3))
    # One channel in each group would be a depthwise convolution, which is no matmul.
    own, other = (max(each, min(groups, 2)) for each in (own, other))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    x, weight = normal(batch, groups * own, *image), normal(groups * (own if transposed else other),
                                                            other if transposed else own, *sizes)  # fmt: skip
    if rank == 2 and draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last)
    bias = normal(groups * other) if draw(st.booleans()) else None
    more = longer if transposed else [0] * rank
    arguments = (steps, paddings, distances, transposed, more, groups)
    reach = [d * (n - 1) + 1 for d, n in zip(distances, sizes)]
    if transposed:
        parts = zip(image, steps, paddings, reach, more)
        made = [(n - 1) * s - 2 * p + r + o for n, s, p, r, o in parts]
    else:
        made = [(n + 2 * p - r) // s + 1 for n, p, r, s in zip(image, paddings, reach, steps)]
    assume(all(n > 0 for n in made))
    return Moved(x, weight, bias, arguments)


def typed(name: str, tensor: torch.Tensor) -> str:
    """Return a tensor's name and type in a graph's text."""
    strides = ", ".join(map(str, tensor.stride()))
    return f"{name}f32[{', '.join(map(str, tensor.shape))}] strides({strides}) fixed"


def assert_like_eager(
    call: str, given: Mapping[str, torch.Tensor], arguments: Sequence[Any], expected: Sequence[torch.Tensor]
) -> None:
    """Assert that the plan of a call, all of it loops, computes eager's values in the reference interpreter."""
    inputs = ", ".join(typed(f"%{name}: ", tensor) for name, tensor in given.items())
    names = ", ".join(f"%o{k}" for k in range(len(expected)))
    taken = ", ".join("none" if each is None else str(each).lower() for each in arguments)
    results = ", ".join(typed("", tensor) for tensor in expected)
    text = f"graph g({inputs}) -> ({names}) {{\n  {names} = contraction.convolution {call}({taken}) -> {results}\n}}"
    plan = schedule(parse_graph(text), PassContext({CPU: MACHINE}), OPTIONS)
    assert not any(isinstance(step, CallStep) for step in plan.steps)
    made = Executor(plan).run([tensor.numpy() for tensor in given.values()])
    for mine, theirs in zip(made, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(mine.copy()), theirs.contiguous(), rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(windows())
def test_any_window(moved: Moved) -> None:
    expected = torch.ops.aten.convolution(moved.x, moved.weight, moved.bias, *moved.arguments)
    given = {"x": moved.x, "w": moved.weight} | ({} if moved.bias is None else {"b": moved.bias})
    arguments = ("%x", "%w", None if moved.bias is None else "%b", *moved.arguments)
    assert_like_eager("aten.convolution.default", given, arguments, [expected])


@settings(max_examples=60, deadline=None)
@given(windows())
def test_gradients_of_any_window(moved: Moved) -> None:
    result = torch.ops.aten.convolution(moved.x, moved.weight, None, *moved.arguments)
    gradient = torch.cos(torch.arange(result.numel()).float()).view(result.shape)
    channels = [result.shape[1]]
    every = [True, True, True]
    expected = torch.ops.aten.convolution_backward(
        gradient, moved.x, moved.weight, channels, *moved.arguments, every
    )
    given = {"g": gradient, "x": moved.x, "w": moved.weight}
    arguments = ("%g", "%x", "%w", channels, *moved.arguments, every)
    assert_like_eager("aten.convolution_backward.default", given, arguments, expected)
