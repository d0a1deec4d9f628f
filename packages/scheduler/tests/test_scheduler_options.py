"""Options of the scheduler: each of a wrong type or outside its range is an error that says what belongs there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from litz_ir.errors import ConfigError
from litz_scheduler import SchedulerOptions


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"lanes": "fast"}, "lanes is 'fast', but one of 'best', 'inner', 'outer', 'none' belongs there"),
        ({"inline_cost": -5}, "inline_cost is -5, but an int of at least 0 belongs there"),
        ({"inline_cost": 4.0}, "inline_cost is 4.0, but an int of at least 0 belongs there"),
        ({"inline_cost": True}, "inline_cost is True, but an int of at least 0 belongs there"),
        ({"inline_loads": None}, "inline_loads is None"),
        ({"unroll": 0}, "unroll is 0, but an int of at least 1 belongs there"),
        ({"max_cluster_size": 0}, "max_cluster_size is 0, but an int of at least 1"),
        ({"lookback": 1000}, "lookback is 1000, but 0 or a power of two belongs there"),
        ({"fuse": 1}, "fuse is 1, but True or False belongs there"),
        ({"order_loops": "yes"}, "order_loops is 'yes', but True or False belongs there"),
        ({"channels_last": None}, "channels_last is None, but True or False belongs there"),
        (
            {"generated_matmuls": {"all"}},
            "generated_matmuls is {'all'}, but a frozenset of strings belongs there",
        ),
        ({"generated_matmuls": frozenset({1})}, "but a frozenset of strings belongs there"),
        ({"generated_matmuls": "all"}, "generated_matmuls is 'all', but a frozenset of strings"),
        ({"matmul_precision": "bf16"}, "matmul_precision is 'bf16', but one of 'ieee', 'tf32' belongs there"),
        ({"long_row": "16384"}, "long_row is '16384', but an int of at least 0 belongs there"),
    ],
)
def test_a_wrong_option(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        SchedulerOptions(**option)


def test_the_ends_of_ranges_are_right() -> None:
    options = SchedulerOptions(inline_cost=0, unroll=1, lookback=8192, generated_matmuls=frozenset())
    assert options == SchedulerOptions(inline_cost=0, lookback=8192)
