"""Fallbacks: a failure affects the failed graph or operation alone, is reported once, and raises where options say
so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import litz
import litz_lowering.rules  # noqa: F401  # its rules are registered before those of tests
from litz_codegen_cpp.target import CpuTarget
from litz_ir.dtypes import bf16
from litz_ir.errors import CompileFailed, LitzError, UnsupportedOperation
from litz_ir.target import Capabilities, SourceUnit
from litz_lowering.contexts import registry
from litz_lowering.contexts.context import Declined


def program(x: torch.Tensor) -> torch.Tensor:
    """Two groups, separate because of the matmul between them."""
    return (torch.tanh(x) @ x).sigmoid() + 1


def run(function: Callable[..., Any] = program) -> torch.Tensor:
    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 36).reshape(6, 6)
    result = torch.compile(function, backend="litz")(x)
    torch.testing.assert_close(result, function(x))
    return result


@pytest.fixture(autouse=True)
def uncached(tmp_path: Path) -> Any:
    with litz.config.patch(cache_dir=str(tmp_path / "cache"), fallback="warn"):
        yield


def _refuse_units_with(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    build = CpuTarget.build

    def failing(self: CpuTarget, unit: SourceUnit, folder: Path) -> Path:
        if word in unit.text:
            raise CompileFailed("refused by the test")
        return build(self, unit, folder)

    monkeypatch.setattr(CpuTarget, "build", failing)


def test_a_kernel_that_does_not_compile_runs_as_aten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _refuse_units_with(monkeypatch, "tanh(")
    with caplog.at_level(logging.WARNING, logger="litz"):
        run()
    assert "tanh run as ATen instead" in caplog.text
    assert caplog.text.count("run as ATen instead") == 1
    report = litz.explain(program, torch.ones(6, 6))
    assert [left.target for left in report.fallbacks] == ["aten.tanh.default"]
    assert len(report.kernels) == 1, "the rest is still compiled"


def test_operations_whose_dtype_a_device_lacks_run_as_aten_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = CpuTarget.capabilities

    def without_bf16(self: CpuTarget) -> Capabilities:
        return replace(known(self), dtypes=known(self).dtypes - {bf16})

    def narrow(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh((x.bfloat16() * 2).sigmoid().neg() + 1).float().softmax(-1)

    monkeypatch.setattr(CpuTarget, "capabilities", without_bf16)
    with caplog.at_level(logging.WARNING, logger="litz"):
        run(narrow)
    assert "needs bf16, which kernels of" in caplog.text and "still fails" not in caplog.text
    report = litz.explain(narrow, torch.ones(6, 6))
    (kernel,) = report.kernels
    assert all(each.startswith("_softmax") for each in kernel.operations)


def test_nothing_is_said_under_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _refuse_units_with(monkeypatch, "tanh(")
    with litz.config.patch(fallback="silent"), caplog.at_level(logging.WARNING, logger="litz"):
        run()
    assert "ATen" not in caplog.text


def test_strict_mode_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse_units_with(monkeypatch, "tanh(")
    with litz.config.patch(fallback="error"), pytest.raises(Exception, match="refused by the test"):
        run()


def test_a_rule_that_fails_leaves_its_operation_to_aten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find = registry.Registry.find

    def broken(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("a defect in the rule")

    def found(self: registry.Registry, name: str, **kwargs: Any) -> registry.RuleEntry | None:
        return registry.RuleEntry(broken) if name == "aten.sigmoid.default" else find(self, name, **kwargs)

    monkeypatch.setattr(registry.Registry, "find", found)
    with caplog.at_level(logging.WARNING, logger="litz"):
        run()
    assert "a defect in the rule" in caplog.text
    assert "test_fallback.py" in caplog.text, "the user's line is named"


def test_without_a_compiler_the_graph_runs_as_it_came(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="litz"):
        run()
    assert caplog.text.count("there is no compiler") == 1
    assert "g++" in caplog.text and "clang++" in caplog.text
    with litz.config.patch(fallback="error"), pytest.raises(Exception, match="install"):
        run()


def test_the_compiler_is_the_one_that_the_options_name(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-such-compiler")
    with (
        litz.config.patch(compiler=missing, fallback="error"),
        pytest.raises(Exception, match="no-such-compiler"),
    ):
        run()
    with litz.config.patch(compiler="g++", fallback="error"):
        run()


def test_what_has_no_rule_is_an_error_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry.REGISTRY._rules, "aten.tanh.default")
    run()
    report = litz.explain(program, torch.eye(6))
    assert {left.reason for left in report.fallbacks} == {"no lowering rule"}
    with litz.config.patch(fallback="error"), pytest.raises(Exception, match=r"tanh.*no lowering rule"):
        run()


def test_a_rule_that_declines_is_an_error_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Sequence[tuple[Literal["loops", "library"], bool]] = (("loops", True), ("library", False))
    for how, is_error in kinds:
        entry = registry.RuleEntry(lambda *args: Declined("not today"), how)
        monkeypatch.setitem(registry.REGISTRY._rules, "aten.tanh.default", entry)
        run()
        with litz.config.patch(fallback="error"):
            if is_error:
                with pytest.raises(Exception, match=r"tanh.*not today"):
                    run()
            else:
                run()


def meant_for_aten(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A program with a compiled loop before and after each operator."""
    y = x * 2
    return (
        torch.linalg.inv(y + 6 * torch.eye(6)) + 1,
        y.nonzero() + 1,
        y.topk(2).values + 1,
        y.sort(stable=True).indices + 1,
        y.unique() + 1,
        y[y > 0] + 1,
        torch.fft.rfft(y).abs() + 1,
        y.median(0).values + 1,
    )


def test_what_is_meant_for_aten_is_no_error() -> None:
    with litz.config.patch(fallback="error"):
        run(meant_for_aten)
        report = litz.explain(meant_for_aten, torch.linspace(-1, 1, 36).reshape(6, 6))
    assert report.uncompiled == 0 and len(report.kernels) > 4


def test_effects_keep_their_errors() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.linalg.inv(x) * 2, backend="litz")
    torch.testing.assert_close(compiled(torch.eye(3)), 2 * torch.eye(3))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(torch.zeros(3, 3))


def test_errors_are_of_one_tree() -> None:
    assert issubclass(UnsupportedOperation, LitzError)
    assert issubclass(CompileFailed, LitzError)
