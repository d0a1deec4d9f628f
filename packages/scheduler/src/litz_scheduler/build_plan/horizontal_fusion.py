"""Launches that a GPU runs side by side: loops that have nothing to do with one another share what a launch costs.

An optimiser's step over parameters of many sizes, sums for the norms of gradients, casts of weights: each loop moves
its bytes in a microsecond or two, and as long takes a launch, to fill the processors and to drain them again. In a pack
(:mod:`litz_ir.plan.horizontal_fusion`) their programs fill the processors together.

Loops that move little are packed whatever they are. Larger ones are packed with loops that are alike: registers and
shared memory of a program are those of the most demanding loop in its pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from litz_ir.contraction import matmul_nest
from litz_ir.device import Device
from litz_ir.fused import Decision
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import (
    Accumulate,
    Kernel,
    KernelOrigin,
    Launch,
    Parameter,
    Placement,
    Step,
    Store,
    TileRequest,
    invocations_of,
    launched_on,
    memory_root,
)
from litz_ir.scalar import nested_reductions
from litz_ir.symbols import Size, SymbolTable, free_symbols, product, substitute, symbol
from litz_ir.target import Capabilities
from litz_scheduler.build_plan.isomorphic_kernels import KernelTemplate, kernel_template, subkernel_of
from litz_scheduler.build_plan.kernel_names import KernelNames
from litz_scheduler.cost import body_size, estimate, type_bytes
from litz_scheduler.loop_order import bodies_of
from litz_scheduler.options import SchedulerOptions

MAX_BUFFERS = 256
"""The buffers of a pack: so many addresses, and some sizes, are what every driver takes for a launch."""

MAX_SUBKERNEL_KINDS = 8
"""The loops of a pack that are not alike: each is compiled for itself."""

SEARCH_DISTANCE = 32
"""How many launches of the plan so far are looked at for company."""


NO_LIMITS: Mapping[int, int] = MappingProxyType({})
"""No launch has to stay apart from any other."""

_Points = tuple[Size, tuple[Size, ...]]


@dataclass(frozen=True, slots=True)
class HorizontallyFused:
    """Steps with packs in them, the kernels of these, and why they are there. Each step has the ``members`` that it was
    made of, by their positions among those given: the first of them is where it stands."""

    steps: tuple[Step, ...]
    members: tuple[tuple[int, ...], ...]
    kernels: dict[str, Kernel]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class _Loop:
    """A launch that may be packed. Those of one ``kind`` are alike; ``small`` ones move little, ``size`` is in nodes,
    ``points`` how many there are of its outer axes and, in each phase, of its inner ones."""

    launch: Launch
    kernel: Kernel
    outline: KernelTemplate
    kind: int
    small: bool
    size: int
    points: _Points


@dataclass(slots=True)
class _Pack:
    """Launches that become one; a launch that may not be packed is alone. ``members`` are their positions."""

    step: Launch
    members: list[int]
    loops: list[_Loop] = field(default_factory=list)
    buffers: set[str] = field(default_factory=set)
    kinds: dict[int, int] = field(default_factory=dict)
    points: set[_Points] = field(default_factory=set)
    small: bool = True

    def add(self, loop: _Loop) -> None:
        self.loops.append(loop)
        self.buffers.update(loop.launch.buffers)
        self.kinds[loop.kind] = loop.size
        self.points.add(loop.points)
        self.small = self.small and loop.small


class HorizontalFuser:
    """Makes packs of the launches of a plan. ``machine`` knows the devices that these run on."""

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        placements: Mapping[str, Placement],
        symbols: SymbolTable,
        machine: Callable[[Device], Capabilities | None],
        options: SchedulerOptions,
        names: KernelNames,
    ) -> None:
        self._kernels = kernels
        self._placements = placements
        self._symbols = symbols
        self._machine = machine
        self._options = options
        self._names = names
        self._outlines: dict[str, KernelTemplate | None] = {}
        self._kinds: dict[Kernel, int] = {}
        self._loops: dict[Launch, _Loop | None] = {}
        self._made: dict[tuple[Launch, ...], tuple[Launch, Kernel]] = {}

    def of(self, steps: Sequence[Step], apart: Mapping[int, int] = NO_LIMITS) -> HorizontallyFused:
        """The steps with packs in place of launches. Launches that follow one another may change places where nobody
        can tell; one comes before at most :data:`NEAR` others that it came after.

        ``apart`` gives, for launches by position, another one up to which they join none, but for small loops over as
        many points: without packs, those would be one kernel.
        """
        found: list[tuple[Step, tuple[int, ...]]] = []
        kernels: dict[str, Kernel] = {}
        run: list[tuple[int, Launch]] = []
        for position, step in enumerate((*steps, None)):
            if isinstance(step, Launch) and (not run or self._device(run[-1][1]) == self._device(step)):
                run.append((position, step))
                continue
            found += self._run(run, apart, kernels)
            run = [(position, step)] if isinstance(step, Launch) else []
            if step is not None and not run:
                found.append((step, (position,)))
        made, members = zip(*found, strict=True) if found else ((), ())
        return HorizontallyFused(made, members, kernels, tuple(_decisions(kernels)))

    def _device(self, launch: Launch) -> Device:
        return launched_on(launch, self._placements)

    def _run(
        self, launches: Sequence[tuple[int, Launch]], apart: Mapping[int, int], kernels: dict[str, Kernel]
    ) -> Iterator[tuple[Launch, tuple[int, ...]]]:
        """Launches that follow one another on one device, each after its position, packed; ``kernels`` receives those
        of packs."""
        machine = self._machine(self._device(launches[0][1])) if launches else None
        if (
            machine is None
            or machine.max_subkernels < 2
            or len(launches) < 2
            or not self._options.isomorphic_fusion_bytes
        ):
            yield from ((launch, (position,)) for position, launch in launches)
            return
        packs: list[_Pack] = []
        touched: dict[str, int] = {}
        written: dict[str, int] = {}
        for position, launch in launches:
            reads, writes = self._uses(launch)
            # It comes after all that wrote what it touches, or touched what it writes.
            after = max([-1, *(written.get(n, -1) for n in reads), *(touched.get(n, -1) for n in writes)])
            first = max(after + 1, len(packs) - 1 - SEARCH_DISTANCE, 0)
            place = self._home(position, launch, packs, first, apart.get(position, -1), machine)
            for name in reads | writes:
                touched[name] = max(touched.get(name, -1), place)
            for name in writes:
                written[name] = max(written.get(name, -1), place)
        for pack in packs:
            yield self._launch(pack, kernels) if len(pack.loops) > 1 else pack.step, tuple(pack.members)

    def _uses(self, launch: Launch) -> tuple[set[str], set[str]]:
        """The memory that a launch reads, and what it writes."""
        parameters = self._kernels[launch.kernel].parameters
        named = [memory_root(name, self._placements) for name in launch.buffers]
        uses = list(zip(named, (parameter.access for parameter in parameters), strict=True))
        return {n for n, access in uses if access != "out"}, {n for n, access in uses if access != "in"}

    # --- who shares a launch with whom --------------------------------------------------------------------------------

    def _home(
        self, position: int, launch: Launch, packs: list[_Pack], first: int, apart: int, machine: Capabilities
    ) -> int:
        """The place of the pack, from ``first`` on, that a launch joins; it may be one of its own."""
        loop = self._loop(launch)
        if loop is None:
            packs.append(_Pack(launch, [position]))
            return len(packs) - 1
        for place in range(first, len(packs)):
            pack = packs[place]
            if pack.loops and self._fits(pack, loop, pack.members[0] <= apart, machine):
                break
        else:
            place = len(packs)
            packs.append(_Pack(launch, []))
        packs[place].members.append(position)
        packs[place].add(loop)
        return place

    def _fits(self, pack: _Pack, loop: _Loop, apart: bool, machine: Capabilities) -> bool:
        if apart and not (loop.small and loop.points in pack.points):
            return False
        if (
            len(pack.loops) == machine.max_subkernels
            or len(pack.buffers.union(loop.launch.buffers)) > MAX_BUFFERS
        ):
            return False
        if pack.kinds.keys() == {loop.kind}:
            return True
        kinds = pack.kinds | {loop.kind: loop.size}
        fit = len(kinds) <= MAX_SUBKERNEL_KINDS and sum(kinds.values()) <= machine.max_statements
        return loop.small and pack.small and fit

    def _loop(self, launch: Launch) -> _Loop | None:
        """A launch as a loop of a pack, where it may be one."""
        if launch not in self._loops:
            self._loops[launch] = self._new_loop(launch)
        return self._loops[launch]

    def _new_loop(self, launch: Launch) -> _Loop | None:
        kernel = self._kernels[launch.kernel]
        sizes = (type_bytes(self._placements[name].type) for name in launch.buffers)
        moved = sum(estimate(size, self._symbols) for size in sizes)
        if moved > self._options.isomorphic_fusion_bytes:
            return None
        if launch.kernel not in self._outlines:
            self._outlines[launch.kernel] = kernel_template(kernel) if can_fuse_horizontally(kernel) else None
        found = self._outlines[launch.kernel]
        if found is None:
            return None
        given = dict(zip((info.name for info in kernel.symbols), launch.symbols, strict=True))
        bodies = (body for phase in kernel.phases for each in phase.statements for body in bodies_of(each))
        kind = self._kinds.setdefault(found.kernel, len(self._kinds))
        points = _points(kernel, given)
        small = moved <= self._options.horizontal_fusion_bytes
        return _Loop(launch, kernel, found.at(given), kind, small, body_size(*bodies), points)

    # --- what they become ---------------------------------------------------------------------------------------------

    def _launch(self, pack: _Pack, kernels: dict[str, Kernel]) -> Launch:
        """The launch of a pack; ``kernels`` receives its kernel."""
        loops = [loop for kind in pack.kinds for loop in pack.loops if loop.kind == kind]
        key = tuple(loop.launch for loop in loops)
        if key not in self._made:
            self._made[key] = self._new_launch(loops)
        launch, kernel = self._made[key]
        kernels[kernel.name] = kernel
        return launch

    def _new_launch(self, loops: Sequence[_Loop]) -> tuple[Launch, Kernel]:
        parameters: dict[str, Parameter] = {}
        for loop in loops:
            for own, buffer in zip(loop.kernel.parameters, loop.launch.buffers, strict=True):
                parameters[buffer] = _bound(parameters.get(buffer), own, f"p{len(parameters)}")
        alike: dict[int, list[tuple[KernelTemplate, tuple[str, ...]]]] = {}
        for loop in loops:
            names = tuple(parameters[buffer].name for buffer in loop.launch.buffers)
            alike.setdefault(loop.kind, []).append((loop.outline, names))
        parts = tuple(subkernel_of(f"part{k}", each) for k, each in enumerate(alike.values()))
        terms = (term for part in parts for each in part.invocations for term in each.symbols)
        used = set[str]().union(*map(free_symbols, terms))
        infos = tuple(replace(info, hint=None, source="") for info in self._symbols if info.name in used)
        kernel = Kernel("", tuple(parameters.values()), infos, (), (), (), TileRequest(), parts)
        name = self._named(kernel, loops)
        origins = (
            KernelOrigin(each.operation, each.origin, number)
            for number, loop in enumerate(loops)
            for each in loop.launch.origins
        )
        symbols = tuple(symbol(info.name) for info in infos)
        return Launch(name, tuple(parameters), symbols, tuple(origins)), replace(kernel, name=name)

    def _named(self, kernel: Kernel, loops: Sequence[_Loop]) -> str:
        """A pack is called after its first loop."""
        kind = self._device(loops[0].launch).kind
        _, _, called = loops[0].kernel.name.partition("_")
        return self._names.known(kind, kernel) or self._names.add(kind, kernel, f"pack_{called}")


def _bound(known: Parameter | None, own: Parameter, name: str) -> Parameter:
    """The parameter of a pack that one of a loop's is bound to, beside what it is bound to already."""
    if known is None:
        return replace(own, name=name)
    access = own.access if own.access == known.access else "inout"
    return replace(known, access=access, alignment=max(own.alignment, known.alignment))


