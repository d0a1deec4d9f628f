"""Arguments of calls and results of a program, as Python."""

from __future__ import annotations

from litz.host.emit.code import Code, code, joined
from litz.host.emit.names import Names
from litz.host.emit.tensors import TensorVariables, device_code
from litz.host.torch_types import TORCH_DTYPES, keyword_source
from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.errors import CodegenError
from litz_ir.loops import Argument, ComplexRef, Keyword, Output, Ref, ScalarRef, StridedRef
from litz_ir.symbols import Term


def argument_code(argument: Argument, names: Names, tensors: TensorVariables) -> Code:
    """Return an argument of a call; raise :class:`CodegenError` for a value without a literal."""
    match argument:
        case ComplexRef():
            return code("view_as_complex({})", tensors.tensor(argument.name))
        case Ref():
            return tensors.placed(argument.name)
        case StridedRef():
            shape, strides = names.terms(argument.shape), names.terms(argument.layout.strides)
            offset = names.term(argument.layout.offset)
            return code("alias({}, {}, {}, {})", tensors.tensor(argument.name), shape, strides, offset)
        case ScalarRef():
            return Code(names.symbol(argument.name))
        case Keyword():
            return Code(keyword_source(argument))
        case DType():
            return Code(TORCH_DTYPES[argument])
        case Device():
            return Code(device_code(argument))
        case Term():
            return Code(names.term(argument))
        case tuple():
            return code("[{}]", joined(argument_code(item, names, tensors) for item in argument))
    return Code(_literal(argument))


def output_code(output: Output, names: Names, tensors: TensorVariables) -> Code:
    """Return a result of the program."""
    match output:
        case ComplexRef():
            return tensors.complex(output.name)
        case Ref():
            return tensors.placed(output.name)
        case ScalarRef():
            return Code(names.symbol(output.name))
        case Term():
            return Code(names.term(output))
    return Code(_literal(output))


def _literal(value: object) -> str:
    """Return a Python literal, or a call for a float that has none."""
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    raise CodegenError(f"a call's argument has no literal form: {type(value).__name__}")
