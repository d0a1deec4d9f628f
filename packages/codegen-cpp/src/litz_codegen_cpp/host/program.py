"""The host program of a plan as C++: kernels, the functions of plans, and the table that the C runtime reads."""

from __future__ import annotations

from collections.abc import Collection

from litz_codegen_cpp.emit.kernel import emit_kernel
from litz_codegen_cpp.emit.unit import unit_text
from litz_codegen_cpp.host.memory_writer import Shared, prepacked_results
from litz_codegen_cpp.host.refusals import require_runnable
from litz_codegen_cpp.host.state import State, plan_state
from litz_codegen_cpp.host.tables import table_text
from litz_codegen_cpp.host.text import block
from litz_codegen_cpp.host.writer import PlanWriter
from litz_codegen_cpp.toolchain.isa import Isa
from litz_ir.plan import Plan, kernels_in, plans_in
from litz_ir.target import SourceUnit


def emit_host(plan: Plan, isa: Isa, weights: Collection[str] = (), flags: tuple[str, ...] = ()) -> SourceUnit:
    """Return the C++ unit of a program: all kernels of ``plan``, its steps, and the exported table.

    ``weights`` names inputs that are the same tensors in each call: what depends on them alone is computed, and
    matrices among them are prepacked, when a model is opened. ``flags`` identify the build of the unit. Raises
    :class:`CodegenError`, which names the calls and the reasons, for a plan that needs torch or Python
    (:func:`litz_codegen_cpp.host.refusals`).
    """
    require_runnable(plan, weights)
    kernels = {kernel.name: kernel for kernel in kernels_in(plan)}
    shared = Shared(kernels)
    functions = []
    for number, subplan in reversed([*enumerate(_inner_plans(plan), 1)]):
        shared.functions[subplan.name] = f"plan{number}"
        functions.append(PlanWriter(subplan, f"plan{number}", shared).write())
    state = plan_state(plan, weights, prepacked_results(plan))
    outer = PlanWriter(plan, "plan0", shared, state)
    steps = outer.write()
    headers = ["library/library", *(f"library/{name}" for name in sorted(shared.headers)), "host_program"]
    texts = [
        "\n".join(f"#include <litz/{name}.h>" for name in headers),
        unit_text([emit_kernel(kernel, isa.lanes) for kernel in kernels.values()]),
        *functions,
        _state_function(state),
        steps,
        _prepare_functions(outer, state),
        table_text(outer, state, isa),
    ]
    return SourceUnit("host", "c++", "\n\n".join(texts) + "\n", tuple(kernels), (isa.name, *flags))


def _inner_plans(plan: Plan) -> list[Plan]:
    """Return the subplans, each once, those that others run after them."""
    found = {each.name: each for each in plans_in(plan) if each is not plan}
    return list(found.values())


def _state_function(state: State) -> str:
    """Return the function that places the parts of the state and returns their bytes."""
    lines = ["int64_t end = 0;"]
    for k, size in enumerate(state.sizes):
        lines += [f"part[{k}] = end;", f"end += aligned({size});"]
    return block(
        "static int64_t state_memory(const litz_runtime* rt, int64_t* part)", [*lines, "return end;"]
    )


def _prepare_functions(outer: PlanWriter, state: State) -> str:
    """Return the functions that compute the state, and give its bytes and those that it takes meanwhile."""
    count = len(state.sizes) + 1
    state_bytes = block(
        "static int64_t state_bytes(const litz_runtime* rt)",
        [f"int64_t part[{count}];", "return state_memory(rt, part);"],
    )
    lines, needed = [], []
    for name, position in outer.given.items():
        if name in outer.given_types:
            lines.append(f"char* const i{position} = (char*)inputs[{position}]{outer.before(name)};")
    lines += state.pointers()
    for region in state.regions:
        results = [state.pointer(name) for name in region.results]
        lines += ["{", *(f"  {line}" for line in outer.region_lines(region, results, "workspace")), "}"]
        function = outer.shared.functions[region.plans[0]]
        needed.append(f"bytes = maximum<int64_t>(bytes, {function}_bytes(rt, nullptr));")
    lines += [*state.fills, "return 0;"]
    prepare_bytes = block(
        "static int64_t prepare_bytes(const litz_runtime* rt)",
        ["int64_t bytes = 0;", *needed, "return bytes;"],
    )
    head = (
        "static int64_t prepare(litz_runtime* rt, litz_host_services* services, void* const* inputs, char* state,\n"
        "                       char* workspace)"
    )
    return "\n\n".join((state_bytes, prepare_bytes, block(head, lines)))
