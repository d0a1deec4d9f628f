"""Depthwise convolutions on a GPU and their gradients: eager's values, the calls that remain, cubins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import depthwise_convolutions
import numpy as np
import pytest
import torch
from depthwise_convolutions import CONVOLUTION, GRADIENTS
from generated_matmuls import MACHINE
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from interpreted import assert_form, found_by, sources_of

from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.host import Executor
from litz_ir.passes import PassContext
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "codegen-triton" / "tests"))
import triton_assembly

CASES = depthwise_convolutions.CASES


found = found_by(depthwise_convolutions.__file__, seconds=250)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_a_plan_computes_what_eager_computes(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    assert found[name]["difference"] == ""


@pytest.mark.parametrize("name", CASES)
def test_each_convolution_has_its_form(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    assert_form(CASES[name], found[name])


COMPILED = [
    *((name, "sm_90") for name in CASES),
    *((name, chip) for name in ("strided", "gradients_summed") for chip in ("sm_80", "sm_100")),
]


@pytest.mark.parametrize(("name", "chip"), COMPILED)
def test_kernels_compile_and_spill_nothing(
    name: str, chip: str, found: Mapping[str, dict[str, Any]], sources: Path, tmp_path: Path
) -> None:
    for source in sources_of(sources, name, found[name]["kernels"]):
        outcome = triton_assembly.compiled(source, chip, tmp_path)
        assert (outcome.refused, outcome.spilled) == ("", 0)


LARGE = """
graph g(%g: bf16[{n}, {c}, {y}, {y}] strides({a}, 1, {d}, {c}) fixed,
  %x: bf16[{n}, {c}, {x}, {x}] strides({b}, 1, {e}, {c}) fixed, %w: bf16[{c}, 1, {k}, {k}] fixed
) -> (%y, %gx, %gw) {{
  %y = contraction.convolution aten.convolution.default(%x, %w, none, [2, 2], [{p}, {p}], [1, 1], false, [0, 0], {c})
    -> bf16[{n}, {c}, {y}, {y}] strides({a}, 1, {d}, {c}) fixed need exact
  %gx, %gw, %gb = contraction.convolution aten.convolution_backward.default(%g, %x, %w, [0], [2, 2], [{p}, {p}], [1, 1],
      false, [0, 0], {c}, [true, true, false])
    -> bf16[{n}, {c}, {x}, {x}] strides({b}, 1, {e}, {c}) fixed, bf16[{c}, 1, {k}, {k}] fixed,
       bf16[{c}] fixed need exact unpack
}}
"""
"""A convolution of stride 2 and its gradients: batch n, c channels of x by x points, a filter of k by k points."""

SPILLED = 48
"""Bytes that the loop of a convolution with a stride may spill: ``ptxas`` loads the points of a whole filter first."""


@pytest.mark.sampled
@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(
    ("n", "c", "x", "k"), [(128, 672, 14, 5), (64, 144, 56, 5), (128, 64, 112, 3), (8, 40, 57, 3)]
)
def test_kernels_of_large_activations_spill_little(
    n: int, c: int, x: int, k: int, chip: str, tmp_path: Path
) -> None:
    y = (x - 1) // 2 + 1
    steps = {"a": c * y * y, "b": c * x * x, "d": c * y, "e": c * x}
    text = LARGE.format(n=n, c=c, x=x, y=y, k=k, p=k // 2, **steps)
    machine = replace(MACHINE, name=chip)
    plan = schedule_plan(
        schedule(parse_graph(text), PassContext({CPU: machine}), SchedulerOptions()), machine
    )
    for kernel in plan.kernels:
        outcome = triton_assembly.compiled(emit_kernel(kernel), chip, tmp_path)
        limit = SPILLED if kernel.name.endswith("y_sum_y") else 0
        assert outcome.refused == ""
        assert outcome.spilled <= limit


@dataclass(frozen=True)
class Moved:
    """An input, a filter for each channel, and the parameters of a convolution, as ATen takes them."""

    x: torch.Tensor
    weight: torch.Tensor
    arguments: tuple[Any, ...]

    def result(self) -> torch.Tensor:
        """Return the result in f32."""
        found: torch.Tensor = torch.ops.aten.convolution(self.x, self.weight, None, *self.arguments)
        return found


def small_integers(seed: int, *shape: int) -> torch.Tensor:
    """Return integers whose convolutions f16 represents, in whatever order a sum is computed."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


