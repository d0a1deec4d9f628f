"""The invariants of each kind of operation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from litz_ir.dtypes import DType, i64
from litz_ir.loops.combiners import result_operands
from litz_ir.loops.nodes import (
    Axis,
    Call,
    ComplexValue,
    HostScalar,
    Mutation,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    Region,
    Scan,
    Scatter,
    Sort,
    TensorType,
    Value,
    View,
    complex_references,
    sizes_in,
)
from litz_ir.loops.verify_combine import verify_combiner
from litz_ir.loops.verify_state import SCALAR_DTYPES, VerifierState
from litz_ir.scalar.verify import ErrorLocation, leaves
from litz_ir.symbols.term import Size, free_symbols

# --- types and shapes -----------------------------------------------------------------------------------


def check_type(value: Value, state: VerifierState, location: ErrorLocation) -> None:
    """A type has one stride for each dimension, no negative size, and known symbols only."""
    type_ = value.type
    if len(type_.layout.strides) != len(type_.shape):
        location.fail(
            "type", f"%{value.name} has {len(type_.shape)} dimensions and {len(type_.layout.strides)} strides"
        )
    for size in type_.shape:
        if isinstance(size, int) and size < 0:
            location.fail("type", f"%{value.name} has the negative size {size}")
    for term in (*type_.shape, *type_.layout.strides, type_.layout.offset):
        unknown = free_symbols(term) - state.symbols
        if unknown:
            location.fail(
                "free-symbols",
                f"the type of %{value.name} uses {', '.join(sorted(unknown))}, which is not in scope",
            )


def check_axes(axes: tuple[Axis, ...], state: VerifierState, location: ErrorLocation) -> None:
    """Axes have distinct names, and sizes over known symbols."""
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            location.fail("axes", f"two axes are called {name}")
        if name in state.symbols:
            location.fail("axes", f"an axis and a symbol are called {name}")
    for axis in axes:
        unknown = free_symbols(axis.size) - state.symbols
        if unknown:
            location.fail(
                "free-symbols",
                f"the size of axis {axis.name} uses {', '.join(sorted(unknown))}, which is not in scope",
            )


def check_shapes(
    operation: Operation, sizes: Sequence[Size], state: VerifierState, location: ErrorLocation
) -> None:
    """Results have the shape of the loop."""
    for value in operation.results:
        _check_shape(value, sizes, state, location)


def check_combined_shapes(operation: Reduction, state: VerifierState, location: ErrorLocation) -> None:
    """Results have the shape of the loop, or one element along an axis that their bodies do not depend on."""
    dtypes = tuple(body.dtype for body in operation.bodies)
    for position, value in enumerate(operation.results):
        sizes = [axis.size for axis in operation.axes]
        if len(value.type.shape) == len(sizes) and 1 in value.type.shape:
            bodies = (operation.bodies[k] for k in result_operands(operation.combiner, position, dtypes))
            known = frozenset[str]().union(*(body.free_symbols for body in bodies))
            pairs = zip(value.type.shape, operation.axes, strict=True)
            sizes = [1 if size == 1 and axis.name not in known else axis.size for size, axis in pairs]
        _check_shape(value, sizes, state, location)


def _check_shape(value: Value, sizes: Sequence[Size], state: VerifierState, location: ErrorLocation) -> None:
    """A result has the shape that is computed for it."""
    if not state.equal_shapes(value.type.shape, sizes):
        shape, loop = (", ".join(map(str, each)) for each in (value.type.shape, sizes))
        location.fail("result-shape", f"%{value.name} has shape [{shape}], but the loop computes [{loop}]")


def check_pointwise_dtypes(operation: Pointwise, location: ErrorLocation) -> None:
    """Each result has one body, of its dtype."""
    if len(operation.bodies) != len(operation.results):
        location.fail(
            "result-count",
            f"the operation has {len(operation.results)} results, but {len(operation.bodies)} bodies",
        )
    for value, body in zip(operation.results, operation.bodies, strict=True):
        _check_dtype(value, body.dtype, location)


def check_combined_dtypes(operation: Reduction | Scan, location: ErrorLocation) -> None:
    """The combiner fits the bodies, and the results have its dtypes."""
    scans = isinstance(operation, Scan)
    dtypes = verify_combiner(
        operation.combiner, operation.bodies, len(operation.results), location, scans=scans
    )
    for value, dtype in zip(operation.results, dtypes, strict=True):
        _check_dtype(value, dtype, location)


def _check_dtype(value: Value, dtype: DType, location: ErrorLocation) -> None:
    """A result has the dtype that is computed for it."""
    if value.type.dtype != dtype:
        location.fail(
            "result-dtype",
            f"%{value.name} is {value.type.dtype}, but {dtype} is computed",
            "cast the body",
        )


# --- single operations ----------------------------------------------------------------------------------


def check_scan_dimension(operation: Scan, location: ErrorLocation) -> None:
    """The scanned axis is one of the result's dimensions."""
    if operation.dimension not in range(len(operation.axes) + 1):
        location.fail(
            "scan-dimension", f"the scanned dimension is {operation.dimension} of {len(operation.axes) + 1}"
        )


