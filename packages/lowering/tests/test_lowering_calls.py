"""Contractions, random numbers, fallbacks, mutation and effects."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering_check import AtenTable, captured, check, check_gradients, to_array, to_tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.errors import UnsupportedOperation
from litz_ir.interp import run_graph
from litz_ir.loops import ContractionCall, Extern, Mutation, Random
from litz_ir.verifier import verify
from litz_lowering import LoweringOptions, lower
from litz_lowering.aten.fallback_families import fallback_reason
from litz_lowering.rules import RULES

MM = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal random numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


MATMULS: dict[str, Any] = {
    "mm": lambda x, w, b: x @ w,
    "linear": lambda x, w, b: F.linear(x, w.t(), b),
    "mlp": lambda x, w, b: F.gelu(F.linear(x, w.t(), b)) @ w.t(),
    "batched": lambda x, w, b: x.view(2, 3, 4) @ w.expand(2, 4, 5),
    "einsum": lambda x, w, b: torch.einsum("ik,kj->ji", x, w),
    "outer": lambda x, w, b: torch.outer(x[0], b),
    "baddbmm": lambda x, w, b: torch.baddbmm(b, x.view(2, 3, 4), w.expand(2, 4, 5), beta=0.5, alpha=2),
}


@pytest.mark.parametrize("name", MATMULS)
def test_matmuls(name: str) -> None:
    x, w, b = numbers(6, 4), numbers(4, 5, seed=1), numbers(5, seed=2)
    lowered = check(MATMULS[name], x, w, b, allowed=MM)
    check_gradients(MATMULS[name], x, w, b, allowed=MM)
    for op in lowered.graph.operations:
        if isinstance(op, ContractionCall):
            assert op.kind == "matmul" and op.flops > 0


LOW_PRECISION: dict[str, tuple[Any, str]] = {
    "int": (lambda a, b, w: torch._int_mm(a, b), "aten._int_mm.default"),
    "groups": (
        lambda a, b, w: torch._grouped_mm(
            w[:12, :8].bfloat16(), w.view(2, 8, 16).bfloat16(), offs=torch.arange(5, 13, 7, dtype=torch.int32)
        ),
        "aten._grouped_mm.default",
    ),
}


@pytest.mark.parametrize("name", LOW_PRECISION)
def test_low_precision_matmuls(name: str) -> None:
    a, b, w = (torch.arange(17 * 8) - 60).view(17, 8), torch.arange(8 * 16).view(8, 16), numbers(16, 16)
    call, target = LOW_PRECISION[name]
    lowered = check(call, a.to(torch.int8), b.to(torch.int8), w, allowed=(target,))
    found = [op for op in lowered.graph.operations if isinstance(op, ContractionCall)]
    assert [(op.target, op.kind, op.layout_requirement) for op in found] == [
        (target, "matmul", "any" if name == "int" else "exact")
    ]
    m, n = found[0].results[0].type.shape
    assert found[0].flops == 2 * m * n * 8 and not lowered.fallbacks


def test_a_scaled_matmul_is_a_contraction() -> None:
    def run(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, b.t(), scale, scale, out_dtype=torch.bfloat16)

    narrow = numbers(16, 32).to(torch.float8_e4m3fn)
    lowered = lower(make_fx(run, tracing_mode="fake")(narrow, narrow, torch.tensor(0.5)))
    (call,) = [op for op in lowered.graph.operations if isinstance(op, ContractionCall)]
    assert call.target == "aten._scaled_mm.default" and call.flops == 2 * 16 * 16 * 32
    assert not lowered.fallbacks


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_arithmetic_in_8_bit_floats_falls_back_on_a_cpu(device: str) -> None:
    def run(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved = torch.where(x == x, x, x.roll(1))
        written = x.index_put((at,), y), x.index_put((at,), y, accumulate=True)
        return moved.float() * 2, x + x, torch.arange(3, dtype=x.dtype, device=device), *written

    with FakeTensorMode():
        x, y = (torch.empty(n, dtype=torch.float8_e5m2, device=device) for n in (8, 2))
        traced = make_fx(run)(x, torch.empty(2, dtype=torch.int64, device=device), y)
    lowered = lower(traced, options=LoweringOptions(fallback="error"))
    left = ["aten.add.Tensor", "aten.arange.default", "aten.index_put.default"]
    assert sorted(call.target for call in lowered.fallbacks) == (left if device == "cpu" else [])
    assert all("8-bit floats" in call.reason for call in lowered.fallbacks)


def test_a_matmul_with_an_8_bit_weight_is_a_contraction() -> None:
    """Only lowering is tested: ATen's CPU kernel crashes where the memory of A is not aligned to 32 bytes, as
    NumPy's may be."""
    weights, scales = torch.ones(48, 64, dtype=torch.int8), numbers(48).bfloat16()
    captured = make_fx(torch._weight_int8pack_mm, tracing_mode="fake")
    lowered = lower(captured(numbers(4, 64).bfloat16(), weights, scales))
    (call,) = [op for op in lowered.graph.operations if isinstance(op, ContractionCall)]
    assert call.target == "aten._weight_int8pack_mm.default" and call.layout_requirement == "exact"
    assert call.flops == 2 * 4 * 48 * 64 and not lowered.fallbacks


