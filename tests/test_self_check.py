"""Self-check of calls against ATen: a wrong kernel of either code generator is found, and a right one never
reported."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreted import lines_by_case
from torch import nn
from torch.fx import GraphModule, symbolic_trace
from torch.nn import functional as F
from torch.testing import assert_close

import litz
from litz import settings
from litz.debugging.replay import Replay
from litz.debugging.verdict import failure, run
from litz.loading import Compiled
from litz.pipeline import DEMOTED
from litz.self_check import checked, demotion
from litz.self_check.bisection import faulty_nodes
from litz.self_check.checked import SAMPLE_INTERVAL, Comparison, SelfCheckedGraph
from litz.self_check.judge import difference
from litz.self_check.reference import Reference, check_obstacle, gpus_of
from litz.self_check.snapshot import Snapshot, copied_leaves
from litz_codegen_cpp.emit.bodies import body
from litz_ir.errors import ConfigError, WrongResult

HERE = Path(__file__).parent
X, W = torch.linspace(-1, 1, 36).reshape(6, 6), torch.linspace(0, 1, 36).reshape(6, 6)

Function = Callable[..., Any]


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two regions around a matmul."""
    return (torch.tanh(x * w) @ w).sigmoid().sum(0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache folder of tests whose kernels are right."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, kept: Path, tmp_path: Path) -> Iterator[Path]:
    """The cache folder: a separate one for a test that injects wrong kernels, whose keys are those of right ones."""
    torch._dynamo.reset()
    cache = tmp_path / "cache" if "injected" in request.fixturenames else kept
    options: dict[str, Any] = {"fallback": "warn", "verify": False, "self_check": "first"}
    with litz.config.patch(cache=True, cache_dir=str(cache), **options):
        yield cache


class Warnings(logging.Handler):
    """Log handler that keeps litz's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def said() -> Iterator[list[str]]:
    handler, log = Warnings(), logging.getLogger("litz")
    log.addHandler(handler)
    yield handler.said
    log.removeHandler(handler)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Reference runs so far."""
    seen: list[str] = []
    real = Reference.__init__

    def counted(self: Reference, *args: Any) -> None:
        seen.append("run")
        real(self, *args)

    monkeypatch.setattr(Reference, "__init__", counted)
    return seen


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A C++ code generator that writes ``sin`` for ``tanh``."""
    monkeypatch.setattr(body, "SPELLINGS", {**body.SPELLINGS, "tanh": body.SPELLINGS["sin"]})


def compiled(function: Function, seen: list[Compiled] | None = None, **options: Any) -> Function:
    observers = () if seen is None else (seen.append,)

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Function:
        return litz.compile_fx(gm, inputs, observers=observers)

    return torch.compile(function, backend=backend, **options)


def demoted(seen: Sequence[Compiled]) -> list[str]:
    left = (each for made in seen if made.artifact for each in made.artifact.fallbacks)
    return [each.target for each in left if each.reason == DEMOTED]


# --- a wrong kernel --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("injected")
def test_a_wrong_kernel_is_found_and_demoted(folder: Path, said: list[str]) -> None:
    function = compiled(program)
    for _ in range(3):
        assert_close(function(X, W), program(X, W))
    (text,) = said
    assert text.startswith("litz: self-check failed, so mul, tanh run as ATen from now on.")
    assert "sigmoid" not in text.partition("report:")[0].replace("w).sigmoid()", "")
    report = Path(text.rpartition("report: ")[2])
    assert report.parent == folder / "reports"
    assert "bound" in (report / "error.txt").read_text()
    torch._dynamo.reset()
    seen: list[Compiled] = []
    assert_close(compiled(program, seen)(X, W), program(X, W))
    assert demoted(seen) == ["aten.mul.Tensor", "aten.tanh.default"] and len(said) == 1


SECOND = """
import json, sys, torch, litz

X, W = torch.linspace(-1, 1, 36).reshape(6, 6), torch.linspace(0, 1, 36).reshape(6, 6)

def program(x, w):
    return (torch.tanh(x * w) @ w).sigmoid().sum(0)

seen = []
backend = lambda gm, inputs: litz.compile_fx(gm, inputs, observers=(seen.append,))
right = torch.allclose(torch.compile(program, backend=backend)(X, W), program(X, W))
checks = [name for name in sys.modules if name.startswith("litz.self_check")]
artifact = seen[0].artifact
print(json.dumps([right, len(artifact.plan.kernels), [each.reason for each in artifact.fallbacks], checks]))
"""


@pytest.mark.usefixtures("injected")
def test_a_second_process_starts_demoted(folder: Path) -> None:
    with litz.config.patch(self_check="off"):  # which keeps the wrong kernel, by what Dynamo captured too
        assert not torch.allclose(compiled(program)(X, W), program(X, W))
    torch._dynamo.reset()
    assert_close(compiled(program)(X, W), program(X, W))
    environment = {**os.environ, "LITZ_CACHE_DIR": str(folder), "LITZ_SELF_CHECK": "off"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SECOND],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    right, kernels, reasons, checks = json.loads(done.stdout.splitlines()[-1])
    assert right and kernels == 1 and reasons.count(DEMOTED) == 2
    assert checks == [], "a process that checks nothing loads nothing for it"
    torch._dynamo.reset()
    seen: list[Compiled] = []
    with litz.config.patch(self_check="off"):  # found by what Dynamo captured
        assert_close(compiled(program, seen)(X, W), program(X, W))
    assert demoted(seen) == ["aten.mul.Tensor", "aten.tanh.default"]


def test_wrong_kernels_of_the_triton_code_generator(tmp_path: Path) -> None:
    found = lines_by_case(HERE / "triton_self_check.py", str(tmp_path / "triton"), seconds=250)
    inference, training = found["inference"], found["training"]
    assert inference["checked"] == {"right": [True, True], "kernels": [2], "demoted": [[]], "warnings": 1}
    left = ["aten.mul.Tensor", "aten.tanh.default"]
    assert inference["again"] == {"right": [True, True], "kernels": [1], "demoted": [left], "warnings": 0}
    assert training["checked"]["right"] == training["again"]["right"] == [True, True]
    assert training["checked"]["warnings"] == 2, "of the forward and of the backward"
    assert training["again"]["warnings"] == 0 and all(training["again"]["demoted"])


@pytest.mark.usefixtures("injected")
def test_a_wrong_backward(said: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh") * 2

    def gradients(function: Function) -> list[torch.Tensor]:
        found = []
        for _ in range(2):
            x = X.clone().requires_grad_()
            result = function(x)
            result.square().sum().backward()
            found += [result.detach(), x.grad]
        return found

    seen: list[Compiled] = []
    assert_close(gradients(compiled(function, seen)), gradients(function))
    assert len(said) == 2 and "of forward_" in said[0] and "of backward_" in said[1]
    torch._dynamo.reset()
    seen.clear()
    assert_close(gradients(compiled(function, seen)), gradients(function))
    assert len(seen) == 2 and demoted(seen[:1]) and demoted(seen[1:]) and len(said) == 2


@pytest.mark.usefixtures("injected")
def test_what_a_call_writes_to_is_right_too(said: list[str]) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.copy_(torch.tanh(x + w))
        return x.view(-1)[3:] * 2

    mine, theirs = X.clone(), X.clone()
    call = compiled(function)
    for _ in range(2):
        assert_close(call(mine, W), function(theirs, W))
        assert_close(mine, theirs)
    assert len(said) == 1


@pytest.mark.usefixtures("injected")
def test_tensors_of_inference_mode(said: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.copy_(torch.tanh(x))
        return x + 1

    with torch.inference_mode():
        mine, theirs = X.clone(), X.clone()
        call = compiled(function)
        for _ in range(2):
            assert_close(call(mine), function(theirs))
            assert_close(mine, theirs)
        args = [X.clone()]
        taken = Snapshot.of(args, ())
        args[0].zero_()
        taken.restore(args)
        assert_close(args[0], X)
    assert len(said) == 1


@pytest.mark.usefixtures("injected")
def test_dynamic_sizes(said: list[str]) -> None:
    call = compiled(program, dynamic=True)
    for size in (7, 8, 5):
        x = torch.linspace(-1, 1, size * 6).reshape(size, 6)
        assert_close(call(x, W[0]), program(x, W[0]))
    assert len(said) == 1


@pytest.mark.usefixtures("injected")
def test_errors_raise_where_that_is_asked_for(folder: Path) -> None:
    with litz.config.patch(fallback="error"):
        call = compiled(program)
        for _ in range(2):
            with pytest.raises(WrongResult, match="result 0 is off by"):
                call(X, W)
    assert not list((folder / "demotions").iterdir())


@pytest.mark.usefixtures("injected")
def test_nothing_is_said_where_that_is_asked_for(said: list[str]) -> None:
    with litz.config.patch(fallback="silent", cache=False):
        call = compiled(program)
        for _ in range(2):
            assert_close(call(X, W), program(X, W))
    assert not said


@pytest.mark.usefixtures("injected")
def test_samples_find_what_first_calls_do_not_show(said: list[str]) -> None:
    small = X * 1e-4  # where a sine is a hyperbolic tangent
    with litz.config.patch(self_check="sample"):
        call = compiled(program)
        for _ in range(SAMPLE_INTERVAL):
            assert_close(call(small, W), program(small, W))
        assert not said
        for _ in range(2):
            assert_close(call(X, W), program(X, W))
    assert len(said) == 1


# --- right programs --------------------------------------------------------------------------------------


def overwrites(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2).add_(1)
    return x.t()


RIGHT: Mapping[str, tuple[Function, Callable[[], list[torch.Tensor]]]] = {
    "softmax": (lambda x: F.softmax(x * 3, -1), lambda: [torch.randn(8, 33)]),
    "layer norm in bf16": (
        lambda x: F.layer_norm(x, (64,)).relu() * 0.3,
        lambda: [torch.randn(5, 64).bfloat16()],
    ),
    "in f16": (lambda x: F.gelu(x) @ x.t(), lambda: [torch.randn(16, 16).half()]),
    "in f64": (lambda x: x.exp().cumsum(0), lambda: [torch.randn(16, 3).double()]),
    "dropout": (lambda x: F.dropout(x, 0.5) + torch.rand_like(x), lambda: [torch.randn(8, 8)]),
    "overwritten": (overwrites, lambda: [torch.randn(4, 5)]),
    "views": (lambda x: ((x + 1).view(-1), x[1:], x.t()), lambda: [torch.randn(4, 5)]),
    "expanded": (lambda x: (x + 1).sum(1, keepdim=True).expand(4, 5), lambda: [torch.randn(4, 5)]),
    "integers": (
        lambda x: (x.argmax(1), (x * 10).int(), x > 0, x.sort(1).indices),
        lambda: [torch.randn(9, 40)],
    ),
    "complex": (lambda x: torch.fft.fft(x * 2).abs() + x, lambda: [torch.randn(8)]),
    "conjugated": (lambda x: x * 2 + x.conj(), lambda: [torch.randn(6, dtype=torch.complex64).conj()]),
    "infinite": (lambda x: (x / 0.0, x.log(), (x * 1e38) * 1e3), lambda: [torch.randn(8)]),
    "masked": (
        lambda x: F.softmax(x.masked_fill(x < 0, torch.finfo(x.dtype).min), -1),
        lambda: [torch.randn(8, 8)],
    ),
    "unset memory": (lambda x: (torch.empty_like(x), x + 1), lambda: [torch.randn(64)]),
    "a view of bits": (lambda x: (x * 2).view(torch.int32) & 255, lambda: [torch.randn(64)]),
    "cancellation": (lambda x: (x - x.mean(0)).sum(0), lambda: [torch.randn(500, 4) + 0.01]),
    "matmul in bf16": (
        lambda x, w: F.relu(x @ w.t() + 1) * x[:, :1],
        lambda: [torch.randn(16, 64).bfloat16(), torch.randn(32, 64).bfloat16()],
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2,
        lambda: [torch.randn(1, 2, 9, 16) for _ in range(3)],
    ),
    "attention by hand": (
        lambda q, k: F.softmax(q @ k.transpose(-1, -2) / 4, -1) @ k,
        lambda: [torch.randn(2, 9, 16).half() for _ in range(2)],
    ),
    "norms": (
        lambda x: F.group_norm(x, 2) + F.instance_norm(x) + F.rms_norm(x, (5,)),
        lambda: [torch.randn(3, 4, 5)],
    ),
    "variances of far means": (lambda x: (x.var(0), x.std(1)), lambda: [torch.randn(50, 40) + 1000]),
    "narrow integers": (
        lambda x: ((x * 3) >> 1, x.sum(), x.bitwise_xor(5).amax(0), x // 3),
        lambda: [torch.randint(-99, 99, (6, 7), dtype=torch.int8)],
    ),
    "unsigned": (lambda x: (x & 7, x.to(torch.float32) / 2), lambda: [torch.arange(9).to(torch.uint32)]),
    "looked up": (
        lambda x, k: (F.embedding(k, x).sum(1), x.scatter_add(0, k % 4, x[:3]), x[k[0]]),
        lambda: [torch.randn(9, 4), torch.randint(0, 9, (3, 4))],
    ),
    "quotients": (lambda x: ((x / 3).floor(), x % 0.3, x.round(decimals=1)), lambda: [torch.randn(99)]),
    "singular or not": (lambda x: torch.linalg.inv(x + 5 * torch.eye(6)) * 2, lambda: [torch.randn(6, 6)]),
    "a condition": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,)),
        lambda: [torch.randn(6)],
    ),
}


@pytest.fixture
def all_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check each call."""
    monkeypatch.setattr(checked, "SAMPLE_INTERVAL", 1)
    with litz.config.patch(self_check="sample"):
        yield


@pytest.mark.sampled
@pytest.mark.usefixtures("all_calls")
@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_not_accused(name: str, said: list[str], runs: list[str]) -> None:
    function, inputs = RIGHT[name]
    with litz.config.patch(fallback="error"):
        call = compiled(function)
        for seed in range(2):
            torch.manual_seed(seed)
            mine = inputs()
            theirs = copy.deepcopy(mine)
            torch.manual_seed(seed)
            found = call(*mine)
            state = torch.get_rng_state()
            torch.manual_seed(seed)
            expected = function(*theirs)
            assert torch.equal(state, torch.get_rng_state()), "checks draw nothing"
            if name != "unset memory":
                assert_close(found, expected, equal_nan=True, rtol=2e-2, atol=1e-3)
                assert_close(mine, theirs)
    assert not said and len(runs) == 2


@pytest.mark.usefixtures("all_calls")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_is_not_accused(dtype: torch.dtype, said: list[str], runs: list[str]) -> None:
    torch.manual_seed(0)
    mine = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 5)
    ).to(dtype)
    theirs = copy.deepcopy(mine)

    def train(model: nn.Module, call: Function) -> list[torch.Tensor]:
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(call(torch.randn(4, 3, 8, 8).to(dtype)), torch.tensor([0, 1, 2, 3])).backward()
            optimizer.step()
        return [*model.state_dict().values(), torch.get_rng_state()]

    with litz.config.patch(fallback="error"):
        found = train(mine, compiled(mine))
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    assert_close(found, train(theirs, theirs), rtol=tolerance, atol=tolerance)
    assert not said and len(runs) == 6


