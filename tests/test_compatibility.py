"""Spellings of torch and of Inductor under litz, as far as `docs/compatibility.md` names no other test of them."""

from __future__ import annotations

import gc
import inspect
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters

import litz
from litz.notices import log_once
from litz.options import config_from
from litz.settings import Config

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

X = torch.linspace(-2, 2, 128).reshape(8, 16)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    with litz.config.patch(fallback="error"):
        yield
    torch._dynamo.reset()


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1).sin()


def as_in_eager(compiled: Callable[..., Any], x: torch.Tensor = X) -> None:
    """Assert that a compiled form of the program returns what the program does."""
    torch.testing.assert_close(compiled(x), program(x))


def graphs() -> int:
    """Graphs that litz has compiled, or found in its cache, in this test."""
    return counters["litz"]["graphs"]


MAPPED: dict[str, tuple[object, dict[str, object]]] = {
    "triton.cudagraphs": (True, {"cuda_graphs": True}),
    "max_autotune": (True, {"autotune": True}),
    "max_autotune_pointwise": (True, {"autotune": True}),
    "coordinate_descent_tuning": (True, {"autotune": True}),
    "fallback_random": (True, {"rng": "eager"}),
    "freezing": (True, {"freezing": True}),
    **{
        name: (True, {name: True})
        for name in ("alignment_asserts", "batch_invariant", "deterministic", "nan_asserts", "size_asserts")
    },
    "trace.enabled": (True, {"debug_files": True}),
}
"""Inductor's options that set one of litz's: a value, and what it sets."""

IGNORED: dict[str, object] = {
    **dict.fromkeys(
        "assert_indirect_indexing benchmark_kernel combo_kernels cpp_wrapper "
        "eager_numerics.disable_ftz eager_numerics.division_rounding "
        "eager_numerics.use_pytorch_libdevice emulate_precision_casts epilogue_fusion graph_partition "
        "implicit_fallbacks keep_output_stride layout_optimization max_autotune_gemm memory_planning "
        "reorder_for_compute_comm_overlap reorder_for_peak_memory shape_padding "
        "trace.graph_diagram triton.cudagraph_skip_dynamic_graphs triton.unique_kernel_names".split(),
        True,
    ),
    "cpp.simdlen": 256,
    "cpp.threads": 1,
    "max_autotune_gemm_backends": "ATEN,TRITON",
    "triton.cudagraph_capture_sizes": (1, 2, 4),
}
"""Inductor's options that change nothing, each with a value of its type."""

