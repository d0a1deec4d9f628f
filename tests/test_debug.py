"""Debugging between passes: `verify` and `check` find defective passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import litz
from litz_ir.loops import LoopGraph, Pointwise
from litz_ir.passes import PassContext
from litz_ir.scalar import const, op
from litz_scheduler import pipeline


@dataclass(frozen=True, slots=True)
class Spoil:
    """A wrong pass: it adds one to the last pointwise value."""

    name: str = "spoil"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        last = max(k for k, operation in enumerate(data.operations) if isinstance(operation, Pointwise))
        operations = list(data.operations)
        spoilt = operations[last]
        assert isinstance(spoilt, Pointwise)
        body = op("add", spoilt.bodies[0], const(1.0, spoilt.bodies[0].dtype))
        operations[last] = replace(spoilt, bodies=(body,))
        return data.with_operations(tuple(operations))


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * 2


def run(**options: Any) -> torch.Tensor:
    torch._dynamo.reset()
    x = torch.linspace(-2, 2, 40).reshape(5, 8)
    with litz.config.patch(cache=False, fallback="error", **options):
        result = torch.compile(program, backend="litz")(x)
    torch.testing.assert_close(result, program(x))
    return result


@pytest.mark.parametrize(
    "options", [{"verify": True}, {"check": True}, {"fuse": False}, {"numerics": "fast"}]
)
def test_options_change_no_value(options: dict[str, Any]) -> None:
    run(**options)


def test_check_names_the_pass_that_changed_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = pipeline.graph_passes
    monkeypatch.setattr(
        pipeline, "graph_passes", lambda options, costs=None: (*passes(options, costs), Spoil())
    )
    with pytest.raises(Exception, match="spoil"):
        run(check=True)
