"""The emitted language: types, literals, scalar operations, index terms and statements, all of it as text.

Here it is Python over NumPy's scalars, and this is the file to replace by a language of one's own: ``emit.py`` writes
nothing but what stands here. Arguments of a spelling are names of variables, literals and index terms in parentheses,
so it may repeat them. ``{type}`` is the type of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.dtypes import DType, b1, f32, i64

NAME = "python"
"""Language of the source units."""

TYPES: Mapping[DType, str] = {f32: "np.float32", i64: "np.int64", b1: "np.bool_"}
"""Dtypes that kernels load, store and compute with, and the type of a value; indices are ``i64``."""

_OPERATORS = "add sub mul div floor_div remainder bit_and bit_or bit_xor eq ne lt le gt ge"
_SIGNS = "+ - * / // % & | ^ == != < <= > >="
_CALLS = "floor ceil trunc sqrt exp expm1 log log2 log10 log1p sin cos tanh isnan isinf signbit"
_CALLS_OF_TWO = "minimum maximum fmin fmax copysign nextafter fmod"

OPERATIONS: Mapping[str, str] = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in zip(_OPERATORS.split(), _SIGNS.split())},
    **{name: f"np.{name}({{0}})" for name in _CALLS.split()},
    **{name: f"np.{name}({{0}}, {{1}})" for name in _CALLS_OF_TWO.split()},
    "cast": "{0}.astype({type})",
    "where": "{1} if {0} else {2}",
    "neg": "-{0}",
    "abs": "abs({0})",
    "sign": "int({0} > 0) - int({0} < 0)",
    "reciprocal": "1 / {0}",
    "round": "np.rint({0})",
    "rsqrt": "1 / np.sqrt({0})",
    "sigmoid": "1 / (1 + np.exp(-{0}))",
    "bit_not": "~{0}",
}
"""Scalar operations that kernels compute, rows of ``litz_ir.scalar.OPS``."""

COMBINERS = frozenset("sum max min any all argmax argmin welford online_softmax user".split())
"""Kinds of reductions and scans that kernels combine by, rows of ``litz_ir.loops.REDUCTION_KINDS``. Each is written
out by its definition, whose scalar operations stand above; ``user`` is one that a program defines itself."""

TERMS = {"FloorDiv": "({0} // {1})", "Mod": "({0} % {1})", "Min": "min({0}, {1})", "Max": "max({0}, {1})"}
"""Index terms besides sums and multiplications; quotients round down, and operands may be negative."""

PRELUDE = "import numpy as np\nfrom numpy import inf, nan\n"
ENTRY_POINT = "kernel{0}"  # by position in the plan, as names of kernels may have any characters
FUNCTION = "def {0}({1}):"  # name, arguments
BUFFER = "{0}"  # name, type of the elements
NUMBERS = {"int": "{0}", "bool": "{0}", "float": "{0}"}  # symbols: int64_t, int64_t and double
LOOP = "for {0} in range({1}):"  # from zero
IF = "if {0}:"
END = ""  # of a function, a loop and an if
ARRAY = "{0} = np.empty({2}, {1})"  # name, type, number of elements
DECLARE = "{0} = {1}({2})"  # name, type, value
ASSIGN = "{0} = {1}"
ELEMENT = "{0}[{1}]"
RETURN = "return {0}"


def literal(value: int | float | bool, dtype: DType) -> str:
    """Return a constant; floats may be infinite or NaN."""
    return f"{TYPES[dtype]}({value!r})"


def operation(name: str, args: Sequence[str], result: DType) -> str:
    """Return the value of a scalar operation."""
    return OPERATIONS[name].format(*args, type=TYPES[result])
