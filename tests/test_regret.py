"""`nox -s bench -- --regret`: alternatives change plans and not values, and reported figures are right."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from alternatives import ALTERNATIVES, CHOSEN, Alternative
from measure import inference_step
from models import relative_error
from regret import Switch, heat, verdict
from regret_report import broken, case_table, decisions, summary
from rich.console import Console
from torch import Tensor, nn

from litz.settings import Config
from litz.stage_options import scheduler_options
from litz.targets import targets_for

Program = Callable[..., Any]


def twice(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """A cheap value that two reductions over different axes read."""
    shifted = x + 1.0
    return shifted.sum(0), shifted.sum(1)


def dear_twice(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    mixed = x.exp() + y
    return mixed.sum(0), mixed.sum(1)


def centred(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    apart = x * y - x.mean(1, keepdim=True)
    return apart / apart.square().mean(1, keepdim=True)


def shares(value: Tensor) -> tuple[Tensor, Tensor]:
    return value, value / (value.sum(1, keepdim=True) + 1e3)


def rows_and_sums(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    powers = x[:3, :64].exp()
    return powers, powers.sum(1)


class Convolved(nn.Module):
    """A convolution and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        result: Tensor = self.convolution(x[:48].reshape(1, 3, 64, 128)).relu()
        return result


