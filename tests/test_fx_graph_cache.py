"""FX graph cache: plain graphs hit by the graph that Dynamo captured, without AOTAutograd; others are traced again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.testing import assert_close

import litz
from litz.capture import aot
from litz.capture.fx_graph_cache import fx_graph_key

pytestmark = pytest.mark.sampled  # it compiles whole programs

Function = Callable[..., Any]
X, Y = torch.randn(6, 8), torch.randn(6, 8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "cache"), fallback="error"):
        yield tmp_path / "cache"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of the graphs that AOTAutograd has compiled so far."""
    seen: list[str] = []
    real = aot.CompileSession.compile

    def compile(self: aot.CompileSession, *args: Any, kind: str) -> Any:
        seen.append(kind)
        return real(self, *args, kind=kind)

    monkeypatch.setattr(aot.CompileSession, "compile", compile)
    return seen


def anew(function: Function, *args: Any, **options: Any) -> Any:
    """Return the result of a fresh compilation, as in another process."""
    torch._dynamo.reset()
    return torch.compile(function, backend="litz", **options)(*args)


def mixed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return F.softmax(x * 0.5 + y, -1), (x - y).sum(0, keepdim=True)


def test_a_graph_is_traced_once(traced: list[str]) -> None:
    for _ in range(3):
        assert_close(anew(mixed, X, Y), mixed(X, Y))
    assert traced == ["inference"]


def test_a_module_with_weights(traced: list[str]) -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    ).eval()
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        for _ in range(2):
            assert_close(anew(module, images), module(images), rtol=1e-4, atol=1e-5)
        other = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
        ).eval()
        assert_close(anew(other, images), other(images), rtol=1e-4, atol=1e-5)
    assert traced == ["inference"], "weights are arguments, whatever their elements"


def test_results_are_fresh_and_the_graph_is_explained() -> None:
    first, second = litz.explain(mixed, X, Y), litz.explain(mixed, X, Y)
    assert [first.graphs[0].cached, second.graphs[0].cached] == [False, True]
    assert first.graphs[0].plan == second.graphs[0].plan
    compiled = torch.compile(mixed, backend="litz")
    assert compiled(X, Y)[0].data_ptr() != compiled(X, Y)[0].data_ptr()