def _points(kernel: Kernel, given: Mapping[str, Size]) -> _Points:
    def count(axes: Sequence[Axis]) -> Size:
        return product(substitute(axis.size, given) for axis in axes)

    return count(kernel.outer), tuple(count(phase.axes) for phase in kernel.phases if phase.axes)


def can_fuse_horizontally(kernel: Kernel) -> bool:
    """True for a kernel whose programs need no more than those of others: no tiles of products, no scratch, and no scan
    nor combination of the user's, which keep a program, and many registers, for long."""
    if kernel.schedule != TileRequest() or kernel.scratch:
        return False
    statements = [(phase, each) for phase in kernel.phases for each in phase.statements]
    if nested_reductions(*(body for _, each in statements for body in bodies_of(each))):
        return False
    return all(
        isinstance(each, Store)
        or (
            isinstance(each, Accumulate)
            and isinstance(each.combiner, NamedCombiner)
            and matmul_nest(each.combiner, each.values, kernel.outer, phase.axes) is None
        )
        for phase, each in statements
    )


def _decisions(kernels: Mapping[str, Kernel]) -> Iterator[Decision]:
    for name, kernel in kernels.items():
        note = f"{len(invocations_of(kernel))} loops of {len(kernel.subkernels)} kinds"
        yield Decision("plan", name, "fuse", "fuse.horizontal", note=note)
