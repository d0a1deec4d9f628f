"""Time one case under the plan that the cost model chose and under forced ones, and print one line of JSON.

`run.py --regret` calls it. All plans live in this process and behind one captured graph, and take turns call by call,
so that drift meets all of them alike. Then the fastest of the forced plans meets the chosen one alone, call by call
again: its lead in the first heat, where many ran, is partly luck.

The line has the chosen plan's median in seconds (of the second heat, if there was one), `best` and `best_time` for the
fastest forced plan, `regret`, and for every alternative its median in the first heat and its error against the chosen
plan, or the alternative whose plan it shares (`same`), or its `failure`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from alternatives import ALTERNATIVES, CHOSEN, Alternative
from cases import CASES
from measure import WARM_CALLS, trial
from models import relative_error
from torch.fx import GraphModule

import litz
from litz.loading import Compiled
from litz_ir.errors import LitzError
from litz_ir.plan import plans_in

LEAST_ROUNDS = 7

Row = dict[str, Any]


class Switch:
    """A function compiled once for every alternative, all from one captured graph; `current` is the one that runs.
    Alternatives that fail to compile are in `failures`, by name, and are not run."""

    def __init__(self, function: Callable[..., Any], alternatives: Sequence[Alternative]) -> None:
        self.current = CHOSEN.name
        self.failures: dict[str, str] = {}
        self._alternatives = alternatives
        self._made: dict[str, list[Compiled]] = {each.name: [] for each in alternatives}
        self.call = torch.compile(function, backend=self._backend)

    def run(self, name: str, step: Callable[[Callable[..., Any]], Any]) -> Any:
        """Run a step on the function under one alternative."""
        self.current = name
        return step(self.call)

    def plan(self, name: str) -> str:
        """Return the sources and steps of every graph so far as text: equal for alternatives that change nothing."""
        texts: list[str] = []
        for made in self._made[name]:
            assert made.artifact is not None
            texts += [unit.text for unit in made.artifact.units]
            # Kernels are compared as their sources: a field of theirs may change no line.
            plans = (replace(plan, name="", kernels=(), subplans=()) for plan in plans_in(made.artifact.plan))
            texts += map(repr, (replace(plan, decisions=()) for plan in plans))
        return "\n".join(texts)

    def _backend(self, gm: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        calls = {each.name: self._compiled(each, gm, inputs) for each in self._alternatives}
        return lambda *args: calls[self.current](*args)

    def _compiled(self, alternative: Alternative, gm: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen = self._made[alternative.name].append
        # What cannot be compiled must not be timed as the ATen operations that would stand in for it.
        config = litz.config.current().replaced({"fallback": "error", **alternative.options()})
        try:
            return litz.compile_fx(gm, inputs, config=config, observers=(seen,))
        except LitzError as error:
            self.failures[alternative.name] = str(error).splitlines()[0]
            return partial(_refuse, alternative.name)


def _refuse(name: str, *_: Any) -> Any:
    raise RuntimeError(f"{name} was not compiled")


def heat(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the median time of each call in seconds; calls alternate, in the opposite order every other round."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < LEAST_ROUNDS or time.perf_counter() < end:
        for name in order:
            start = time.perf_counter()
            calls[name]()
            samples[name].append(time.perf_counter() - start)
        order.reverse()
        rounds += 1
    return {name: statistics.median(taken) for name, taken in samples.items()}


def verdict(chosen: float, rival: float, name: str) -> Row:
    """Return the regret of a plan that takes `chosen` seconds where the best other one takes `rival`: their ratio, and
    1.0 with no `best` where the chosen one is the fastest."""
    row: Row = {"chosen": chosen, "best": None, "best_time": chosen, "regret": 1.0}
    return row if chosen <= rival else row | {"best": name, "best_time": rival, "regret": chosen / rival}


def measure(name: str, mode: str, seconds: float, alternatives: Sequence[Alternative] = ALTERNATIVES) -> Row:
    """Compile a case under every alternative, compare the results with the chosen plan's, and time what differs."""
    made = trial(name, mode)
    switch = Switch(made.program, (CHOSEN, *alternatives))
    wanted, _ = switch.run(CHOSEN.name, made.observe)
    known = {switch.plan(CHOSEN.name): CHOSEN.name}
    found: list[Row] = []
    for each in alternatives:
        row: Row = {"name": each.name, "decision": each.decision}
        found.append(row)
        if each.name in switch.failures:
            row["failure"] = switch.failures[each.name]
            continue
        try:
            got, _ = switch.run(each.name, made.observe)
        except LitzError as error:  # a backward graph is compiled when it is first wanted
            row["failure"] = str(error).splitlines()[0]
            continue
        row["error"] = relative_error(got, wanted)
        same = known.setdefault(switch.plan(each.name), each.name)
        if same != each.name:
            row["same"] = same
    rivals = [row for row in found if not {"same", "failure"} & row.keys()]
    calls: dict[str, Callable[[], Any]] = {
        each: partial(switch.run, each, made.step) for each in (CHOSEN.name, *(row["name"] for row in rivals))
    }
    for call in calls.values():
        for _ in range(WARM_CALLS):
            call()
    first = heat(calls, seconds)
    for row in rivals:
        row["median"] = first[row["name"]]
    outcome = verdict(first[CHOSEN.name], first[CHOSEN.name], CHOSEN.name)
    if rivals:
        fastest = min((row["name"] for row in rivals), key=first.__getitem__)
        second = heat({each: calls[each] for each in (CHOSEN.name, fastest)}, seconds)
        outcome = verdict(second[CHOSEN.name], second[fastest], fastest)
    return {"case": name, "mode": mode, **outcome, "first": first[CHOSEN.name], "alternatives": found}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("mode", choices=("infer", "train"))
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    print(json.dumps(measure(options.case, options.mode, options.seconds)))


if __name__ == "__main__":
    main()
