"""Lowerings that a program or an installed package registers for operators of other libraries, and keys with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._decomp import decomposition_table, register_decomposition

import litz
import litz.lowering
from litz.lowering import Declined, LoweringContext
from litz_ir.errors import ConfigError
from litz_ir.scalar import build
from litz_lowering import registered
from litz_lowering.contexts.registry import REGISTRY

pytestmark = pytest.mark.sampled  # it compiles whole programs


@torch.library.custom_op("litzlowerings::gated", mutates_args=())
def gated(x: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(x) * y


@gated.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, y = ctx.saved_tensors
    s = torch.sigmoid(x)
    return grad * y * s * (1 - s), grad * s


gated.register_autograd(_gradient, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def gated_by_aten(x: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(x) * y


def gated_loop(ctx: LoweringContext, x: litz.lowering.Tensor, y: litz.lowering.Tensor) -> Any:
    if len(x.shape) > 2:
        return Declined("it has more than two dimensions")
    one = build.const(1.0, x.dtype)

    def body(i: Any) -> Any:
        e = build.op("exp", build.op("neg", x.load(i)))
        return build.op("mul", build.op("div", one, build.op("add", one, e)), y.load(i))

    return ctx.pointwise(body)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    for name in ("_rules", "_decompositions"):
        monkeypatch.setattr(REGISTRY, name, dict(getattr(REGISTRY, name)))
    before = dict(decomposition_table)
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "kept")):
        yield
    decomposition_table.clear()
    decomposition_table.update(before)


def numbers(*shape: int) -> Tensor:
    return torch.linspace(-2.0, 2.0, torch.Size(shape).numel()).reshape(shape)


def program(x: Tensor, y: Tensor) -> Tensor:
    return gated(x + 1, y) * 2


def calls(*shape: int, dynamic: bool = False) -> list[str]:
    """Compare the program and its gradient with eager; return its calls of operators in inference."""
    torch._dynamo.reset()
    with litz.config.patch(fallback="silent"):
        compiled = torch.compile(program, backend="litz", dynamic=dynamic)
        ours, theirs = ([numbers(*shape).requires_grad_() for _ in range(2)] for _ in range(2))
        for function, args in ((compiled, ours), (program, theirs)):
            function(*args).sum().backward()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        args = [numbers(*shape), numbers(*shape) + 1]
        torch.testing.assert_close(compiled(*args), program(*args))
        return [call.target for call in litz.explain(program, *args).calls]


CALLED = ["litzlowerings.gated.default"]


def by_decomposition() -> None:
    litz.lowering.decomposition("litzlowerings::gated")(gated_by_aten)


def by_rule() -> None:
    litz.lowering.rule(gated)(gated_loop)


def by_torch() -> None:
    register_decomposition(torch.ops.litzlowerings.gated.default)(gated_by_aten)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("register", [by_decomposition, by_rule, by_torch])
def test_a_lowering_of_an_operator_compiles_it_with_the_rest(
    register: Callable[[], None], dynamic: bool
) -> None:
    assert calls(4, 6, dynamic=dynamic) == CALLED
    register()
    assert calls(4, 6, dynamic=dynamic) == []
    assert calls(5, 7, dynamic=dynamic) == []


def test_a_rule_comes_before_decompositions_and_may_decline() -> None:
    by_rule()
    litz.lowering.decomposition(gated)(lambda x, y: x * float("nan"))
    assert calls(4, 6) == []
    assert calls(2, 3, 4) == CALLED
    reasons = [each.reason for each in litz.explain(program, numbers(2, 3, 4), numbers(2, 3, 4)).fallbacks]
    assert reasons and all("part of ATen" in reason for reason in reasons)


def test_a_decomposition_of_litz_comes_before_that_of_torch() -> None:
    register_decomposition(torch.ops.litzlowerings.gated.default)(lambda x, y: x * float("nan"))
    by_decomposition()
    assert calls(4, 6) == []


def test_operators_are_named_in_several_ways() -> None:
    for operator in (
        "litzlowerings::gated",
        "litzlowerings::gated.default",
        torch.ops.litzlowerings.gated,
        torch.ops.litzlowerings.gated.default,
        gated,
    ):
        litz.lowering.rule(operator, replace=True)(gated_loop)
        litz.lowering.decomposition(operator, replace=True)(gated_by_aten)
    assert sorted(registered()) == [
        "decomposition of litzlowerings.gated.default",
        "rule of litzlowerings.gated.default",
    ]


def test_wrong_registrations_say_what_to_do() -> None:
    by_rule()
    by_decomposition()
    cases: dict[str, Callable[[], object]] = {
        "two lowering rules serve litzlowerings.gated.default": by_rule,
        "two decompositions serve litzlowerings.gated.default": by_decomposition,
        "two lowering rules serve aten.sin.default": lambda: litz.lowering.rule("aten::sin.default")(
            gated_loop
        ),
        "no operator is called 'litzlowerings::gate'": lambda: litz.lowering.rule("litzlowerings::gate"),
        "no operator is called 'litzlowerings::gated.out'": lambda: litz.lowering.rule(
            "litzlowerings::gated.out"
        ),
        "'gated' is no operator": lambda: litz.lowering.decomposition("gated"),
    }
    for said, register in cases.items():
        with pytest.raises(ConfigError, match=said) as caught:
            register()
        assert caught.value.hint


def test_a_registration_that_fails_registers_nothing() -> None:
    by_rule()
    by_decomposition()
    others = (torch.ops.aten.is_pinned.default, gated)
    for register, function in (
        (litz.lowering.rule, gated_loop),
        (litz.lowering.decomposition, gated_by_aten),
    ):
        with pytest.raises(ConfigError, match=r"two .* serve litzlowerings\.gated\.default"):
            register(*others)(function)
    assert not any("is_pinned" in name for name in registered())


def test_a_rule_of_litz_may_be_replaced() -> None:
    def tripled(ctx: LoweringContext, x: litz.lowering.Tensor) -> litz.lowering.Tensor:
        return ctx.pointwise(lambda i: build.op("mul", x.load(i), build.const(3.0, x.dtype)))

    litz.lowering.rule("aten::sin.default", replace=True)(tripled)
    found = torch.compile(torch.sin, backend="litz")(numbers(4))
    torch.testing.assert_close(found, numbers(4) * 3)


@pytest.mark.parametrize("kind", ["decomposition", "torch"])
def test_another_decomposition_is_another_key(kind: str) -> None:
    def register(scale: float) -> None:
        def how(x: Tensor, y: Tensor) -> Tensor:
            return x * scale

        if kind == "torch":
            decomposition_table.pop(torch.ops.litzlowerings.gated.default, None)
            register_decomposition(torch.ops.litzlowerings.gated.default)(how)
        else:
            litz.lowering.decomposition(gated, replace=True)(how)

    cached = []
    for scale in (2.0, 3.0, 2.0):
        register(scale)
        torch._dynamo.reset()
        cached.append(litz.explain(program, numbers(4), numbers(4)).graphs[0].cached)
        found = torch.compile(program, backend="litz")(numbers(4), numbers(4))
        torch.testing.assert_close(found, (numbers(4) + 1) * scale * 2)
    assert cached == [False, False, True]


# --- installed packages -------------------------------------------------------------------------------------

VENDOR = """
import torch
import litz.lowering