def overwrites(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x * 2


def twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = x + y
    return z, z.view(-1)


OTHERS: dict[str, Function] = {
    "an input is overwritten": overwrites,
    "a result is a view of an input": lambda x, y: x.t(),
    "a result is an input": lambda x, y: (x, x + y),
    "results share memory": twice,
    "a result is a number": lambda x, y: (x + y, x.shape[0]),
    "control flow": lambda x, y: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_graphs_are_traced_again(name: str, folder: Path) -> None:
    function = OTHERS[name]
    for _ in range(2):
        mine, theirs = (X.clone(), Y.clone()), (X.clone(), Y.clone())
        found, expected = anew(function, *mine), function(*theirs)
        assert_close(found, expected)
        assert_close(mine, theirs)
        for a, b in zip(found, expected, strict=True) if isinstance(found, tuple) else ((found, expected),):
            if isinstance(a, torch.Tensor):
                assert a._is_view() == b._is_view()


@pytest.mark.parametrize("name", ["a result is a view of an input", "control flow"])
def test_nothing_is_noted_of_a_graph_that_is_not_plain(name: str, folder: Path) -> None:
    anew(OTHERS[name], X.clone(), Y)
    assert not [each for each in (folder / "fx_graphs").iterdir() if not each.name.startswith(".")]


class Tagged(torch.Tensor):
    """A tensor subclass, which may compute otherwise."""


INPUTS: dict[str, tuple[Any, ...]] = {
    "another shape": (torch.randn(7, 8), torch.randn(7, 8)),
    "other strides": (torch.randn(8, 6).t(), Y),
    "another offset": (torch.randn(49)[1:].view(6, 8), Y),
    "another dtype": (X.double(), Y.double()),
    "the same tensor twice": (X, X),
    "a gradient": (X.clone().requires_grad_(), Y),
    "a subclass": (X.as_subclass(Tagged), Y),
    "conjugates": (torch.randn(6, 8, dtype=torch.complex64).conj(), Y),
}


@pytest.mark.parametrize("name", INPUTS)
def test_other_inputs_are_another_graph(name: str, traced: list[str]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y + 1).sum(-1)

    assert_close(anew(function, X, Y), function(X, Y))
    traced.clear()
    args = INPUTS[name]
    assert_close(anew(function, *args), function(*args))
    assert traced[:1] in (["inference"], ["forward"])


def test_sizes_that_are_symbols_are_traced_again(traced: list[str]) -> None:
    for rows in (5, 9):
        x, y = torch.randn(rows, 8), torch.randn(rows, 8)
        for _ in range(2):
            assert_close(anew(mixed, x, y, dynamic=True), mixed(x, y))
    assert len(traced) == 4


@pytest.mark.parametrize("dynamic", [True, None])
def test_a_graph_of_one_size_is_not_taken_for_all_sizes(dynamic: bool | None) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2

    sizes = [torch.randn(rows, 8) for rows in (6, 9, 30)]
    for x in sizes[:2]:
        anew(function, x)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="litz", dynamic=dynamic)
    for x in (*sizes, *sizes):
        assert_close(compiled(x), function(x))


def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y.t() + torch.ones(6)


def autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


SETTINGS: dict[str, Function] = {
    "options": lambda: litz.config.patch(numerics="fast"),
    "no prepacked weights": lambda: litz.config.patch(prepack_weights=False),
    "autocast": autocast,
    "inference mode": torch.inference_mode,
    "activation budget": lambda: torch._functorch.config.patch(activation_memory_budget=0.5),
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings_are_another_graph(name: str, traced: list[str]) -> None:
    anew(matmul, X, Y)
    with SETTINGS[name]():
        assert_close(anew(matmul, X, Y), matmul(X, Y), rtol=1e-2, atol=1e-2)
    assert len(traced) == 2


def test_the_default_dtype_is_part_of_the_graph(traced: list[str]) -> None:
    anew(matmul, X, Y)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        result = anew(matmul, X, Y)
    finally:
        torch.set_default_dtype(before)
    assert result.dtype == torch.float64 and len(traced) == 2


def table(x: torch.Tensor, last: float = 8.0) -> torch.Tensor:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, last])
    return (x * weights).sin() * torch.tensor([[2.0, 4.0], [6.0, 8.0]] * 2).t().reshape(8)


def test_tensors_of_literals_are_found_with_their_elements(traced: list[str]) -> None:
    x = torch.randn(3, 8)
    with torch.no_grad():
        for last in (8.0, 8.0, 9.0, 9.0):
            assert_close(anew(table, x, last, dynamic=False), table(x, last))
    assert traced == ["inference"] * 2


def test_a_training_graph_with_tensors_of_literals(traced: list[str]) -> None:
    wanted = torch.randn(3, 8, requires_grad=True)
    table(wanted).sum().backward()
    for _ in range(3):
        x = wanted.detach().clone().requires_grad_()
        anew(table, x).sum().backward()
        assert_close(x.grad, wanted.grad)
    assert traced == ["forward", "backward"]


@pytest.mark.parametrize("change", ["shorter", "dtype", "gone"])
def test_damaged_constants_are_a_miss(traced: list[str], folder: Path, change: str) -> None:
    x = torch.randn(3, 8)
    with torch.no_grad():
        anew(table, x)
        for entry in (folder / "fx_graphs").glob("*/constants.0.bin"):
            facts, manifest = entry.with_name("fx_graph.json"), entry.with_name("manifest.json")
            if change == "gone":
                entry.unlink()
            else:
                path = entry if change == "shorter" else facts
                data = path.read_bytes()
                path.write_bytes(data[:8] if change == "shorter" else data.replace(b"float32", b"load"))
                sums = json.loads(manifest.read_text())
                sums = json.loads(
                    json.dumps(sums).replace(sha256(data).hexdigest(), sha256(path.read_bytes()).hexdigest())
                )
                manifest.write_text(json.dumps(sums))
        assert_close(anew(table, x), table(x))
    assert traced == ["inference"] * 2


