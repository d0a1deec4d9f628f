"""The invariant of contents: what a plan reads or returns has been written before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from litz_ir.loops.nodes import Value, references
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.plan.buffer_uses import memory_root, written_buffers, written_by
from litz_ir.plan.horizontal_fusion import invocations_of
from litz_ir.plan.kernel import Kernel, ScanStore, Statement, Store
from litz_ir.plan.program import CallStep, CheckStep, DefineStep, Launch, Plan, RegionStep, Step
from litz_ir.scalar.expr import indirects_in, loads
from litz_ir.scalar.node import Expr
from litz_ir.scalar.verify import ErrorLocation
from litz_ir.symbols.term import Size


def check_contents(plan: Plan, stage: str) -> None:
    """A step reads, and the plan returns, memory that is given from outside or that an earlier step may have written.

    A buffer without elements has no contents. A call may fill any of its arguments, since a plan does not say which
    ones its routine writes.
    """
    contents = _Contents(plan)
    for step in plan.steps:
        absent = contents.absent(_read_by(step, contents))
        if absent is not None:
            name, origin = _node_of(step)
            ErrorLocation(stage, name, origin).fail(
                "written-before",
                f"%{absent} is read, but no earlier step writes it",
                "a launch, a call or a region must write it first, or it must be an input or a constant",
            )
        contents.write(step)
    absent = contents.absent(references(plan.outputs))
    if absent is not None:
        ErrorLocation(stage, plan.name).fail(
            "written-before",
            f"the plan returns %{absent}, but no step writes it",
            "a launch, a call or a region must write it",
        )


class _Contents:
    """The memory that has contents after the steps so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kernels = {kernel.name: kernel for kernel in plan.kernels}
        self.placements = dict(plan.buffers)
        given = (value.name for value in (*plan.inputs, *plan.constants) if isinstance(value, Value))
        self._written = {memory_root(name, self.placements) for name in given}
        self._reads: dict[str, frozenset[str]] = {}

    def absent(self, names: Iterable[str]) -> str | None:
        """The first of these buffers that has elements, but no contents."""
        for name in names:
            if name not in self.placements or 0 in self.placements[name].type.shape:
                continue
            if memory_root(name, self.placements) not in self._written:
                return name
        return None

    def write(self, step: Step) -> None:
        """Add what a step writes."""
        names = (*written_by(step, self.kernels), *_results(step))
        self._written.update(memory_root(name, self.placements) for name in names)

    def read_by_launch(self, launch: Launch) -> Iterator[str]:
        """Yield the buffers whose contents before a launch its kernel reads."""
        kernel = self.kernels[launch.kernel]
        if launch.kernel not in self._reads:
            self._reads[launch.kernel] = read_before_written(kernel)
        for parameter, name in zip(kernel.parameters, launch.buffers, strict=True):
            if parameter.name in self._reads[launch.kernel]:
                yield name


def _results(step: Step) -> Iterator[str]:
    if isinstance(step, CallStep | RegionStep):
        yield from (name for name in step.results if name is not None)


def _read_by(step: Step, contents: _Contents) -> Iterator[str]:
    """Yield the buffers whose contents a step surely needs."""
    match step:
        case Launch():
            yield from contents.read_by_launch(step)
        case CheckStep():
            yield from (load.buffer for load in loads(step.condition))
        case DefineStep(source=Expr() as body):
            yield from (load.buffer for load in loads(body))
        case RegionStep():
            yield from _read_by_region(step, contents.plan)


def _read_by_region(step: RegionStep, plan: Plan) -> Iterator[str]:
    """Yield the arguments that a region reads: not those that the subplan of an ``invoke`` or ``frozen`` fills."""
    if step.kind not in ("invoke", "frozen"):
        yield from references(step.arguments)
        return
    inner = plan.subplan(step.plans[0])
    filled = written_buffers(inner)
    for argument, item in zip(step.arguments, inner.inputs):
        if item.name not in filled:
            yield from references(argument)


def _node_of(step: Step) -> tuple[str, Origin]:
    """The name and origin of a step in errors."""
    match step:
        case Launch():
            return f"launch {step.kernel}", step.origins[0].origin if step.origins else UNKNOWN
        case RegionStep():
            return f"region.{step.kind}", step.origin
        case CheckStep():
            return "check", step.origin
        case DefineStep():
            return f"define {step.symbol}", UNKNOWN
    return "", UNKNOWN


def read_before_written(kernel: Kernel) -> frozenset[str]:
    """The parameters of which a kernel reads an element before it has stored any to them."""
    found: set[str] = set()
    for own, invocation in invocations_of(kernel):
        inner = read_before_written(own)
        pairs = zip(own.parameters, invocation.buffers, strict=True)
        found.update(name for parameter, name in pairs if parameter.name in inner)
    stored: set[str] = set()
    for statement in (statement for phase in kernel.phases for statement in phase.statements):
        found.update(name for name in _loaded(statement) if name not in stored)
        stored.update(buffer for buffer, _ in _targets(statement))
    return frozenset(found)


def _loaded(statement: Statement) -> Iterator[str]:
    """Yield the buffers that a statement reads, those that it combines values into among them."""
    values = (statement.value,) if isinstance(statement, Store) else statement.values
    if isinstance(statement, Store) and statement.mode != "set":
        yield statement.buffer
    indices = (atom.value for _, offset in _targets(statement) for atom in indirects_in(offset))
    yield from (load.buffer for load in loads(*values, *indices))


def _targets(statement: Statement) -> tuple[tuple[str, Size], ...]:
    """The buffers that a statement stores to, each with the element offset."""
    match statement:
        case Store():
            return ((statement.buffer, statement.offset),)
        case ScanStore():
            return statement.targets
    return ()