REFUSED: dict[str, tuple[object, str]] = {
    "_pre_fusion_custom_pass": (lambda nodes: nodes, "litz.passes.Passes(loops="),
    "_post_fusion_custom_pass": (lambda nodes: nodes, "litz.passes.Passes(loops="),
    "custom_partitioner_fn": (object(), "activation_memory_budget"),
    "aot_inductor.package": (True, "litz.aot_compile(program, path="),
    "numerics": ("exact", "takes 'strict' or 'eager' or 'fast'"),
    "pattern_matchr": (True, "next: litz.list_options() lists the names"),
    "max_fusion_size": (64, "other options of Inductor set nothing here"),
}
"""Options that are errors: a value, and words of the error that say what to do."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*MAPPED, *IGNORED])
def test_an_option_of_inductor_leaves_a_program_right(
    name: str, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where debug files are written
    log_once.cache_clear()
    value, sets = MAPPED.get(name, (IGNORED.get(name), {}))
    as_in_eager(torch.compile(program, backend="litz", options={name: value}))
    assert graphs() == 1
    assert config_from(Config(), None, {name: value}) == Config().replaced(sets)
    told = [each.message for each in caplog.records if repr(name) in each.message]
    assert len(told) == (name not in Config.__slots__), "an option is litz's own, or warned about once"


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_is_refused_says_what_to_do(name: str) -> None:
    value, words = REFUSED[name]
    compiled = torch.compile(program, backend="litz", options={name: value})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=re.escape(words)) as caught:
        compiled(X)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["_pre_fusion_custom_pass", "custom_partitioner_fn", "aot_inductor.package"])
def test_an_option_that_is_off_is_not_refused(name: str) -> None:
    as_in_eager(torch.compile(program, backend="litz", options={name: None}))
    assert graphs() == 1


@pytest.mark.parametrize("mode", list(litz.list_mode_options()))
def test_modes_are_harmless_on_a_cpu(mode: str) -> None:
    compiled = torch.compile(program, backend="litz", mode=mode)
    for _ in range(3):
        as_in_eager(compiled)
    assert graphs() == 1


@pytest.mark.skipif(
    not hasattr(torch.compiler, "set_default_backend"), reason="this torch has no default backend"
)
def test_litz_as_the_default_backend() -> None:
    before = torch.compiler.get_default_backend()
    torch.compiler.set_default_backend("litz")
    try:
        as_in_eager(torch.compile(program))
        assert graphs() == 1 and torch.compiler.get_default_backend() == "litz"
        torch.compile(torch.sin, backend="eager")(X)
        assert graphs() == 1, "another backend that is named is used"
    finally:
        torch.compiler.set_default_backend(before)


def test_stances() -> None:
    compiled = torch.compile(program, backend="litz")
    with torch.compiler.set_stance("force_eager"):
        as_in_eager(compiled)
    assert graphs() == 0
    as_in_eager(compiled)
    with torch.compiler.set_stance("fail_on_recompile"):
        as_in_eager(compiled)
        with pytest.raises(RuntimeError, match="recompile"):
            compiled(X.double())
    with torch.compiler.set_stance("eager_on_recompile"):
        as_in_eager(compiled, X.double())
    assert graphs() == 1


def test_functions_that_are_not_compiled() -> None:
    seen: list[bool] = []

    @torch.compiler.disable
    def outside(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.compiler.is_compiling())
        return x + 1

    def mixed(x: torch.Tensor) -> torch.Tensor:
        x = x * 2 if torch.compiler.is_compiling() else x * 3
        return outside(x).cos()

    torch.testing.assert_close(torch.compile(mixed, backend="litz")(X), (X * 2 + 1).cos())
    assert seen == [False] and graphs() == 2


def test_filters_of_guards() -> None:
    scale = nn.Linear(1, 1)
    compiled = torch.compile(
        lambda x: program(x) * scale.in_features, backend="litz",
        options={"guard_filter_fn": lambda guards: [each.guard_type == "TENSOR_MATCH" for each in guards]},
    )  # fmt: skip
    as_in_eager(compiled)
    scale.in_features = 2
    as_in_eager(compiled)  # the guard on the attribute was filtered out
    scale.in_features = 1
    as_in_eager(compiled, X.double())
    assert graphs() == 2


@pytest.mark.skipif(
    "name" not in inspect.signature(torch.compile).parameters, reason="this torch names no functions"
)
def test_a_compiled_function_has_a_name() -> None:
    as_in_eager(torch.compile(program, backend="litz", name="mine", fullgraph=True, dynamic=False))
    assert graphs() == 1


def test_sizes_that_are_specified() -> None:
    spec = pytest.importorskip(
        "torch.fx.experimental.dynamic_spec", reason="this torch has no specifications"
    )
    rows = spec.TensorSpec([spec.ShapeVar("rows"), 16])
    compiled = torch.compile(
        program, backend="litz", fullgraph=True, shapes_spec=spec.ShapesSpec({"x": rows})
    )
    for count in (8, 5, 3):
        as_in_eager(compiled, X[:count])
    assert graphs() == 1


def test_sizes_that_are_marked_static() -> None:
    compiled = torch.compile(program, backend="litz", dynamic=True)
    for count in (8, 5):
        x = X[:count].clone()
        torch._dynamo.mark_static(x)
        as_in_eager(compiled, x)
    assert graphs() == 2


def test_a_reset_drops_what_was_compiled() -> None:
    layer = nn.Linear(16, 16).eval()
    compiled = torch.compile(layer, backend="litz")
    with torch.no_grad():
        for _ in range(3):
            compiled(X)
    reference = weakref.ref(layer.weight)
    torch.compiler.reset()
    with torch.no_grad():
        compiled(X)
    assert graphs() == 2, "it is compiled again"
    torch.compiler.reset()
    del layer, compiled
    gc.collect()
    assert reference() is None, "no copy of a weight and no graph is kept"


class Block(nn.Module):
    """A block that a model repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def test_equal_regions_are_compiled_once() -> None:
    model = nn.Sequential(*(Block() for _ in range(4)))
    with torch.no_grad():
        expected = model(X)
        for block in model:
            block.compile(backend="litz", fullgraph=True)
        torch.testing.assert_close(model(X), expected)
    assert graphs() == 1


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch reads it
@pytest.mark.parametrize("dynamic", [False, None])
def test_compiled_autograd_compiles_backwards(dynamic: bool | None) -> None:
    model = nn.Sequential(Block(), nn.LayerNorm(16), Block())

    def step(x: torch.Tensor) -> None:
        model(x).square().mean().backward()

    for rows in (8, 8, 5):
        step(X[:rows])
    expected = [each.grad for each in model.parameters()]
    model.zero_grad()
    with compiled_autograd._enable(torch.compile(backend="litz", dynamic=dynamic)):
        for rows in (8, 8, 5):
            step(X[:rows])
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert graphs() >= 1 and not counters["litz"]["aten_graphs"], "the forward is not compiled here"


