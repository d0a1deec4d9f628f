"""Each pass on small inputs, in text. The cases are in `text/`; a command is a pass, its machine of `MACHINES` and its
options: `# RUN: online-reductions gpu long_row=32`. Passes of fusion run all together, those that build the plan with
all that come before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, verify_stage, with_numbers
from text_tests import Case, Command, cases, titles

from litz_ir.device import CPU, Device
from litz_ir.dtypes import bf16, f32
from litz_ir.passes import PassContext, run_passes
from litz_ir.text import parse_graph, to_text
from litz_scheduler import SchedulerOptions, fusion_passes, graph_passes, plan_passes, schedule

CASES = cases(Path(__file__).parent / "text")
GPU = Device("cuda")
BLOCKS = replace(CPU_LIKE, nested_reductions=True, blocked_attention=True)
MACHINES = {
    "cpu": {CPU: CPU_LIKE},
    "gpu": {CPU: GPU_LIKE},
    "blocks": {CPU: BLOCKS},
    "pairs": {CPU: replace(BLOCKS, features=frozenset({"avx512_bf16"}))},
    "tensor_cores": {CPU: with_numbers(GPU_LIKE, matrix_rate=989e12, memory_rate=4.8e12)},
    "h200": {CPU: with_numbers(GPU_LIKE, matrix_rate=989e12, memory_rate=4.8e12, flop_rate=67e12)},
    "horizontal": {CPU: replace(GPU_LIKE, max_subkernels=16)},
    "clusters": {
        CPU: replace(
            with_numbers(GPU_LIKE, sm_count=16, max_cluster_size=16, max_threads=1024),
            max_tile_elements=32768,
        )
    },
    "sums_alone": {CPU: replace(CPU_LIKE, combiners=frozenset({"sum", "user"}))},
    "narrow": {CPU: replace(CPU_LIKE, index_bits=32)},
    "panels": {CPU: replace(CPU_LIKE, panel_columns=32)},
    "copies": {CPU: replace(GPU_LIKE, copies=frozenset({(f32, bf16)}))},
    "mixed": {CPU: CPU_LIKE, GPU: replace(GPU_LIKE, device=GPU)},
}
DEFAULT = SchedulerOptions()


def options_of(words: Sequence[str]) -> SchedulerOptions:
    """Options as `name=value`, those of a set divided by commas."""
    changed: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        match getattr(DEFAULT, name):
            case bool():
                changed[name] = {"true": True, "false": False}[text]
            case int():
                changed[name] = int(text)
            case frozenset():
                changed[name] = frozenset(text.split(","))
            case _:
                changed[name] = text
    return SchedulerOptions(**changed)


def run_pass(name: str, source: str, arguments: Sequence[str]) -> str:
    """Apply a pass to a loop graph; give the result and the decisions that it records."""
    machine, *words = arguments
    item = next(item for item in graph_passes(options_of(words)) if item.name == name)
    context, given = PassContext(dict(MACHINES[machine])), parse_graph(source)
    verify_stage("before", None, given)
    after = item.apply(given, context)
    verify_stage(name, given, after)
    assert item.apply(parse_graph(source), PassContext(dict(MACHINES[machine]))) == after, "not deterministic"
    return f"{to_text(after)}\n{described(context)}"


def run_fusion(source: str, arguments: Sequence[str]) -> str:
    """The fusion groups of a loop graph, and the decisions of the passes that made them."""
    machine, *words = arguments
    context = PassContext(dict(MACHINES[machine]), hooks=[verify_stage])
    fused = run_passes(fusion_passes(options_of(words)), parse_graph(source), context)
    return f"{to_text(fused)}\n{described(context)}"


def run_all(source: str, arguments: Sequence[str]) -> str:
    """The plan of a loop graph, and the decisions of all passes."""
    machine, *words = arguments
    context = PassContext(dict(MACHINES[machine]))
    plan = schedule(parse_graph(source), context, options_of(words), hooks=[verify_stage])
    return f"{to_text(plan)}\n{described(context)}"


def described(context: PassContext) -> str:
    """The decisions of a context, one a line."""
    return "".join(f"# {decision.describe()}\n" for decision in context.decisions)


COMMANDS: Mapping[str, Command] = {
    **{item.name: partial(run_pass, item.name) for item in graph_passes(DEFAULT)},
    **{item.name: run_fusion for item in fusion_passes(DEFAULT)},
    **{item.name: run_all for item in plan_passes(DEFAULT)},
}


@pytest.mark.parametrize("case", CASES, ids=titles(CASES))
def test_a_case(case: Case, check_case: Callable[[Case, Mapping[str, Command]], None]) -> None:
    check_case(case, COMMANDS)


def test_every_pass_has_a_case() -> None:
    assert {case.command[0] for case in CASES} == COMMANDS.keys() - {"dead-code-2"}
