"""Calls of operators that a host program does not contain: their arguments and results as data of C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from litz_codegen_cpp.host.routines.table import ROUTINES
from litz_codegen_cpp.host.text import DTYPES, double_text, dtype_number, int64_text, string_text
from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.errors import CodegenError
from litz_ir.loops import Argument, ComplexRef, Keyword, Ref, ScalarRef, StridedRef, TensorType
from litz_ir.plan import CallStep, Plan
from litz_ir.symbols import Size, Term

_OWN: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "linear": ("aten.linear.default", ()),
        "matmul": ("aten.matmul.default", ()),
        "sort": ("aten.sort.stable", ("", "dim", "descending", "stable")),
    }
)
"""Operators that compute what a name of litz's own stands for, and keywords of positions that have one."""
_NOT_OPERATORS = frozenset({"torch", "higher_order", "prims"})
"""Namespaces of names that only Python calls."""


class OperatorSite(Protocol):
    """The host program around a call of an operator."""

    def term(self, size: Size) -> str:
        """Return an index term as C++."""

    def type(self, name: str) -> TensorType:
        """Return the type of a buffer or input."""

    def data(self, name: str) -> str:
        """Return the first element of a buffer, as a ``char*``."""

    def number(self, name: str) -> tuple[str, str]:
        """Return the variable of a symbol, and the kind of its values."""


def operator_of(target: str) -> tuple[str, str] | None:
    """Return name and overload of the operator that a plan calls; ``None`` for a routine that Python has alone."""
    target = _OWN[target][0] if target in _OWN else target
    namespace, *names = target.split(".")
    if len(names) < 2 or namespace in _NOT_OPERATORS:
        return None
    return f"{namespace}::{'.'.join(names[:-1])}", "" if names[-1] == "default" else names[-1]


def is_operator(plan: Plan, step: CallStep) -> bool:
    """Report whether a call goes to an operator, since no routine of litz runs it."""
    routine = ROUTINES.get(step.target)
    return (routine is None or bool(routine.refuses(plan, step))) and operator_of(step.target) is not None


def writes_arguments(target: str) -> bool:
    """Report whether an operator writes to an argument, by ATen's naming: ``add_``, and overloads called ``out``."""
    _, name, *overload = ("", *target.split("."))[-3:]
    return (name.endswith("_") and not name.endswith("__")) or any(each.endswith("out") for each in overload)