def test_a_constant_of_the_function_is_part_of_the_graph(traced: list[str]) -> None:
    for scale in (2.0, 3.0, True, 2):
        assert_close(anew(lambda x, scale=scale: x * scale, X), X * scale)
    assert len(traced) == 4


def test_an_operator_of_somebody_else_is_traced_again(traced: list[str]) -> None:
    with torch.library._scoped_library("litz_cached", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        assert_close(anew(lambda x: torch.ops.litz_cached.twice(x), X), X * 2)
        assert_close(anew(lambda x: torch.ops.litz_cached.twice(x), X), X * 2)
    assert len(traced) == 2


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")  # torch tells of kernels overridden
def test_an_operator_that_is_replaced_is_traced_again(traced: list[str]) -> None:
    def flipped(x: torch.Tensor) -> torch.Tensor:
        return torch.fliplr(x) + 1

    assert_close(anew(flipped, X), flipped(X))
    for scale in (2.0, 3.0):
        library = torch.library.Library("aten", "IMPL")
        library.impl("fliplr", lambda x, scale=scale: x * scale, "CompositeImplicitAutograd")
        assert_close(anew(flipped, X), X * scale + 1)
        library._destroy()
    assert traced == 3 * ["inference"]
    assert_close(anew(flipped, X), flipped(X))
    assert len(traced) == 3, "torch's own is a cache hit"


def test_what_is_missing_or_damaged_is_made_again(folder: Path, traced: list[str]) -> None:
    anew(mixed, X, Y)
    shutil.rmtree(folder / "graphs")
    (folder / "graphs").mkdir(mode=0o700)
    assert_close(anew(mixed, X, Y), mixed(X, Y))
    for entry in (folder / "fx_graphs").iterdir():
        (entry / "fx_graph.json").write_bytes(b"no such graph")
    assert_close(anew(mixed, X, Y), mixed(X, Y))
    assert traced == ["inference"] * 3


def test_without_a_cache_every_call_is_traced(traced: list[str]) -> None:
    with litz.config.patch(cache=False):
        for _ in range(2):
            assert_close(anew(mixed, X, Y), mixed(X, Y))
    assert len(traced) == 2


def test_results_that_want_no_gradients_have_none(traced: list[str]) -> None:
    def found(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x @ w).detach(), (x @ w).argmax()

    x, w = X.clone().requires_grad_(), Y.T.clone().requires_grad_()
    for _ in range(2):
        compiled = torch.compile(found, backend="litz")
        for got in (*compiled(x, w), *compiled(x, w)):
            assert not got.requires_grad
        torch._dynamo.reset()
    assert traced == ["inference"]


def test_a_plain_graph_is_called_without_the_wrapper_once_it_is_known(folder: Path) -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w)

    compiled = torch.compile(step, backend="litz")
    names = []
    for k in range(3):
        x, w = X + k, Y.T.clone().requires_grad_()
        result = compiled(x, w)
        names.append(result.grad_fn.name())
        result.sum().backward()
        wanted = torch.autograd.grad(step(x, w).sum(), w)
        assert_close(w.grad, *wanted)
    assert names[0] != names[1] == names[2] == "CompiledBackward"


def test_compiled_autograd_gets_the_graphs_as_they_are() -> None:
    with torch._dynamo.config.patch(compiled_autograd=True):
        for _ in range(2):
            torch._dynamo.reset()
            compiled = torch.compile(lambda x, w: torch.relu(x @ w).sum(), backend="litz")
            for k in range(2):
                x, w = X + k, Y.T.clone().requires_grad_()
                compiled(x, w).backward()
                assert_close(w.grad, *torch.autograd.grad(torch.relu(x @ w).sum(), w))


