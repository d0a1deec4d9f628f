"""The invariants of a kernel. Each is a ``check_*`` function that raises :class:`VerifyError` under its name."""

from __future__ import annotations

from collections.abc import Mapping

from litz_ir.dtypes import DType
from litz_ir.loops.verify_combine import verify_combiner
from litz_ir.loops.verify_state import SCALAR_DTYPES
from litz_ir.plan.kernel import Accumulate, Kernel, Phase, ScanStore, Store, Subkernel
from litz_ir.plan.verify.horizontal_fusion import check_horizontal_fusion
from litz_ir.plan.verify.schedule import check_cluster, check_lookback, check_schedule
from litz_ir.scalar.expr import loads
from litz_ir.scalar.node import Expr
from litz_ir.scalar.verify import BodyScope, BufferInfo, ErrorLocation, axis_ranges, leaves, verify_bodies
from litz_ir.symbols.ranges import Range
from litz_ir.symbols.term import Size

_STAGE = "kernel"


def verify_kernel(kernel: Kernel) -> None:
    """Check every invariant of a kernel; raises :class:`VerifyError`."""
    verify_launched(kernel, {})


def verify_launched(kernel: Kernel, extents: Mapping[str, int]) -> None:
    """Check every invariant of a kernel whose parameters have these numbers of elements, as far as they are known."""
    location = ErrorLocation(_STAGE, kernel.name)
    _check_kernel_names(kernel, location)
    for subkernel in kernel.subkernels:
        verify_launched(subkernel.kernel, _subkernel_extents(subkernel, extents))
    check_horizontal_fusion(kernel, location)
    _check_kernel_axes(kernel, location)
    check_schedule(kernel, location)
    check_cluster(kernel, location)
    check_lookback(kernel, location)
    scalars = {info.name: SCALAR_DTYPES[info.kind] for info in kernel.symbols}
    for number, phase in enumerate(kernel.phases):
        here = ErrorLocation(_STAGE, f"{kernel.name}, phase {number}")
        scope = _phase_scope(kernel, phase, scalars, extents)
        defined: dict[str, tuple[DType, ...]] = {}
        for statement in phase.statements:
            match statement:
                case Store():
                    _verify_bodies(kernel, (statement.value,), scope, here, (statement.offset,))
                    dtype = statement.value.dtype
                    _check_store(kernel, statement.buffer, statement.offset, dtype, scope, here)
                    _check_combining_store(kernel, statement, here)
                case Accumulate():
                    _verify_bodies(kernel, statement.values, scope, here)
                    _check_accumulate(statement, scalars, defined, here)
                case ScanStore():
                    offsets = tuple(offset for _, offset in statement.targets)
                    _verify_bodies(kernel, statement.values, scope, here, offsets)
                    _check_scan(kernel, phase, statement, scope, here)
        scalars |= defined


def _subkernel_extents(subkernel: Subkernel, extents: Mapping[str, int]) -> dict[str, int]:
    """Elements of each parameter of a subkernel, as far as they are known: the fewest of any invocation."""
    found: dict[str, int] = {}
    for invocation in subkernel.invocations:
        for parameter, name in zip(subkernel.kernel.parameters, invocation.buffers):
            if name in extents:
                found[parameter.name] = min(extents[name], found.get(parameter.name, extents[name]))
    return found


def _phase_scope(
    kernel: Kernel, phase: Phase, scalars: dict[str, tuple[DType, ...]], extents: Mapping[str, int]
) -> BodyScope:
    """The scope of a phase: everything that its statements may refer to."""
    buffers = {each.name: BufferInfo(each.dtype, (extents.get(each.name),)) for each in kernel.parameters}
    buffers |= {
        array.name: BufferInfo(array.dtype, (array.size if isinstance(array.size, int) else None,))
        for array in kernel.scratch
    }
    known = {info.name: info.range if info.kind != "float" else Range() for info in kernel.symbols}
    ranges, exact = axis_ranges({axis.name: axis.size for axis in (*kernel.outer, *phase.axes)}, known)
    names = frozenset(known) | ranges.keys()
    return BodyScope(buffers, names, {**known, **ranges}, exact, dict(scalars))


def _verify_bodies(
    kernel: Kernel,
    bodies: tuple[Expr, ...],
    scope: BodyScope,
    location: ErrorLocation,
    offsets: tuple[Size, ...] = (),
) -> None:
    verify_bodies(bodies, scope, location, offsets)
    _check_load_access(kernel, bodies, location)


