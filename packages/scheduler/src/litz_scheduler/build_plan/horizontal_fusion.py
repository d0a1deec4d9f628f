"""Horizontal fusion: independent launches on a GPU become one launch of several subkernels.

An optimiser's step over parameters of many sizes, the norms of gradients and casts of weights are many small kernels.
Each moves its bytes in a microsecond or two, and its launch takes as long: to fill the SMs and to drain them again.
The thread blocks of a fused launch (:mod:`litz_ir.plan.horizontal_fusion`) fill the SMs with the work of all its
subkernels.

Launches that move few bytes are fused whatever they compute. Larger ones are fused with isomorphic kernels only,
since a fused kernel needs the registers and shared memory of its most demanding subkernel.
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
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import body_size, estimate, type_bytes
from litz_scheduler.analysis.loop_order import bodies_of
from litz_scheduler.build_plan.isomorphic_kernels import KernelTemplate, kernel_template, subkernel_of
from litz_scheduler.build_plan.scheduling import KernelNames
from litz_scheduler.options import SchedulerOptions

_MAX_BUFFERS = 256
"""Buffers of a fused launch: every driver accepts this many addresses, and some sizes, as kernel arguments."""

_MAX_SUBKERNEL_KINDS = 8
"""Kernels of a fused launch that are not isomorphic: the code of each is compiled separately."""

_SEARCH_DISTANCE = 32
"""Earlier launches that are considered for fusion with a launch."""


NO_LIMITS: Mapping[int, int] = MappingProxyType({})
"""Limits that exclude no launch from any fused launch."""

_Points = tuple[Size, tuple[Size, ...]]
"""Points of the outer axes, and of the inner axes of each phase."""


@dataclass(frozen=True, slots=True)
class HorizontallyFused:
    """The steps of a plan after horizontal fusion."""

    steps: tuple[Step, ...]
    """The steps, with fused launches in place of the launches that they are made of."""
    members: tuple[tuple[int, ...], ...]
    """For each step the positions of the given steps that it is made of; it stands at the first of them."""
    kernels: dict[str, Kernel]
    """The kernels of fused launches by name."""
    decisions: tuple[Decision, ...]
    """A decision for each fused launch."""


@dataclass(frozen=True, slots=True)
class _FusibleLaunch:
    """A launch that may be fused."""

    launch: Launch
    """The launch by itself."""
    kernel: Kernel
    """Its kernel."""
    template: KernelTemplate
    """The template of the kernel, with values over the symbols of the plan."""
    kind: int
    """A number that isomorphic kernels share."""
    small: bool
    """True where it moves at most ``horizontal_fusion_bytes``, so that it is fused with kernels of other kinds."""
    size: int
    """Statements, in nodes of its bodies."""
    points: _Points
    """The number of points that it runs over."""


@dataclass(slots=True)
class _FusedLaunch:
    """Launches that become one; a launch that may not be fused is alone and has no ``launches``."""

    step: Launch
    """The first launch."""
    members: list[int]
    """The positions of the launches."""
    launches: list[_FusibleLaunch] = field(default_factory=list)
    """The launches that it fuses."""
    buffers: set[str] = field(default_factory=set)
    """All buffers of the launches."""
    kinds: dict[int, int] = field(default_factory=dict)
    """The size in statements of each kind of kernel."""
    points: set[_Points] = field(default_factory=set)
    """The iteration spaces of the launches."""
    small: bool = True
    """True while all launches are small."""

    def add(self, fusible: _FusibleLaunch) -> None:
        """Add a launch that fits."""
        self.launches.append(fusible)
        self.buffers.update(fusible.launch.buffers)
        self.kinds[fusible.kind] = fusible.size
        self.points.add(fusible.points)
        self.small = self.small and fusible.small


class HorizontalFuser:
    """Fuse the launches of a plan; ``machine`` gives the capabilities of the devices that they run on."""

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
        self._templates: dict[str, KernelTemplate | None] = {}
        self._kinds: dict[Kernel, int] = {}
        self._fusible_launches: dict[Launch, _FusibleLaunch | None] = {}
        self._made: dict[tuple[Launch, ...], tuple[Launch, Kernel]] = {}

    def of(self, steps: Sequence[Step], limits: Mapping[int, int] = NO_LIMITS) -> HorizontallyFused:
        """Return the steps with independent launches fused.

        Launches that follow one another on one device are reordered where no dependency forbids it; a launch moves
        before at most :data:`_SEARCH_DISTANCE` launches that it came after. ``limits`` gives, for launches by
        position, another position: the launch is fused only into launches after that one. Small launches over equal
        points are exempt, since without horizontal fusion they would be one kernel.
        """
        found: list[tuple[Step, tuple[int, ...]]] = []
        kernels: dict[str, Kernel] = {}
        run: list[tuple[int, Launch]] = []
        for position, step in enumerate((*steps, None)):
            if isinstance(step, Launch) and (not run or self._device(run[-1][1]) == self._device(step)):
                run.append((position, step))
                continue
            found += self._run(run, limits, kernels)
            run = [(position, step)] if isinstance(step, Launch) else []
            if step is not None and not run:
                found.append((step, (position,)))
        made, members = zip(*found, strict=True) if found else ((), ())
        return HorizontallyFused(made, members, kernels, tuple(_decisions(kernels)))

    def _device(self, launch: Launch) -> Device:
        return launched_on(launch, self._placements)

    def _run(
        self, launches: Sequence[tuple[int, Launch]], limits: Mapping[int, int], kernels: dict[str, Kernel]
    ) -> Iterator[tuple[Launch, tuple[int, ...]]]:
        """Yield the launches of one device after fusion, each with the positions that it is made of.

        ``kernels`` receives the kernels of fused launches.
        """
        machine = self._machine(self._device(launches[0][1])) if launches else None
        if (
            machine is None
            or machine.max_subkernels < 2
            or len(launches) < 2
            or not self._options.isomorphic_fusion_bytes
        ):
            yield from ((launch, (position,)) for position, launch in launches)
            return
        fused: list[_FusedLaunch] = []
        touched: dict[str, int] = {}
        written: dict[str, int] = {}
        for position, launch in launches:
            reads, writes = self._uses(launch)
            # A launch follows the writers of its buffers, and the readers of the buffers that it writes.
            after = max([-1, *(written.get(n, -1) for n in reads), *(touched.get(n, -1) for n in writes)])
            first = max(after + 1, len(fused) - 1 - _SEARCH_DISTANCE, 0)
            number = self._add(position, launch, fused, first, limits.get(position, -1), machine)
            for name in reads | writes:
                touched[name] = max(touched.get(name, -1), number)
            for name in writes:
                written[name] = max(written.get(name, -1), number)
        for each in fused:
            yield self._launch(each, kernels) if len(each.launches) > 1 else each.step, tuple(each.members)

    def _uses(self, launch: Launch) -> tuple[set[str], set[str]]:
        """Return the memory roots that a launch reads, and those that it writes."""
        parameters = self._kernels[launch.kernel].parameters
        named = [memory_root(name, self._placements) for name in launch.buffers]
        uses = list(zip(named, (parameter.access for parameter in parameters), strict=True))
        return {n for n, access in uses if access != "out"}, {n for n, access in uses if access != "in"}

    # --- choice of launches to fuse ----------------------------------------------------------------------------------

    def _add(
        self,
        position: int,
        launch: Launch,
        fused: list[_FusedLaunch],
        first: int,
        limit: int,
        machine: Capabilities,
    ) -> int:
        """Add a launch to the first of ``fused``, from ``first`` on, that it fits, and return that one's number.

        A new one is appended where it fits none. Small launches alone are added to one that starts at ``limit`` or
        before.
        """
        fusible = self._fusible(launch)
        if fusible is None:
            fused.append(_FusedLaunch(launch, [position]))
            return len(fused) - 1
        for number in range(first, len(fused)):
            other = fused[number]
            if other.launches and self._fits(other, fusible, other.members[0] <= limit, machine):
                break
        else:
            number = len(fused)
            fused.append(_FusedLaunch(launch, []))
        fused[number].members.append(position)
        fused[number].add(fusible)
        return number

    def _fits(
        self, other: _FusedLaunch, fusible: _FusibleLaunch, excluded: bool, machine: Capabilities
    ) -> bool:
        """Return True where a launch can be added to a fused one; ``excluded`` leaves small launches over equal
        points alone."""
        if excluded and not (fusible.small and fusible.points in other.points):
            return False
        if (
            len(other.launches) == machine.max_subkernels
            or len(other.buffers.union(fusible.launch.buffers)) > _MAX_BUFFERS
        ):
            return False
        if other.kinds.keys() == {fusible.kind}:
            return True
        kinds = other.kinds | {fusible.kind: fusible.size}
        fit = len(kinds) <= _MAX_SUBKERNEL_KINDS and sum(kinds.values()) <= machine.max_statements
        return fusible.small and other.small and fit

    def _fusible(self, launch: Launch) -> _FusibleLaunch | None:
        """Return a launch as a candidate for fusion, or None where it may not be fused."""
        if launch not in self._fusible_launches:
            self._fusible_launches[launch] = self._new_fusible(launch)
        return self._fusible_launches[launch]

    def _new_fusible(self, launch: Launch) -> _FusibleLaunch | None:
        """Return a launch as a candidate for fusion, where it moves few enough bytes."""
        kernel = self._kernels[launch.kernel]
        sizes = (type_bytes(self._placements[name].type) for name in launch.buffers)
        moved = sum(estimate(size, self._symbols) for size in sizes)
        if moved > self._options.isomorphic_fusion_bytes:
            return None
        if launch.kernel not in self._templates:
            self._templates[launch.kernel] = (
                kernel_template(kernel) if _can_fuse_horizontally(kernel) else None
            )
        found = self._templates[launch.kernel]
        if found is None:
            return None
        given = dict(zip((info.name for info in kernel.symbols), launch.symbols, strict=True))
        bodies = (body for phase in kernel.phases for each in phase.statements for body in bodies_of(each))
        kind = self._kinds.setdefault(found.kernel, len(self._kinds))
        points = _points(kernel, given)
        small = moved <= self._options.horizontal_fusion_bytes
        return _FusibleLaunch(launch, kernel, found.at(given), kind, small, body_size(*bodies), points)

    # --- construction of fused launches ------------------------------------------------------------------------------

    def _launch(self, fused: _FusedLaunch, kernels: dict[str, Kernel]) -> Launch:
        """Return the step of a fused launch; ``kernels`` receives its kernel."""
        members = [each for kind in fused.kinds for each in fused.launches if each.kind == kind]
        key = tuple(each.launch for each in members)
        if key not in self._made:
            self._made[key] = self._new_launch(members)
        launch, kernel = self._made[key]
        kernels[kernel.name] = kernel
        return launch

    def _new_launch(self, members: Sequence[_FusibleLaunch]) -> tuple[Launch, Kernel]:
        """Return the step and the kernel of a fused launch."""
        parameters: dict[str, Parameter] = {}
        for member in members:
            for own, buffer in zip(member.kernel.parameters, member.launch.buffers, strict=True):
                parameters[buffer] = _bound(parameters.get(buffer), own, f"p{len(parameters)}")
        by_kind: dict[int, list[tuple[KernelTemplate, tuple[str, ...]]]] = {}
        for member in members:
            names = tuple(parameters[buffer].name for buffer in member.launch.buffers)
            by_kind.setdefault(member.kind, []).append((member.template, names))
        subkernels = tuple(subkernel_of(f"subkernel{k}", each) for k, each in enumerate(by_kind.values()))
        terms = (term for subkernel in subkernels for each in subkernel.invocations for term in each.symbols)
        used = set[str]().union(*map(free_symbols, terms))
        infos = tuple(replace(info, hint=None, source="") for info in self._symbols if info.name in used)
        kernel = Kernel("", tuple(parameters.values()), infos, (), (), (), TileRequest(), subkernels)
        name = self._named(kernel, members)
        origins = (
            KernelOrigin(each.operation, each.origin, number)
            for number, member in enumerate(members)
            for each in member.launch.origins
        )
        symbols = tuple(symbol(info.name) for info in infos)
        return Launch(name, tuple(parameters), symbols, tuple(origins)), replace(kernel, name=name)

    def _named(self, kernel: Kernel, members: Sequence[_FusibleLaunch]) -> str:
        """Return the name of a fused kernel, made from the name of its first member."""
        kind = self._device(members[0].launch).kind
        _, _, called = members[0].kernel.name.partition("_")
        return self._names.known(kind, kernel) or self._names.add(kind, kernel, f"foreach_{called}")


def _bound(known: Parameter | None, own: Parameter, name: str) -> Parameter:
    """Return a fused kernel's parameter for a buffer, from a member's and the ``known`` one of earlier members."""
    if known is None:
        return replace(own, name=name)
    access = own.access if own.access == known.access else "inout"
    return replace(known, access=access, alignment=max(own.alignment, known.alignment))


def _points(kernel: Kernel, given: Mapping[str, Size]) -> _Points:
    """Return the points of a kernel's outer axes and of the axes of each phase, for these values of its symbols."""

    def count(axes: Sequence[Axis]) -> Size:
        return product(substitute(axis.size, given) for axis in axes)

    return count(kernel.outer), tuple(count(phase.axes) for phase in kernel.phases if phase.axes)


def _can_fuse_horizontally(kernel: Kernel) -> bool:
    """Return True for a kernel whose thread blocks need few registers and little shared memory.

    It has no matmul tiles, no scratch, no scan and no user combiner; the last two keep many registers live for long.
    """
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
    """Yield a decision for each fused kernel."""
    for name, kernel in kernels.items():
        note = f"{len(invocations_of(kernel))} loops of {len(kernel.subkernels)} kinds"
        yield Decision("plan", name, "fuse", reasons.FUSE_HORIZONTAL, note=note)
