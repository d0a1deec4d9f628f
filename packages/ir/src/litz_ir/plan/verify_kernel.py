"""The invariants of a kernel. Each is a ``check_*`` function that raises :class:`VerifyError` under its name."""

from __future__ import annotations

from litz_ir.dtypes import DType
from litz_ir.loops.verify_combine import verify_combiner
from litz_ir.loops.verify_state import SCALAR_DTYPES
from litz_ir.plan.kernel import Accumulate, Kernel, Phase, ScanStore, Store
from litz_ir.plan.verify_horizontal_fusion import check_horizontal_fusion
from litz_ir.plan.verify_schedule import check_cluster, check_lookback, check_schedule
from litz_ir.scalar.expr import Expr, loads
from litz_ir.scalar.verify import BodyScope, BufferInfo, ErrorLocation, axis_ranges, leaves, verify_bodies
from litz_ir.symbols.ranges import Range
from litz_ir.symbols.term import Size

STAGE = "kernel"


def verify_kernel(kernel: Kernel) -> None:
    """Check every invariant of a kernel. Raises :class:`VerifyError`."""
    place = ErrorLocation(STAGE, kernel.name)
    check_kernel_names(kernel, place)
    for part in kernel.subkernels:
        verify_kernel(part.kernel)
    check_horizontal_fusion(kernel, place)
    check_kernel_axes(kernel, place)
    check_schedule(kernel, place)
    check_cluster(kernel, place)
    check_lookback(kernel, place)
    scalars = {info.name: SCALAR_DTYPES[info.kind] for info in kernel.symbols}
    for number, phase in enumerate(kernel.phases):
        here = ErrorLocation(STAGE, f"{kernel.name}, phase {number}")
        around = _around(kernel, phase, scalars)
        defined: dict[str, tuple[DType, ...]] = {}
        for statement in phase.statements:
            match statement:
                case Store():
                    _verify_bodies(kernel, (statement.value,), around, here, (statement.offset,))
                    dtype = statement.value.dtype
                    check_store(kernel, statement.buffer, statement.offset, dtype, around, here)
                    check_combining_store(kernel, statement, here)
                case Accumulate():
                    _verify_bodies(kernel, statement.values, around, here)
                    check_accumulate(statement, scalars, defined, here)
                case ScanStore():
                    offsets = tuple(offset for _, offset in statement.targets)
                    _verify_bodies(kernel, statement.values, around, here, offsets)
                    check_scan(kernel, phase, statement, around, here)
        scalars |= defined


def _around(kernel: Kernel, phase: Phase, scalars: dict[str, tuple[DType, ...]]) -> BodyScope:
    """What the statements of a phase may refer to."""
    buffers = {parameter.name: BufferInfo(parameter.dtype, (None,)) for parameter in kernel.parameters}
    buffers |= {
        local.name: BufferInfo(local.dtype, (local.size if isinstance(local.size, int) else None,))
        for local in kernel.scratch
    }
    ranges, exact = axis_ranges({axis.name: axis.size for axis in (*kernel.outer, *phase.axes)})
    known = {info.name: info.range if info.kind != "float" else Range() for info in kernel.symbols}
    names = frozenset(known) | ranges.keys()
    return BodyScope(buffers, names, {**known, **ranges}, exact, dict(scalars))


def _verify_bodies(
    kernel: Kernel,
    bodies: tuple[Expr, ...],
    around: BodyScope,
    place: ErrorLocation,
    offsets: tuple[Size, ...] = (),
) -> None:
    verify_bodies(bodies, around, place, offsets)
    check_load_access(kernel, bodies, place)


def check_kernel_names(kernel: Kernel, place: ErrorLocation) -> None:
    """No two parameters, locals or symbols share a name."""
    buffers = [parameter.name for parameter in kernel.parameters] + [local.name for local in kernel.scratch]
    symbols = [info.name for info in kernel.symbols]
    for names in (buffers, symbols):
        for name in names:
            if names.count(name) > 1:
                place.fail("kernel-names", f"{name} is declared twice")
    for local in kernel.scratch:
        if isinstance(local.size, int) and local.size < 1:
            place.fail("kernel-names", f"the local %{local.name} has {local.size} elements")
    verify_bodies((), BodyScope(names=frozenset(symbols)), place, [local.size for local in kernel.scratch])