def check_scatter(operation: Scatter, state: VerifierState, location: ErrorLocation) -> None:
    """The result has the base's dtype and shape; the index has the base's rank and the body its dtype."""
    value = _one_result(operation, location)
    base = state.type(operation.base, location)
    if value.type.dtype != base.dtype or not state.equal_shapes(value.type.shape, base.shape):
        location.fail(
            "result-shape", f"%{value.name} differs from its base %{operation.base} in dtype or shape"
        )
    _check_dtype(value, operation.body.dtype, location)
    _check_index(operation.base, operation.index, operation.axes, state, location)


def check_view(operation: View, state: VerifierState, location: ErrorLocation) -> None:
    """A view has the loop's shape, an index of the base's rank, and the base's dtype or one of the same width."""
    value = _one_result(operation, location)
    own, base = value.type.dtype, state.type(operation.base, location).dtype
    if own.bits != base.bits or own.is_bool != base.is_bool:
        _check_dtype(value, base, location)
    check_shapes(operation, [axis.size for axis in operation.axes], state, location)
    _check_index(operation.base, operation.index, operation.axes, state, location)
    given = operation.base_strides
    if given is not None and len(given) != len(operation.index):
        location.fail(
            "index-arity",
            f"%{operation.base} has {len(operation.index)} dimensions, {len(given)} strides are given",
        )


def _check_index(
    base: str, index: tuple[Size, ...], axes: tuple[Axis, ...], state: VerifierState, location: ErrorLocation
) -> None:
    """An index has the rank of its buffer and is not known to be out of bounds."""
    shape = state.type(base, location).shape
    if len(index) != len(shape):
        location.fail("index-arity", f"%{base} has {len(shape)} dimensions, the index has {len(index)}")
    if any(axis.size == 0 for axis in axes):
        return  # nothing is read
    scope = state.body_scope(axes)
    for dimension, (term, size) in enumerate(zip(index, shape, strict=True)):
        if isinstance(size, int) and leaves(term, size, scope):
            location.fail(
                "index-bounds",
                f"{term} is out of bounds for dimension {dimension} of %{base}, whose size is {size}",
            )


def check_sort(operation: Sort, state: VerifierState, location: ErrorLocation) -> None:
    """A sort returns values like its source and ``i64`` positions, along a dimension that exists."""
    source = state.type(operation.source, location)
    if len(operation.results) != 2:
        location.fail(
            "result-count",
            f"a sort has two results, values and positions, {len(operation.results)} are named",
        )
    if operation.dimension not in range(max(len(source.shape), 1)):
        location.fail(
            "sort-dimension", f"the sorted dimension is {operation.dimension} of {len(source.shape)}"
        )
    for value, dtype in zip(operation.results, (source.dtype, i64), strict=True):
        _check_dtype(value, dtype, location)
    check_shapes(operation, source.shape, state, location)


def check_mutation(operation: Mutation, state: VerifierState, location: ErrorLocation) -> None:
    """The result is the target's next version; the source has its dtype and shape."""
    value = _one_result(operation, location)
    if value.replaces != operation.target:
        location.fail("mutation", f"%{value.name} should replace %{operation.target}, which is overwritten")
    target, source = (state.type(name, location) for name in (operation.target, operation.source))
    if source.dtype != target.dtype or not state.equal_shapes(source.shape, target.shape):
        location.fail("mutation", f"%{operation.source} and %{operation.target} differ in dtype or shape")


def check_pairs(name: str, type_: TensorType, location: ErrorLocation) -> None:
    """A buffer that stands for a complex tensor has a float dtype and a last dimension of two."""
    if not type_.dtype.is_float or not type_.shape or type_.shape[-1] != 2:
        location.fail(
            "pairs", f"%{name} stands for a complex tensor, but is {type_.dtype} of shape {type_.shape}"
        )