@dataclass(slots=True)
class _Arguments:
    """Arguments of one call as rows of C arrays."""

    site: OperatorSite
    """The program around the call."""
    tensors: list[str] = field(default_factory=list)
    """Rows of tensors."""
    sizes: list[str] = field(default_factory=list)
    """Shapes and strides of the tensors."""
    rows: list[str] = field(default_factory=list)
    """Rows of arguments."""

    def add(self, argument: Argument, keyword: str = "") -> None:
        """Append an argument, and the items of a list after it."""
        key = string_text(keyword) if keyword else "nullptr"
        kind, integer, real, imaginary, text, tensor = "LITZ_NONE", "0", "0", "0", "nullptr", "nullptr"
        match argument:
            case Ref() | StridedRef():
                kind, tensor = "LITZ_TENSOR", f"&tensors[{self._tensor(argument)}]"
            case ScalarRef():
                variable, of = self.site.number(argument.name)
                kind = {"float": "LITZ_REAL", "bool": "LITZ_TRUTH"}.get(of, "LITZ_INTEGER")
                integer, real = (variable, "0") if of != "float" else ("0", f"bits_as<double>({variable})")
            case Keyword():
                kind, text = "LITZ_TEXT", string_text(argument.name)
            case DType():
                kind, integer = "LITZ_DTYPE", str(dtype_number(argument))
            case Device():
                kind, text = "LITZ_TEXT", string_text(argument.kind)
            case Term():
                kind, integer = "LITZ_INTEGER", self.site.term(argument)
            case bool():
                kind, integer = "LITZ_TRUTH", str(int(argument))
            case int():
                kind, integer = "LITZ_INTEGER", int64_text(argument)
            case float():
                kind, real = "LITZ_REAL", _double(argument)
            case complex():
                kind, real, imaginary = "LITZ_COMPLEX", _double(argument.real), _double(argument.imag)
            case str():
                kind, text = "LITZ_TEXT", string_text(argument)
            case tuple():
                kind, integer = "LITZ_LIST", str(len(argument))
        self.rows.append(f"{{{kind}, {key}, {integer}, {real}, {imaginary}, {text}, {tensor}}}")
        if isinstance(argument, tuple):
            for item in argument:
                self.add(item)

    def _tensor(self, argument: Ref | StridedRef) -> int:
        """Append a tensor, and return its position."""
        type_, data = self.site.type(argument.name), self.site.data(argument.name)
        shape, strides = type_.shape, type_.layout.strides
        if isinstance(argument, StridedRef):
            shape, strides = argument.shape, argument.layout.strides
            data = f"({data} + {self.site.term(argument.layout.offset)} * {type_.dtype.itemsize})"
        first = len(self.sizes)
        self.sizes += [self.site.term(size) for size in (*shape, *strides)]
        at = f"sizes + {first}, sizes + {first + len(shape)}"
        flag = int(isinstance(argument, ComplexRef))
        self.tensors.append(f"{{{data}, {at}, {dtype_number(type_.dtype)}, {len(shape)}, {flag}}}")
        return len(self.tensors) - 1


def _double(value: float) -> str:
    return f"bits_as<double>(int64_t({double_text(value)}))"


def refuses_operator(plan: Plan, step: CallStep) -> str:
    """Return the reason against a call of an operator; empty for one that a host program can make."""
    if operator_of(step.target) is None:
        return "it is a routine of Python alone"
    types = {item.name for item in (*plan.inputs, *plan.constants) if hasattr(item, "type")}
    types |= {name for name, _ in plan.buffers}
    for argument in (*step.arguments, *(value for _, value in step.attributes)):
        if isinstance(argument, Ref | StridedRef) and argument.name not in types:
            return f"{argument.name} is no tensor"
        if isinstance(argument, Device) and argument.kind != "cpu":
            return f"it names the device {argument.kind}"
    return ""


def argument_lines(site: OperatorSite, step: CallStep) -> tuple[list[str], int]:
    """Return the arrays ``sizes``, ``tensors`` and ``arguments`` of a call, and the number of its arguments."""
    found = _Arguments(site)
    keywords: Sequence[str] = _OWN[step.target][1] if step.target in _OWN else ()
    for position, argument in enumerate(step.arguments):
        found.add(argument, keywords[position] if position < len(keywords) else "")
    for keyword, value in step.attributes:
        found.add(value, keyword)
    lines = [
        f"const int64_t sizes[] = {{{', '.join(found.sizes) or '0'}}};",
        f"const litz_tensor tensors[] = {{{', '.join(found.tensors) or '{}'}}};",
        f"const litz_argument arguments[] = {{{', '.join(found.rows) or '{}'}}};",
        "(void)sizes, (void)tensors;",
    ]
    return lines, len(found.rows)


def result_row(type_: TensorType, position: int, first: int, *, is_complex: bool, wanted: bool) -> str:
    """Return the row of a result whose shape and strides begin at ``first`` of the arrays of promised sizes."""
    if type_.dtype.name not in DTYPES:
        raise CodegenError(f"a result is {type_.dtype}, which C has not")
    rank = len(type_.shape)
    at = f"promised{position} + {first}, promised{position} + {first + rank}, found{position}"
    return (
        f"{{{at}, {dtype_number(type_.dtype)}, {rank}, {int(is_complex)}, {int(wanted)}, nullptr, nullptr}}"
    )
