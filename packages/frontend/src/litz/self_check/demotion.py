"""Demotion: the operations of kernels that are wrong run as ATen, in this process and in those with its cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from litz.compilation import EVERYTHING, Compilation
from litz.host.load import HostFunction
from litz.loading import Compiled
from litz.results import alone, may_replace
from litz.self_check.bisection import guilty, regions
from litz.self_check.judge import difference
from litz.self_check.reference import Reference
from litz.self_check.snapshot import undisturbed
from litz_ir.errors import WrongResult
from litz_ir.loops import ComplexRef, Ref
from litz_ir.origin import abbreviated_list
from litz_ir.plan import Plan

log = logging.getLogger("litz")


def demoted(compilation: Compilation, made: Compiled, reference: Reference, wrong: str) -> Compiled:
    """A graph whose results are ``wrong``, compiled without the kernels behind that, which are reported and recorded;
    run by ATen where no such choice helps. Raises ``WrongResult`` where the options ask for that."""
    if made.artifact is None:
        return made
    name, plan = compilation.name, made.artifact.plan
    whole = f"graph {name} runs as ATen operations"
    search = partial(_guilty, compilation, plan, reference)
    blamed = compilation.failures.attempt("self-check", search, frozenset[str](), whole)
    said = abbreviated_list(sorted(blamed))
    error = WrongResult(f"of {name}, {wrong}", node=said)
    instead = f"{said} run as ATen from now on" if blamed else whole
    compilation.failures.report(error, error.stage, instead, compilation.loops, blamed)
    forget = partial(compilation.cache.drop, made.artifact)
    compilation.failures.attempt("cache", forget, None, f"what was kept of {name} stays")
    compilation.demote(blamed or frozenset({EVERYTHING}))
    by_aten = Compiled(_by_aten(compilation.gm, plan), None)
    if not blamed:
        return by_aten
    anew = partial(_replacement, compilation, plan)
    return compilation.failures.attempt("self-check", anew, None, whole) or by_aten


def _guilty(compilation: Compilation, plan: Plan, reference: Reference) -> frozenset[str]:
    """The nodes whose kernels in a plan give the wrong results."""
    ends = (node.name for node in compilation.gm.graph.nodes if node.op in ("placeholder", "output"))
    return guilty(regions(plan, frozenset(ends)), partial(_is_wrong, compilation, reference))


def _is_wrong(compilation: Compilation, reference: Reference, left: frozenset[str]) -> bool:
    """True where the graph fails or is wrong with these nodes ``left`` to ATen."""
    cache = replace(compilation.cache, graphs=None, fx_graphs=None, built={}, scratch=None)
    config = replace(compilation.config, autotune=False, cuda_graphs=False, fallback="silent")
    trial = Compilation(
        compilation.gm, f"{compilation.name}_trial", config, cache, compilation.frozen, compilation.donated,
        compilation.saved, compilation.demoted | left,
    )  # fmt: skip
    try:
        found = reference.again(_compiled(trial).call)
        with undisturbed():
            exact = partial(getattr, reference, "exact")
            return bool(difference(found, reference.expected, exact, reference.nearby))
    except Exception as error:
        log.debug("litz: %s without %s: %s", compilation.name, abbreviated_list(sorted(left)), error)
        return True


def _compiled(compilation: Compilation) -> Compiled:
    """The graph compiled in the midst of a call."""
    with torch.utils._python_dispatch._disable_current_modes():
        return compilation.run()


def _replacement(compilation: Compilation, first: Plan) -> Compiled | None:
    """The graph with what is demoted, where it can take the place of its ``first`` plan."""
    # Who calls a backward knows which inputs its first plan writes over; this one writes over none.
    made = _compiled(
        Compilation(
            compilation.gm, compilation.name, compilation.config, compilation.cache, compilation.frozen, frozenset(),
            compilation.saved, compilation.demoted,
        )
    )  # fmt: skip
    assert made.artifact is not None
    if may_replace(made.artifact.plan, first):
        return made
    log.info("litz: %s runs as ATen until it is compiled anew: results would change place", compilation.name)
    return None


def _by_aten(gm: GraphModule, plan: Plan) -> HostFunction:
    """The graph run by ATen, its results laid out as in a plan, with memory of their own where the plan gives them
    that."""
    own, strides = alone(plan), [_strides(plan, k) for k in range(len(plan.outputs))]

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        returned = gm(*given)
        results = list(returned) if isinstance(returned, list | tuple) else [returned]
        return [_laid_out(each, strides[k], copy=k in own) for k, each in enumerate(results)]

    return run


def _strides(plan: Plan, position: int) -> tuple[int, ...] | None:
    """The strides of a result, where they are known."""
    output, placements = plan.outputs[position], dict(plan.buffers)
    if not isinstance(output, Ref) or output.name not in placements:
        return None
    strides = [each for each in placements[output.name].type.layout.strides if isinstance(each, int)]
    if len(strides) != len(placements[output.name].type.shape):
        return None
    return tuple(each // 2 for each in strides[:-1]) if isinstance(output, ComplexRef) else tuple(strides)


def _laid_out(value: Any, strides: tuple[int, ...] | None, *, copy: bool) -> Any:
    if not isinstance(value, Tensor) or (not copy and strides in (None, value.stride())):
        return value
    made = torch.empty_strided(value.shape, strides or value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value)