def check_call(operation: Call, state: VerifierState, location: ErrorLocation) -> None:
    """A call mutates and aliases its own arguments and results, and its complex arguments and results are pairs.

    Symbols in its arguments are known.
    """
    for size in sizes_in((*operation.arguments, *(value for _, value in operation.attributes))):
        unknown = free_symbols(size) - state.symbols
        if unknown:
            location.fail(
                "free-symbols", f"an argument uses {', '.join(sorted(unknown))}, which is not in scope"
            )
    results = {value.name: value for value in operation.results}
    for name in complex_references((*operation.arguments, *(value for _, value in operation.attributes))):
        check_pairs(name, state.type(name, location), location)
    for value in operation.results:
        if isinstance(value, ComplexValue):
            check_pairs(value.name, value.type, location)
    for old, new in operation.mutates:
        if old not in operation.reads:
            location.fail("call-mutates", f"%{old} is mutated, but is not an argument")
        if new not in results or results[new].replaces != old:
            location.fail("call-mutates", f"%{new} should be a result that replaces %{old}")
    for name in operation.unreturned:
        if name not in results:
            location.fail("call-results", f"%{name} is unreturned, but is not a result of the call")
    for result, base in operation.aliases:
        if result not in results:
            location.fail("call-aliases", f"%{result} is not a result of the call")
        if base not in operation.reads:
            location.fail("call-aliases", f"%{result} shares memory with %{base}, which is not an argument")


_SUBGRAPHS: Mapping[str, int] = {
    "cond": 2, "while_loop": 2, "while_stack": 2, "scan": 1, "invoke": 1, "frozen": 1,
}  # fmt: skip


def check_region(operation: Region, location: ErrorLocation) -> None:
    """A region has as many subgraphs as its kind needs, with as many outputs as the region has results."""
    count = _SUBGRAPHS[operation.kind]
    if len(operation.subgraphs) != count:
        location.fail(
            "region", f"a {operation.kind} has {count} subgraphs, this one {len(operation.subgraphs)}"
        )
    loops = operation.kind in ("while_loop", "while_stack")
    with_results = operation.subgraphs[1:] if loops else operation.subgraphs
    for graph in with_results:
        if len(graph.outputs) != len(operation.results):
            location.fail(
                "region",
                f"{graph.name} has {len(graph.outputs)} outputs, the region has {len(operation.results)} results",
            )
    if loops or operation.kind == "scan":
        _check_carried(operation, location)


def _check_carried(operation: Region, location: ErrorLocation) -> None:
    """A step of a loop or scan returns what it carries as it takes it, without overlap: the next step reads it."""
    body = operation.subgraphs[-1]
    values = body.values()
    first = operation.arguments[0] if operation.arguments else ()
    count = len(first) if isinstance(first, tuple) else len(operation.results)
    for given, output in zip(body.inputs[:count], body.outputs, strict=False):
        if not (isinstance(given, Value) and isinstance(output, Ref) and output.name in values):
            continue
        taken, returned = given.type, values[output.name].type
        if taken.dtype != returned.dtype or len(taken.shape) != len(returned.shape):
            location.fail("carried", f"a step takes %{given.name} as another dtype or rank than it returns")
        for size, *strides in zip(taken.shape, taken.layout.strides, returned.layout.strides, strict=True):
            known = [each for each in (size, *strides) if isinstance(each, int)]
            if len(known) == 3 and size not in (0, 1) and (strides[0] != strides[1] or 0 in strides):
                location.fail(
                    "carried",
                    f"a step takes %{given.name} in strides {taken.layout.strides} and returns it in "
                    f"{returned.layout.strides}",
                    "carry it in row-major order",
                )


def check_frozen_region(region: Region, frozen: Collection[str], location: ErrorLocation) -> None:
    """A frozen region reads frozen values only and has no side effect."""
    others = [name for name in region.reads if name not in frozen]
    if others:
        location.fail("frozen", f"a frozen region reads %{others[0]}, which is not frozen")
    if region.tokens or any(value.replaces is not None for value in region.results):
        location.fail("frozen", "a frozen region has a side effect, but does not run in every call")


def check_host_scalar(operation: HostScalar, state: VerifierState, location: ErrorLocation) -> None:
    """A symbol is defined once, by a body of its kind."""
    info = state.table.get(operation.symbol)
    if info is not None and operation.body.dtype not in SCALAR_DTYPES[info.kind]:
        location.fail(
            "host-scalar", f"{operation.symbol} is a {info.kind}, but its body is {operation.body.dtype}"
        )
    if operation.symbol in state.symbols:
        location.fail("host-scalar", f"{operation.symbol} is defined twice")


def _one_result(operation: Operation, location: ErrorLocation) -> Value:
    if len(operation.results) != 1:
        location.fail("result-count", f"one result expected, {len(operation.results)} are named")
    return operation.results[0]
