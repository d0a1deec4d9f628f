"""The invariants of a fused graph. Each is a ``check_*`` function that raises :class:`VerifyError` under its name."""

from __future__ import annotations

from collections.abc import Mapping

from litz_ir.dtypes import DType
from litz_ir.fused.group import FusedGraph, Group, Member
from litz_ir.loops.nodes import HostScalar, LoopGraph, Operation, Pointwise, Reduction, ScalarInput, Scan
from litz_ir.loops.verify import verify_graph
from litz_ir.loops.verify_state import SCALAR_DTYPES
from litz_ir.scalar.expr import loads
from litz_ir.scalar.verify import BodyScope, BufferInfo, ErrorLocation, axis_ranges, verify_bodies

_STAGE = "fused graph"


def verify_fused(fused: FusedGraph) -> None:
    """Check the loop graph, then every invariant of its groups; raises :class:`VerifyError`."""
    verify_graph(fused.graph)
    operations = fused.graph.named()
    _check_partition(fused, operations)
    _check_group_order(fused, operations)
    known = _Known(fused.graph)
    for group in fused.groups:
        location = ErrorLocation(_STAGE, group.name)
        _check_group_axes(group, known, location)
        _check_storage_classes(group, operations, location)
        _check_traffic(group, operations, location)
        for member in group.members:
            operation = operations[member.operation]
            inside = ErrorLocation(_STAGE, f"{member.operation} in {group.name}", operation.origin)
            _check_member(member, operation, inside)
            _check_member_bodies(group, member, known, inside)
        _check_phases(group, operations, location)


class _Known:
    """Buffers, symbols and scalars that member bodies may refer to besides their group's axes."""

    def __init__(self, graph: LoopGraph) -> None:
        self.buffers = {name: BufferInfo(v.type.dtype, v.type.shape) for name, v in graph.values().items()}
        self.names = {info.name for info in graph.symbols}
        self.ranges = graph.symbols.ranges()
        self.scalars: dict[str, tuple[DType, ...]] = {
            info.name: SCALAR_DTYPES[info.kind] for info in graph.symbols
        }
        for item in graph.inputs:
            if isinstance(item, ScalarInput):
                self.names.add(item.symbol or item.name)
                self.scalars.setdefault(item.symbol or item.name, SCALAR_DTYPES[item.kind])
        for operation in graph.operations:
            if isinstance(operation, HostScalar):
                self.names.add(operation.symbol)
                self.scalars[operation.symbol] = (operation.body.dtype,)


def _check_partition(fused: FusedGraph, operations: Mapping[str, Operation]) -> None:
    """Every operation of the graph is a member of exactly one group."""
    owner: dict[str, str] = {}
    for group in fused.groups:
        for member in group.members:
            location = ErrorLocation(_STAGE, group.name)
            if member.operation not in operations:
                location.fail("partition", f"{member.operation} is not an operation of the graph")
            if member.operation in owner:
                location.fail("partition", f"{member.operation} is a member of {owner[member.operation]} too")
            owner[member.operation] = group.name
    for name, operation in operations.items():
        if name not in owner:
            ErrorLocation(_STAGE, name, operation.origin).fail("partition", f"{name} is a member of no group")


def _check_group_order(fused: FusedGraph, operations: Mapping[str, Operation]) -> None:
    """A group runs after the groups that define its reads, and before those that overwrite them."""
    group_of = {member.operation: group.name for group in fused.groups for member in group.members}
    done = {item.name for item in (*fused.graph.inputs, *fused.graph.constants)}
    replaced: dict[str, str] = {}
    for group in fused.groups:
        location = ErrorLocation(_STAGE, group.name)
        inside = [operations[member.operation] for member in group.members]
        own = {value.name for operation in inside for value in operation.results}
        for name in dict.fromkeys(name for operation in inside for name in operation.reads):
            if name not in done and name not in own:
                location.fail("group-order", f"%{name} is read before the group that defines it")
            if name in replaced:
                location.fail("group-order", f"%{name} is read after {replaced[name]} has overwritten it")
        done |= own
        for operation in inside:
            replaced.update(
                (v.replaces, group_of[operation.name]) for v in operation.results if v.replaces is not None
            )


