"""Translation units: the kernels of a plan in source texts that are compiled in parallel."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from litz_codegen_cpp.emit.kernel import Emitted, emit_kernel
from litz_codegen_cpp.emit.source.entry_points import entry_point
from litz_codegen_cpp.emit.source.spelling import identifier
from litz_ir.errors import CodegenError, LitzError
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.plan import Launch, Plan
from litz_ir.target import SourceUnit

KERNELS_PER_UNIT = 60
"""More kernels than this are split into units, however few can be compiled in parallel."""

UNIT_CHARACTERS = 8_000
"""The least text that is worth a unit: a compiler's start takes as long as 8,000 characters do."""

_OUTLINE_ABOVE = 24
"""Uses of expensive maths functions in one unit above which the functions are not inlined."""

_SHOWN_OPERATIONS = 12
"""Operations that the comment of a kernel lists."""


def emit_plan(plan: Plan, lanes: int, flags: tuple[str, ...], jobs: int = 1) -> tuple[SourceUnit, ...]:
    """Return the units of a plan, for vectors of ``lanes`` 32-bit lanes; ``flags`` identify their build.

    Where there is enough text there are ``jobs`` units of about equal length, to be compiled in parallel. Raises
    :class:`CodegenError`, which names the fused operation and the user's line.
    """
    origins = _origins(plan)
    emitted = []
    for kernel in plan.kernels:
        comment, origin = origins.get(kernel.name, ("", UNKNOWN))
        try:
            emitted.append(emit_kernel(kernel, lanes, comment))
        except LitzError as error:
            error.node, error.origin = error.node or kernel.name, error.origin or origin
            raise
    groups = split_units(emitted, jobs)
    name = identifier(plan.name)
    return tuple(
        _unit(name if len(groups) == 1 else f"{name}_{number}", group, flags)
        for number, group in enumerate(groups)
    )


def _unit(name: str, kernels: Sequence[Emitted], flags: tuple[str, ...]) -> SourceUnit:
    """Return a unit, which knows the lines of each kernel."""
    text = unit_text(kernels)
    lines, after = [], text.count("\n") + 1
    for kernel in reversed(kernels):
        length = kernel.text.rstrip().count("\n") + 1
        lines.append((after - length, after - 1))
        after -= length + 1  # an empty line separates kernels
    return SourceUnit(name, "c++", text, tuple(each.name for each in kernels), flags, tuple(reversed(lines)))


def split_units(kernels: Sequence[Emitted], jobs: int) -> list[list[Emitted]]:
    """Divide kernels into units, each in the order given: the longest first, into the shortest unit so far."""
    total = sum(len(kernel.text) for kernel in kernels)
    needed = -(-len(kernels) // KERNELS_PER_UNIT)
    if needed > jobs:
        needed = -(-needed // jobs) * jobs  # all threads compile until the end
    count = max(needed, min(jobs, len(kernels), total // UNIT_CHARACTERS))
    chosen: list[list[int]] = [[] for _ in range(count)]
    shortest = [(0, unit) for unit in range(count)]
    for k in sorted(range(len(kernels)), key=lambda k: -len(kernels[k].text)):
        length, unit = heapq.heappop(shortest)
        chosen[unit].append(k)
        if len(chosen[unit]) < KERNELS_PER_UNIT:
            heapq.heappush(shortest, (length + len(kernels[k].text), unit))
    return [[kernels[k] for k in sorted(unit)] for unit in chosen]


def unit_text(kernels: Sequence[Emitted]) -> str:
    """Return the text of one unit; raises :class:`CodegenError` when two kernels share a name."""
    names = [entry_point(kernel.name) for kernel in kernels]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CodegenError(f"two kernels of a plan have one name, {twice}", node=twice)
    headers = sorted(
        frozenset(("arithmetic", "memory", "runtime")).union(*(kernel.headers for kernel in kernels))
    )
    lines = [f"#include <litz/{header}.h>" for header in headers]
    if sum(kernel.heavy for kernel in kernels) > _OUTLINE_ABOVE:
        lines.insert(0, "#define LITZ_OUTLINE_MATH")
    sections = [
        "\n".join(lines),
        "using namespace litz;",
        *(kernel.text.rstrip() for kernel in kernels),
    ]
    return "\n\n".join(sections) + "\n"


def _origins(plan: Plan) -> dict[str, tuple[str, Origin]]:
    """Return the comment and an origin of each kernel.

    Line numbers stay out of the text, so that equal text is built once.
    """
    found: dict[str, tuple[str, Origin]] = {}
    for step in plan.steps:
        if isinstance(step, Launch) and step.kernel not in found and step.origins:
            names = list(dict.fromkeys(each.operation for each in step.origins))
            shown = ", ".join(names[:_SHOWN_OPERATIONS])
            more = f" and {len(names) - _SHOWN_OPERATIONS} more" if len(names) > _SHOWN_OPERATIONS else ""
            found[step.kernel] = (f"{step.kernel}: {shown}{more}", step.origins[0].origin)
    return found