@st.composite
def windows(draw: st.DrawFn) -> Moved:
    """Strategy of depthwise convolutions of images, transposed or not, that eager takes."""

    def numbers(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=2, max_size=2))

    transposed, channels, seed = draw(st.booleans()), draw(st.integers(2, 5)), draw(st.integers(0, 99))
    sizes, image, paddings = numbers(1, 5), numbers(1, 9), numbers(0, 4)
    steps = draw(st.sampled_from([[1, 1], [1, 1], [2, 2], [2, 1], [1, 3], [3, 2], [4, 4]]))
    distances = draw(st.sampled_from([[1, 1], [1, 1], [2, 1], [2, 2], [3, 3]]))
    longer = [min(n, max(a, b) - 1) for n, a, b in zip(numbers(0, 2), steps, distances)]
    x = small_integers(seed, draw(st.integers(1, 3)), channels, *image)
    weight = small_integers(seed + 1, channels, 1, *sizes)
    if draw(st.booleans()):
        weight = weight[:1].expand(channels, 1, *sizes)
    reach = [d * (n - 1) + 1 for d, n in zip(distances, sizes)]
    if transposed:
        parts = zip(image, steps, paddings, reach, longer)
        made = [(n - 1) * s - 2 * p + r + o for n, s, p, r, o in parts]
    else:
        longer = [0, 0]
        made = [(n + 2 * p - r) // s + 1 for n, p, r, s in zip(image, paddings, reach, steps)]
    assume(all(n > 0 for n in made))
    return Moved(x, weight, (steps, paddings, distances, transposed, longer, channels))


def last(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in f16 and channels-last."""
    return tensor.half().contiguous(memory_format=torch.channels_last)


def in_f32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a routine of the library over arrays: exact, with results in channels-last."""

    def run(*arguments: Any) -> Any:
        tensors = [
            torch.from_numpy(np.array(each, np.float32)) if isinstance(each, np.ndarray) else each
            for each in arguments
        ]
        made = function(*tensors)
        several = made if isinstance(made, tuple) else (made,)
        results = tuple(None if each is None else last(each).numpy() for each in several)
        return results if isinstance(made, tuple) else results[0]

    return run


LIBRARY = {
    CONVOLUTION: in_f32(torch.ops.aten.convolution),
    GRADIENTS: in_f32(torch.ops.aten.convolution_backward),
}


def typed(name: str, tensor: torch.Tensor) -> str:
    """Return a tensor's name and type in a graph's text."""
    strides = ", ".join(map(str, tensor.stride()))
    return f"{name}f16[{', '.join(map(str, tensor.shape))}] strides({strides}) fixed"


def assert_exact(
    given: Mapping[str, torch.Tensor], call: str, results: Mapping[str, torch.Tensor], more: str = ""
) -> None:
    """Assert that the plan of a call, whose results ``more`` may read, computes the expected results."""
    inputs = ", ".join(typed(f"%{name}: ", tensor) for name, tensor in given.items())
    returned = ", ".join(f"%{name}" for name in results)
    plan = schedule(
        parse_graph(f"graph g({inputs}) -> ({returned}) {{\n{call}\n{more}\n}}"),
        PassContext({CPU: MACHINE}),
        SchedulerOptions(),
    )
    made = Executor(plan, externs=LIBRARY).run([tensor.numpy() for tensor in given.values()])
    for mine, theirs in zip(made, results.values(), strict=True):
        np.testing.assert_array_equal(mine, theirs.numpy())


def text_of(arguments: Sequence[Any]) -> str:
    return ", ".join("none" if each is None else str(each).lower() for each in arguments)


@settings(max_examples=60, deadline=None)
@given(windows(), st.booleans())
def test_any_window(moved: Moved, read: bool) -> None:
    result = last(moved.result())
    call = f"  %o = contraction.convolution {CONVOLUTION}({text_of(['%x', '%w', None, *moved.arguments])})"
    call += f" -> {typed('', result)} need exact"
    axes = ", ".join(f"i{k}: {size}" for k, size in enumerate(result.shape))
    more = f"  %r = pointwise f16[{axes}] {{ maximum(%o[i0, i1, i2, i3], 0.0:f16) }}"
    given = {"x": last(moved.x), "w": moved.weight.half()}
    if read:
        assert_exact(given, call, {"r": result.clamp(min=0)}, more)
    else:
        assert_exact(given, call, {"o": result})


@settings(max_examples=60, deadline=None)
@given(windows(), st.sampled_from([[True, True], [True, False], [False, True]]), st.integers(0, 99))
def test_gradients_of_any_window(moved: Moved, wanted: list[bool], seed: int) -> None:
    gradient = small_integers(seed, *moved.result().shape)
    mask = [*wanted, False]
    found = torch.ops.aten.convolution_backward(
        gradient, moved.x, moved.weight, None, *moved.arguments, [True, True, False]
    )
    results = {"gx": last(found[0]), "gw": found[1].half().contiguous()}
    arguments = text_of(["%g", "%x", "%w", [0], *moved.arguments, mask])
    types = ", ".join(typed("", each) for each in (*results.values(), torch.empty(moved.x.shape[1])))
    call = f"  %gx, %gw, %gb = contraction.convolution {GRADIENTS}({arguments}) -> {types} need exact unpack"
    given = {"g": last(gradient), "x": last(moved.x), "w": moved.weight.half()}
    asked = {name: each for (name, each), is_asked in zip(results.items(), wanted) if is_asked}
    assert_exact(given, call, asked)
