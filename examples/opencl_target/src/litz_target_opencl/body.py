"""Expressions and index terms as OpenCL statements: every distinct value becomes a variable, once in each
scope."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.resources import files
from itertools import count

from litz_ir.errors import CodegenError
from litz_ir.faults import FAULTS
from litz_ir.scalar import (
    Checked,
    Const,
    Expr,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
    indirects,
)
from litz_ir.symbols import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol
from litz_target_opencl.ops_table import TYPES, cl_type, literal, operation

HELPERS = files("litz_target_opencl").joinpath("helpers.cl").read_text(encoding="utf-8").split("\n\n")[1:]
_PLAIN = re.compile(r"[a-z]\d+")
_RESERVED = frozenset(dtype.name for dtype in TYPES)  # types of elements in memory


class Body:
    """Lines of one OpenCL kernel, and the names of what has a variable in the open scopes.

    ``buffers`` names pointers, ``integers`` axes and integer symbols, ``scalars`` what ``Scalar`` nodes read,
    all by the kernel's own names; ``params`` what ``Param`` nodes stand for. ``faults`` tells whether a line
    writes the code of a fault to the pointer ``fault``.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.buffers: dict[str, str] = {}
        self.integers: dict[str, str] = {}
        self.scalars: dict[str, str] = {}
        self.params: Sequence[str] = ()
        self._known: ChainMap[Expr | Indirect, str] = ChainMap()
        self._used = set(_RESERVED)
        self._numbers = count()
        self._indent = "  "
        self.faults = False

    def line(self, text: str) -> None:
        """Append a line at the open blocks' indentation."""
        self.lines.append(self._indent + text)

    def unique(self, name: str) -> str:
        """Return ``name`` as an identifier that nothing else in the kernel has.

        It is a letter and a number, as most names are, or begins with ``v_``: keywords, macros, built-in
        functions and the variables that a kernel has of its own are neither.
        """
        cleaned = name if _PLAIN.fullmatch(name) else "v_" + re.sub(r"\W", "_", name, flags=re.ASCII)
        while cleaned in self._used:
            cleaned += "_"
        self._used.add(cleaned)
        return cleaned

    def temporary(self) -> str:
        """Return a fresh name."""
        return self.unique(f"t{next(self._numbers)}")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Open a scope; values computed in it are forgotten at its end."""
        self._known = self._known.new_child()
        yield
        self._known = self._known.parents

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Open a scope in braces."""
        self.line(f"{head} {{".lstrip())
        self._indent += "  "
        with self.scope():
            yield
        self._indent = self._indent[2:]
        self.line("}")

    def loop(self, axis: str, size: Size) -> AbstractContextManager[None]:
        """Open a loop over an axis; loops one after another may have axes of the same name."""
        name = self.integers[axis] = self.integers.get(axis) or self.unique(axis)
        end = self.term(size)
        return self.block(f"for (long {name} = 0; {name} < {end}; {name}++)")

    @contextmanager
    def arguments(self, params: Sequence[str]) -> Iterator[None]:
        """Open a scope in which ``Param`` nodes stand for these names."""
        outer, self.params = self.params, params
        with self.scope():
            yield
        self.params = outer

    # --- expressions ----------------------------------------------------------------------------------------

    def value(self, root: Expr) -> str:
        """Return the name of a value, computed here if no open scope has it; bodies may be deeper than
        Python's stack."""
        stack = [root]
        while stack:
            missing = [part for part in _first(stack[-1]) if part not in self._known]
            if missing:
                stack += missing
                continue
            expr = stack.pop()
            if expr not in self._known:
                self._known[expr] = self._define(expr)
        return self._known[root]

    def _define(self, expr: Expr) -> str:
        match expr:
            case Const():
                text = literal(expr.value, expr.dtype)
                return f"({text})" if text.startswith("-") else text
            case Param():
                text = self.params[expr.position]  # copied: running values change one by one
            case Scalar():
                text = self.scalars[expr.name]
            case Index():
                text = self.term(expr.term)
            case Load():
                text = f"{self.buffers[expr.buffer]}[{self.term(expr.index[0])}]"
            case Op():
                args = [self._known[arg] for arg in expr.args]
                text = operation(expr.name, args, expr.args[-1].dtype, expr.dtype)
            case NestedReduction():
                text = self._nested_reduction(expr)
            case Masked():
                return self._masked(expr)
            case Checked():
                self._check(f"!{self._known[expr.cond]}", expr.fault)
                return self.value(expr.body)
            case _:
                raise CodegenError(f"OpenCL C has no spelling for a body node {type(expr).__name__}")
        name = self.temporary()
        self.line(f"const {cl_type(expr.dtype)} {name} = {text};")
        return name

    def _masked(self, expr: Masked) -> str:
        name = self.temporary()
        self.line(f"{cl_type(expr.dtype)} {name} = {self._known[expr.other]};")
        with self.block(f"if ({self._known[expr.cond]})"):
            self.line(f"{name} = {self.value(expr.body)};")
        return name

    def _nested_reduction(self, expr: NestedReduction) -> str:
        total = self.temporary()
        self.line(f"double {total} = 0;")
        with ExitStack() as nest:
            for axis, size in expr.axes:
                nest.enter_context(self.loop(axis, size))
            self.line(f"{total} += {self.value(expr.body)};")
        return total

    def _check(self, violated: str, fault: str) -> None:
        self.faults = True
        with self.block(f"if ({violated})"):
            self.line(f"atomic_max(fault, {FAULTS[fault].code});")
            self.line("return;")

    # --- index terms ----------------------------------------------------------------------------------------

    def term(self, size: Size) -> str:
        """Return the ``long`` value of an index term."""
        match size:
            case int():
                return str(size)
            case Symbol():
                return self.integers[size.name]
            case Sum():
                parts = [self.term(term) + (f" * {by}" if by != 1 else "") for term, by in size.terms]
                return " + ".join(parts + [str(size.constant)] * bool(size.constant)).replace("+ -", "- ")
            case Product():
                factors = [(factor, self.term(factor)) for factor in size.factors]
                return " * ".join(f"({text})" if isinstance(f, Sum) else text for f, text in factors)
            case FloorDiv():
                return f"floor_div_i({self.term(size.dividend)}, {self.term(size.divisor)})"
            case Mod():
                return f"remainder_i({self.term(size.dividend)}, {self.term(size.divisor)})"
            case Min() | Max():
                function = "least" if isinstance(size, Min) else "greatest"
                text = self.term(size.args[0])
                for arg in size.args[1:]:
                    text = f"{function}({text}, {self.term(arg)})"
                return text
            case Indirect():
                return self._indirect(size)
        raise CodegenError(f"OpenCL C has no spelling for an index {type(size).__name__}")

    def _indirect(self, atom: Indirect) -> str:
        if atom in self._known:
            return self._known[atom]
        limit, value, name = self.term(atom.size), self.value(atom.value), self.temporary()
        self.line(f"long {name} = {value};")
        if atom.wrap:
            self.line(f"if ({name} < 0) {name} += {limit};")
        if atom.check == "raised":
            self._check(f"{name} < 0 || {name} >= {limit}", atom.fault)
        if atom.check == "clamped":
            self.line(f"{name} = least(greatest({name}, 0), greatest({limit} - 1, 0));")
        self._known[atom] = name
        return name


def _first(expr: Expr) -> Iterator[Expr]:
    """Yield the operands to compute before ``expr``; a masked operand is computed behind its mask, and a
    summed one in its loop."""
    if isinstance(expr, Masked):
        yield from (expr.cond, expr.other)
    elif isinstance(expr, Checked):
        yield expr.cond
    elif not isinstance(expr, NestedReduction):
        yield from expr.children
        yield from (atom.value for atom in indirects(expr))
