"""Run a cell at full size on the NVIDIA GPU at hand, compiled by `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

import litz
from forms.form import Cell
from forms.judge import difference, results, widened
from litz.loading import Compiled

CALLS = 3
"""Calls of a cell: from the second on, CUDA graphs are captured and replayed."""


def wrong(cell: Cell) -> tuple[str, bool]:
    """Describe a difference from eager or an error, and report whether the kernels show the form."""
    form, seen = cell.form, list[Compiled]()

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return litz.compile_fx(gm, inputs, config=chosen, observers=(seen.append,))

    try:
        with litz.config.patch(fallback="error", **form.options) as chosen:
            torch._dynamo.reset()
            compiled = torch.compile(
                form.function, backend=backend, dynamic=form.dynamic or False, fullgraph=not form.options
            )
            arguments = cell.arguments(full=True, device="cuda")
            eager = results(form.function, arguments, gradients=form.gradients)
            exact = results(form.function, [widened(each) for each in arguments], gradients=form.gradients)
            complaint = ""
            for _ in range(CALLS):
                complaint = complaint or difference(
                    results(compiled, arguments, gradients=form.gradients), eager, exact
                )
            torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500], False
    texts = [unit.text for each in seen if each.artifact is not None for unit in each.artifact.units]
    return complaint, any(form.shows in text for text in texts)
