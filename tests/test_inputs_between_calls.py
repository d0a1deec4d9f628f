"""Inputs and parameters written between two calls, in any way, take effect in the second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, linalg, nn
from torch._higher_order_ops.effects import _get_effect
from torch.testing import assert_close

import litz
from litz.capture import aot
from litz.host.runtime import frozen_results
from litz.host.runtime.native import NativeBinder
from litz_codegen_cpp.runtime.call import CpuModule

SIZE = 48
MODES = [torch.no_grad, torch.inference_mode, torch.enable_grad]
WEIGHT = nn.Parameter(torch.eye(SIZE) * 3)
COLUMNS = torch.randn(SIZE, 4, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        yield


def images(seed: int = 0) -> Tensor:
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) / SIZE


def _checks_have_effects() -> bool:
    return _get_effect(torch.ops.aten._linalg_check_errors.default) is not None


def spread(x: Tensor) -> Tensor:
    """Return a symmetric matrix that is far from singular."""
    return WEIGHT + x @ x.mT


CHECKED: dict[str, Callable[[Tensor], Tensor]] = {
    "inverse of a parameter": lambda x: linalg.inv(WEIGHT) + torch.cos(x) @ torch.sin(x),
    "inverse": lambda x: linalg.inv(WEIGHT + x) @ COLUMNS,
    "solve": lambda x: linalg.solve(WEIGHT + x, COLUMNS) + x.cos() @ COLUMNS.sin(),
    "solve for a parameter": lambda x: linalg.solve(WEIGHT, x.cos()) @ WEIGHT.mT,
    "cholesky": lambda x: linalg.cholesky(spread(x)) @ WEIGHT,
    "cholesky solve": lambda x: torch.cholesky_solve(COLUMNS, linalg.cholesky(spread(x))),
    "checked cholesky": lambda x: linalg.cholesky_ex(spread(x), check_errors=True)[0],
    "two checks": lambda x: linalg.inv(spread(x)) @ linalg.cholesky(WEIGHT) @ x.sin(),
    "normal": lambda x: torch.distributions.MultivariateNormal(x[0], spread(x)).log_prob(x),
}


@pytest.mark.sampled
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("name", CHECKED)
def test_checks_leave_inputs_what_they_are(name: str, mode: Callable[[], torch.no_grad]) -> None:
    function = CHECKED[name]
    compiled = torch.compile(function, backend="litz")
    with mode():
        x = images()
        for k in range(3):
            assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)
            x.numpy()[5, 7 + k] += 1
            x.numpy()[11] = k


@pytest.mark.parametrize("name", CHECKED)
def test_gradients_flow_through_checks(name: str) -> None:
    function, compiled = CHECKED[name], torch.compile(CHECKED[name], backend="litz")
    for seed in range(2):
        x, y = images(seed).requires_grad_(), images(seed).requires_grad_()
        found, expected = compiled(x), function(y)
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
        (mine,), (theirs,) = (
            torch.autograd.grad(r.square().sum(), i) for r, i in ((found, x), (expected, y))
        )
        assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not _checks_have_effects(), reason="this torch drops checks whose result nobody reads")
def test_a_check_that_fails_raises_what_eager_does() -> None:
    compiled = torch.compile(lambda x: linalg.inv(x) @ WEIGHT, backend="litz")
    with torch.no_grad():
        compiled(torch.eye(SIZE))
        with pytest.raises(RuntimeError, match="singular"):
            compiled(torch.zeros(SIZE, SIZE))


class Mixed(nn.Module):
    """A module with parameters, one of them under two names, a buffer, another tensor, and arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(8))
        self.tied = self.weight
        self.register_buffer("scale", torch.rand(8))
        self.other = torch.rand(8, 8)

    def forward(self, x: Tensor, count: int, nothing: None = None) -> tuple[Tensor, None, Tensor]:
        return x @ self.weight + self.tied * self.scale * count, nothing, linalg.inv(self.weight) @ self.other


def _frozen_inputs(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> list[int]:
    """Return the number of frozen inputs of each graph that ``call`` compiles."""
    found: list[int] = []

    def noted(gm: torch.fx.GraphModule, parameters: frozenset[int]) -> frozenset[str]:
        names = real(gm, parameters)
        found.append(len(names))
        return names

    real = aot.parameter_inputs
    with monkeypatch.context() as patch, torch.no_grad(), litz.config.patch(cache=False):
        patch.setattr(aot, "parameter_inputs", noted)
        call()
    return found


def test_parameters_and_buffers_are_told_from_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(Mixed(), backend="litz")
    assert _frozen_inputs(monkeypatch, lambda: [compiled(torch.rand(8, 8), k) for k in (2, 3)]) == [2, 2]


def test_an_input_that_stays_where_it_is_is_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images()
    torch._dynamo.mark_static_address(x)
    compiled = torch.compile(lambda x: x.cos() @ COLUMNS.sin(), backend="litz")
    assert _frozen_inputs(monkeypatch, lambda: compiled(x)) == [0]


def test_a_marked_input_is_read_at_every_call() -> None:
    kernel = torch.rand(4, 3, 3, 3)
    torch._dynamo.mark_static_address(kernel)
    compiled = torch.compile(lambda x: nn.functional.conv2d(x, kernel), backend="litz")
    x = torch.rand(1, 3, 8, 8)
    with torch.no_grad():
        for k in range(3):
            assert_close(compiled(x), nn.functional.conv2d(x, kernel))
            kernel.numpy()[1, 2, 1, k] += 1


def test_what_a_forward_saves_is_told_from_its_results() -> None:
    """Regression: with a token before the results, the last result was taken for a saved tensor, which the backward
    alone reads."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = linalg.inv(x)
        return y @ x.sin(), torch.exp(y)

    compiled = torch.compile(function, backend="litz")
    x = (torch.eye(SIZE) * 2 + images()).requires_grad_()
    first, second = compiled(x)
    kept = second.detach().clone()
    (first.sum() + second.sum()).backward()
    assert_close(second, kept, rtol=0, atol=0)
    y = x.detach().requires_grad_()
    (function(y)[0].sum() + function(y)[1].sum()).backward()
    assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)


# --- parameters that are written behind autograd's back ---------------------------------------------------


class Convolution(nn.Module):
    """A convolution whose weight of 18 KB is prepacked, and a batch norm that is constant-folded into it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(16, 32, 3)
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.inner(x))