def test_a_region_without_autocast_keeps_its_dtype(traced: list[str]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", enabled=False):
            exact = x.float() @ y.float().t()
        return x @ y.t(), exact

    with autocast():
        expected = function(X, Y)
        for _ in range(2):
            assert_close(anew(function, X, Y), expected)
    assert traced == ["inference"]


# --- training -----------------------------------------------------------------------------------------------


def gradients(function: Function, *args: torch.Tensor) -> tuple[Any, ...]:
    """Return results, and the gradients of all that have some."""
    inputs = [each.detach().clone().requires_grad_(each.is_floating_point()) for each in args]
    results = function(*inputs)
    several = results if isinstance(results, tuple) else (results,)
    sum((each * (k + 1)).sum() for k, each in enumerate(several) if each.requires_grad).backward()
    return (*(each.detach() for each in several), *(each.grad for each in inputs))


TRAINING: dict[str, Function] = {
    "one result": lambda x, y: (x * y).softmax(-1),
    "several": lambda x, y: (x.exp() + y, (x * y).sum(0), x @ y.t()),
    "one that has no gradient": lambda x, y: (x * y, (x + y).argmax(-1), (x * 2).detach() + 1),
    "saved results": lambda x, y: (x * y).tanh().sigmoid(),
    "a view of a matmul": lambda x, y: F.linear((x * 2).view(2, 3, 8), y),
    "an input without a gradient": lambda x, y: x * y.detach(),
}


@pytest.mark.parametrize("name", TRAINING)
def test_a_training_graph_is_traced_once(name: str, traced: list[str]) -> None:
    function = TRAINING[name]
    expected = gradients(function, X, Y)
    for _ in range(3):
        torch._dynamo.reset()
        assert_close(gradients(torch.compile(function, backend="litz"), X, Y), expected)
    assert traced == ["forward", "backward"]


def test_a_module_is_trained_as_eager_trains_it(traced: list[str]) -> None:
    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(3)
        torch._dynamo.reset()
        module = nn.Sequential(
            nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.3), nn.Linear(16, 4)
        )
        run = torch.compile(module, backend="litz") if compiled else module
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = run(X).pow(2).mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses(False)
    for _ in range(2):
        assert_close(torch.tensor(losses(True)), torch.tensor(expected))  # they are numbers of f32
    assert traced == ["forward", "backward"]


def from_cache(function: Function, *args: torch.Tensor) -> Function:
    """Compile the function twice, the second time from the cache."""
    gradients(torch.compile(function, backend="litz"), *args)
    torch._dynamo.reset()
    return torch.compile(function, backend="litz")


def test_autograd_is_asked_for_what_eager_is_asked_for() -> None:
    compiled = from_cache(TRAINING["several"], X, Y)
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    first, second, third = compiled(x, y)
    assert first.requires_grad and first.grad_fn is not None
    strided = torch.ones(8, 6).t()
    (found,) = torch.autograd.grad(first, x, strided, retain_graph=True)
    assert_close(found, x.exp())
    (again,) = torch.autograd.grad(first, x, torch.ones(1, 1).expand(6, 8), retain_graph=True)
    assert_close(again, x.exp())
    found, other = torch.autograd.grad(third.sum() + second.sum(), (x, y))
    expected = torch.autograd.grad((x @ y.t()).sum() + (x * y).sum(0).sum(), (x, y))
    assert_close((found, other), expected)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(first, x, strided)


def test_results_may_be_written_to() -> None:
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(TRAINING["a view of a matmul"], backend="litz")
        x = X.clone().requires_grad_()
        result = compiled(x, Y)
        result.mul_(3)
        result.sum().backward()
        assert_close(x.grad, (Y.sum(0) * 6).expand(6, 8))


