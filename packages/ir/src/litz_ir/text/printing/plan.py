"""Printer of plans: storages, buffers, kernels and steps."""

from __future__ import annotations

from litz_ir.device import Device
from litz_ir.plan.program import (
    Allocate,
    CallStep,
    CheckStep,
    DefineStep,
    Free,
    Launch,
    Placement,
    Plan,
    RegionStep,
    Step,
    Storage,
)
from litz_ir.scalar.node import Expr
from litz_ir.text.printing.bodies import BodyPrinter, print_term
from litz_ir.text.printing.fused import decision_lines
from litz_ir.text.printing.kernel import kernel_lines
from litz_ir.text.printing.loops import named_values, values_text
from litz_ir.text.printing.types import (
    INDENT,
    WIDTH,
    argument_text,
    arguments_text,
    braced,
    declaration,
    device_text,
    error_text,
    indented,
    input_text,
    symbols_lines,
    type_text,
)
from litz_ir.text.scope import DTypeScope
from litz_ir.text.spelling import name_text, origin_text, string_text, value_text


def print_plan(plan: Plan) -> str:
    """The text form of a plan and its kernels, which :func:`litz_ir.text.parsing.plan` parses."""
    return "\n".join(_plan_lines(plan)) + "\n"


def _plan_lines(plan: Plan) -> list[str]:
    """The lines of a plan, not indented."""
    device = plan.device
    inputs = ", ".join(input_text(item, device) for item in plan.inputs)
    outputs = ", ".join(map(argument_text, plan.outputs))
    head = f"plan {name_text(plan.name)} on {device_text(device)} {string_text(plan.capability)}"
    lines = symbols_lines(plan.symbols)
    lines += [f"const {declaration(value, device)}" for value in plan.constants]
    lines += [_storage_text(storage, device) for storage in plan.storages]
    lines += [_placement_text(name, placement, device) for name, placement in plan.buffers]
    if plan.peak != 0:
        lines.append(f"peak {print_term(plan.peak)}")
    for kernel in plan.kernels:
        lines += kernel_lines(kernel)
    for subplan in plan.subplans:
        lines += _plan_lines(subplan)
    scope = plan_scope(plan)
    for step in plan.steps:
        lines += _step_lines(step, scope)
    lines += decision_lines(plan.decisions)
    donated = named_values("donated", plan.donated)
    return [f"{head} ({inputs}){donated} -> ({outputs}) {{", *indented(lines), "}"]


def plan_scope(plan: Plan) -> DTypeScope:
    """The scope of the bodies that a plan evaluates on the host."""
    scope = DTypeScope()
    scope.declare_symbols(plan.symbols)
    scope.declare((*plan.inputs, *plan.constants))
    scope.buffers.update((name, placement.type.dtype) for name, placement in plan.buffers)
    return scope


def _storage_text(storage: Storage, device: Device) -> str:
    device_part = "" if storage.device == device else f" on {device_text(storage.device)}"
    return f"storage {name_text(storage.name)}: {print_term(storage.nbytes)}{device_part}"


def _placement_text(name: str, placement: Placement, device: Device) -> str:
    text = f"buffer {value_text(name)}: {type_text(placement.type, device)}"
    if placement.storage is not None:
        text += f" in {name_text(placement.storage)}"
    if placement.offset != 0:
        text += f" at {print_term(placement.offset)}"
    return text + (f" shares {value_text(placement.base)}" if placement.base is not None else "")


def _step_lines(step: Step, scope: DTypeScope) -> list[str]:
    match step:
        case Allocate():
            return [f"allocate {name_text(step.storage)}"]
        case Free():
            return [f"free {name_text(step.name)}"]
        case Launch():
            return _launch_lines(step)
        case CallStep():
            return [_call_text(step)]
        case DefineStep():
            return _define_lines(step, scope)
        case CheckStep():
            lines = _block(
                f"check {{}} {error_text(step.error)}{string_text(step.message)}", step.condition, scope
            )
            return _with_origin(lines, origin_text(step.origin))
        case RegionStep():
            names = f"{values_text(step.results)} = " if step.results else ""
            head = f"{names}region.{step.kind}{arguments_text(step.arguments)}"
            plans = ", ".join(map(name_text, step.plans))
            return _with_origin(
                [f"{head} {{ {plans} }}" if plans else f"{head} {{}}"], origin_text(step.origin)
            )


def _with_origin(lines: list[str], origin: str) -> list[str]:
    return [*lines[:-1], f"{lines[-1]}  {origin}"] if origin else lines


def _block(frame: str, body: Expr, scope: DTypeScope) -> list[str]:
    """The frame with the body's block in place of its ``{}``."""
    printer = BodyPrinter((body,), scope)
    before, _, after = frame.partition("{}")
    block = braced(printer.lets(), [printer.root(body)], width=WIDTH - len(frame))
    block[0] = before + block[0]
    block[-1] += after
    return block


def _launch_lines(step: Launch) -> list[str]:
    symbols = f"; {', '.join(map(print_term, step.symbols))}" if step.symbols else ""
    lines = [f"launch {name_text(step.kernel)}({values_text(step.buffers)}{symbols})"]
    for item in step.origins:
        invocation = f" invocation {item.invocation}" if item.invocation else ""
        lines.append(
            f"{INDENT}for {name_text(item.operation)}{invocation} {origin_text(item.origin)}".rstrip()
        )
    return lines


def _call_text(step: CallStep) -> str:
    names = ", ".join("_" if name is None else value_text(name) for name in step.results)
    text = f"{names} = " if names else ""
    text += f"call {name_text(step.target)}{arguments_text(step.arguments, step.attributes)}"
    text += " unpack" if step.unpack else ""
    text += f" complex({values_text(step.pairs)})" if step.pairs else ""
    text += f" reason {string_text(step.reason)}" if step.reason else ""
    return _with_origin([text], origin_text(step.origin))[0]


def _define_lines(step: DefineStep, scope: DTypeScope) -> list[str]:
    head = f"define {name_text(step.symbol)}"
    if isinstance(step.source, Expr):
        return _block(f"{head} {{}}", step.source, scope)
    kind, name, position = step.source
    return [f"{head} from {kind} {position} of {value_text(name)}"]
