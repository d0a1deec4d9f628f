"""Complex tensors: pairs of reals in the loop graph, complex tensors at its borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lowering_check import calls, captured, check
from lowering_graphs import lowered, operations, reasons

from litz_ir.dtypes import f32, f64
from litz_ir.errors import GraphError
from litz_ir.loops import Call, ComplexRef, ComplexValue, Extern, Ref
from litz_ir.text import parse_graph, print_graph
from litz_lowering.contexts.registry import Registry


def z(*shape: int, dtype: torch.dtype = torch.complex64, seed: int = 0) -> torch.Tensor:
    """Normal complex random numbers."""
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_inputs_and_outputs_are_pairs_with_twice_the_strides() -> None:
    graph = lowered(lambda a: a * 2, z(3, 4).t()).graph
    (given,), (returned,) = graph.inputs, graph.outputs
    assert isinstance(given, ComplexValue) and isinstance(returned, ComplexRef)
    assert given.type.shape == (4, 3, 2) and given.type.layout.strides == (2, 8, 1)
    made = graph.values()[returned.name].type
    assert (made.dtype, made.shape, made.layout.strides) == (f32, (4, 3, 2), (2, 8, 1))
    assert lowered(lambda a: a + 1, z(2, dtype=torch.complex128)).graph.outputs != ()
    assert graph.values()[given.name].type.dtype == f32
    assert parse_graph(print_graph(graph)) == graph


def test_parts_are_in_the_dtype_of_the_complex_numbers() -> None:
    graph = lowered(lambda a: a.abs(), z(2, dtype=torch.complex128)).graph
    assert [v.type.dtype for v in graph.values().values()] == [f64, f64]


def test_a_view_of_the_parts_is_a_view_of_the_pairs() -> None:
    found = lowered(lambda a: torch.view_as_real(a)[..., 0] + 1, z(3))
    assert operations(found) == ["View", "View", "Pointwise"]


def test_calls_take_and_return_complex_tensors() -> None:
    graph = lowered(lambda a: torch.fft.fft(a * 2) + 1, z(4)).graph
    (call,) = (operation for operation in graph.operations if isinstance(operation, Call))
    assert isinstance(call.arguments[0], ComplexRef) and isinstance(call.results[0], ComplexValue)
    assert call.layout_requirement == "exact", "pairs passed as complex numbers must be contiguous"


def test_an_operator_with_a_real_rule_only_falls_back_for_complex_tensors() -> None:
    found = lowered(
        lambda a: torch.cumsum(a, 0).logaddexp(a) if a.is_floating_point() else torch.logaddexp(a, a), z(4)
    )
    (call,) = (operation for operation in found.graph.operations if isinstance(operation, Call))
    assert isinstance(call, Extern) and call.target == "aten.logaddexp.default"
    assert reasons(found) == ["no lowering rule for complex tensors"]
    assert all(type(a) is not Ref for a in call.arguments)


def test_real_and_complex_rules_are_separate() -> None:
    registry = Registry()
    registry.add(lambda ctx, x: x, "aten.f.default")
    assert registry.find("aten.f.default") is not None
    assert registry.find("aten.f.default", is_complex=True) is None
    registry.add_complex(lambda ctx, x: None, "aten.f.default")
    assert registry.find("aten.f.default", is_complex=True) is not None
    with pytest.raises(GraphError, match="two complex rules"):
        registry.add_complex(lambda ctx, x: None, "aten.f.default")


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "products": (lambda a, b: a * b - a / b, (z(3, 4), z(4, seed=1))),
    "functions": (lambda a: a.exp() + a.log() * a.sqrt(), (z(3, 4),)),
    "structure": (lambda a: torch.cat([a.flip(0), a.roll(1, -1)], -1)[1:].t(), (z(3, 4),)),
    "filled": (lambda a: torch.nn.functional.pad(a, (1, 1), value=2.0) + torch.full((6,), 1j), (z(3, 4),)),
    "scattered": (lambda a, i: a.scatter_add(0, i, a * 2), (z(3, 4), torch.tensor([[0, 2, 2, 0]]))),
    "reductions": (lambda a: (a.sum(0), a.prod(1), a.cumprod(0), a.mean(), a.var(), a.norm()), (z(3, 4),)),
    "logic": (lambda a, b: (a == b, a.isnan(), torch.where(a == b, a, 1j), a.any()), (z(3), z(3))),
    "mutation": (lambda a: a.mul_(2j).sum(), (z(3, 4),)),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_interpreted_programs(name: str, dynamic: bool) -> None:
    function, args = PROGRAMS[name]
    check(function, *args, dynamic=dynamic, rtol=1e-4, atol=1e-5)


def test_gradients_of_complex_programs_are_interpreted() -> None:
    compiled, interpreted = captured(lambda a, b: (a * b.conj()).abs() * a.real)
    results = []
    for run in (compiled, lambda a, b: (a * b.conj()).abs() * a.real):
        own = [z(3, 4).requires_grad_(), z(4, seed=1).requires_grad_()]
        run(*own).sum().backward()
        results.append([a.grad for a in own])
    for mine, theirs in zip(*results):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not any(calls(result.graph) for result in interpreted.lowered)
