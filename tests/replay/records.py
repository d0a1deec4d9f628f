"""Kernels and plans of a graph as records that trees with other names have in the same form.

This module alone knows how the tree that it lies in calls things: a change that renames them changes it too. The keys
of a record and the words in its text stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict

from litz_codegen_cpp.emit import emit_kernel as emit_cpp
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain import by_name
from litz_codegen_triton.capabilities import chip_capabilities
from litz_codegen_triton.emit import emit_kernel as emit_triton
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.errors import LitzError
from litz_ir.loops import LoopGraph, TensorType
from litz_ir.passes import PassContext
from litz_ir.plan import (
    Allocate,
    CallStep,
    CheckStep,
    DefineStep,
    Free,
    Kernel,
    Launch,
    Plan,
    RegionStep,
    Step,
    kernels_in,
    plans_in,
)
from litz_ir.scalar import Expr
from litz_ir.symbols import Size
from litz_ir.text import print_expr, print_term
from litz_ir.text.printing.plan import plan_scope
from litz_ir.text.printing.types import argument_text, arguments_text
from litz_scheduler import SchedulerOptions, schedule

CPUS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"cpu-avx512": ("avx512", 8), "cpu-avx2": ("avx2", 4), "cpu-scalar": ("scalar", 1)}
)
"""Instruction set and number of threads of each CPU target."""

GPUS: Mapping[str, str] = MappingProxyType({"gpu-sm_90": "sm_90", "gpu-sm_80": "sm_80"})
"""Chip of each GPU target."""

TARGETS = (*CPUS, *GPUS)


class Record(TypedDict):
    """A kernel, a plan, a header, or an error in place of both.

    ``language`` is ``c++``, ``triton``, ``plan`` or ``error``; ``facts`` hold all but the text that decides how a
    kernel runs.
    """

    name: str
    language: str
    text: str
    facts: list[str]


def records_of(graph: LoopGraph, target: str, options: SchedulerOptions) -> list[Record]:
    """Return the kernels of a graph on a target in the plan's order, and the plan as the last record."""
    try:
        if target in GPUS:
            return _on_gpu(graph, GPUS[target], options)
        return _on_cpu(graph, *CPUS[target], options)
    except (LitzError, AssertionError, NotImplementedError) as error:
        return [Record(name="error", language="error", text=type(error).__name__, facts=[])]


def headers() -> dict[str, Record]:
    """Return the headers that C++ kernels include, by path."""
    folder = Path(str(files("litz_codegen_cpp") / "include" / "litz"))
    found = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.h")
    }
    return {
        f"header {name}": Record(name=name, language="c++", text=text, facts=[])
        for name, text in sorted(found.items())
    }


def _on_cpu(graph: LoopGraph, isa: str, threads: int, options: SchedulerOptions) -> list[Record]:
    machine = CpuTarget(isa, threads=threads).capabilities()
    plan = schedule(graph, PassContext({CPU: machine}), options)
    found = []
    for kernel in kernels_in(plan):
        source = emit_cpp(kernel, by_name(isa).lanes)
        facts = [f"inlined heavy functions: {source.heavy}"]
        includes = "".join(f"#include <litz/{header}.h>\n" for header in sorted(source.headers))
        found.append(Record(name=source.name, language="c++", text=includes + source.text, facts=facts))
    return [*found, _plan_record(plan)]


def _on_gpu(graph: LoopGraph, chip: str, options: SchedulerOptions) -> list[Record]:
    machine = chip_capabilities(chip)
    # Most graphs are captured on the CPU, so a GPU's traits are given to that device too.
    context = PassContext({machine.device: machine, CPU: replace(machine, device=CPU)})
    plan = schedule_plan(schedule(graph, context, options), machine)
    found = [_triton_record(kernel) for kernel in kernels_in(plan)]
    return [*found, _plan_record(plan)]


def _triton_record(kernel: Kernel) -> Record:
    source = emit_triton(kernel)
    facts = [
        f"grid: {_positional(source.grid_size, kernel)}",
        f"signature: {', '.join(source.signature)}",
        f"divisible by 16: {', '.join(map(str, source.divisible))}",
        f"warps: {source.warps}",
        f"asserts: {source.asserts}",
        f"vectorised: {', '.join(f'{direction} {count}' for direction, _, count in source.vector_accesses)}",
        f"barriers: {source.cluster_barriers}",
    ]
    return Record(name=source.name, language="triton", text=source.text, facts=facts)


def _positional(term: Size, kernel: Kernel) -> str:
    """Print a term with the kernel's symbols as numbers."""
    places = {info.name: f"#{place}" for place, info in enumerate(kernel.symbols)}
    return re.sub(r"\w+", lambda found: places.get(found[0], found[0]), print_term(term))


def _plan_record(plan: Plan) -> Record:
    """Print memory and steps of a plan and its subplans, with a `%` or `$` before all names that may change."""
    lines = [line for each in plans_in(plan) for line in _plan_lines(each)]
    return Record(name="plan", language="plan", text="\n".join(lines) + "\n", facts=[])


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"plan %{plan.name}, peak {print_term(plan.peak)}, donated {_names(plan.donated)}"
    for storage in plan.storages:
        yield f"memory %{storage.name}: {print_term(storage.nbytes)} bytes on {storage.device}"
    for name, place in plan.buffers:
        text = f"buffer %{name}: {_type_text(place.type)}"
        if place.storage is not None:
            text += f" in %{place.storage}"
        if place.base is not None:
            text += f" of %{place.base}"
        yield f"{text} at {print_term(place.offset)}"
    for step in plan.steps:
        yield _step_text(step, plan)
    yield f"return {', '.join(map(argument_text, plan.outputs))}"


def _type_text(type_: TensorType) -> str:
    sizes, strides = (", ".join(map(print_term, each)) for each in (type_.shape, type_.layout.strides))
    return f"{type_.dtype} [{sizes}] [{strides}] offset {print_term(type_.layout.offset)} on {type_.device}"


def _step_text(step: Step, plan: Plan) -> str:
    match step:
        case Allocate():
            return f"allocate %{step.storage}"
        case Free():
            return f"free %{step.name}"
        case Launch():
            sizes = ", ".join(map(print_term, step.symbols))
            return f"launch %{step.kernel} on {_names(step.buffers)} with {sizes}"
        case CallStep():
            given = arguments_text(step.arguments, step.attributes)
            how = f"unpack {step.unpack}, complex {_names(step.pairs)}"
            return f"call {step.target}{given} to {_names(step.results)}, {how}"
        case DefineStep():
            source = step.source
            if isinstance(source, Expr):
                return f"define {step.symbol}: {_body_text(source, plan)}"
            return f"define {step.symbol}: {source[0]} {source[2]} of %{source[1]}"
        case CheckStep():
            return f'check {_body_text(step.condition, plan)}, {step.error} "{step.message}"'
        case RegionStep():
            given = arguments_text(step.arguments)
            return f"region {step.kind} {_names(step.plans)}{given} to {_names(step.results)}"


def _body_text(body: Expr, plan: Plan) -> str:
    return " ".join(print_expr(body, plan_scope(plan)).split())


def _names(names: tuple[str | None, ...]) -> str:
    return f"({', '.join('_' if name is None else f'%{name}' for name in names)})"