def each_channel(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """A convolution for each channel, whose weight is no parameter."""
    window = y[:1, :288].reshape(32, 1, 3, 3)
    return nn.functional.conv2d(x.reshape(1, 32, 64, 64), window, groups=32).amax((2, 3))


def polynomial(x: Tensor, y: Tensor) -> Tensor:
    """Sixteen cheap operations: neither few enough nor dear enough for several registers."""
    total = y
    for _ in range(8):
        total = total * x + y
    return total


WITNESSES: Mapping[str, Program] = {
    "no fusion": lambda x, y, z: torch.softmax(x, 1),
    "siblings apart": lambda x, y, z: (x.exp(), x.neg()),
    "siblings together": lambda x, y, z: (x + z, y * z),
    "fused though threads idle": rows_and_sums,
    "computed once": twice,
    "computed again": dear_twice,
    "no scratch": lambda x, y, z: torch.softmax(x, 1),
    "more scratch": centred,
    "never read back": lambda x, y, z: shares(x.exp()),
    "always read back": lambda x, y, z: shares(x + y),
    "reductions whole": lambda x, y, z: x.sum(),
    "reductions in more parts": lambda x, y, z: x.sum(),
    "loops as written": lambda x, y, z: x.t().amax(),
    "no lanes": lambda x, y, z: x.exp(),
    "lanes inside": lambda x, y, z: x.sum(0),
    "lanes outside": lambda x, y, z: x.sum(1),
    "two registers": lambda x, y, z: torch.sigmoid(x) * y,
    "four registers": lambda x, y, z: polynomial(x, y),
    "one thread": lambda x, y, z: x.exp(),
    "threads early": lambda x, y, z: x.exp(),
    "matmul by ATen": lambda x, y, z: x @ y.t(),
    "matmul by linear": lambda x, y, z: x.reshape(2048, 64)[:32] @ y.reshape(2048, 64)[:32].t(),
    "convolutions by ATen": Convolved().eval(),
    "images as in eager": each_channel,
    "weights as they are": Convolved().eval(),
}
"""A small program for each alternative, whose plan it changes."""


def skip_without_library(alternative: Alternative) -> None:
    """Skip alternatives to a library that this machine does not have."""
    chosen = scheduler_options(Config(), targets_for(("cpu",), Config()))
    missing = {
        "matmul by ATen": not chosen.linear_flops,
        "matmul by linear": not torch.backends.mkldnn.is_available(),
        "convolutions by ATen": not chosen.prepack_convolutions,
        "images as in eager": not chosen.prepack_convolutions,
        "weights as they are": not chosen.prepack_convolutions,
    }
    if missing.get(alternative.name):
        pytest.skip("no library to force")


@pytest.mark.sampled
@pytest.mark.parametrize("alternative", ALTERNATIVES, ids=lambda each: each.name)
def test_alternatives_change_the_plan_and_no_value(alternative: Alternative) -> None:
    skip_without_library(alternative)
    torch.manual_seed(0)
    torch._dynamo.reset()
    step = inference_step((torch.randn(256, 512), torch.randn(256, 512), torch.randn(512)))
    switch = Switch(WITNESSES[alternative.name], (CHOSEN, alternative))
    wanted, got = (switch.run(each.name, step) for each in (CHOSEN, alternative))
    assert switch.failures == {}
    assert switch.plan(CHOSEN.name) != switch.plan(alternative.name)
    assert relative_error(got, wanted) <= 1e-5


def test_an_alternative_that_changes_nothing_has_the_chosen_plan() -> None:
    torch._dynamo.reset()
    step = inference_step((torch.randn(64, 64),))
    nothing = Alternative("nothing", "none", "unroll=1")
    switch = Switch(torch.exp, (CHOSEN, nothing))
    for each in (CHOSEN, nothing):
        switch.run(each.name, step)
    assert switch.plan(CHOSEN.name) == switch.plan("nothing") != ""


def test_a_heat_lets_the_calls_take_turns() -> None:
    turns: list[str] = []
    times = heat({name: partial(turns.append, name) for name in "abc"}, 0.0)
    assert "".join(turns[:6]) == "abccba"
    assert set(times) == set("abc") and len(turns) % 3 == 0


def test_a_regret_is_never_below_one() -> None:
    assert verdict(2.0, 1.6, "other") == {"chosen": 2.0, "best": "other", "best_time": 1.6, "regret": 1.25}
    assert verdict(2.0, 2.5, "other") == {"chosen": 2.0, "best": None, "best_time": 2.0, "regret": 1.0}


def row(case: str, chosen: float, *alternatives: dict[str, Any]) -> dict[str, Any]:
    """A made-up row whose second heat had the result of its first."""
    timed = {each["name"]: each["median"] for each in alternatives if "median" in each}
    best = min(timed, key=timed.__getitem__)
    found = [{"decision": f"{each['name']}?", "error": 0.0, **each} for each in alternatives]
    return {
        "case": case, "mode": "infer", "first": chosen, **verdict(chosen, timed[best], best), "alternatives": found,
    }  # fmt: skip


ROWS = [
    row("rotary", 4e-3, {"name": "a", "median": 1e-3}, {"name": "b", "same": "a"}, {"name": "c", "same": "chosen"}),
    row("swiglu_gate", 2e-3, {"name": "a", "median": 3e-3}),
    row("bf16_mix", 1.04e-3, {"name": "a", "median": 1e-3}),
]  # fmt: skip


def text_of(*shown: Any) -> str:
    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(*shown)
    return console.export_text()


def test_the_summary_names_what_was_decided_wrong() -> None:
    lines = text_of(summary([*ROWS, {"case": "gpt2", "mode": "infer", "failure": "none"}])).splitlines()
    of = {name: next(line for line in lines if name in line) for name in ("rotary", "swiglu", "bf16", "mean")}
    assert "4.000" in of["rotary"] and "1.000" in of["rotary"] and "a? or b?" in of["rotary"]
    assert "1.00" in of["swiglu"] and "a?" not in of["swiglu"]
    assert "1.04" in of["bf16"] and "a?" not in of["bf16"]
    assert "geometric mean of 3" in of["mean"] and "1.608" in of["mean"]  # (4 x 1 x 1.04) to the third root
    assert decisions(ROWS[0]) == {"a": "a? or b?"}


def test_a_case_lists_its_plans_and_what_shares_them() -> None:
    text = text_of(case_table(ROWS[0]))
    assert "rotary (infer)" in text and "regret 4.00" in text
    assert "same plan as a: b" in text and "same plan as chosen: c" in text


def test_wrong_values_and_failures_are_broken() -> None:
    wrong = row("rotary", 1.0, {"name": "a", "median": 1.0, "error": 1e-3}, {"name": "b", "failure": "no"})
    assert broken([*ROWS, {"case": "gpt2", "mode": "train", "failure": "killed"}, wrong]) == [
        "gpt2 (train): killed",
        "rotary (infer), a: error 1.00e-03 against the chosen plan",
        "rotary (infer), b: no",
    ]