PICTURES = torch.randn(2, 16, 9, 9, generator=torch.Generator().manual_seed(1))


def add(tensor: Tensor, *where: int | slice) -> None:
    tensor.data[where] += 3


HIDDEN: dict[str, Callable[[Convolution], object]] = {
    "a row": lambda m: add(m.inner.weight, 5),
    "the last row": lambda m: add(m.inner.weight, 31),
    "a column": lambda m: add(m.inner.weight, slice(None), 7),
    "a tap": lambda m: add(m.inner.weight, slice(None), slice(None), 2, 1),
    "an element of a vector": lambda m: add(m.inner.bias, 17),
    "an element of a statistic": lambda m: add(m.norm.running_mean, 30),
    "an element through NumPy": lambda m: m.inner.weight.detach().numpy().__setitem__((5, 7, 1, 2), 9),
    "a vector's element through NumPy": lambda m: m.norm.bias.detach().numpy().__setitem__(3, 9),
}


def settled(module: nn.Module) -> Callable[[], None]:
    """Compile a module, call it twice, and return a function that calls it again and compares it with eager."""
    compiled = torch.compile(module.eval(), backend="litz")

    def check() -> None:
        with torch.no_grad():
            assert_close(compiled(PICTURES), module(PICTURES), rtol=1e-4, atol=1e-4)

    check()
    check()
    return check


@pytest.mark.sampled
@pytest.mark.parametrize("native", [True, False, None], ids=["native", "none", "too old"])
@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_write_to_a_parameter_is_seen(
    name: str, native: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if native is False:
        monkeypatch.setattr(NativeBinder, "comparison", None)
    if native is None:
        monkeypatch.setattr(CpuModule, "comparison", lambda *_: None)
    module = Convolution()
    check = settled(module)
    HIDDEN[name](module)
    check()
    check()


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "adjacent": lambda: torch.randn(7),
    "transposed": lambda: torch.randn(5, 7).t(),
    "columns": lambda: torch.randn(6, 10)[:, 3:5],
    "columns of many": lambda: torch.randn(90, 80)[:, ::2],
    "broadcast": lambda: torch.randn(5, 1).expand(5, 4),
    "half": lambda: torch.randn(60, 70).to(torch.bfloat16).t(),
    "pairs": lambda: torch.randn(40, 40, dtype=torch.complex128)[::2],
    "bytes": lambda: torch.randint(0, 9, (70, 90), dtype=torch.uint8)[:, 1:],
    "a scalar": lambda: torch.tensor(3),
    "nothing": lambda: torch.randn(0, 3),
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_is_compared_in_any_layout(name: str, whole: bool) -> None:
    tensor = LAYOUTS[name]()
    part = frozen_results._compared_part(tensor, whole=whole)
    if tensor.numel() == 0:
        assert part is None
        return
    assert part is not None
    unchanged = frozen_results._compared_by_numpy([part])
    assert unchanged()
    for row in [tensor.select(0, k) for k in range(len(tensor))] if tensor.dim() else [tensor]:
        changed = row[:1] if tensor.stride()[-1:] == (0,) else row
        before = changed.clone()
        changed += 1
        assert not unchanged()
        changed.copy_(before)
        assert unchanged()


def test_every_index_of_every_dimension_is_looked_at() -> None:
    module = Convolution()
    check = settled(module)
    for dimension, size in enumerate(module.inner.weight.shape):
        for index in range(size):
            module.inner.weight.data.select(dimension, index).add_(1)
            check()


@pytest.mark.parametrize("made", ["before", "after", "from", "shared"])
def test_memory_that_others_have_too_is_compared_whole(made: str) -> None:
    module = Convolution()
    if made == "from":
        array = module.inner.weight.detach().clone().numpy()
        module.inner.weight = nn.Parameter(torch.from_numpy(array))
    if made == "shared":
        module.share_memory()
    if made == "before":
        array = module.inner.weight.detach().numpy()
    check = settled(module)
    if made == "after":
        array = module.inner.weight.detach().numpy()
    for place in [(5, 7, 1, 2), (0, 1, 2, 2), (30, 1, 0, 1)]:
        if made == "shared":
            module.inner.weight.data[place] = 9
        else:
            array[place] = 9
        check()


def test_a_mapped_file_is_nobody_elses(tmp_path: Path) -> None:
    module = Convolution()
    file = tmp_path / "weights"
    weight = module.inner.weight.detach()
    file.write_bytes(weight.numpy().tobytes())
    mapped = torch.from_file(str(file), shared=False, size=weight.numel()).view(weight.shape)
    assert frozen_results._is_shared(mapped.untyped_storage())
    assert (
        frozen_results._is_in(frozen_results._private_files(), mapped.data_ptr())
        == Path("/proc/self/maps").exists()
    )
    module.inner.weight = nn.Parameter(mapped)
    check = settled(module)
    module.inner.weight.data[5] += 3
    check()
