"""Random programs of the corpus, the same on every machine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial

from litz_ir.builder import Tensor
from litz_scheduler.conformance.case import CaseBuilder, Program

COUNT = 40
"""Number of random programs."""

_STEPS = 12
"""Number of operations of a program."""


def random_programs() -> Mapping[str, Program]:
    """Return the random programs by name."""
    return {f"random_{seed}": partial(_program, seed) for seed in range(COUNT)}


def _program(seed: int, g: CaseBuilder) -> Sequence[Tensor]:
    """Return the results of a random program: its last values, whatever their shapes."""
    choice = random.Random(seed)
    rows = g.dynamic("n", choice.randint(1, 9)) if choice.random() < 0.4 else choice.randint(1, 9)
    columns = choice.randint(2, 40)
    values = [g.given("x", rows, columns), g.given("y", rows, columns), g.given("row", columns)]
    for _ in range(_STEPS):
        values.append(_step(choice, g, values))
    return values[-3:]


def _step(choice: random.Random, g: CaseBuilder, values: Sequence[Tensor]) -> Tensor:
    """Return a new value, computed from earlier ones and in [-4, 4] so that errors stay small."""
    x = choice.choice(values[-4:])
    axis = choice.randrange(x.ndim) if x.ndim else 0
    kind = choice.choice(("binary", "binary", "unary", "reduce", "reduce", "softmax", "view", "scan"))
    if kind == "binary":
        return _bounded(g, _binary(choice, g, x, choice.choice(_like(x, values))))
    if kind == "reduce" and x.ndim:
        reduced = g.reduce(choice.choice(("sum", "max", "min")), x, axis, keepdims=choice.random() < 0.7)[0]
        return _bounded(g, reduced)
    if kind == "softmax" and x.ndim:
        powers = g.exp(x - g.max(x, axis=axis, keepdims=True))
        return powers / g.sum(powers, axis=axis, keepdims=True)
    if kind == "view" and x.ndim:
        return x.flip(axis) if choice.random() < 0.5 else x.transpose().transpose() if x.ndim > 1 else x + 1.0
    if kind == "scan" and x.ndim:
        return _bounded(g, g.scan("sum", x, axis))
    return g.op(choice.choice(("exp", "tanh", "abs", "neg", "sin")), _bounded(g, x))


def _binary(choice: random.Random, g: CaseBuilder, x: Tensor, y: Tensor) -> Tensor:
    return g.op(choice.choice(("add", "sub", "mul", "maximum", "minimum")), x, y)


def _like(x: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    """Return the values that broadcast with ``x`` by their shapes."""
    return [
        y
        for y in values
        if all(a == b or 1 in (a, b) for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))
    ]


def _bounded(g: CaseBuilder, x: Tensor) -> Tensor:
    return g.minimum(g.maximum(x, -4.0), 4.0)