def test_convolutions() -> None:
    x, w, b = numbers(2, 4, 9, 8), numbers(6, 2, 3, 3, seed=1), numbers(6, seed=2)

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv2d(x, w, b, stride=2, padding=1, groups=2))

    check(run, x, w, b, allowed=("aten.convolution.",), atol=1e-5)
    check_gradients(run, x, w, b, allowed=("aten.convolution",), atol=1e-5)
    lowered = check(lambda x, w: F.conv2d(x, w, groups=2), x, w, allowed=("aten.convolution.",), atol=1e-5)
    (call,) = [op for op in lowered.graph.operations if isinstance(op, ContractionCall)]
    assert call.kind == "convolution" and call.flops == 2 * 2 * 6 * 2 * 9 * 7 * 6


def test_convolution_without_input_gradient() -> None:
    x, w = numbers(1, 2, 5, 5), numbers(3, 2, 3, 3, seed=1)
    check_gradients(lambda w, x: F.conv2d(x, w), w, x, constants=1, allowed=("aten.convolution",), atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    q, k, v = (numbers(2, 3, 8, 16, seed=s) for s in range(3))

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    check(run, q, k, v, allowed=("aten._scaled_dot_product",), atol=1e-5)
    check_gradients(run, q, k, v, allowed=("aten._scaled_dot_product",), atol=1e-5)


# --- random numbers


def same_stream(fn: Any, *args: torch.Tensor) -> None:
    """Check that ``rng="eager"`` gives eager's numbers for the same seed."""
    compiled, interpreted = captured(fn)
    torch.manual_seed(7)
    found = compiled(*args)
    torch.manual_seed(7)
    torch.testing.assert_close(found, fn(*args))
    draws = [op for g in interpreted.lowered for op in g.graph.operations if isinstance(op, Random)]
    assert draws and all(op.token == "rng" for op in draws)


def test_random_numbers_come_from_atens_generator_in_order() -> None:
    x = numbers(4, 5)
    same_stream(
        lambda x: (torch.rand(3, 2), torch.randn_like(x), torch.randint(0, 9, (4,)), torch.rand_like(x)), x
    )
    same_stream(lambda x: F.dropout(x, 0.3) + torch.bernoulli(torch.sigmoid(x)), x)
    same_stream(lambda x: torch.randperm(7) + torch.multinomial(x[0].exp(), 7, replacement=True), x)


def test_dropout_keeps_and_scales() -> None:
    x = numbers(64, 64).requires_grad_()
    compiled, interpreted = captured(lambda x: F.dropout(x, 0.25))
    out = compiled(x)
    kept = out != 0
    assert 0.70 < kept.float().mean() < 0.80
    torch.testing.assert_close(out[kept], x[kept] / 0.75)
    out.sum().backward()
    torch.testing.assert_close(x.grad, kept / 0.75)
    assert not any(g.fallbacks for g in interpreted.lowered)


def test_fast_random_numbers_are_generated_in_loops() -> None:
    compiled, interpreted = captured(
        lambda x: (torch.rand(1000), torch.randn(2000), F.dropout(x, 0.5)),
        options=LoweringOptions(rng="fast"),
    )
    torch.manual_seed(0)
    uniform, normal, dropped = compiled(torch.ones(1000))
    assert 0.45 < uniform.mean() < 0.55 and uniform.min() >= 0 and uniform.max() < 1
    assert -0.1 < normal.mean() < 0.1 and 0.9 < normal.std() < 1.1
    assert 0.4 < (dropped != 0).float().mean() < 0.6
    again = compiled(torch.ones(1000))
    assert not torch.equal(uniform, again[0]), "each call draws a new seed"
    draws = [op for op in interpreted.lowered[0].graph.operations if isinstance(op, Random)]
    assert all(op.results[0].type.shape == () for op in draws), "only seeds are drawn"


# --- fallbacks


def test_an_operator_without_a_rule_is_an_extern_with_a_reason() -> None:
    x = numbers(4, 4)
    compiled, interpreted = captured(lambda x: torch.linalg.qr(x @ x)[1].abs() + 1)
    torch.testing.assert_close(compiled(x), torch.linalg.qr(x @ x)[1].abs() + 1, rtol=1e-4, atol=1e-5)
    (fallback,) = interpreted.lowered[0].fallbacks
    assert (
        fallback.target == "aten.linalg_qr.default" and fallback.reason == "linear algebra runs in a library"
    )
    assert "linalg_qr" in fallback.describe()
    (extern,) = [op for op in interpreted.lowered[0].graph.operations if isinstance(op, Extern)]
    assert extern.unpack and len(extern.results) == 2 and extern.layout_requirement == "exact"
    assert all(value.type.layout.fixed for value in extern.results)


def test_fallback_can_be_an_error_that_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES._rules, "aten.tanh.default")
    with pytest.raises(UnsupportedOperation, match=r"(?s)tanh.*no lowering rule.*operation: tanh") as error:
        graph = make_fx(lambda x: torch.tanh(x), tracing_mode="fake")(numbers(3, 3))
        lower(graph, options=LoweringOptions(fallback="error"))
    assert error.value.node == "tanh"


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_intended_fallbacks_are_no_errors(dtype: torch.dtype) -> None:
    graph = make_fx(lambda x: torch.linalg.qr(x)[0], tracing_mode="fake")(numbers(3, 3).to(dtype))
    (fallback,) = lower(graph, options=LoweringOptions(fallback="error")).fallbacks
    assert fallback.target == "aten.linalg_qr.default"