def check_kernel_axes(kernel: Kernel, place: ErrorLocation) -> None:
    """The axes that a phase runs over have names of their own, and sizes over the kernel's symbols."""
    symbols = frozenset(info.name for info in kernel.symbols)
    for axes in ((kernel.outer), *((*kernel.outer, *phase.axes) for phase in kernel.phases)):
        names = [axis.name for axis in axes]
        for name in names:
            if names.count(name) > 1 or name in symbols:
                place.fail("axes", f"the axis name {name} is taken")
        verify_bodies((), BodyScope(names=symbols), place, [axis.size for axis in axes])


def check_load_access(kernel: Kernel, bodies: tuple[Expr, ...], place: ErrorLocation) -> None:
    """What is only written, and scratch, is not read."""
    access = {parameter.name: parameter.access for parameter in kernel.parameters}
    for load in loads(*bodies):
        if access.get(load.buffer) in ("out", "workspace"):
            what = f"%{load.buffer} is an {access[load.buffer]} parameter, but it is read"
            place.fail("access", what, "declare it inout")


def check_store(
    kernel: Kernel, buffer: str, offset: Size, dtype: DType, around: BodyScope, place: ErrorLocation
) -> None:
    """What is stored to is a local or a writable parameter, of the value's dtype; no offset leaves a local."""
    known = around.buffers.get(buffer)
    if known is None:
        place.fail("kernel-buffer", f"%{buffer} is stored to, but is no parameter nor local")
    access = next((parameter.access for parameter in kernel.parameters if parameter.name == buffer), "out")
    if access in ("in", "workspace"):
        place.fail(
            "access", f"%{buffer} is an {access} parameter, but it is stored to", "declare it out or inout"
        )
    if known.dtype != dtype:
        place.fail("store-dtype", f"%{buffer} holds {known.dtype}, {dtype} is stored to it", "cast the value")
    size = known.shape[0]
    if isinstance(size, int) and leaves(offset, size, around):
        place.fail("index-bounds", f"the offset {offset} leaves the local %{buffer} of {size} elements")


def check_combining_store(kernel: Kernel, statement: Store, place: ErrorLocation) -> None:
    """A store that combines reads what it writes."""
    written = any(p.name == statement.buffer and p.access == "out" for p in kernel.parameters)
    if statement.mode != "set" and written:
        what = f"%{statement.buffer} is an out parameter, but {statement.mode} reads it"
        place.fail("access", what, "declare it inout")


def check_accumulate(
    statement: Accumulate,
    before: dict[str, tuple[DType, ...]],
    defined: dict[str, tuple[DType, ...]],
    place: ErrorLocation,
) -> None:
    """A combiner fits its values and results; results are new names, which ``defined`` receives."""
    dtypes = verify_combiner(statement.combiner, statement.values, len(statement.results), place)
    for (name, dtype), given in zip(statement.results, dtypes, strict=True):
        if name in before or name in defined:
            place.fail("defined-once", f"${name} is accumulated twice, or is a symbol")
        if dtype != given:
            place.fail("result-dtype", f"${name} is {dtype}, what is accumulated is {given}")
        defined[name] = (dtype,)


def check_scan(
    kernel: Kernel, phase: Phase, statement: ScanStore, around: BodyScope, place: ErrorLocation
) -> None:
    """A scan runs along an axis, and stores each result where it may."""
    if not phase.axes:
        place.fail("scan-axis", "a scan runs along the phase's last axis, but the phase has none")
    dtypes = verify_combiner(statement.combiner, statement.values, len(statement.targets), place, scans=True)
    for (buffer, offset), dtype in zip(statement.targets, dtypes, strict=True):
        check_store(kernel, buffer, offset, dtype, around, place)
