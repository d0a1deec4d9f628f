"""Symbolic arguments of every operator with a lowering rule and a ``SymInt`` in its schema: one graph, eager's
values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import litz
import litz_lowering.driver
from litz_ir.symbols import Term
from litz_lowering.contexts.registry import apply
from litz_lowering.rules import RULES

aten, prims = torch.ops.aten, torch.ops.prims

SIZES = (3, 5)
"""The dynamic size of each call, none of them 0, 1 or 2, which torch itself specialises."""

AT_ONCE = 18
"""Number of programs in one compiled function, since each is cheap compared with a compilation."""

Program = Callable[[Tensor, int], Any]
"""Calls an overload with an argument that is computed from ``n``, the dynamic size of a line."""


def waves(*shape: int) -> Tensor:
    """Return distinct numbers between -1 and 1."""
    count = torch.Size(shape).numel()
    return torch.arange(count, dtype=torch.float32).add(len(shape)).sin().reshape(shape)


LINE, IMAGE, VOLUME = waves(1, 4, 12), waves(1, 4, 12, 12), waves(1, 4, 7, 7, 7)
ROWS, ROW = waves(6, 30), waves(30)
PLACES = torch.tensor([0, 2, 2])


def padded(x: Tensor, n: int) -> list[int]:
    """Return equal padding on every side of the spatial dimensions of an overload."""
    return [n, n - 1] * (x.dim() - 2)


def padding(kind: str) -> dict[str, Program]:
    """Padding by reflection or replication and its gradient, in every number of dimensions."""
    found: dict[str, Program] = {}
    for rank, image in enumerate((LINE, IMAGE, VOLUME), 1):
        forward, backward = (getattr(aten, f"{kind}_pad{rank}d{end}") for end in ("", "_backward"))
        found[f"aten.{kind}_pad{rank}d.default"] = of_padding(forward, image)
        found[f"aten.{kind}_pad{rank}d_backward.default"] = of_gradient(backward, image)
    return found


def of_padding(forward: Callable[..., Any], image: Tensor) -> Program:
    return lambda x, n: forward(image, padded(image, n))


def of_gradient(backward: Callable[..., Any], image: Tensor) -> Program:
    return lambda x, n: backward(F.pad(image, padded(image, n)), image, padded(image, n))


def of_antialiasing(forward: Callable[..., Any]) -> Program:
    return lambda x, n: forward(IMAGE, [2 * n, n], False)


def antialiased() -> dict[str, Program]:
    """Resampling with antialiasing and the gradients of those that have tracing rules."""
    found: dict[str, Program] = {}
    for kind in ("bilinear", "bicubic", "lanczos"):
        name = f"_upsample_{kind}2d_aa"
        if hasattr(aten, name):
            found[f"aten.{name}.default"] = of_antialiasing(getattr(aten, name))
    return found


PROGRAMS: dict[str, Program] = {
    **padding("reflection"),
    **padding("replication"),
    **antialiased(),
    "aten.upsample_linear1d.default": lambda x, n: aten.upsample_linear1d(LINE, [2 * n], False),
    "aten.upsample_trilinear3d.default": lambda x, n: aten.upsample_trilinear3d(VOLUME, [2 * n, n, 2], True),
    "aten._adaptive_avg_pool2d.default": lambda x, n: aten._adaptive_avg_pool2d(IMAGE, [n, 2]),
    "aten._adaptive_avg_pool3d.default": lambda x, n: aten._adaptive_avg_pool3d(VOLUME, [n, 2, 7]),
    "aten.max_unpool2d.default": lambda x, n: aten.max_unpool2d(
        waves(1, 1, 2, 2), torch.tensor([[[[0, 1], [3, 5]]]]), [n, n + 1]
    ),
    "aten.max_unpool3d.default": lambda x, n: aten.max_unpool3d(
        waves(1, 1, 2, 2, 1), torch.tensor([[[[[0], [1]], [[3], [5]]]]]), [n, n + 1, 2], [1, 1, 1], [0, 0, 0]
    ),
    "aten.constant_pad_nd.default": lambda x, n: aten.constant_pad_nd(ROWS, [n, -1, 1 - n, 2], 1.5),
    "aten.convolution.default": lambda x, n: F.conv2d(IMAGE, waves(4, 4, 2, 2), dilation=n, padding=n),
    "aten.convolution_backward.default": lambda x, n: torch.func.grad(
        lambda w: F.conv2d(IMAGE, w, padding=n).square().sum()
    )(waves(4, 4, 2, 2)),
    "aten._embedding_bag_backward.default": lambda x, n: torch.func.grad(
        lambda w: F.embedding_bag(PLACES, w * 1, torch.tensor([0, 2]), mode="sum").square().sum()
    )(x[:, None] * waves(4)),
    "aten.embedding.default": lambda x, n: aten.embedding(ROWS, PLACES, n),
    "aten.embedding_dense_backward.default": lambda x, n: aten.embedding_dense_backward(
        waves(3, 4), PLACES, n, n - 3, False
    ),
    "aten.native_group_norm.default": lambda x, n: aten.native_group_norm(
        x.view(-1, 1, 1) * waves(1, 4, 6), waves(4), None, n, 4, 6, 2, 1e-5
    ),
    "aten.native_layer_norm.default": lambda x, n: F.layer_norm(waves(4, 1) * x, (n,)),
    "aten.native_layer_norm_backward.default": lambda x, n: aten.native_layer_norm_backward(
        waves(4, 1) * x, waves(4, 1) + x, [n], waves(4, 1), waves(4, 1) + 2, None, None, [True, False, False]
    ),
    "aten.as_strided.default": lambda x, n: aten.as_strided(ROW * 2, [n, 2], [2, n], n) + 1,
    "aten.as_strided_copy.default": lambda x, n: aten.as_strided_copy(ROW * 2, [n, 2], [2, n], n),
    "aten.as_strided_scatter.default": lambda x, n: aten.as_strided_scatter(
        ROW * 2, waves(3, 2), [3, 2], [2 * n, n], 1
    ),
    "prims.as_strided_scatter.default": lambda x, n: prims.as_strided_scatter(
        ROW * 2, waves(3, 2), [3, 2], [2 * n, n], 1
    ),
    "aten._reshape_alias.default": lambda x, n: aten._reshape_alias(x[:, None] * ROW, [n * 5, 6], [6, 1]) + 1,
    "aten._unsafe_view.default": lambda x, n: aten._unsafe_view(x[:, None] * ROW, [n * 5, 6]) + 1,
    "aten.view.default": lambda x, n: aten.view(x[:, None] * ROW, [n * 5, 6]) + 1,
    "aten.view_copy.default": lambda x, n: aten.view_copy(x[:, None] * ROW, [n * 5, 6]),
    "aten.expand.default": lambda x, n: aten.expand(ROW, [n, 30]) + 1,
    "aten.expand_copy.default": lambda x, n: aten.expand_copy(ROW, [n, 30]),
    "aten.repeat.default": lambda x, n: aten.repeat(ROWS, [n, 2]),
    "aten.repeat_interleave.Tensor": lambda x, n: torch.repeat_interleave(
        torch.full((3,), n, dtype=torch.int64), output_size=3 * n
    ),
    "aten.roll.default": lambda x, n: aten.roll(ROWS, [n, -n], [0, 1]),
    "aten.select.int": lambda x, n: aten.select(ROWS, 1, n) + aten.select(ROWS, 1, -n),
    "aten.select_copy.int": lambda x, n: aten.select_copy(ROWS, 1, n),
    "aten.select_scatter.default": lambda x, n: aten.select_scatter(ROWS, waves(6), 1, -n),
    "aten.select_backward.default": lambda x, n: aten.select_backward(waves(4), [2 * n, 4], 0, n),
    "aten.slice.Tensor": lambda x, n: aten.slice(ROWS, 1, n, -n, n) + 1,
    "aten.slice_copy.Tensor": lambda x, n: aten.slice_copy(ROWS, 1, 0, 30, n),
    "aten.slice_scatter.default": lambda x, n: aten.slice_scatter(ROWS, ROWS[:, -n:] * 0 + 3, 1, -n, None, 1),
    "aten.slice_backward.default": lambda x, n: aten.slice_backward(waves(3, 4), [3 * n, 4], 0, 0, 3 * n, n),
    "aten.diagonal_backward.default": lambda x, n: aten.diagonal_backward(x, [n, 2 + n], 0, 0, 1),
    "aten.unfold_backward.default": lambda x, n: aten.unfold_backward(
        x[:, None] * waves(4), [2 * n + 2], 0, 4, 2
    ),
    "aten.col2im.default": lambda x, n: aten.col2im(
        waves(4, 1) * torch.cat([x, x]), [n + 1, 3], [2, 2], [1, 1], [0, 0], [1, 1]
    ),
    "aten.split_copy.Tensor": lambda x, n: aten.split_copy(ROW[: 3 * n - 1], n),
    "aten.split_with_sizes_copy.default": lambda x, n: aten.split_with_sizes_copy(ROW, [n, 30 - n]),
    "aten.unsafe_split.Tensor": lambda x, n: aten.unsafe_split(x[:, None] * ROW, n),
    "aten.unsafe_split_with_sizes.default": lambda x, n: aten.unsafe_split_with_sizes(ROW, [n, 30 - n]),
    "aten.tril.default": lambda x, n: aten.tril(ROWS, n),
    "aten.triu.default": lambda x, n: aten.triu(ROWS, -n),
    "aten.topk.default": lambda x, n: aten.topk(ROWS, n),
    "aten.empty.memory_format": lambda x, n: torch.empty(n, 3).fill_(1.0),
    "aten.empty_permuted.default": lambda x, n: torch.empty_permuted((n, 2), (1, 0)).fill_(1.0),
    "aten.empty_strided.default": lambda x, n: torch.empty_strided((n, 2), (2, 1)).fill_(1.0),
    "aten.new_empty.default": lambda x, n: ROW.new_empty(n, 2).fill_(1.0),
    "aten.new_empty_strided.default": lambda x, n: ROW.new_empty_strided((n, 2), (1, n)).fill_(1.0),
    "aten.new_full.default": lambda x, n: ROW.new_full((n, 2), 2.0),
    "aten.new_ones.default": lambda x, n: ROW.new_ones(n, 2),
    "aten.new_zeros.default": lambda x, n: ROW.new_zeros(n, 2),
    "aten.full.default": lambda x, n: torch.full((n, 2), n),
    "aten.zeros.default": lambda x, n: torch.zeros(n, 2),
    "aten.eye.m": lambda x, n: torch.eye(n, 2 * n),
    "prims.iota.default": lambda x, n: prims.iota(
        n, start=n, step=n, dtype=torch.int64, device=torch.device("cpu"), requires_grad=False
    ),
    "aten.rand.default": lambda x, n: torch.rand(n, 3),
    "aten.randn.default": lambda x, n: torch.randn(n, 3),
    "aten.normal.float_float": lambda x, n: torch.normal(0.0, 1.0, (n, 2)),
    "aten.randint.default": lambda x, n: torch.randint(n, (4,)),
    "aten.randint.low": lambda x, n: torch.randint(n, 3 * n, (4,)),
    "aten.randperm.default": lambda x, n: torch.randperm(n),
    "aten.multinomial.default": lambda x, n: torch.multinomial(ROWS.abs() + 1, n),
}

BEFORE_LOWERING = (
    "Dynamo or a decomposition makes other operators of it, of which the table has those with rules"
)
SPECIALISED = "torch specialises the argument, or refuses it, whatever the backend"
ON_A_GPU = "attention of a GPU alone"
GENERATOR = "a generator cannot be traced, else the overload of the table"

NOT_HERE: dict[str, str] = {
    r"aten\._?upsample_nearest(_exact)?\dd\.(default|vec)": BEFORE_LOWERING,
    r"aten\.upsample_(bilinear2d|linear1d|trilinear3d)\.vec": BEFORE_LOWERING,
    r"aten\.upsample_bilinear2d\.default": BEFORE_LOWERING,
    r"aten\.(reshape|ones|eye)\.default": BEFORE_LOWERING,
    r"aten\._embedding_bag_dense_backward\.default": BEFORE_LOWERING,
    r"aten\._upsample_(bicubic|bilinear|lanczos)2d_aa_backward\.default": SPECIALISED,
    r"aten\.(native_)?channel_shuffle\.default": SPECIALISED,
    r"aten\._?upsample_(nearest(_exact)?\dd|linear1d|bilinear2d|trilinear3d)_backward\.default": SPECIALISED,
    r"aten\.bincount\.default": "the size of its result is data, and one of another graph",
    r"aten\.randint_like\.(default|low_dtype)": SPECIALISED,
    r"aten\._scaled_dot_product_.*_backward\.default": ON_A_GPU,
    r"aten\.(rand|randn|randint|randperm)\.(low_)?generator": GENERATOR,
}
"""Overloads with ``SymInt`` arguments that no program reaches, as patterns, and why."""


def overload(name: str) -> Any:
    namespace, packet, kind = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet, None), kind, None)


def symbolic_overloads() -> set[str]:
    """Return the overloads with a rule whose schema has a ``SymInt``."""
    names = (name for name in RULES.served if name.split(".")[0] in ("aten", "prims"))
    found = {name: getattr(overload(name), "_schema", "") for name in names}
    return {name for name, schema in found.items() if "SymInt" in str(schema).partition("->")[0]}


def holds_symbol(argument: object) -> bool:
    return isinstance(argument, Term) or (
        isinstance(argument, list | tuple) and any(map(holds_symbol, argument))
    )


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the overloads lowered with a symbolic argument, and the failed rules, which would run as ATen."""
    found: set[str] = set()

    def noted(entry: Any, ctx: Any, args: Any, kwargs: Any) -> Any:
        if any(map(holds_symbol, (*args, *kwargs.values()))):
            found.add(str(ctx.node.target))
        try:
            return apply(entry, ctx, args, kwargs)
        except Exception as error:
            found.add(f"{ctx.node.target} failed: {error}")
            raise

    monkeypatch.setattr(litz_lowering.driver, "apply", noted)
    return found