def test_the_activation_budget_bounds_what_is_saved() -> None:
    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x @ w).sin().exp().tanh()
        return x.sum()

    sizes = []
    for budget in (1.0, 0.0):
        torch._dynamo.reset()
        saved: list[int] = []
        w = torch.linspace(-1, 1, 256).reshape(16, 16).requires_grad_()
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda t, saved=saved: (saved.append(t.numel()), t)[1], lambda t: t
        )
        with torch._functorch.config.patch(activation_memory_budget=budget), hooks:
            result = torch.compile(chain, backend="litz")(X, w)
        found = torch.autograd.grad(result, w)
        torch.testing.assert_close(found, torch.autograd.grad(chain(X, w), w))
        sizes.append(sum(saved))
    assert sizes[1] < sizes[0] / 2


def test_autocast_is_followed() -> None:
    linear = nn.Linear(16, 16)

    def narrow(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return linear(x).sin()

    found = torch.compile(narrow, backend="litz")(X)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, narrow(X))


LOGS = "graph_code guards recompiles graph_breaks aot_graphs aot_joint_graph cudagraphs".split()
"""Artifacts of logs: Dynamo's, AOTAutograd's, and litz's for CUDA graphs."""

EVENTS = "dynamo_output_graph aot_joint_graph aot_forward_graph aot_backward_graph".split()
"""Events of traces."""

TRACED = """
import torch

def program(x):
    torch._dynamo.graph_break()
    return torch.softmax(x * 2, -1)

compiled = torch.compile(program, backend="litz", dynamic=False)
for rows in (4, 5):
    compiled(torch.ones(rows, 3, requires_grad=True)).sum().backward()
"""


def test_logs_and_traces_of_torch_show_the_graphs_that_litz_gets(tmp_path: Path) -> None:
    environment = {
        **os.environ, "TORCH_LOGS": ",".join(LOGS), "TORCH_TRACE": str(tmp_path), "LITZ_CUDA_GRAPHS": "1",
        "LITZ_CACHE_DIR": str(tmp_path / "cache"),  # AOTAutograd traces no graph that is found in the cache
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", TRACED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    )
    assert [each for each in LOGS if f"[__{each}]" not in done.stderr] == []
    trace = "".join(each.read_text() for each in tmp_path.glob("*.log"))
    assert [each for each in EVENTS if f'"{each}"' not in trace] == []
