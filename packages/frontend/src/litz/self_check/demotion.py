"""Demotion: operations of wrong kernels run as ATen, in this process and in later ones with the same cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from litz.compilation import Compilation
from litz.compilation.compilation import EVERYTHING
from litz.host.runtime.load import HostFunction
from litz.loading import Compiled
from litz.results import may_replace, unshared_results
from litz.self_check.bisection import faulty_nodes, regions
from litz.self_check.judge import difference
from litz.self_check.reference import Reference
from litz.self_check.snapshot import undisturbed
from litz_ir.errors import WrongResult
from litz_ir.loops import ComplexRef, Ref
from litz_ir.origin import abbreviated_list
from litz_ir.plan import Plan

log = logging.getLogger("litz")


def demoted(compilation: Compilation, made: Compiled, reference: Reference, wrong: str) -> Compiled:
    """Return a graph whose results are ``wrong``, compiled without the kernels that cause it.

    These are reported and stored in the cache. Where no choice of kernels helps, the graph runs as ATen operations.
    Raises ``WrongResult`` where the options say so.
    """
    if made.artifact is None:
        return made
    name, plan = compilation.name, made.artifact.plan
    whole = f"graph {name} runs as ATen operations"
    search = partial(_faulty_nodes, compilation, plan, reference)
    blamed = compilation.failures.attempt("self-check", search, frozenset[str](), whole)
    nodes = abbreviated_list(sorted(blamed))
    error = WrongResult(f"of {name}, {wrong}", node=nodes)
    instead = f"{nodes} run as ATen from now on" if blamed else whole
    compilation.failures.report(error, error.stage, instead, compilation.loops, blamed)
    forget = partial(compilation.cache.drop, made.artifact)
    compilation.failures.attempt("cache", forget, None, f"the cached artifact of {name} stays")
    compilation.demote(blamed or frozenset({EVERYTHING}))
    by_aten = Compiled(_by_aten(compilation.gm, plan), None)
    if not blamed:
        return by_aten
    recompile = partial(_replacement, compilation, plan)
    return compilation.failures.attempt("self-check", recompile, None, whole) or by_aten


def _faulty_nodes(compilation: Compilation, plan: Plan, reference: Reference) -> frozenset[str]:
    """Return the nodes whose kernels give the wrong results of a plan."""
    ends = (node.name for node in compilation.gm.graph.nodes if node.op in ("placeholder", "output"))
    return faulty_nodes(regions(plan, frozenset(ends)), partial(_is_wrong, compilation, reference))


def _is_wrong(compilation: Compilation, reference: Reference, forced: frozenset[str]) -> bool:
    """Report whether the graph fails or is wrong with the nodes ``forced`` to run as ATen."""
    cache = compilation.cache.without_graphs()
    config = replace(
        compilation.config, autotune=False, cuda_graphs=False, debug_values="off", fallback="silent"
    )
    probe = Compilation(
        compilation.gm, f"{compilation.name}_probe", config, cache, compilation.frozen, compilation.donated,
        compilation.saved, compilation.demoted | forced,
    )  # fmt: skip
    try:
        found = reference.again(_compiled(probe).call)
        with undisturbed():
            exact = partial(getattr, reference, "exact")
            return bool(difference(found, reference.expected, exact, reference.nearby))
    except Exception as error:
        log.debug("litz: %s without %s: %s", compilation.name, abbreviated_list(sorted(forced)), error)
        return True


def _compiled(compilation: Compilation) -> Compiled:
    """Compile a graph inside a call, without the caller's dispatch modes."""
    with torch.utils._python_dispatch._disable_current_modes():
        return compilation.run()


def _replacement(compilation: Compilation, first: Plan) -> Compiled | None:
    """Return the graph with demoted nodes, where it can replace its ``first`` plan; else ``None``."""
    # The caller of a backward copies the inputs that its first plan reuses; this one reuses none.
    made = _compiled(
        Compilation(
            compilation.gm, compilation.name, compilation.config, compilation.cache, compilation.frozen, frozenset(),
            compilation.saved, compilation.demoted, compilation.decisions,
        )
    )  # fmt: skip
    assert made.artifact is not None
    if may_replace(made.artifact.plan, first):
        return made
    log.info(
        "litz: %s runs as ATen until it is recompiled: its results would change layout or memory",
        compilation.name,
    )
    return None


def _by_aten(gm: GraphModule, plan: Plan) -> HostFunction:
    """Return the graph run by ATen, with results of the layout and ownership that a plan gives them."""
    own, strides = unshared_results(plan), [_strides(plan, k) for k in range(len(plan.outputs))]

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        returned = gm(*given)
        results = list(returned) if isinstance(returned, list | tuple) else [returned]
        return [_laid_out(each, strides[k], copy=k in own) for k, each in enumerate(results)]

    return run


def _strides(plan: Plan, position: int) -> tuple[int, ...] | None:
    """Return the strides of a result, or ``None`` where they are unknown."""
    output, placements = plan.outputs[position], dict(plan.buffers)
    if not isinstance(output, Ref) or output.name not in placements:
        return None
    strides = [each for each in placements[output.name].type.layout.strides if isinstance(each, int)]
    if len(strides) != len(placements[output.name].type.shape):
        return None
    return tuple(each // 2 for each in strides[:-1]) if isinstance(output, ComplexRef) else tuple(strides)


def _laid_out(value: Any, strides: tuple[int, ...] | None, *, copy: bool) -> Any:
    """Return a tensor with these strides, copied where they differ or ``copy`` is set."""
    if not isinstance(value, Tensor) or (not copy and strides in (None, value.stride())):
        return value
    made = torch.empty_strided(value.shape, strides or value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value)