def test_gradients_of_gradients_are_refused() -> None:
    compiled = from_cache(TRAINING["one result"], X, Y)
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    (found,) = torch.autograd.grad(compiled(x, y).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        found.sum().backward()


def test_a_write_to_what_was_saved_is_noticed() -> None:
    compiled = from_cache(lambda x, y: x * y, X, Y)
    x, y = X.clone().requires_grad_(), Y.clone()
    kept = y.requires_grad_()
    result = compiled(x, kept)
    with torch.no_grad():
        kept.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_with_and_without_gradients_are_different_graphs(traced: list[str]) -> None:
    function = TRAINING["one result"]
    x, y = X.clone().requires_grad_(), Y.clone()
    anew(function, x, y).sum().backward()
    with torch.no_grad():
        assert not anew(function, x, y).requires_grad
    assert not anew(function, X, Y).requires_grad
    assert anew(function, x, y).requires_grad
    assert traced == ["forward", "backward", "inference", "inference"]


def test_a_region_with_gradients_in_a_call_without(traced: list[str]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            wanted = x * y
        return wanted, wanted * 2

    x = X.clone().requires_grad_()
    for _ in range(2):
        with torch.no_grad():
            first, second = anew(function, x, Y)
        assert (first.requires_grad, second.requires_grad) == (True, False)
        assert_close(torch.autograd.grad(first.sum(), x), (Y,))
    assert traced == ["forward", "backward"]


def test_a_module_whose_buffers_change_is_traced_once(traced: list[str]) -> None:
    def run(compiled: bool) -> tuple[torch.Tensor, ...]:
        torch._dynamo.reset()
        module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(0.5)
        norm = module[1]
        for _ in range(2):
            torch.manual_seed(5)
            (torch.compile(module, backend="litz") if compiled else module)(
                torch.randn(2, 2, 5, 5)
            ).sum().backward()
        return norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.weight.grad

    expected = run(False)
    for _ in range(2):
        assert_close(run(True), expected)
    assert traced == ["forward", "backward"]


def updates(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.mul_(2).add_(x)
    return y * 3


def test_autograd_sees_what_is_overwritten(traced: list[str]) -> None:
    for grad in (False, True):
        for _ in range(2):
            mine, theirs = Y.clone(), Y.clone()
            with torch.set_grad_enabled(grad):
                result, before = anew(updates, X, mine), mine._version
                assert_close(result, updates(X, theirs))
            assert before > 0
            assert_close(mine, theirs)
    assert traced == ["inference", "inference"]


def test_inputs_in_one_memory_are_another_graph(traced: list[str]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x * 2

    for shared in (False, True, False, True):
        mine, theirs = torch.zeros(12), torch.zeros(12)
        pair = (mine[:8], mine[4:]) if shared else (mine[:8].clone(), mine[4:])
        expected = (theirs[:8], theirs[4:]) if shared else (theirs[:8].clone(), theirs[4:])
        with torch.no_grad():
            assert_close(anew(function, *pair), function(*expected))
        assert_close(mine, theirs)
    assert len(traced) == 3, "what shares memory goes through AOTAutograd every time"


def cache_key(
    function: Function, device_index: int, current: int, monkeypatch: pytest.MonkeyPatch
) -> str | None:
    """Return the key of a graph whose inputs are on one of a machine's GPUs while one is current."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    with FakeTensorMode():
        inputs = [torch.empty(6, 8, device=f"cuda:{device_index}") for _ in range(2)]
    return fx_graph_key(torch.fx.symbolic_trace(function), inputs, ())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x + y).relu(),
        lambda x, y: x + x.new_zeros(8, device="cuda"),
        lambda x, y: x.to(torch.float16).sum(1) * y.cuda()[0, 0],
        lambda x, y: torch.ops.aten.to.device(x, torch.device("cpu"), torch.float32),
    ],
    ids=["plain", "on the current one", "to the current one", "to the CPU"],
)
def test_which_gpu_a_graph_is_on_makes_no_difference(
    function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, elsewhere = (
        cache_key(function, device_index, current, monkeypatch)
        for device_index, current in ((0, 0), (3, 3), (3, 0))
    )
    assert first is not None and first == second != elsewhere


def test_a_graph_that_names_its_own_gpu_is_the_same_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(device_index: int, named: int) -> str | None:
        def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + x.new_ones(8, device=torch.device("cuda", named))

        return cache_key(function, device_index, device_index, monkeypatch)

    assert made(0, 0) == made(2, 2) and len({made(0, 0), made(0, 2), made(2, 0), made(1, 0)}) == 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.to(0),
        lambda x, y: x.cuda(0),
        lambda x, y: x + x.new_ones(8, device=0),
        lambda x, y: x + x.new_ones(8, device="cuda:0"),
        lambda x, y: torch.stack([x, y.to(device="cuda:0")]),
    ],
    ids=["to", "cuda", "by number", "by text", "in a list"],
)
def test_a_gpu_that_is_named_by_its_number_counts(
    function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {cache_key(function, device_index, device_index, monkeypatch) for device_index in (0, 3)}
    assert len(keys) == 2 and None not in keys
