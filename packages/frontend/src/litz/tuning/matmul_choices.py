"""Which products of matrices are better generated than called: two plans of one graph, compared part by part.

One plan calls the library for its products, the other one generates them with what surrounds them. Where the two differ
they fall into parts that share no work, so that each part can be decided on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from litz_ir.loops import Ref
from litz_ir.origin import Origin
from litz_ir.plan import CallStep, Launch, Plan, Step
from litz_scheduler import SchedulerOptions

GAIN = 0.03
"""The share of a part's time that generated kernels must save: timings differ by as much."""

CLOSE_RATIO = 1.3
"""How many times as long as the library generated kernels may take at first, so that other tiles may still win."""

Seconds = Callable[[Plan, tuple[int, ...]], float]
"""How long the steps at these positions of a plan take, one after another."""


@dataclass(frozen=True, slots=True)
class MatmulChoice:
    """``matmuls`` names the products that are called in one plan and generated in the other, as the scheduler's option
    ``generated_matmuls`` takes them; ``library`` and ``generated`` are the positions, in each plan, of the steps that
    do the same work."""

    matmuls: tuple[str, ...]
    library: tuple[int, ...]
    generated: tuple[int, ...]


def comparison_options(options: SchedulerOptions, products: frozenset[str]) -> SchedulerOptions:
    """The options of a plan that is compared with another one, and generates these products. Nothing runs beside
    anything else: a pack of what surrounds several products would make one part of them."""
    return replace(options, generated_matmuls=products, isomorphic_fusion_bytes=0)


def matmul_choices(library: Plan, generated: Plan) -> tuple[MatmulChoice, ...]:
    """The parts of two plans of one graph that differ in products, in the order of ``library``'s steps.

    Steps belong to one part when they compute something of the same node, in whichever plan. What the control flow of
    a graph runs is not looked into.
    """
    parts = _Parts()
    for side, plan in enumerate((library, generated)):
        for position, step in enumerate(plan.steps):
            for name in nodes_of(step):
                parts.join((side, position), name)
    still_called = {name for step in generated.steps if isinstance(step, CallStep) for name in nodes_of(step)}
    products: dict[Hashable, list[str]] = {}
    for position, step in enumerate(library.steps):
        if isinstance(step, CallStep):
            names = [name for name in nodes_of(step) if name not in still_called]
            if names:
                products.setdefault(parts.find((0, position)), []).extend(names)
    steps = [
        {
            root: tuple(k for k, _ in enumerate(plan.steps) if parts.find((side, k)) == root)
            for root in products
        }
        for side, plan in enumerate((library, generated))
    ]
    return tuple(
        MatmulChoice(tuple(names), steps[0][root], steps[1][root]) for root, names in products.items()
    )


def worth_generating(library: Plan, generated: Plan, seconds: Seconds, tuned: Seconds) -> frozenset[str]:
    """The products that save time where they are generated, as planned or as ``tuned``, which is asked about close ones
    last, those that take longest first. Parts that are alike are timed once."""
    choices = matmul_choices(library, generated)
    called, made = _Once(library, seconds), _Once(generated, seconds)
    ratios = [(choice, made.of(choice.generated), called.of(choice.library)) for choice in choices]
    better = [choice for choice, own, other in ratios if own < (1 - GAIN) * other]
    close = [
        (choice, other) for choice, own, other in ratios if (1 - GAIN) * other <= own < CLOSE_RATIO * other
    ]
    with_tiles = _Once(generated, tuned)
    for choice, other in sorted(close, key=lambda each: -each[1]):
        if with_tiles.of(choice.generated) < (1 - GAIN) * other:
            better.append(choice)
    return frozenset(name for choice in better for name in choice.matmuls)


class _Once:
    """How long steps of a plan take, asked for once for those that are alike."""

    def __init__(self, plan: Plan, seconds: Seconds) -> None:
        self._plan = plan
        self._seconds = seconds
        self._known: dict[Hashable, float] = {}

    def of(self, steps: tuple[int, ...]) -> float:
        """The seconds of the steps at these positions."""
        key = tuple(_likeness(self._plan, self._plan.steps[position]) for position in steps)
        if key not in self._known:
            self._known[key] = self._seconds(self._plan, steps)
        return self._known[key]


def nodes_of(step: Step) -> Iterator[str]:
    """The nodes of the source graph that a step computes something of."""
    if isinstance(step, Launch):
        for each in step.origins:
            yield _name(each.origin, each.operation)
    elif isinstance(step, CallStep):
        yield _name(step.origin, next((name for name in step.results if name is not None), step.target))


def _name(origin: Origin, operation: str) -> str:
    return origin.node or operation


def _likeness(plan: Plan, step: Step) -> Hashable:
    """What steps that take equally long have in common: their kernel or routine, and the types of what it is given."""
    names: Sequence[str] = ()
    what: Hashable = step
    if isinstance(step, Launch):
        names, what = step.buffers, (step.kernel, step.symbols)
    elif isinstance(step, CallStep):
        names = [each.name for each in step.arguments if isinstance(each, Ref)]
        what = (
            step.target,
            tuple(each for each in step.arguments if not isinstance(each, Ref)),
            step.attributes,
        )
    return what, tuple(plan.placement(name).type for name in names)


class _Parts:
    """Disjoint sets of steps and names."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def find(self, item: Hashable) -> Hashable:
        """What stands for the set that an item is in."""
        while (parent := self._parents.get(item, item)) != item:
            self._parents[item] = self._parents.get(parent, parent)
            item = parent
        return item

    def join(self, first: Hashable, second: Hashable) -> None:
        """Make one set of two."""
        self._parents[self.find(second)] = self.find(first)
