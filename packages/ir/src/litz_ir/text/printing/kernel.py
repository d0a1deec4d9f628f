"""Printer of kernels."""

from __future__ import annotations

from litz_ir.loops.nodes import Combiner, UserCombiner
from litz_ir.plan.kernel import (
    Accumulate,
    Invocation,
    Kernel,
    Parameter,
    Phase,
    ScanStore,
    Statement,
    Store,
)
from litz_ir.plan.schedule import CpuLoops
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size
from litz_ir.text.printing.bodies import BodyPrinter, print_term
from litz_ir.text.printing.loops import combine_lines, combiner_name
from litz_ir.text.printing.types import axes_text, indented, info_text
from litz_ir.text.schedules import print_schedule
from litz_ir.text.scope import DTypeScope
from litz_ir.text.spelling import name_text, scalar_text, value_text


def print_kernel(kernel: Kernel) -> str:
    """The text form of a kernel, which :func:`litz_ir.text.parsing.kernel` parses."""
    return "\n".join(kernel_lines(kernel)) + "\n"


def kernel_lines(kernel: Kernel) -> list[str]:
    """The lines of a kernel, not indented."""
    scope = _kernel_scope(kernel)
    lines: list[str] = []
    if kernel.symbols:
        lines += ["symbols {", *indented(map(info_text, kernel.symbols)), "}"]
    if kernel.schedule != CpuLoops():
        lines.append(f"schedule {print_schedule(kernel.schedule)}")
    if kernel.outer:
        lines.append(f"outer {axes_text(kernel.outer)}")
    lines += [
        f"scratch {value_text(array.name)}: {array.dtype}[{print_term(array.size)}]"
        for array in kernel.scratch
    ]
    for phase in kernel.phases:
        lines += _phase_lines(phase, scope)
        _define_phase(phase, scope)
    for subkernel in kernel.subkernels:
        lines += [*kernel_lines(subkernel.kernel), *indented(map(_invocation_text, subkernel.invocations))]
    parameters = ", ".join(map(_parameter_text, kernel.parameters))
    return [f"kernel {name_text(kernel.name)}({parameters}) {{", *indented(lines), "}"]


def _invocation_text(invocation: Invocation) -> str:
    return (
        f"invoke ({', '.join([*map(value_text, invocation.buffers), *map(print_term, invocation.symbols)])})"
    )


def _kernel_scope(kernel: Kernel) -> DTypeScope:
    """The scope of a kernel's first phase."""
    scope = DTypeScope()
    scope.declare_symbols(kernel.symbols)
    scope.buffers.update((parameter.name, parameter.dtype) for parameter in kernel.parameters)
    scope.buffers.update((array.name, array.dtype) for array in kernel.scratch)
    return scope


def _define_phase(phase: Phase, scope: DTypeScope) -> None:
    """Make the results that a phase accumulates known to later phases."""
    for statement in phase.statements:
        if isinstance(statement, Accumulate):
            scope.scalars.update(statement.results)


def _parameter_text(parameter: Parameter) -> str:
    alignment = f" align {parameter.alignment}" if parameter.alignment != 1 else ""
    return f"{parameter.access} {value_text(parameter.name)}: {parameter.dtype}{alignment}"


def _phase_lines(phase: Phase, scope: DTypeScope) -> list[str]:
    roots: list[Expr] = []
    terms: list[Size] = []
    for statement in phase.statements:
        match statement:
            case Store():
                roots.append(statement.value)
                terms.append(statement.offset)
            case Accumulate():
                roots += statement.values
            case ScanStore():
                roots += statement.values
                terms += [offset for _, offset in statement.targets]
    printer = BodyPrinter(roots, scope, terms)
    lines = printer.lets()
    for statement in phase.statements:
        lines += _statement_lines(statement, printer)
    return [f"phase {axes_text(phase.axes)} {{", *indented(lines), "}"]


def _statement_lines(statement: Statement, printer: BodyPrinter) -> list[str]:
    match statement:
        case Store():
            sign = "=" if statement.mode == "set" else f"{statement.mode} ="
            value = printer.root(statement.value, printer.scope.buffers.get(statement.buffer))
            return [f"{value_text(statement.buffer)}[{printer.term(statement.offset)}] {sign} {value};"]
        case Accumulate():
            names = ", ".join(f"{scalar_text(name)}: {dtype}" for name, dtype in statement.results)
            head = f"{names} = " if names else ""
            return _combined(f"{head}reduce", statement.combiner, statement.values, printer, "")
        case ScanStore():
            targets = [
                f"{value_text(buffer)}[{printer.term(offset)}]" for buffer, offset in statement.targets
            ]
            return _combined(
                "scan", statement.combiner, statement.values, printer, f" -> {', '.join(targets)}"
            )


def _combined(
    word: str, combiner: Combiner, values: tuple[Expr, ...], printer: BodyPrinter, after: str
) -> list[str]:
    head = f"{word}.{combiner_name(combiner)}"
    block = f"{{ {', '.join(map(printer.root, values))} }}{after};" if values else f"{{ }}{after};"
    if isinstance(combiner, UserCombiner):
        return [head, *indented([*combine_lines(combiner, printer.scope), block])]
    return [f"{head} {block}"]
