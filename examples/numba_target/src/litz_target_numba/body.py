"""Expressions and index terms as Python statements: every distinct value becomes a variable, once in each
scope."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count

from litz_ir.dtypes import DType, f64, i64
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
from litz_target_numba import functions
from litz_target_numba.ops_table import operation
from litz_target_numba.spelling import cast, literal, loaded

RESERVED = frozenset({*keyword.kwlist, *dir(builtins), *functions.__all__, "math", "np"})


class Body:
    """Lines of one Python function, and the names of what has a variable in the open scopes.

    ``buffers`` names memory, ``integers`` axes and integer symbols, ``scalars`` with their dtypes what
    ``Scalar`` nodes read, all by the kernel's own names; ``params`` what ``Param`` nodes stand for.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.buffers: dict[str, str] = {}
        self.integers: dict[str, str] = {}
        self.scalars: dict[str, tuple[str, DType]] = {}
        self.params: Sequence[str] = ()
        self._known: ChainMap[Expr | Indirect, str] = ChainMap()
        self._used = set(RESERVED)
        self._numbers = count()
        self._indent = "    "

    def line(self, text: str) -> None:
        """Append a line at the open blocks' indentation."""
        self.lines.append(self._indent + text)

    def unique(self, name: str) -> str:
        """Return ``name`` as an identifier that nothing else in the function has."""
        cleaned = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
        while cleaned in self._used:
            cleaned += "_"
        self._used.add(cleaned)
        return cleaned

    def temporary(self) -> str:
        """Return a fresh name."""
        return self.unique(f"t{next(self._numbers)}")

    def variable(self, text: str) -> str:
        """Return the name of a new variable of the value ``text``."""
        name = self.temporary()
        self.line(f"{name} = {text}")
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Open a scope; values computed in it are forgotten at its end."""
        self._known = self._known.new_child()
        yield
        self._known = self._known.parents

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Open a scope that is indented below ``head``."""
        self.line(head)
        self._indent += "    "
        before = len(self.lines)
        with self.scope():
            yield
        if len(self.lines) == before:
            self.line("pass")
        self._indent = self._indent[4:]

    @contextmanager
    def loops(self, axes: Sequence[tuple[str, Size]]) -> Iterator[None]:
        """Open a loop nest over axes and their sizes; nests may have axes of the same name."""
        with ExitStack() as nest:
            for axis, size in axes:
                name = self.integers.get(axis) or self.unique(axis)
                self.integers[axis] = name
                nest.enter_context(self.block(f"for {name} in range({self.term(size)}):"))
            yield

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
                return literal(expr.value, expr.dtype)
            case Param():
                return self.params[expr.position]
            case Scalar():
                name, dtype = self.scalars[expr.name]
                return name if dtype == expr.dtype else self.variable(cast(name, dtype, expr.dtype))
            case Index():
                text = self.term(expr.term)
                return text if isinstance(expr.term, int | Symbol) else self.variable(text)
            case Load():
                return self.variable(self.element(expr.buffer, expr.index[0], expr.dtype))
            case Op():
                args = [self._known[arg] for arg in expr.args]
                return self.variable(operation(expr.name, args, expr.args[-1].dtype, expr.dtype))
            case Masked():
                return self._masked(expr)
            case Checked():
                self._fail_if(f"not {self._known[expr.cond]}", expr.fault)
                return self.value(expr.body)
            case NestedReduction():
                return self._nested_reduction(expr)
        raise CodegenError(f"Numba has no spelling for a body node {type(expr).__name__}")

    def element(self, buffer: str, offset: Size, dtype: DType) -> str:
        """Return the value of an element that is read."""
        return loaded(f"{self.buffers[buffer]}[{self.term(offset)}]", dtype)

    def _masked(self, expr: Masked) -> str:
        name = self.variable(self._known[expr.other])
        with self.block(f"if {self._known[expr.cond]}:"):
            self.line(f"{name} = {self.value(expr.body)}")
        return name

    def _nested_reduction(self, expr: NestedReduction) -> str:
        total = self.variable("0.0")
        with self.loops(expr.axes):
            self.line(f"{total} += {self.value(expr.body)}")
        return total if expr.dtype == f64 else self.variable(cast(total, f64, expr.dtype))

    def _fail_if(self, condition: str, fault: str) -> None:
        with self.block(f"if {condition}:"):
            self.line(f"return {FAULTS[fault].code}")

    # --- index terms ----------------------------------------------------------------------------------------

    def term(self, size: Size) -> str:
        """Return the ``int64`` value of an index term; quotients and remainders are in parentheses."""
        match size:
            case int():
                return str(size)
            case Symbol():
                return self.integers[size.name]
            case Sum():
                parts = [self.term(term) + (f" * {by}" if by != 1 else "") for term, by in size.terms]
                return " + ".join(parts + [str(size.constant)] * bool(size.constant)).replace("+ -", "- ")
            case Product():
                return " * ".join(map(self._operand, size.factors))
            case FloorDiv():
                return f"({self._operand(size.dividend)} // {self._operand(size.divisor)})"
            case Mod():
                return f"({self._operand(size.dividend)} % {self._operand(size.divisor)})"
            case Min() | Max():
                return f"{type(size).__name__.lower()}({', '.join(map(self.term, size.args))})"
            case Indirect():
                return self._indirect(size)
        raise CodegenError(f"Numba has no spelling for an index {type(size).__name__}")

    def _operand(self, size: Size) -> str:
        text = self.term(size)
        return f"({text})" if isinstance(size, Sum | Product) else text

    def _indirect(self, atom: Indirect) -> str:
        if atom in self._known:
            return self._known[atom]
        limit, value = self.term(atom.size), self.value(atom.value)
        name = self.variable(value if atom.value.dtype == i64 else cast(value, atom.value.dtype, i64))
        if atom.wrap:
            with self.block(f"if {name} < 0:"):
                self.line(f"{name} += {limit}")
        if atom.check == "raised":
            self._fail_if(f"{name} < 0 or {name} >= {limit}", atom.fault)
        if atom.check == "clamped":
            self.line(f"{name} = min(max({name}, 0), max({limit} - 1, 0))")
        self._known[atom] = name
        return name


def _first(expr: Expr) -> Iterator[Expr]:
    """Yield the operands to compute before ``expr``; those behind a mask or inside a nested reduction are
    computed there."""
    if isinstance(expr, NestedReduction):
        return
    if isinstance(expr, Masked):
        yield from (expr.cond, expr.other)
    elif isinstance(expr, Checked):
        yield expr.cond
    else:
        yield from expr.children
        yield from (atom.value for atom in indirects(expr))
