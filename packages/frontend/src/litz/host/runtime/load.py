"""Compilation of a host program's text to the function that the caller gets."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.profiler as torch_profiler

from litz.host.program import Computed, HostProgram, ObservedStep, Segment
from litz.host.runtime import torch_memory
from litz.host.runtime.externs import NO_ROUTINES, resolve
from litz.host.runtime.frozen_copies import Copies, FrozenCopies
from litz.host.runtime.frozen_results import Comparison, FrozenResults
from litz.host.runtime.gpus import ONE_GPU, Gpus
from litz_ir.device import Device
from litz_ir.target import FailureCallback, raise_failure

if TYPE_CHECKING:
    from litz_ir.interp import Runner

_REGIONS = "litz_ir.interp.regions"
"""Module that runs regions; imported where a program has some."""

_ASSERTS = "litz.host.runtime.asserts"
"""Module of assertions about inputs; imported where the options ask for them."""

SegmentBinder = Callable[[Segment], Callable[..., None]]
"""Function that makes a segment callable."""

HostFunction = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph: takes the list of arguments, which it empties, and returns the results."""

Replacements = Mapping[str, Callable[[HostFunction], HostFunction]]
"""Functions that replace branches, by name, given the branch's own function."""

CallWatch = Callable[[str, Callable[..., Any]], Callable[..., Any]]
"""Function that is given a routine and its name, and returns what the program calls instead."""

NO_PARTITIONS: Replacements = MappingProxyType({})
"""The replacements of a graph without partitions."""


@dataclass(frozen=True, slots=True)
class Observer:
    """Functions that see the steps of a host program."""

    around: Callable[[ObservedStep, Callable[..., Any]], Callable[..., Any]]
    """Returns the function that is called instead of a step's native call or routine."""

    computed: Callable[[Computed, Sequence[Any]], None] | None = None
    """Called with the results of a step; ``None`` for programs that do not show them."""


def load_program(
    program: HostProgram,
    bind: SegmentBinder,
    constants: Mapping[str, torch.Tensor],
    file: str,
    routines: Mapping[str, Callable[..., Any]] = NO_ROUTINES,
    gpus: Gpus = ONE_GPU,
    *,
    frozen: bool = False,
    instead: Replacements = NO_PARTITIONS,
    report: FailureCallback = raise_failure,
    watch: CallWatch | None = None,
    stored: dict[str, FrozenResults | FrozenCopies] | None = None,
    observer: Observer | None = None,
    lasting: bool = False,
    compare: Comparison | None = None,
    copies: Callable[[Device], Copies | None] | None = None,
) -> HostFunction:
    """Compile a host program; ``bind`` makes each segment callable.

    ``file`` names it in tracebacks. ``routines`` are functions of this process that it calls, ``gpus`` the ordinals
    of its GPUs. With ``frozen`` the results of frozen regions are never recomputed. ``instead`` replaces branches.
    ``report`` receives failures inside calls that have a fallback. ``watch`` gets each routine that the program calls.
    ``stored`` are the results of frozen regions, which all forms of one program share. ``observer`` sees the steps of a
    program that has them. ``lasting``: its results live from call to call.
    ``compare`` compares the memory of parameters, ``copies`` returns the function that keeps copies of a device's.
    Raises ``ExternNotFound`` for an operator that is not registered.
    """
    stored = {} if stored is None else stored
    scope: dict[str, Any] = {
        "torch": torch,
        "math": math,
        "empty": torch_memory.lasting.empty if lasting else torch_memory.empty,
        "empty_cuda": torch_memory.empty_cuda,
        "empty_on": torch_memory.empty_on,
        "gpu": gpus.others(),
        "empty_gpu": {k: torch_memory.empty_on(each) for k, each in gpus.others().items()},
        "empty_at": torch_memory.empty_at,
        "strided": torch_memory.strided,
        "alias": torch_memory.alias,
        "alias_as": torch_memory.alias_as,
        "view": torch_memory.view,
        "promised": torch_memory.promised,
        "run_region": _run_region,
        "plain": torch_memory.plain,
        "pairs": torch_memory.pairs,
        "settle": torch_memory.settle,
        "view_as_real": torch.view_as_real,
        "view_as_complex": torch.view_as_complex,
    }
    for name in program.asserts:
        scope[name] = getattr(import_module(_ASSERTS), name)
    for known, name in program.constants:
        scope[name] = constants[known]
    for target, name in program.externs:
        routine = resolve(target, routines, report)
        scope[name] = routine if watch is None else watch(target, routine)
    for segment in program.segments:
        scope[segment.name] = bind(segment)
    if observer is not None:
        _show(program, scope, observer)
    for position, branch in enumerate(program.branches):
        where = f"{file}.{position}"
        function = load_program(
            branch, bind, constants, where, routines, gpus, frozen=frozen, report=report, watch=watch, stored=stored,
            observer=observer, lasting=branch.name in program.frozen, compare=compare, copies=copies,
        )  # fmt: skip
        if branch.name in program.frozen:
            own = stored.get(where) or _stored(branch, function, frozen, report, compare, copies)
            if own is not None:
                function = stored[where] = own.computed_by(function)
        scope[branch.name] = instead[branch.name](function) if branch.name in instead else function
    shown = file if observer is None else f"{file} observed"
    exec(compile(program.text, shown, "exec"), scope)
    linecache.cache[shown] = (len(program.text), None, program.text.splitlines(keepends=True), shown)
    found: HostFunction = scope[program.name]
    return found


def _stored(
    branch: HostProgram,
    function: HostFunction,
    frozen: bool,
    report: FailureCallback,
    compare: Comparison | None,
    copies: Callable[[Device], Copies | None] | None,
) -> FrozenResults | FrozenCopies | None:
    """Return the results of a frozen region as they are stored; ``None`` where they are computed in every call."""
    if branch.copies is None:
        return FrozenResults(function, frozen, report, compare)
    own = copies(branch.segments[0].device) if branch.copies and copies else None
    return None if own is None else FrozenCopies(function, branch.copies, own, report, frozen)


def unless_profiled(call: HostFunction, made: Callable[[], HostFunction]) -> HostFunction:
    """Return ``call``, in whose place the function that ``made`` returns is called while torch's profiler runs.

    ``made`` is called at the first call under a profiler.
    """
    observed = cache(made)

    def run(args: list[Any]) -> Sequence[Any]:
        # An attribute of a module: without a profiler nothing else is asked.
        if torch_profiler._is_profiler_enabled:
            return observed()(args)
        return call(args)

    return run


def _show(program: HostProgram, scope: dict[str, Any], observer: Observer) -> None:
    """Have the steps of a program, whose functions are in its ``scope``, seen by an observer."""
    for name, step in program.steps:
        scope[name] = observer.around(step, scope[name])
    for each in program.computed:
        assert observer.computed is not None, "the program shows what it computes"
        scope[each.name] = partial(observer.computed, each)


def _run_region(kind: str, runners: Sequence[Runner], arguments: Sequence[Any]) -> list[Any]:
    """Run a higher-order operator over torch tensors."""
    results: list[Any] = import_module(_REGIONS).run_region(
        kind, runners, arguments, torch_memory.TorchTensors()
    )
    return results
