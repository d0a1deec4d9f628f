"""Saved tensors are donated to the backward, which callers cannot observe: graphs that run twice, hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import litz
import litz.pipeline
from litz.artifact import Artifact
from litz.capture.runtime_wrappers import as_traced
from litz.host.runtime.torch_memory import copied

pytestmark = pytest.mark.sampled  # it compiles whole programs

Function = Callable[[Tensor, Tensor], Tensor]
Gradients = tuple[Tensor, ...]


def normed(x: Tensor, r: Tensor) -> Tensor:
    """Saved tensors are read twice within a row, and a gradient reuses their memory in place."""
    return F.layer_norm(x + r, (48,))


def waves(x: Tensor, r: Tensor) -> Tensor:
    made = F.gelu(x @ r.t())
    return torch.sin(made) * torch.tanh(made)


def given() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x, r = (torch.randn(32, 48, generator=generator) for _ in range(2))
    return x.requires_grad_(), r.requires_grad_()


def weighted(y: Tensor) -> Tensor:
    return (y * torch.arange(y.numel()).view_as(y).sin()).sum()


@pytest.fixture(params=["traced", "cached"])
def compiled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Function], Function]]:
    """A compiler that traces a function, or finds its graph in the cache."""

    def compile(function: Function) -> Function:
        torch._dynamo.reset()
        made: Function = torch.compile(function, backend="litz")
        if request.param == "cached":
            weighted(made(*given())).backward()
            torch._dynamo.reset()
            made = torch.compile(function, backend="litz")
        return made

    with litz.config.patch(cache=True, cache_dir=str(tmp_path), fallback="error"):
        yield compile
    torch._dynamo.reset()


@pytest.fixture
def donated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The donated inputs of each backward that is loaded."""
    found: list[tuple[str, ...]] = []
    load = litz.pipeline.load_tuned

    def noting(artifact: Artifact, name: str, *args: Any, **kwargs: Any) -> object:
        if name.startswith("backward"):
            found.append(artifact.plan.donated)
        return load(artifact, name, *args, **kwargs)

    monkeypatch.setattr(litz.pipeline, "load_tuned", noting)
    return found


def gradients(function: Function, **options: bool) -> Gradients:
    x, r = given()
    return torch.autograd.grad(weighted(function(x, r)), (x, r), **options)


@pytest.mark.parametrize("function", [normed, waves])
def test_saved_tensors_are_reused_in_place(
    function: Function, compiled: Callable[[Function], Function], donated: list[tuple[str, ...]]
) -> None:
    run, expected = compiled(function), gradients(function)
    for _ in range(2):
        assert_close(gradients(run), expected)
    assert donated and all(donated)


@pytest.mark.parametrize("function", [normed, waves])
@pytest.mark.parametrize("option", ["retain_graph", "create_graph"])
def test_a_graph_that_is_retained_runs_again(
    function: Function, option: str, compiled: Callable[[Function], Function]
) -> None:
    run, expected = compiled(function), gradients(function)
    assert_close(gradients(run), expected)
    x, r = given()
    total = weighted(run(x, r))
    for _ in range(2):
        found = torch.autograd.grad(total, (x, r), **{option: True})
        assert_close(tuple(each.detach() for each in found), expected)
    assert_close(torch.autograd.grad(total, (x, r)), expected)


def test_hooks_keep_what_they_were_given(compiled: Callable[[Function], Function]) -> None:
    run, expected = compiled(normed), gradients(normed)
    assert_close(gradients(run), expected)
    kept: list[tuple[Tensor, Tensor]] = []

    def save(saved: Tensor) -> Tensor:
        kept.append((saved, saved.clone()))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(save, lambda saved: saved):
        assert_close(gradients(run), expected)
    assert kept
    for saved, before in kept:
        assert_close(saved, before, rtol=0, atol=0)


def column_major(saved: Tensor) -> Tensor:
    """Return the same elements in column-major layout."""
    return saved.mT.contiguous().mT if saved.dim() == 2 else saved


def in_the_complex_plane(x: Tensor, r: Tensor) -> Tensor:
    made = torch.complex(x, r)
    return torch.view_as_real(torch.sin(made) * made.conj()).sum(-1)


@pytest.mark.parametrize("function", [normed, waves, in_the_complex_plane])
def test_hooks_lay_out_anew_what_they_were_given(
    function: Function, compiled: Callable[[Function], Function]
) -> None:
    run, expected = compiled(function), gradients(function)
    for save, load_saved in ((column_major, lambda saved: saved), (lambda saved: saved, column_major)):
        with torch.autograd.graph.saved_tensors_hooks(save, load_saved):
            assert_close(gradients(run), expected)
    assert_close(gradients(run), expected)


def test_a_graph_within_a_checkpoint(compiled: Callable[[Function], Function]) -> None:
    run, expected = compiled(normed), gradients(normed)
    assert_close(gradients(lambda x, r: checkpoint(run, x, r, use_reentrant=False)), expected)
    x, r = given()
    weighted(checkpoint(run, x, r, use_reentrant=True)).backward()
    assert_close((x.grad, r.grad), expected)


def test_returned_tensors_are_not_reused_in_place(
    compiled: Callable[[Function], Function], donated: list[tuple[str, ...]]
) -> None:
    shown: list[Tensor] = []

    def function(x: Tensor, r: Tensor) -> Tensor:
        total = x + r
        shown.append(total)
        return F.layer_norm(total, (48,))

    run, expected = compiled(function), gradients(function)
    shown.clear()
    assert_close(gradients(run), expected)
    x, r = given()
    assert_close(shown[-1].detach(), (x + r).detach())
    assert not any(donated)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.complex64], ids=str)
def test_a_copy_includes_the_padding_of_its_last_row(dtype: torch.dtype) -> None:
    rows = torch.randn(32, 40).to(dtype)
    saved = rows[:, :37]
    for made in (copied(saved), as_traced(saved.contiguous(), (40, 1))):
        assert torch.equal(made, saved) and made.stride() == (40, 1)
        made.as_strided((32, 40), (40, 1)).zero_()
        assert not made.any() and made.untyped_storage().nbytes() == rows.untyped_storage().nbytes()
    for empty in (saved[:0], saved[:, :0], saved[3, 5]):
        assert torch.equal(copied(empty), empty) and copied(empty).stride() == empty.stride()