@torch.library.custom_op("vendor::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

double.register_fake(torch.empty_like)

def register():
    litz.lowering.decomposition("vendor::double")(lambda x: x * 2)
"""

PROGRAM = """
import json, torch, litz, vendor

report = litz.explain(lambda x: vendor.double(x) + 1, torch.ones(8))
print(json.dumps({"calls": [call.target for call in report.calls], "cached": report.graphs[0].cached}))
"""


def run(folder: Path, entry: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process in which the package of a vendor is installed."""
    (folder / "vendor.py").write_text(VENDOR)
    metadata = folder / "vendor-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[litz.lowerings]\nown = {entry}\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "LITZ_CACHE_DIR": str(folder / "cache"), **variables}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment, check=False)


def test_lowerings_of_an_installed_package(tmp_path: Path) -> None:
    for cached in (False, True):
        done = run(tmp_path, "vendor:register")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {"calls": [], "cached": cached}


def test_a_package_that_fails_costs_its_lowerings_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "vendor:nothing")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["calls"] == ["vendor.double.default"]
    assert "the lowerings own of vendor cannot be loaded: AttributeError" in done.stderr
    strict = run(tmp_path, "vendor:nothing", LITZ_FALLBACK="error")
    assert strict.returncode == 1 and "the lowerings own of vendor cannot be loaded" in strict.stderr