def _check_group_axes(group: Group, known: _Known, location: ErrorLocation) -> None:
    """The axes of a group have distinct names, and sizes over known symbols."""
    names = [axis.name for axis in (*group.outer, *group.inner)]
    for name in names:
        if names.count(name) > 1 or name in known.names:
            location.fail("axes", f"the axis name {name} is taken")
    scope = BodyScope(names=frozenset(known.names))
    verify_bodies((), scope, location, [axis.size for axis in (*group.outer, *group.inner)])


def _check_storage_classes(
    group: Group, operations: Mapping[str, Operation], location: ErrorLocation
) -> None:
    """Every value that a member defines has one storage class, and no other value has one; ``writes`` are the stored
    values.
    """
    defined = [value.name for member in group.members for value in operations[member.operation].results]
    named = [name for name, _ in group.storage_classes]
    if sorted(defined) != sorted(named):
        mismatched = sorted(set(defined) ^ set(named)) or sorted(
            name for name in named if named.count(name) > 1
        )
        names = ", ".join(f"%{name}" for name in mismatched)
        location.fail("storage-classes", f"{names}: one storage class expected for each value")
    stored = {name for name, storage_class in group.storage_classes if storage_class == "store"}
    if stored != set(group.writes):
        names = ", ".join(f"%{name}" for name in sorted(stored ^ set(group.writes)))
        location.fail("storage-classes", f"{names}: stored values and the group's writes differ")


def _check_traffic(group: Group, operations: Mapping[str, Operation], location: ErrorLocation) -> None:
    """``reads`` names every buffer that members read and the group does not define."""
    inside = [operations[member.operation] for member in group.members]
    own = {value.name for operation in inside for value in operation.results}
    needed = {name for operation in inside for name in operation.reads} - own
    missing = sorted(needed - set(group.reads))
    if missing:
        location.fail(
            "group-reads",
            f"{', '.join(f'%{name}' for name in missing)} is read, but not among the group's reads",
        )


def _check_member(member: Member, operation: Operation, location: ErrorLocation) -> None:
    """A loop has its bodies and the index of its results, with the operation's dtypes and rank."""
    if not isinstance(operation, (Pointwise, Reduction)) and not (
        isinstance(operation, Scan) and member.bodies
    ):
        return
    if len(member.bodies) != len(operation.bodies):
        location.fail(
            "member-bodies",
            f"the operation has {len(operation.bodies)} bodies, the member {len(member.bodies)}",
        )
    for body, own in zip(member.bodies, operation.bodies, strict=True):
        if body.dtype != own.dtype:
            location.fail("member-bodies", f"the operation computes {own.dtype}, the member {body.dtype}")
    rank = len(operation.results[0].type.shape) if operation.results else 0
    if len(member.index) != rank:
        location.fail(
            "member-index",
            f"the results have {rank} dimensions, but the member's index has {len(member.index)}",
        )


def _check_member_bodies(group: Group, member: Member, known: _Known, location: ErrorLocation) -> None:
    """Bodies and indices use the group's axes; inner axes only if the member runs over them."""
    axes = (*group.outer, *group.inner) if member.inner else group.outer
    ranges, exact = axis_ranges({axis.name: axis.size for axis in axes}, known.ranges)
    scope = BodyScope(
        buffers=known.buffers,
        names=frozenset(known.names) | ranges.keys(),
        ranges={**known.ranges, **ranges},
        exact=exact,
        scalars=known.scalars,
    )
    verify_bodies(member.bodies, scope, location, member.index)


def _check_phases(group: Group, operations: Mapping[str, Operation], location: ErrorLocation) -> None:
    """A member reads a value of its group in the phase that computes it or later, and the result of a reduction or scan
    only later."""
    producer = {v.name: member for member in group.members for v in operations[member.operation].results}
    for member in group.members:
        if member.phase < 0:
            location.fail("phases", f"{member.operation} runs in phase {member.phase}")
        for name in dict.fromkeys(load.buffer for load in loads(*member.bodies)):
            source = producer.get(name)
            if source is None:
                continue
            ready = source.phase + isinstance(operations[source.operation], Reduction | Scan)
            if ready > member.phase:
                location.fail(
                    "phases",
                    f"{member.operation} in phase {member.phase} reads %{name}, ready in phase {ready}",
                )
