"""Comparison of a program of regions in eager and compiled, call by call, or saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import litz
from differential.judge import (
    Verdict,
    blame,
    calls_differ,
    complaints,
    gave_up,
    tensors_differ,
    without_warnings,
)
from differential.regions import CALLS, ROWS, RegionProgram

Function = Callable[..., Any]


def judge_regions(drawn: RegionProgram) -> Verdict:
    """Compare a program compiled by litz with eager, at every call.

    Dynamo traces regions in eager too, and takes most of the time, so that both run what it traced once. Programs that
    are saved are exported once.
    """
    torch._dynamo.reset()
    with litz.config.patch(cache=False, verify=True), complaints() as said, TemporaryDirectory() as folder:
        try:
            eager, by_litz = _saved(drawn, Path(folder)) if drawn.mode == "saved" else _compiled(drawn)
            with without_warnings():
                wanted = _calls(drawn, eager)
        except Exception as error:
            return Verdict("rejected", f"{type(error).__name__}: {str(error)[:600]}")
        message = calls_differ(lambda: _calls(drawn, by_litz), wanted, _differ)
    message = message or gave_up(said)
    if drawn.mode == "saved":
        return blame(message, lambda: None)

    def under_aot_eager() -> str | None:
        torch._dynamo.reset()
        function = torch.compile(drawn.function(), backend="aot_eager", fullgraph=True, dynamic=drawn.dynamic)
        return calls_differ(lambda: _calls(drawn, function), wanted, _differ)

    return blame(message, under_aot_eager)


def _calls(drawn: RegionProgram, function: Function) -> list[list[Tensor]]:
    """Return the results of each call, and then the gradients of a sum that weights them unevenly."""
    found = []
    for call in range(CALLS):
        arguments = drawn.arguments(call)
        results = function(*arguments)
        results = list(results) if isinstance(results, tuple) else [results]
        wanted = [each for each in results if each.requires_grad]
        if wanted:
            weights = [torch.linspace(0.5, 1.5, each.numel()).reshape(each.shape) for each in wanted]
            torch.autograd.backward(wanted, weights)
        gradients = [each.grad for each in arguments if each.grad is not None]
        found.append([*(each.detach() for each in results), *gradients])
    return found


def _differ(mine: list[Tensor], theirs: list[Tensor]) -> str | None:
    """Describe the first difference of a call's results and gradients from eager's."""
    if len(mine) != len(theirs):
        return f"{len(mine)} results and gradients, eager has {len(theirs)}"
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        found = tensors_differ(a, b, 0.0)
        if found is not None:
            return f"result {number}: {found}"
    return None


def _compiled(drawn: RegionProgram) -> tuple[Function, Function]:
    """Return the program as Dynamo traces it, run in eager and by litz."""
    is_eager = False

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Function:
        @cache
        def by_litz() -> Function:
            return litz.compile_fx(graph, inputs)

        with suppress(Exception):
            by_litz()  # its error is raised where the graph is called
        return lambda *arguments: graph(*arguments) if is_eager else by_litz()(*arguments)

    traced = torch.compile(drawn.function(), backend=backend, fullgraph=True, dynamic=drawn.dynamic)

    def run(*arguments: Tensor, chosen: bool) -> Any:
        nonlocal is_eager
        is_eager = chosen
        return traced(*arguments)

    return partial(run, chosen=True), partial(run, chosen=False)


def _saved(drawn: RegionProgram, folder: Path) -> tuple[Function, Function]:
    """Return the exported program, run in eager, and saved and loaded by litz."""
    program = drawn.function()

    class Saved(torch.nn.Module):
        def forward(self, x: Tensor, r: Tensor, w: Tensor, k: Tensor) -> Any:
            return program(x, r, w, k)

    rows = {0: torch.export.Dim("rows", min=min(ROWS), max=16)} if drawn.dynamic else {}
    sizes = {"x": rows, "r": {}, "w": {}, "k": {}}
    exported = torch.export.export(Saved(), drawn.arguments(0), dynamic_shapes=sizes)

    def loaded(*arguments: Tensor) -> Any:
        path = folder / "model.litz"
        if not path.exists():
            litz.aot_compile(exported, path=path)
        return litz.load(path)(*arguments)

    return exported.module(), loaded
