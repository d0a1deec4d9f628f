"""The state of a program: what depends on weights alone, computed once when a model is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from litz_codegen_cpp.host.terms import term_text
from litz_ir.loops import Ref, references
from litz_ir.plan import Plan, RegionStep, memory_root
from litz_ir.symbols import free_symbols


@dataclass(slots=True)
class State:
    """The parts of the state, and the lines that fill them."""

    plan: Plan
    """The plan of the program."""
    constants: set[str]
    """Inputs and results that have the same elements in each call."""
    names: dict[str, int] = field(default_factory=dict)
    """Number of the part of each result of a frozen region."""
    sizes: list[str] = field(default_factory=list)
    """Bytes of each part, as C++."""
    regions: list[RegionStep] = field(default_factory=list)
    """The regions whose results are kept."""
    fills: list[str] = field(default_factory=list)
    """Lines that prepack weights, after the regions."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Number of the part of each prepacked weight."""
    read: set[str] = field(default_factory=set)
    """Inputs that are read when the state is computed."""

    def holds(self, step: RegionStep) -> bool:
        """Report whether the results of a region are in the state."""
        return any(step is each for each in self.regions)

    def pointer(self, name: str) -> str:
        """Return the variable of a result."""
        return f"q{self.names[name]}"

    def pointers(self) -> list[str]:
        """Return the definitions of the variables of all parts."""
        lines = [f"int64_t part[{len(self.sizes) + 1}];", "state_memory(rt, part);"]
        return lines + [f"char* const q{k} = (char*)state + part[{k}];" for k in range(len(self.sizes))]

    def prepacked(self, key: str, nbytes: str, fill: Callable[[str], str]) -> str:
        """Return the variable of a prepacked weight, which ``fill`` writes; each ``key`` once."""
        if key not in self.numbers:
            self.numbers[key] = len(self.sizes)
            self.sizes.append(nbytes)
            self.fills.append(fill(f"q{self.numbers[key]}"))
        return f"q{self.numbers[key]}"

    def mark_read(self, name: str) -> None:
        """Note that the memory of a buffer is read when the state is computed."""
        root = memory_root(name, dict(self.plan.buffers))
        if root not in self.names:
            self.read.add(root)


def plan_state(plan: Plan, weights: Collection[str], prepacked_sizes: Mapping[str, str]) -> State:
    """Return the state of a program whose inputs ``weights`` are the same in each call.

    ``prepacked_sizes`` has the bytes of results in a form of their own. A region whose sizes depend on symbols is
    computed in each call.
    """
    state = State(plan, set(weights))
    for step in plan.steps:
        if (
            not isinstance(step, RegionStep)
            or step.kind != "frozen"
            or plan.subplan(step.plans[0]).symbols.infos
        ):
            continue
        sizes = {name: plan.placement(name).nbytes for name in step.results}
        if any(free_symbols(size) for name, size in sizes.items() if name not in prepacked_sizes):
            continue
        state.regions.append(step)
        for name, size in sizes.items():
            state.names[name] = len(state.sizes)
            state.sizes.append(prepacked_sizes.get(name) or term_text(size, {}))
            state.constants.add(name)
        for argument in step.arguments:
            if isinstance(argument, Ref):
                for name in references(argument):
                    state.mark_read(name)
    return state
