"""Scalar expressions that the host evaluates once per call, as Python: unbacked symbols, assertions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from litz.host.emit.code import Code, code, joined
from litz.host.emit.names import Names
from litz_ir.errors import CodegenError
from litz_ir.scalar import Const, Expr, Index, Load, Masked, Op, Scalar

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floor_div": "//", "remainder": "%", "eq": "==", "ne": "!=",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
    "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip
_CALLS = {
    "abs": "abs", "minimum": "min", "maximum": "max", "floor": "math.floor", "ceil": "math.ceil", "round": "round",
    "trunc": "math.trunc", "sqrt": "math.sqrt", "exp": "math.exp", "log": "math.log", "log2": "math.log2",
    "sin": "math.sin", "cos": "math.cos", "tan": "math.tan", "asin": "math.asin", "acos": "math.acos",
    "atan": "math.atan", "sinh": "math.sinh", "cosh": "math.cosh", "tanh": "math.tanh", "pow": "pow",
    "copysign": "math.copysign", "isnan": "math.isnan", "isinf": "math.isinf",
}  # fmt: skip
INFIX: Mapping[str, str] = MappingProxyType(_INFIX)
"""Python operators of binary operations."""

CALLS: Mapping[str, str] = MappingProxyType(_CALLS)
"""Python functions of operations."""


def scalar_code(body: Expr, names: Names, tensor: Callable[[str], Code]) -> Code:
    """Return Python that computes a 0-d body; ``tensor`` returns the variable of a value that it reads.

    Raises :class:`CodegenError` for operations without a Python spelling.
    """

    def visit(node: Expr) -> Code:
        match node:
            case Const():
                return Code(f"float({str(node.value)!r})" if node.dtype.is_float else repr(node.value))
            case Index():
                return Code(f"({names.term(node.term)})")
            case Scalar():
                return Code(names.symbol(node.name))
            case Load():
                return code("{}.item()", tensor(node.buffer))
            case Masked():
                return code("({} if {} else {})", visit(node.body), visit(node.cond), visit(node.other))
            case Op():
                return _operation(node, [visit(argument) for argument in node.args])
        raise CodegenError(f"the host cannot evaluate a {type(node).__name__}")

    return visit(body)


def _operation(node: Op, args: list[Code]) -> Code:
    """Return the Python of one operation."""
    if node.name in INFIX:
        return code("({} {} {})", args[0], INFIX[node.name], args[1])
    if node.name in CALLS:
        return code("{}({})", CALLS[node.name], joined(args))
    match node.name:
        case "cast":
            kind = "bool" if node.dtype.is_bool else "int" if node.dtype.is_integer else "float"
            return code("{}({})", kind, args[0])
        case "where":
            return code("({} if {} else {})", args[1], args[0], args[2])
        case "neg":
            return code("(-{})", args[0])
        case "bit_not":
            return code("(not {})" if node.dtype.is_bool else "(~{})", args[0])
    raise CodegenError(f"the host cannot evaluate {node.name}", hint="report the graph's text form")