def test_numbers_that_kernels_draw_are_not_judged(said: list[str]) -> None:
    with litz.config.patch(rng="fast", fallback="error"):
        call = compiled(lambda x: (F.dropout(x, 0.5) * 2, x + 1))
        assert call(X)[0].shape == X.shape
    assert not said


# --- when calls are checked ------------------------------------------------------------------------------


@pytest.mark.parametrize(("check", "expected"), [("off", 0), ("first", 1), ("sample", 3)])
def test_the_calls_that_are_checked(check: str, expected: int, runs: list[str]) -> None:
    with litz.config.patch(self_check=check):
        call = compiled(program)
        for _ in range(2 * SAMPLE_INTERVAL + 1):
            call(X, W)
    assert len(runs) == expected


def test_off_adds_nothing() -> None:
    seen: list[Compiled] = []
    with litz.config.patch(self_check="off"):
        compiled(program, seen)(X, W)
    compiled(lambda x: x + 1, seen)(X)
    assert [isinstance(each.call, SelfCheckedGraph) for each in seen] == [False, True]


def test_the_setting_is_given_like_any_other(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with litz.config.patch(self_check="off"):
        torch.compile(program, backend="litz", options={"self_check": "first"})(X, W)
        assert len(runs) == 1
        wrong = "option 'self_check' takes 'off' or 'first' or 'sample', got 'always'"
        with pytest.raises(ConfigError, match=wrong), litz.config.patch(self_check="always"):
            pass
        with pytest.raises(Exception, match=wrong):
            torch.compile(lambda x: x - 1, backend="litz", options={"self_check": "always"})(X)
    assert settings.ConfigHandle({"LITZ_SELF_CHECK": "sample"}).current().self_check == "sample"
    with pytest.raises(ConfigError, match=wrong):
        settings.ConfigHandle({"LITZ_SELF_CHECK": "always"})


def test_graphs_that_may_not_run_twice() -> None:
    def traced(function: Function) -> GraphModule:
        return torch.fx.experimental.proxy_tensor.make_fx(function)(X)

    with torch.library._scoped_library("litz_check", "FRAGMENT") as library:
        library.define("shared(Tensor x) -> Tensor")
        library.impl("shared", torch.sin, "CompositeExplicitAutograd")
        gm = traced(torch.ops.litz_check.shared)
    assert check_obstacle(gm) == ""
    graph = gm.graph
    call = next(node for node in graph.nodes if node.op == "call_function")
    call.target = torch.ops._c10d_functional.wait_tensor.default
    assert check_obstacle(gm) == "_c10d_functional.wait_tensor.default communicates with other processes"
    call.target = torch.ops.higher_order.with_effects
    call.args = (None, torch.ops.aten._linalg_check_errors.default, *call.args)
    assert check_obstacle(gm) == ""
    call.args = (None, torch.ops._c10d_functional.wait_tensor.default, *call.args[2:])
    assert check_obstacle(gm) == "_c10d_functional.wait_tensor.default has side effects"


# --- checks that fail ------------------------------------------------------------------------------------


def no_memory(*args: Any) -> Any:
    raise torch.OutOfMemoryError("no memory is left")


def no_key(*args: Any) -> Any:
    raise KeyError("of a fault in the check")


@pytest.mark.parametrize("raised", [no_memory, no_key])
@pytest.mark.parametrize("place", ["Snapshot.of", "Reference", "difference"])
def test_a_check_that_fails_changes_nothing(
    place: str, raised: Function, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return F.dropout(x, 0.5) + 1

    owner, _, name = place.rpartition(".")
    monkeypatch.setattr(getattr(checked, owner) if owner else checked, name, raised)
    mine, theirs = X.clone(), X.clone()
    call = compiled(function)
    for seed in range(2):
        torch.manual_seed(seed)
        found, state = call(mine), torch.get_rng_state()
        torch.manual_seed(seed)
        assert_close(found, function(theirs))
        assert_close(mine, theirs)
        assert torch.equal(state, torch.get_rng_state())
    (text,) = said
    assert (
        "is not checked: OutOfMemoryError" if raised is no_memory else "self-check failed, so inf"
    ) in text


def test_a_call_without_memory_is_made_again_without_copies(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Compiled] = []
    calls: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + torch.rand_like(x)

    call = compiled(function, seen)
    mine, theirs = X.clone(), X.clone()
    real = Comparison._called

    def wanting(self: Comparison, args: list[Any]) -> list[Any] | None:
        calls.append(len(args))
        real_call = self.made.call

        def halfway(given: list[Any]) -> Any:
            real_call(given)
            raise torch.OutOfMemoryError("no memory is left")

        monkeypatch.setattr(self, "made", dataclasses.replace(self.made, call=halfway))
        try:
            return real(self, args)
        finally:
            monkeypatch.undo()

    monkeypatch.setattr(Comparison, "_called", wanting)
    torch.manual_seed(0)
    found = call(mine)
    torch.manual_seed(0)
    assert_close(found, function(theirs))
    assert_close(mine, theirs)
    assert len(calls) == 1 and "is not checked: OutOfMemoryError" in said[0]


@pytest.mark.usefixtures("injected")
@pytest.mark.parametrize("place", ["faulty_nodes", "_replacement", "regions"])
def test_a_search_that_fails_leaves_the_graph_to_aten(
    place: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demotion, place, no_key)
    call = compiled(program)
    for _ in range(3):
        assert_close(call(X, W), program(X, W))
    assert len(said) == 2 and any("KeyError" in text for text in said)
    assert any("result 0 is off by" in text for text in said)


def test_snapshots_restore_what_a_call_wrote() -> None:
    memory = torch.arange(6.0)
    args = [memory[:4], memory[2:], 3, None, memory[:1].expand(5)]
    versions = [each._version for each in args if isinstance(each, torch.Tensor)]
    taken = Snapshot.of(args, ())
    drawn = torch.rand(2)
    memory.untyped_storage().fill_(0)
    taken.restore(args)
    assert_close(memory, torch.arange(6.0))
    assert versions == [each._version for each in args if isinstance(each, torch.Tensor)]
    assert_close(drawn, torch.rand(2))


def test_copies_of_arguments_have_their_layout_overlaps_and_gradients() -> None:
    memory = torch.arange(12.0)
    args = [memory.view(4, 3)[::2], memory[:4], memory[:1].expand(5), 3, None]
    args.append(torch.ones(2, 3).t().requires_grad_())
    rows, start, spread, number, nothing, leaf = copied_leaves(args)
    for old, new in zip(args, (rows, start, spread, number, nothing, leaf), strict=True):
        if isinstance(old, torch.Tensor):
            assert (new.stride(), new.requires_grad) == (old.stride(), old.requires_grad)
            assert_close(new, old)
    start.zero_()
    assert rows[0].eq(0).all() and spread.eq(0).all() and memory[1] == 1
    assert leaf.is_leaf and (number, nothing) == (3, None)
    sparse = torch.eye(2).to_sparse()
    assert_close(copied_leaves([sparse])[0], sparse)


def test_a_verdict_calls_graphs_of_expanded_inputs() -> None:
    gm = symbolic_trace(lambda x: x + 1)
    assert failure(gm, [torch.ones(4, 1).expand(4, 6)], Replay(), "wrong") == ""
    run(gm, [torch.ones(4, 1).expand(4, 6)], Replay(), "crash")


# --- the parts -------------------------------------------------------------------------------------------


def found_by(groups: Sequence[str], bad: set[str]) -> tuple[frozenset[str], int]:
    """Return the nodes that a search blames where those of ``bad`` are wrong, and the number of its steps."""
    looks = []

    def wrong(left: frozenset[str]) -> bool:
        looks.append(left)
        return bool(bad - left)

    return faulty_nodes([frozenset(each.split()) for each in groups], wrong), len(looks)


def test_a_search_finds_the_groups() -> None:
    groups = [f"a{k} b{k}" for k in range(40)]
    assert found_by(groups, {"a7"}) == ({"a7", "b7"}, 8)
    assert found_by(groups, {"a0", "b39"})[0] == {"a0", "b0", "a39", "b39"}
    assert found_by(groups, {"elsewhere"}) == (frozenset(), 1)
    everything, looks = found_by(groups, {f"a{k}" for k in range(40)})
    assert len(everything) == 80 and looks < 45
    assert found_by(["a", "b"], set())[0] == {"a", "b"}, "what does not repeat may be any of them"


def judged(found: torch.Tensor, aten: torch.Tensor, exact: torch.Tensor, *nearby: torch.Tensor) -> str:
    return difference(
        {"r": found}, {"r": aten}, lambda: {"r": exact}, lambda: [{"r": each} for each in nearby]
    )


def test_no_exact_run_for_what_is_near() -> None:
    aten = {"r": torch.linspace(0.1, 1, 10), "n": torch.arange(3), "k": 3}
    near = {**aten, "r": aten["r"] * (1 + 3e-7)}
    assert not difference(near, aten, no_key, no_key)
    with pytest.raises(KeyError):
        difference({**aten, "n": torch.arange(3) + 1}, aten, no_key, no_key)


def test_the_bound() -> None:
    exact = torch.linspace(0.1, 1, 10).double()
    aten = exact.float()
    assert not judged(aten * (1 + 8e-7), aten, exact)
    assert "the bound is" in judged(aten * 1.0001, aten, exact)
    assert not judged(aten * 1.0001, aten * 1.00005, exact), "ATen is as far off"
    assert not judged(aten * 1.0001, aten, exact, aten * 0.9999), "roundings of the inputs do as much"
    for narrow in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        assert not judged(aten.to(narrow), aten.to(narrow), exact)
        assert "is off by" in judged((aten * 3).to(narrow), aten.to(narrow), exact)
    odd = aten.clone()
    odd[3] = torch.nan
    assert "infinite, NaN" in judged(odd, aten, exact) and "infinite, NaN" in judged(aten, odd, odd.double())
    assert not judged(odd, odd, exact)
    assert not judged(aten, aten, exact, aten[:3]), "data-dependent sizes differ nearby"
    assert "ATen's torch.float32 (10,)" in difference({}, {"r": aten}, lambda: {"r": exact}, list)
    assert not difference({"r": aten}, {}, dict, list)
    assert not difference({}, {"token": torch.empty(0)}, dict, list)
    numbers = torch.arange(5)
    assert "differs in 1 of 5" in judged(
        numbers.clone().fill_(2).where(numbers == 3, numbers), numbers, numbers
    )
    assert "ATen's torch.float32" in judged(exact, aten, exact)


def test_the_gpus_of_a_graph() -> None:
    gm = symbolic_trace(lambda x: (x, x))
    with torch._subclasses.FakeTensorMode():
        for node, index in zip(gm.graph.nodes, (1, 0), strict=True):
            node.meta["val"] = (torch.empty(2, device="cpu"), torch.empty(2, device="meta"))
            node.meta["val"] = [
                torch._subclasses.FakeTensor(
                    node.meta["val"][0].fake_mode, torch.empty(2, device="meta"), torch.device("cuda", index)
                )
            ]
    assert gpus_of(gm) == (torch.device("cuda", 0), torch.device("cuda", 1))


def test_double_precision_where_the_graph_allows_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        half = torch.ops.aten._to_copy.default(x * 3, dtype=torch.bfloat16)
        return half + torch.ops.aten.view.dtype(x, torch.int32)

    x = torch.randn(7)
    gm = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(x)
    found = Reference(gm, Snapshot.of([x], ()), frozenset())
    assert_close(found.exact["result 0"], x.double() * 3 + x.view(torch.int32))
    assert found.expected["result 0"].dtype == torch.bfloat16
    gm = symbolic_trace(lambda x: (x, None))
    assert list(Reference(gm, Snapshot.of([x], ()), frozenset()).expected) == ["result 0"]
