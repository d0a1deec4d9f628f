"""Expressions and index terms as C statements: every distinct value becomes a variable, once in each scope."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    Op,
    Param,
    Scalar,
    indirects,
)
from litz_ir.symbols import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol
from litz_target_c.ops_table import SPELLINGS, c_type, literal, operation

HELPERS = files("litz_target_c").joinpath("helpers.c").read_text(encoding="utf-8").split("\n\n")[1:]
_CALLED = re.compile(r"(\w+)\(")
_KEYWORDS = """auto bool break case char const continue default do double else enum extern false float for goto if
    inline int long main register restrict return short signed sizeof static struct switch true typedef union unsigned
    void volatile while int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t INFINITY NAN""".split()
RESERVED = frozenset(
    _KEYWORDS + [name for text in (*HELPERS, *map(str, SPELLINGS.values())) for name in _CALLED.findall(text)]
)


class Body:
    """Lines of one C function, and the names of what has a variable in the open scopes.

    ``buffers`` names pointers, ``integers`` axes and integer symbols, ``scalars`` what ``Scalar`` nodes read, all by
    the kernel's own names; ``params`` what ``Param`` nodes stand for.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.buffers: dict[str, str] = {}
        self.integers: dict[str, str] = {}
        self.scalars: dict[str, str] = {}
        self.params: Sequence[str] = ()
        self._known: ChainMap[Expr | Indirect, str] = ChainMap()
        self._used = set(RESERVED)
        self._numbers = count()
        self._indent = "  "

    def line(self, text: str) -> None:
        """Append a line at the open blocks' indentation."""
        self.lines.append(self._indent + text)

    def unique(self, name: str) -> str:
        """Return ``name`` as an identifier that nothing else in the function has."""
        cleaned = re.sub(r"\W", "_", name, flags=re.ASCII)
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

    @contextmanager
    def arguments(self, params: Sequence[str]) -> Iterator[None]:
        """Open a scope in which ``Param`` nodes stand for these names."""
        outer, self.params = self.params, params
        with self.scope():
            yield
        self.params = outer

    # --- expressions ------------------------------------------------------------------------------------------------

    def value(self, root: Expr) -> str:
        """Return the name of a value, computed here if no open scope has it; bodies may be deeper than Python's
        stack."""
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
            case Masked():
                return self._masked(expr)
            case Checked():
                self.line(f"if (!{self._known[expr.cond]}) return {FAULTS[expr.fault].code};")
                return self.value(expr.body)
            case _:
                raise CodegenError(f"C has no spelling for a body node {type(expr).__name__}")
        name = self.temporary()
        self.line(f"const {c_type(expr.dtype)} {name} = {text};")
        return name

    def _masked(self, expr: Masked) -> str:
        name = self.temporary()
        self.line(f"{c_type(expr.dtype)} {name} = {self._known[expr.other]};")
        with self.block(f"if ({self._known[expr.cond]})"):
            self.line(f"{name} = {self.value(expr.body)};")
        return name

    # --- index terms ------------------------------------------------------------------------------------------------

    def term(self, size: Size) -> str:
        """Return the ``int64_t`` value of an index term."""
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
        raise CodegenError(f"C has no spelling for an index {type(size).__name__}")

    def _indirect(self, atom: Indirect) -> str:
        if atom in self._known:
            return self._known[atom]
        limit, value, name = self.term(atom.size), self.value(atom.value), self.temporary()
        self.line(f"int64_t {name} = {value};")
        if atom.wrap:
            self.line(f"if ({name} < 0) {name} += {limit};")
        if atom.check == "raised":
            self.line(f"if ({name} < 0 || {name} >= {limit}) return {FAULTS[atom.fault].code};")
        if atom.check == "clamped":
            self.line(f"{name} = least(greatest({name}, 0), greatest({limit} - 1, 0));")
        self._known[atom] = name
        return name


def _first(expr: Expr) -> Iterator[Expr]:
    """Yield the operands to compute before ``expr``; a masked operand is computed behind its mask."""
    if isinstance(expr, Masked):
        yield from (expr.cond, expr.other)
    elif isinstance(expr, Checked):
        yield expr.cond
    else:
        yield from expr.children
        yield from (atom.value for atom in indirects(expr))
