"""The data that a host object exports: inputs, outputs, symbols, sizes and functions."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_cpp.host.late import is_late
from litz_codegen_cpp.host.operator_calls import writes_arguments
from litz_codegen_cpp.host.state import State
from litz_codegen_cpp.host.terms import term_text
from litz_codegen_cpp.host.text import array_text, block, dtype_number, int64_text, string_text
from litz_codegen_cpp.host.writer import PlanWriter, output_kind
from litz_codegen_cpp.runtime.call import OUT_OF_MEMORY
from litz_codegen_cpp.toolchain.isa import Isa
from litz_ir.dtypes import b1, f64, i64
from litz_ir.faults import BY_CODE
from litz_ir.loops import ComplexRef, ComplexValue, Layout, Output, Ref, TensorType
from litz_ir.plan import written_buffers
from litz_ir.symbols import Size, Symbol, free_symbols

_KINDS = ("int", "float", "bool")
"""Kinds of symbols in the order of their numbers."""
_NO_LIMIT = 2**63 - 1
_FAULTS = (
    (OUT_OF_MEMORY, "no memory"),
    (253, "a result has other strides than the program was compiled for"),
    (254, "the values do not meet this condition"),
)
"""Faults beside those of kernels, by their codes in host_program.h."""


def table_text(writer: PlanWriter, state: State, isa: Isa) -> str:
    """Return the arrays, the functions and the exported table of a program."""
    plan = writer.plan
    inputs = [(name, writer.given_types.get(name)) for name in writer.given]
    outputs = [_output(writer, k, each) for k, each in enumerate(plan.outputs)]
    symbols = [info.name for info in plan.symbols]
    written = written_buffers(plan, writes_arguments)
    texts = [_sizes_function(writer, [type_ for _, type_ in (*inputs, *outputs)]), _violated_function(writer)]
    rows, first = [], 0
    items = (*plan.inputs, *plan.constants, *plan.outputs)
    for k, (name, type_) in enumerate((*inputs, *outputs)):
        shape = () if type_ is None else type_.shape
        numbers = [str(symbols.index(n.name)) if isinstance(n, Symbol) else "-1" for n in shape]
        texts.append(array_text("const int32_t", f"dimensions{k}", numbers))
        dtype = -1 if type_ is None else dtype_number(type_.dtype)
        flag = int(k < len(inputs) and name in written)
        pairs = isinstance(items[k], ComplexValue | ComplexRef)
        late = int(type_ is not None and is_late(type_, writer.late))
        flags = f"{flag}, {int(pairs)}, {late}"
        rows.append(f"{{{string_text(name)}, {dtype}, {len(shape)}, {first}, {flags}, dimensions{k}}}")
        first += 2 * len(shape)
    positions = [k for k, (name, _) in enumerate(inputs) if name in state.read]
    equalities = [string_text(f"{left} = {right}") for left, right in _equalities(writer)]
    steps = writer.shared.steps
    faults = [(fault.code, fault.message) for fault in BY_CODE.values()]
    faults += _FAULTS
    operators = [
        f"{{{', '.join(map(string_text, (target, *names)))}}}"
        for target, names in writer.shared.operators.items()
    ]
    texts += [
        array_text("const litz_host_tensor", "input_table", rows[: len(inputs)]),
        array_text("const litz_host_tensor", "output_table", rows[len(inputs) :]),
        array_text("const litz_host_symbol", "symbol_table", _symbol_rows(writer)),
        array_text("const char* const", "equality_table", equalities),
        array_text("const int32_t", "prepared_table", [str(k) for k in positions]),
        array_text("const char* const", "step_table", [string_text(name) for name in steps]),
        array_text(
            "const litz_host_fault",
            "fault_table",
            [f"{{{code}, {string_text(text)}}}" for code, text in faults],
        ),
        array_text("const litz_host_operator", "operator_table", operators),
    ]
    counts = (
        len(inputs), len(outputs), len(symbols), len(equalities), first, len(positions), len(steps), len(faults),
        len(operators), writer.shared.dynamic,
    )  # fmt: skip
    fields = [
        "LITZ_HOST_ABI", "sizeof(litz_host_program_table)", string_text(plan.name), string_text(isa.name),
        string_text(" ".join(sorted(isa.features))), *map(str, counts), "input_table", "output_table", "symbol_table",
        "equality_table", "prepared_table", "step_table", "fault_table", "operator_table", "sizes", "violated",
        "state_bytes", "prepare_bytes", "plan0_bytes", "prepare", "plan0",
    ]  # fmt: skip
    export = (
        'extern "C" __attribute__((visibility("default"))) const litz_host_program_table litz_host_program'
    )
    return "\n\n".join((*texts, f"{export} = {{{', '.join(fields)}}};"))


def _sizes_function(writer: PlanWriter, types: Sequence[TensorType | None]) -> str:
    """Return the function of shapes and strides; all are -1 where one has more than 64 bits."""
    lines = [*writer.symbol_lines(), "bool overflow = false;"]
    at = 0
    for type_ in types:
        for size in () if type_ is None else (*type_.shape, *type_.layout.strides):
            lines.append(f"sizes[{at}] = {term_text(size, writer.names, checked=True)};")
            at += 1
    lines.append(f"for (int64_t k = 0; overflow && k < {at}; ++k) sizes[k] = -1;")
    return block("static void sizes(const int64_t* symbols, int64_t* sizes)", lines)


def _violated_function(writer: PlanWriter) -> str:
    lines = [*writer.symbol_lines(), "bool overflow = false;"]
    for k, (left, right) in enumerate(_equalities(writer)):
        one, other = (term_text(size, writer.names, checked=True) for size in (left, right))
        lines.append(f"if ({one} != {other} || overflow) return {k};")
    return block("static int64_t violated(const int64_t* symbols)", [*lines, "return -1;"])


def _output(writer: PlanWriter, position: int, output: Output) -> tuple[str, TensorType]:
    """Return name and type of a result; numbers are tensors without dimensions."""
    if isinstance(output, Ref):
        return output.name, writer.type(output.name)
    dtype = {"int": i64, "float": f64, "bool": b1}[output_kind(writer.plan, output)]
    return f"number{position}", TensorType(dtype, (), Layout(()))


def _equalities(writer: PlanWriter) -> list[tuple[Size, Size]]:
    """Return the equalities of sizes that callers give."""
    return [
        (left, right)
        for left, right in writer.plan.symbols.equalities
        if not (free_symbols(left) | free_symbols(right)) & writer.late
    ]


def _symbol_rows(writer: PlanWriter) -> list[str]:
    rows = []
    for info in writer.plan.symbols:
        low = -_NO_LIMIT - 1 if info.low is None else max(info.low, -_NO_LIMIT - 1)
        high = _NO_LIMIT if info.high is None else min(info.high, _NO_LIMIT)
        limits = f"{int64_text(low)}, {int64_text(high)}, {info.divisor}"
        late = int(info.name in writer.late)
        rows.append(f"{{{string_text(info.name)}, {_KINDS.index(info.kind)}, {limits}, {late}}}")
    return rows