GROUPS = [sorted(PROGRAMS)[first : first + AT_ONCE] for first in range(0, len(PROGRAMS), AT_ONCE)]


def check(programs: dict[str, Program], met: set[str]) -> int:
    """Assert eager's values at both sizes, by rules with a symbol; return the number of graphs."""

    def program(x: Tensor) -> dict[str, Any]:
        return {name: run(x, x.size(0)) for name, run in programs.items()}

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("litz")
    compiled = torch.compile(program, backend=counter, fullgraph=True)
    with torch.no_grad(), litz.config.patch(cache=False):
        for size in SIZES:
            x = torch.arange(1.0, 1 + size)
            torch._dynamo.mark_dynamic(x, 0)
            torch.manual_seed(size)
            expected = program(x)
            torch.manual_seed(size)
            found = compiled(x)
            for name in programs:
                torch.testing.assert_close(
                    found[name], expected[name], rtol=1e-4, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
                )
    assert programs.keys() <= met
    assert not [each for each in met if " failed: " in each]
    return counter.frame_count


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_a_symbol_serves_wherever_a_schema_takes_one(names: list[str], met: set[str]) -> None:
    assert check({name: PROGRAMS[name] for name in names}, met) == 1


def test_the_correction_of_a_variance_may_be_a_symbol(met: set[str]) -> None:
    """Overloads with a ``Scalar`` in their schema: torch makes another graph for another size."""
    programs: dict[str, Program] = {
        "aten.var.correction": lambda x, n: torch.var(ROWS, 1, correction=n),
        "aten.std.correction": lambda x, n: torch.std(x[:, None] * ROW, correction=n),
        "aten.var_mean.correction": lambda x, n: torch.var_mean(ROWS, 1, correction=2 * n, keepdim=True),
        "aten.std_mean.correction": lambda x, n: torch.std_mean(ROWS[:, :9], 1, correction=n),
    }
    check(programs, met)


def test_every_overload_that_takes_symbols_has_a_program() -> None:
    left = {name for name in symbolic_overloads() - PROGRAMS.keys() if not explained(name)}
    assert not left, f"add programs for {sorted(left)}"
    assert PROGRAMS.keys() <= symbolic_overloads()


def explained(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in NOT_HERE)
