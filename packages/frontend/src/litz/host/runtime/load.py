"""Compilation of a host program's text to the function that the caller gets."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from litz.host.program import HostProgram, Segment
from litz.host.runtime import torch_memory
from litz.host.runtime.externs import NO_ROUTINES, resolve
from litz.host.runtime.frozen_results import FrozenResults
from litz.host.runtime.gpus import ONE_GPU, Gpus
from litz_ir.interp import Runner, run_region
from litz_ir.target import FailureCallback, raise_failure

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
) -> HostFunction:
    """Compile a host program; ``bind`` makes each segment callable.

    ``file`` names it in tracebacks. ``routines`` are functions of this process that it calls, ``gpus`` the ordinals
    of its GPUs. With ``frozen`` the results of frozen regions are never recomputed. ``instead`` replaces branches.
    ``report`` receives failures inside calls that have a fallback. ``watch`` gets each routine that the program calls.
    Raises ``ExternNotFound`` for an operator that is not registered.
    """
    scope: dict[str, Any] = {
        "torch": torch,
        "math": math,
        "empty": torch_memory.empty,
        "empty_cuda": torch_memory.empty_cuda,
        "gpu": gpus.others(),
        "empty_gpu": {k: torch_memory.empty_on(each) for k, each in gpus.others().items()},
        "empty_at": torch_memory.empty_at,
        "strided": torch_memory.strided,
        "alias": torch_memory.alias,
        "view": torch_memory.view,
        "promised": torch_memory.promised,
        "run_region": _run_region,
        "plain": torch_memory.plain,
        "pairs": torch_memory.pairs,
        "settle": torch_memory.settle,
        "view_as_real": torch.view_as_real,
        "view_as_complex": torch.view_as_complex,
    }
    for known, name in program.constants:
        scope[name] = constants[known]
    for target, name in program.externs:
        routine = resolve(target, routines, report)
        scope[name] = routine if watch is None else watch(target, routine)
    for segment in program.segments:
        scope[segment.name] = bind(segment)
    for position, branch in enumerate(program.branches):
        where = f"{file}.{position}"
        given = (branch, bind, constants, where, routines, gpus)
        function = load_program(*given, frozen=frozen, report=report, watch=watch)
        function = FrozenResults(function, frozen, report) if branch.name in program.frozen else function
        scope[branch.name] = instead[branch.name](function) if branch.name in instead else function
    exec(compile(program.text, file, "exec"), scope)
    linecache.cache[file] = (len(program.text), None, program.text.splitlines(keepends=True), file)
    found: HostFunction = scope[program.name]
    return found


def _run_region(kind: str, runners: Sequence[Runner], arguments: Sequence[Any]) -> list[Any]:
    """Run a higher-order operator over torch tensors."""
    return run_region(kind, runners, arguments, torch_memory.TorchTensors())