def test_no_operator_with_a_loop_rule_is_in_a_fallback_family() -> None:
    generated = {name for name in RULES.served if (found := RULES.find(name)) and found.how == "loops"}
    assert {name: fallback_reason(name) for name in generated if fallback_reason(name)} == {}


def test_force_extern_selects_nodes() -> None:
    graph = make_fx(lambda x: torch.softmax(x, -1).exp() + x.view(-1).sum(), tracing_mode="fake")(
        numbers(3, 4)
    )
    names = frozenset(n.name for n in graph.graph.nodes if n.op == "call_function")
    lowered = lower(graph, options=LoweringOptions(force_extern=names, fallback="error"))
    verify(lowered.graph)
    assert {f.node for f in lowered.fallbacks} == names
    assert all(isinstance(op, Extern) for op in lowered.graph.operations)
    x = numbers(3, 4)
    (found,) = run_graph(lowered.graph, [to_array(x)], {}, AtenTable())
    torch.testing.assert_close(to_tensor(found), torch.softmax(x, -1).exp() + x.sum())


def test_operations_of_maps_nodes_to_operations() -> None:
    graph = make_fx(lambda x: torch.softmax(x, -1), tracing_mode="fake")(numbers(3, 4))
    lowered = lower(graph)
    (node,) = lowered.operations_of
    assert set(lowered.operations_of[node]) == {op.name for op in lowered.graph.operations}


def test_list_results_and_unused_ones() -> None:
    x = numbers(3, 6)

    def run(x: torch.Tensor) -> Any:
        values, indices = torch.sort(x, dim=1, stable=True)
        top = torch.topk(x, 2)[0]
        return values, indices, top

    check(run, x, allowed=("aten.topk", "aten.sort"))


def test_mutation_by_an_operator_makes_a_new_version() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        view = y[0]
        torch.ops.aten.relu_.default(y)
        return view + y.sum()

    graph = make_fx(run, tracing_mode="fake")(numbers(3, 4))
    lowered = lower(graph)
    verify(lowered.graph)
    (extern,) = [op for op in lowered.graph.operations if isinstance(op, Extern)]
    assert extern.mutates and extern.results[-1].replaces == "mul"
    x = numbers(3, 4)
    (found,) = run_graph(lowered.graph, [to_array(x)], {}, AtenTable())
    torch.testing.assert_close(to_tensor(found), run(x))


def test_writing_through_a_view_is_refused() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch.ops.aten.relu_.default(y[0])
        return y

    with pytest.raises(UnsupportedOperation, match="is a view, and is written to"):
        lower(make_fx(run, tracing_mode="fake")(numbers(3, 4)))


def test_inputs_are_mutated_in_the_graph() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        before = x + 1
        x.copy_(y)
        y[0].zero_()
        return before * x + y

    with torch.no_grad():
        lowered = check(run, numbers(3, 4), numbers(3, 4, seed=1))
    assert sum(isinstance(op, Mutation) for op in lowered.graph.operations) == 2