def _check_kernel_names(kernel: Kernel, location: ErrorLocation) -> None:
    """No two buffers and no two symbols have one name, and scratch arrays have elements."""
    buffers = [parameter.name for parameter in kernel.parameters] + [array.name for array in kernel.scratch]
    symbols = [info.name for info in kernel.symbols]
    for names in (buffers, symbols):
        for name in names:
            if names.count(name) > 1:
                location.fail("kernel-names", f"{name} is declared twice")
    for array in kernel.scratch:
        if isinstance(array.size, int) and array.size < 1:
            location.fail("kernel-names", f"the scratch array %{array.name} has {array.size} elements")
    verify_bodies((), BodyScope(names=frozenset(symbols)), location, [array.size for array in kernel.scratch])


def _check_kernel_axes(kernel: Kernel, location: ErrorLocation) -> None:
    """The axes that a phase runs over have distinct names, and sizes over the kernel's symbols."""
    symbols = frozenset(info.name for info in kernel.symbols)
    for axes in ((kernel.outer), *((*kernel.outer, *phase.axes) for phase in kernel.phases)):
        names = [axis.name for axis in axes]
        for name in names:
            if names.count(name) > 1 or name in symbols:
                location.fail("axes", f"the axis name {name} is taken")
        verify_bodies((), BodyScope(names=symbols), location, [axis.size for axis in axes])


def _check_load_access(kernel: Kernel, bodies: tuple[Expr, ...], location: ErrorLocation) -> None:
    """``out`` and ``workspace`` parameters are not loaded from."""
    access = {parameter.name: parameter.access for parameter in kernel.parameters}
    for load in loads(*bodies):
        if access.get(load.buffer) in ("out", "workspace"):
            message = f"%{load.buffer} is an {access[load.buffer]} parameter, but it is read"
            location.fail("access", message, "declare it inout")


def _check_store(
    kernel: Kernel, buffer: str, offset: Size, dtype: DType, scope: BodyScope, location: ErrorLocation
) -> None:
    """A store goes to a scratch array or a writable parameter of the value's dtype, and is not known to leave it."""
    known = scope.buffers.get(buffer)
    if known is None:
        location.fail(
            "kernel-buffer", f"%{buffer} is stored to, but is neither a parameter nor a scratch array"
        )
    access = next((parameter.access for parameter in kernel.parameters if parameter.name == buffer), "out")
    if access in ("in", "workspace"):
        location.fail(
            "access", f"%{buffer} is an {access} parameter, but it is stored to", "declare it out or inout"
        )
    if known.dtype != dtype:
        location.fail(
            "store-dtype",
            f"%{buffer} has the dtype {known.dtype}, but {dtype} is stored to it",
            "cast the value",
        )
    size = known.shape[0]
    if isinstance(size, int) and leaves(offset, size, scope):
        kind = "scratch array" if any(array.name == buffer for array in kernel.scratch) else "parameter"
        location.fail(
            "index-bounds",
            f"the offset {offset} is outside the {kind} %{buffer} of {size} elements",
            "check the sizes of the axes, and how the offset was derived",
        )


def _check_combining_store(kernel: Kernel, statement: Store, location: ErrorLocation) -> None:
    """A store that combines goes to an ``inout`` parameter or a scratch array."""
    written = any(p.name == statement.buffer and p.access == "out" for p in kernel.parameters)
    if statement.mode != "set" and written:
        message = f"%{statement.buffer} is an out parameter, but {statement.mode} reads it"
        location.fail("access", message, "declare it inout")


def _check_accumulate(
    statement: Accumulate,
    before: dict[str, tuple[DType, ...]],
    defined: dict[str, tuple[DType, ...]],
    location: ErrorLocation,
) -> None:
    """A combiner fits its values and results; results have new names, which are added to ``defined``."""
    dtypes = verify_combiner(statement.combiner, statement.values, len(statement.results), location)
    for (name, dtype), given in zip(statement.results, dtypes, strict=True):
        if name in before or name in defined:
            location.fail("defined-once", f"${name} is accumulated twice, or is a symbol")
        if dtype != given:
            location.fail("result-dtype", f"${name} is {dtype}, but its combiner gives {given}")
        defined[name] = (dtype,)


def _check_scan(
    kernel: Kernel, phase: Phase, statement: ScanStore, scope: BodyScope, location: ErrorLocation
) -> None:
    """A scan runs along an axis, and stores each result to a writable buffer of its dtype."""
    if not phase.axes:
        location.fail("scan-axis", "a scan runs along the phase's last axis, but the phase has none")
    dtypes = verify_combiner(
        statement.combiner, statement.values, len(statement.targets), location, scans=True
    )
    for (buffer, offset), dtype in zip(statement.targets, dtypes, strict=True):
        _check_store(kernel, buffer, offset, dtype, scope, location)
