"""Comparison of two plans of one graph, which finds the matmuls that are faster generated than called.

One plan calls the library for its matmuls; the other generates them with prologue and epilogue. The steps in which
the plans differ form sets that share no work, so that each set is decided by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from litz_ir.loops import Ref
from litz_ir.origin import Origin
from litz_ir.plan import CallStep, Launch, Plan, Step
from litz_scheduler import SchedulerOptions

_GAIN = 0.03
"""Share of the library's time that generated kernels must save; timings vary by as much."""

_CLOSE_RATIO = 1.3
"""Most time, in multiples of the library's, of a generated matmul for which other schedules are tried."""

Seconds = Callable[[Plan, tuple[int, ...]], float]
"""Function that returns the time of the steps at these positions of a plan, run one after another, in seconds."""


@dataclass(frozen=True, slots=True)
class MatmulChoice:
    """Steps that do the same work in both plans, and the matmuls among them."""

    matmuls: tuple[str, ...]
    """Matmuls called in one plan and generated in the other, as the option ``generated_matmuls`` names them."""

    library: tuple[int, ...]
    """Positions of the steps in the plan that calls them."""

    generated: tuple[int, ...]
    """Positions of the steps in the plan that generates them."""


def comparison_options(options: SchedulerOptions, matmuls: frozenset[str]) -> SchedulerOptions:
    """Return the options of a plan to compare, in which these matmuls are generated.

    Horizontal fusion of isomorphic kernels is off: it would tie the epilogues of several matmuls to one choice.
    """
    return replace(options, generated_matmuls=matmuls, isomorphic_fusion_bytes=0)


def matmul_choices(library: Plan, generated: Plan) -> tuple[MatmulChoice, ...]:
    """Return the choices between two plans of one graph, in the order of the steps of ``library``.

    Steps belong to one choice when they compute parts of the same node, in either plan. Subplans of higher-order
    operators are not compared.
    """
    sets = _DisjointSets()
    for side, plan in enumerate((library, generated)):
        for position, step in enumerate(plan.steps):
            for name in nodes_of(step):
                sets.join((side, position), name)
    still_called = {name for step in generated.steps if isinstance(step, CallStep) for name in nodes_of(step)}
    matmuls: dict[Hashable, list[str]] = {}
    for position, step in enumerate(library.steps):
        if isinstance(step, CallStep):
            names = [name for name in nodes_of(step) if name not in still_called]
            if names:
                matmuls.setdefault(sets.find((0, position)), []).extend(names)
    steps = [
        {root: tuple(k for k, _ in enumerate(plan.steps) if sets.find((side, k)) == root) for root in matmuls}
        for side, plan in enumerate((library, generated))
    ]
    return tuple(
        MatmulChoice(tuple(names), steps[0][root], steps[1][root]) for root, names in matmuls.items()
    )


def worth_generating(library: Plan, generated: Plan, seconds: Seconds, tuned: Seconds) -> frozenset[str]:
    """Return the matmuls that are faster generated, as planned or as ``tuned``.

    ``tuned`` is called for the close ones last, the slowest first. Equal steps are timed once.
    """
    choices = matmul_choices(library, generated)
    called, made = _MemoizedTimes(library, seconds), _MemoizedTimes(generated, seconds)
    ratios = [(choice, made.of(choice.generated), called.of(choice.library)) for choice in choices]
    better = [choice for choice, own, other in ratios if own < (1 - _GAIN) * other]
    close = [
        (choice, other) for choice, own, other in ratios if (1 - _GAIN) * other <= own < _CLOSE_RATIO * other
    ]
    with_tiles = _MemoizedTimes(generated, tuned)
    for choice, other in sorted(close, key=lambda each: -each[1]):
        if with_tiles.of(choice.generated) < (1 - _GAIN) * other:
            better.append(choice)
    return frozenset(name for choice in better for name in choice.matmuls)


class _MemoizedTimes:
    """Times of the steps of a plan, measured once for equal steps."""

    def __init__(self, plan: Plan, seconds: Seconds) -> None:
        self._plan = plan
        self._seconds = seconds
        self._known: dict[Hashable, float] = {}

    def of(self, steps: tuple[int, ...]) -> float:
        """Return the time of the steps at these positions, in seconds."""
        key = tuple(_cost_key(self._plan, self._plan.steps[position]) for position in steps)
        if key not in self._known:
            self._known[key] = self._seconds(self._plan, steps)
        return self._known[key]


def nodes_of(step: Step) -> Iterator[str]:
    """Yield the nodes of the source graph that a step computes parts of."""
    if isinstance(step, Launch):
        for each in step.origins:
            yield _name(each.origin, each.operation)
    elif isinstance(step, CallStep):
        yield _name(step.origin, next((name for name in step.results if name is not None), step.target))


def _name(origin: Origin, operation: str) -> str:
    """Return the node of an origin, or the operation where it has none."""
    return origin.node or operation


def _cost_key(plan: Plan, step: Step) -> Hashable:
    """Return a key that is equal for steps of equal time: kernel or routine, and the types of its buffers."""
    names: Sequence[str] = ()
    work: Hashable = step
    if isinstance(step, Launch):
        names, work = step.buffers, (step.kernel, step.symbols)
    elif isinstance(step, CallStep):
        names = [each.name for each in step.arguments if isinstance(each, Ref)]
        work = (
            step.target,
            tuple(each for each in step.arguments if not isinstance(each, Ref)),
            step.attributes,
        )
    return work, tuple(plan.placement(name).type for name in names)


class _DisjointSets:
    """Union-find over steps and node names."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def find(self, item: Hashable) -> Hashable:
        """Return the representative of an item's set."""
        while (parent := self._parents.get(item, item)) != item:
            self._parents[item] = self._parents.get(parent, parent)
            item = parent
        return item

    def join(self, first: Hashable, second: Hashable) -> None:
        """Merge the sets of two items."""
        self._parents[self.find(second)] = self.find(first)
