"""Tests of the judge of the operator database: it reports differences from eager, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from opinfo.entries import Tolerance, Unit
from opinfo.execution import Seen, run
from opinfo.judge import mismatch
from opinfo.outcome import Outcome, UnitResult
from opinfo.sample import Sample
from opinfo.samples import widened


def fault(compiled: Callable[..., Any], eager: Callable[..., Any], *args: Any) -> str | None:
    """Return the judge's verdict on a function in place of the compiled one."""
    sample = Sample(args, {}, lambda result: result)

    def seen(function: Callable[..., Any], convert: Any = None) -> Seen:
        return run(function, sample.copied(convert), "gradient")

    allowed = Tolerance(1e-5, 1e-3)
    found = mismatch(
        seen(compiled), seen(eager), lambda: seen(eager, widened), lambda _: allowed, values=True
    )
    return None if found is None else found.fault


def raising(error: type[Exception]) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error("on purpose")

    return function


X = torch.arange(6.0).reshape(2, 3)
DIFFERENCES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "value": (lambda x: x + 1.01, lambda x: x + 1),
    "dtype": (lambda x: x.double(), lambda x: x + 0),
    "shape": (lambda x: x[:1] + 0, lambda x: x + 0),
    "strides": (lambda x: (x + 0).t().contiguous().t(), lambda x: x + 0),
    "aliasing": (lambda x: x.clone(), lambda x: x.view(2, 3)),
    "side effect": (lambda x: x + 1, lambda x: x.add_(1).clone()),
    "structure": (lambda x: (x + 0, x + 1), lambda x: x + 0),
    "error": (raising(IndexError), raising(ValueError)),
}


@pytest.mark.parametrize("kind", DIFFERENCES)
def test_a_difference_is_found(kind: str) -> None:
    compiled, eager = DIFFERENCES[kind]
    assert fault(compiled, eager, X) == kind
    assert fault(eager, eager, X) is None


def test_a_wrong_gradient_is_found() -> None:
    x = X.clone().requires_grad_()
    assert fault(lambda x: x * x, lambda x: x**2, x) is None
    assert fault(lambda x: x * x.detach(), lambda x: x * x, x) == "value"


def test_a_value_may_be_nearer_to_the_truth_than_eagers() -> None:
    x = torch.full((1000,), 0.1, dtype=torch.bfloat16)
    assert fault(lambda x: x.double().sum().to(x.dtype), lambda x: sum(x.unbind()), x) is None
    assert fault(lambda x: sum(x.unbind()), lambda x: x.double().sum().to(x.dtype), x) == "value"


def test_nan_is_not_a_number_and_infinity_has_a_sign() -> None:
    x = torch.tensor([float("nan"), float("inf"), 1.0])
    assert fault(lambda x: x.clone(), lambda x: x + 0, x) is None
    assert fault(lambda x: x.nan_to_num(0.0, float("inf")), lambda x: x + 0, x) == "value"
    assert fault(lambda x: torch.where(x.isinf(), -x, x), lambda x: x + 0, x) == "value"


def test_copies_share_storage_as_the_sample_does() -> None:
    base = torch.arange(12.0)
    copy = Sample((base, base[2:8:2], base.expand(3, 12)), {}, lambda result: result).copied()
    first, second, third = copy.args
    first.add_(1)
    assert torch.equal(second, base[2:8:2] + 1) and second.stride() == (2,)
    assert torch.equal(third[2], base + 1) and third.stride() == (0, 1)
    assert float(base[0]) == 0


def test_results_survive_a_line_of_json() -> None:
    result = UnitResult(Unit("add", "f32"), {"forward": None})
    for outcome in (Outcome("forward", 0, "pass", calls=("aten.mm",)), Outcome("dynamic", 3, "value", "far")):
        result.outcomes[outcome.place] = outcome
    assert UnitResult.from_line(result.to_line()) == result
