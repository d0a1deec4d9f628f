"""Higher-order operators against eager: control flow, repeated regions, checkpoints; all of it compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.strict_mode import strict_mode
from torch._subclasses import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import litz
from litz.explain.graphs import graph_report
from litz.loading import Compiled
from litz_lowering.contexts import registry

Program = Callable[..., Any]

# torch's own control flow looks at the gradient of what is no leaf.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

X = torch.linspace(-1, 1, 20).reshape(4, 5)
Y = torch.linspace(2, 0.5, 20).reshape(4, 5)
W = torch.linspace(-0.3, 0.4, 25).reshape(5, 5)
TABLE = torch.arange(20.0).reshape(4, 5)


def compiled_by_litz(function: Program, seen: list[Compiled], dynamic: bool | None) -> Program:
    """Compile ``function`` as one graph; a fallback is an error."""

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return litz.compile_fx(gm, inputs, observers=(seen.append,))

    torch._dynamo.reset()
    return torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)


def run(function: Program, args: tuple[Any, ...], train: bool) -> list[Any]:
    """Return results, and with ``train`` the gradients of a weighted sum of them, with a fresh random seed."""
    torch.manual_seed(0)
    mine = [a.clone().requires_grad_(train) if isinstance(a, torch.Tensor) else a for a in args]
    results = tree_leaves(function(*mine))
    if not train:
        return results
    wanted = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(r.numel(), 1))[: r.numel()].reshape(r.shape) for r in wanted]
    torch.autograd.backward(wanted, weights)
    return [*results, *(a.grad for a in mine if isinstance(a, torch.Tensor))]


def check(function: Program, *args: Any, train: bool = False, dynamic: bool | None = None) -> list[Compiled]:
    """Assert equal values, strides and gradients in eager; return the graphs that litz compiled."""
    seen: list[Compiled] = []
    with litz.config.patch(fallback="error", verify=True):
        got = run(compiled_by_litz(function, seen, dynamic), args, train)
    want = run(function, args, train)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.stride() == b.stride()
    assert seen and all(compiled.artifact is not None for compiled in seen)
    return seen


# --- programs -------------------------------------------------------------------------------------------


def choice(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cond(
        x.sum() > y.sum(), lambda a, b: (a.sin() + b, a * 2), lambda a, b: (a.cos() * b, a * 3), (x, y)
    )


def nested_choice(x: torch.Tensor, y: torch.Tensor) -> Any:
    def inner(a: torch.Tensor) -> Any:
        return torch.cond(a.mean() > 3, lambda b: b + 1, lambda b: b * 7, (a,))

    return torch.cond(x.sum() < 9, inner, lambda a: a.cos(), (x * y,))


def choice_of_views(x: torch.Tensor, y: torch.Tensor) -> Any:
    rows = (y[0] * 2).expand(3, 5)
    first = torch.cond(x.sum() > 9, lambda a: a.t() + 1, lambda a: a.t() - 1, (x.t(),))
    return first, torch.cond(x.sum() > 9, lambda a: a + 1, lambda a: a - 1, (rows,))


def choice_with_constants(x: torch.Tensor, y: torch.Tensor) -> Any:
    def plus(a: torch.Tensor) -> torch.Tensor:
        return a + torch.tensor([1.0, 2, 3, 4, 5])

    def minus(a: torch.Tensor) -> torch.Tensor:
        return a - torch.tensor([1.0, 2, 3, 4, 6]) * TABLE

    return torch.cond(x.sum() > y.sum(), plus, minus, (x,)) * torch.tensor([1.0, 2, 3, 4, 7])


def loop(x: torch.Tensor, y: torch.Tensor) -> Any:
    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, torch.sin(a) * 2), (start, x * y))


def loop_that_never_runs(x: torch.Tensor, y: torch.Tensor) -> Any:
    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * 2), (start, x))


def loop_with_choice(x: torch.Tensor, y: torch.Tensor) -> Any:
    def body(i: torch.Tensor, a: torch.Tensor) -> Any:
        return i + 1, torch.cond(a.sum() > 1, lambda b: b * 2, lambda b: b + 1, (a,))

    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, a: (i < 5) & (a.sum() < 100), body, (start, x))


def recurrence(x: torch.Tensor, w: torch.Tensor) -> Any:
    return scan(lambda c, a: (torch.tanh(c @ w + a), c.sum()), torch.zeros(5), x)


def scan_backwards(x: torch.Tensor, y: torch.Tensor) -> Any:
    return scan(lambda c, a: (c * 0.5 + a, c + a), torch.zeros(4), x, dim=1, reverse=True)


def rows(x: torch.Tensor, y: torch.Tensor) -> Any:
    return map_rows(lambda a, b: a.sin() + b, x, y[0])


@torch.compiler.nested_compile_region
def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ w) + x


def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = layer(x, w)
    return x


PROGRAMS: list[tuple[Program, torch.Tensor, bool]] = [
    (choice, Y, True), (nested_choice, Y, True), (choice_of_views, Y, True), (choice_with_constants, Y, False),
    (loop, Y, True), (loop_that_never_runs, Y, True), (loop_with_choice, Y, False),
    (recurrence, W, True), (scan_backwards, Y, True), (rows, Y, True), (layers, W, True),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("function", "other", "train"), PROGRAMS, ids=[p[0].__name__ for p in PROGRAMS])
def test_control_flow_is_eagers(function: Program, other: torch.Tensor, train: bool, dynamic: bool) -> None:
    check(function, X, other, train=train, dynamic=dynamic)


def test_both_branches_of_a_choice_are_eagers() -> None:
    check(choice, Y, X)


def test_a_choice_between_sizes() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a[1:].cos(), (x,)) * 2

    check(function, X - 3)
    check(function, X + 3)


def test_a_loop_carries_a_number() -> None:
    def function(x: torch.Tensor) -> Any:
        count, value = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x))
        return value + count

    check(function, X)


def test_strict_mode_is_seen_through() -> None:
    check(lambda x: strict_mode(lambda a: (a + 1,), (x,)), X)


def test_random_numbers_keep_their_order_around_and_inside_control_flow() -> None:
    def function(x: torch.Tensor) -> Any:
        noisy = torch.rand_like(x) + x
        chosen = torch.cond(noisy.sum() > -9, lambda a: F.dropout(a, 0.5), lambda a: a - 1, (noisy,))
        return F.dropout(chosen, 0.3)

    check(function, X)


# --- what is compiled -----------------------------------------------------------------------------------


def test_a_repeated_layer_is_compiled_once_and_called_many_times() -> None:
    forward, backward = check(layers, X, W, train=True)
    for compiled in (forward, backward):
        assert compiled.artifact is not None
        plan = compiled.artifact.plan
        assert len(plan.subplans) == 1
        report = graph_report(compiled)
        assert [region.kind for region in report.regions] == ["invoke"] * 4
        assert compiled.source.count("def ") == 2
    assert forward.artifact is not None
    assert len(forward.artifact.units) == 1 and len(forward.artifact.units[0].kernels) == 1


# --- checkpoints and other functions ---------------------------------------------------------------------


def test_a_checkpoint_draws_the_same_numbers_again() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        def inner(a: torch.Tensor) -> torch.Tensor:
            return F.dropout(a.sin(), 0.5).cos()

        before = F.dropout(x, 0.2)
        return F.dropout(checkpoint(inner, before, use_reentrant=False), 0.2)  # type: ignore[arg-type]  # untyped

    for dynamic in (False, True):
        for compiled in check(function, X, train=True, dynamic=dynamic):
            assert compiled.artifact is not None and not compiled.artifact.fallbacks


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = F.dropout(F.gelu(x @ w), 0.4)
    return F.alpha_dropout(hidden @ w, 0.2) * torch.rand_like(x) + x


def checkpointed_blocks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = checkpoint(block, x, w, use_reentrant=False, preserve_rng_state=True)  # type: ignore[assignment]  # untyped
        x = F.dropout(x, 0.1)
    return x + checkpoint(
        lambda a: checkpoint(block, a.sin(), w, use_reentrant=False), x, use_reentrant=False
    )  # type: ignore[operator]  # untyped


def test_masks_inside_checkpoints_are_eagers_and_are_drawn_again() -> None:
    check(checkpointed_blocks, X, W, train=True)


@pytest.mark.filterwarnings("ignore:Detected that context_fn")
@pytest.mark.parametrize("saved", ["native_dropout", "mm", "rand_like"])
def test_masks_under_a_policy_that_saves_them_or_draws_them_again(saved: str) -> None:
    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_saved = str(op).split(".")[1] == saved
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.MUST_RECOMPUTE

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        return F.dropout(checkpoint(block, x, w, use_reentrant=False, context_fn=contexts), 0.5)  # type: ignore[arg-type]  # untyped

    check(function, X, W, train=True)


@pytest.mark.filterwarnings("ignore:Detected that context_fn")
def test_a_selective_checkpoint_keeps_what_its_policy_says() -> None:
    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        saved = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(lambda a: (a @ w).sin().exp() @ w, x, use_reentrant=False, context_fn=contexts)

    check(function, X, W, train=True)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(a)
        return a.exp()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (a,) = ctx.saved_tensors
        return gradient * a * 2


def test_a_function_with_its_own_gradient() -> None:
    check(lambda x: Doubled.apply(x) * 2, X, train=True)


def test_transforms_of_functions() -> None:
    model = torch.nn.Linear(5, 3)

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        weights = {name: value.detach() * 2 for name, value in model.named_parameters()}
        rows = torch.func.vmap(lambda a, b: (a * b).sum())(x, y)
        tangents = torch.func.jvp(lambda a: a.sin().sum(), (x,), (y,))
        return (
            rows,
            tangents,
            torch.func.grad(lambda a: a.exp().sum())(x),
            functional_call(model, weights, (x,)),
        )

    check(function, X, Y)


# --- FlexAttention and other operators that torch computes from simpler ones -------------------------


CAUSAL = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)


SLOPES = torch.linspace(0.1, 0.4, 4)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> Any:
    def score(s: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        return s + (i - j) * SLOPES[h] + bias[h]

    return flex_attention(q * 2, k, v, score_mod=score, block_mask=CAUSAL, enable_gqa=True, return_lse=True)


@pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile", "ignore:return_lse is deprecated"
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_flex_attention_and_its_gradient(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch refuses gradients of it on CPUs, though what it computes them from runs there.
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *tensors: None)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 16, 8, generator=generator) / 4 for heads in (4, 2, 2))
    for compiled in check(attention, q, k, v, torch.linspace(0, 1, 4), train=True, dynamic=dynamic):
        assert compiled.artifact is not None and not compiled.artifact.fallbacks


def test_attention_without_a_mask_makes_and_keeps_no_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *tensors: None)
    q, k, v = (torch.randn(1, 2, 16, 8, generator=torch.Generator().manual_seed(n)) for n in range(3))
    forward, _ = check(lambda q, k, v: flex_attention(q, k, v), q, k, v, train=True)
    assert forward.artifact is not None and not forward.artifact.fallbacks
    assert not any(place.type.dtype.is_integer for _, place in forward.artifact.plan.buffers)


def test_an_associative_scan() -> None:
    operator = torch.ops.higher_order.associative_scan
    x = torch.linspace(-1, 1, 28).reshape(7, 4)
    first = x[0].clone()
    with FakeTensorMode() as mode:
        row, whole = mode.from_tensor(first), mode.from_tensor(x)
        combine = make_fx(lambda a, b: (a * b + a,))(row, row)
        gm = make_fx(lambda x: operator(combine, [x], ()))(whole)
    with litz.config.patch(fallback="error", verify=True):
        compiled = litz.compile_fx_inner(gm, [x])
    torch.testing.assert_close(compiled(x)[0], gm(x)[0])


# --- what cannot be generated, and what was compiled before -----------------------------------------------


def test_an_operator_without_a_rule_is_one_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(registry.REGISTRY._rules, "higher_order.cond")
    with litz.config.patch(cache_dir=str(tmp_path), fallback="silent"):
        torch._dynamo.reset()
        explained = litz.explain(choice_around, X, Y)
        torch.testing.assert_close(torch.compile(choice_around, backend="litz")(X, Y), choice_around(X, Y))
    assert explained.uncompiled == 0 and len(explained.kernels) == 3
    (left,) = explained.fallbacks
    assert left.target == "graph.cond" and "not cached on disk" in left.reason
    assert not list((tmp_path / "graphs").iterdir())


def choice_around(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first, second = choice(x.tanh(), y)
    return first + second * 2


def test_a_failure_inside_a_branch_leaves_that_operation_to_aten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setitem(registry.REGISTRY._rules, "aten.cos.default", registry.RuleEntry(broken))
    with litz.config.patch(cache_dir=str(tmp_path), fallback="silent"):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(choice_around, backend="litz")(X, Y), choice_around(X, Y))
        explained = litz.explain(choice_around, X, Y)
    assert [left.target for left in explained.fallbacks] == ["aten.cos.default"]
    assert [region.kind for region in explained.regions] == ["cond"] and explained.uncompiled == 0


def test_control_flow_comes_back_from_the_cache(tmp_path: Path) -> None:
    with litz.config.patch(cache_dir=str(tmp_path), fallback="error"):
        torch._dynamo.reset()
        first, second = litz.explain(choice_around, X, Y), litz.explain(choice_around, X, Y)
        assert [graph.cached for graph in (*first.graphs, *second.graphs)] == [False, True]
        assert first.graphs[0].plan == second.graphs[0].plan
        torch._dynamo.reset()
        for args in ((X, Y), (Y, X)):
            torch.testing.assert_close(
                torch.compile(choice_around, backend="litz")(*args), choice_around(*args)
            )
    assert "cond: true_graph_0, false_graph_0" in str(first)
