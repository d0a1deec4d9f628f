"""``torch.func`` transforms, tensor subclasses and DTensor under litz give eager's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_leaves

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        yield


def numbers(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def waves(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def vjp(x: Tensor) -> Tensor:
    out, pull = torch.func.vjp(torch.sin, x)
    (found,) = pull(out * 2)
    return found


LINEAR = nn.Linear(4, 4)

TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "vmap": lambda x: torch.vmap(lambda row: row * row.sum())(x),
    "vmap of two": lambda x: torch.vmap(torch.vmap(torch.add, (None, 0)), (0, None))(x[0], x[1]),
    "vmap with numbers": lambda x: (
        torch.vmap(torch.mul, (0, None))(x, 3.14),
        torch.vmap(torch.sub, (0, None))(x, 2) + torch.vmap(torch.add, (None, 0))(True, x),
        torch.vmap(lambda row, s: row.to(torch.complex64) * s, (0, None))(x, 2),
        torch.vmap(torch.vmap(lambda a, b: (a - 4 * b) ** 2 / (b + 1), (0, None)), (None, 0))(x[0], x[1]),
    ),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x * 2,)),
    "vjp": vjp,
    "grad": torch.func.grad(waves),
    "hessian": lambda x: torch.func.hessian(waves)(x[0]),
    "jacobians": lambda x: (torch.func.jacrev(torch.sin)(x[0]), torch.func.jacfwd(torch.sin)(x[0])),
    "per-sample gradients": lambda x: torch.vmap(
        torch.func.grad(lambda w, row: (w * row).sin().sum()), (None, 0)
    )(x[0], x),
    "functional call": lambda x: torch.func.functional_call(
        LINEAR, {name: p.detach() * 2 for name, p in LINEAR.named_parameters()}, (x,)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    program, x = TRANSFORMS[name], numbers(3, 4)
    found = torch.compile(program, backend="litz", fullgraph=True)(x)
    torch.testing.assert_close(found, program(x))


def test_random_numbers_under_vmap() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        def shifted(row: Tensor) -> Tensor:
            return row + torch.rand(4)

        return torch.vmap(shifted, randomness="different")(x), torch.vmap(shifted, randomness="same")(x)

    run = torch.compile(program, backend="litz", fullgraph=True)
    torch.manual_seed(1)
    found = run(numbers(3, 4))
    torch.manual_seed(1)
    torch.testing.assert_close(found, program(numbers(3, 4)))


# --- tensor subclasses ----------------------------------------------------------------------------------------


def two(requires_grad: bool = False) -> TwoTensor:
    return TwoTensor(numbers(3, 4), numbers(3, 4) * 2).requires_grad_(requires_grad)


def viewed(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    y.view(12).add_(1)
    return y, y.t()[1:]


def overwritten(x: Tensor) -> Tensor:
    x.add_(1)
    return x @ x.t()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [viewed, overwritten, lambda x: x.sin() + torch.ones(3, 4)])
def test_a_wrapper_of_two_tensors(program: Callable[..., Any], dynamic: bool) -> None:
    ours, theirs = two(), two()
    found = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(ours)
    for got, want in zip(tree_leaves((found, ours)), tree_leaves((program(theirs), theirs)), strict=True):
        assert type(got) is TwoTensor
        torch.testing.assert_close((got.a, got.b), (want.a, want.b))


def test_gradients_of_a_wrapper() -> None:
    ours, theirs = two(True), two(True)
    torch.compile(waves, backend="litz", fullgraph=True)(ours).backward()
    waves(theirs).backward()
    torch.testing.assert_close((ours.grad.a, ours.grad.b), (theirs.grad.a, theirs.grad.b))


def test_a_subclass_of_parameter() -> None:
    class Weight(nn.Parameter):
        pass

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Weight(torch.full((4, 4), 0.5))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.weight).relu()

    layer, x = Layer(), numbers(3, 4)
    found = torch.compile(layer, backend="litz", fullgraph=True)(x)
    torch.testing.assert_close(found, layer(x))
    found.sum().backward()
    gradient, layer.weight.grad = layer.weight.grad, None
    layer(x).sum().backward()
    torch.testing.assert_close(gradient, layer.weight.grad)


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch was built without gloo")
def test_distributed_tensors_and_collectives_of_one_rank(tmp_path: Path) -> None:
    def program(data: Tensor, weight: Tensor) -> Tensor:
        return (data @ weight).redistribute(placements=[Replicate()]).sin()

    def reduced(x: Tensor) -> Tensor:
        return dist._functional_collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        data = distribute_tensor(numbers(3, 4), mesh, [Shard(0)])
        weight = distribute_tensor(numbers(4, 4), mesh, [Replicate()])
        found = torch.compile(program, backend="litz", fullgraph=True)(data, weight)
        torch.testing.assert_close(found.to_local(), program(data, weight).to_local())
        x = numbers(3, 4)
        torch.testing.assert_close(torch.compile(reduced, backend="litz", fullgraph=True)(x), reduced(x))
    finally:
        dist.destroy_process_group()
