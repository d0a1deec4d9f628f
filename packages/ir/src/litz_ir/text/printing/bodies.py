"""Printer of index terms and loop bodies; large common sub-expressions get a ``let`` line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from litz_ir.dtypes import DType
from litz_ir.scalar.expr import (
    Checked,
    Const,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
)
from litz_ir.scalar.node import Expr, walk
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.term import Size, Symbol, Term
from litz_ir.text.scope import (
    COMPARE,
    INFIX,
    UNARY,
    DTypeScope,
    first_operand,
    literal_dtype,
    names_dtype,
    operation_dtype,
)
from litz_ir.text.spelling import float_text, is_plain, name_text, scalar_text, value_text

_REPEATED_SIZE = 3
"""Most nodes of an expression that is repeated rather than defined by a let."""
_LINE_SIZE = 30
"""Most nodes of any expression without a let, so that lines stay readable and printing does not recurse deeply."""
_TERM_SUM, _TERM_PRODUCT, _TERM_ATOM = 0, 1, 2


def print_term(term: Size, bodies: BodyPrinter | None = None) -> str:
    """The text of an index term; values of indirect indices are printed inline, by ``bodies`` if given."""
    return (bodies or BodyPrinter((), DTypeScope())).term(term)


def print_expr(expr: Expr, scope: DTypeScope | None = None, expected: DType | None = None) -> str:
    """The text of a single body: its let lines, each ended by ``;``, then the expression.

    Without a ``scope`` every load and scalar states its dtype. A literal of the ``expected`` dtype does not state it.
    """
    printer = BodyPrinter((expr,), scope or DTypeScope())
    return "\n".join((*printer.lets(), printer.root(expr, expected)))


class BodyPrinter:
    """Printer of bodies that have one scope and one set of lets."""

    def __init__(self, roots: Sequence[Expr], scope: DTypeScope, terms: Sequence[Size] = ()) -> None:
        """``roots`` are the bodies, ``terms`` further index terms whose indirect indices may use the same lets."""
        self.scope = scope
        index_values = [atom.value for term in terms for atom in _indirects(term)]
        self._names: dict[Expr, str] = {}
        self._name_large(list(roots) + index_values)

    def _name_large(self, roots: list[Expr]) -> None:
        nodes = list(walk(*roots))
        uses = Counter(roots)
        for node in nodes:
            uses.update(_operands_of(node))
        sizes: dict[Expr, int] = {}
        for node in nodes:
            size = 1 + sum(sizes.get(part, 1) for part in _operands_of(node))
            alone = uses[node] == 1 and node in roots
            if (size > _LINE_SIZE and not alone) or (uses[node] > 1 and size > _REPEATED_SIZE):
                self._names[node] = f"t{len(self._names)}"
                size = 1
            sizes[node] = size

    def lets(self) -> list[str]:
        """The let lines, in an order in which each uses only earlier ones."""
        return [f"let {name} = {self._expression(node, 0)};" for node, name in self._names.items()]

    def root(self, expr: Expr, expected: DType | None = None) -> str:
        """The text of a body, after its lets; a literal of the ``expected`` dtype does not state it."""
        return self._argument(expr, expected, 0)

    def term(self, term: Size) -> str:
        """The text of an index term."""
        if isinstance(term, int):
            return str(term)
        if not term.atoms() and all(is_plain(name) for name in term.free_symbols):
            return str(term)
        return self._term(term, _TERM_SUM)

    # --- terms: parenthesised like str(term), with quoted names and complete indirect indices

    def _term(self, term: Size, strength: int) -> str:
        match term:
            case int():
                return f"({term})" if term < 0 and strength == _TERM_ATOM else str(term)
            case Symbol():
                return name_text(term.name)
            case Indirect():
                wrap = "wrap, " if term.wrap else ""
                fault = "" if term.fault == "index" else f" {term.fault}"
                value = self._argument(term.value, None, 0)
                return (
                    f"indirect({value}, size={self._term(term.size, _TERM_SUM)}, {wrap}{term.check}{fault})"
                )
            case Sum():
                return self._sum(term, strength)
            case Product():
                text = "*".join(self._term(factor, _TERM_ATOM) for factor in term.factors)
                return f"({text})" if strength == _TERM_ATOM else text
            case FloorDiv() | Mod():
                sign = "//" if isinstance(term, FloorDiv) else " % "
                text = f"{self._term(term.dividend, _TERM_ATOM)}{sign}{self._term(term.divisor, _TERM_ATOM)}"
                return text if strength == _TERM_SUM else f"({text})"
            case Min() | Max():
                function = "min" if isinstance(term, Min) else "max"
                return f"{function}({', '.join(self._term(arg, _TERM_SUM) for arg in term.args)})"
        raise TypeError(f"no text form for a term of type {type(term).__name__}")

    def _sum(self, term: Sum, strength: int) -> str:
        parts: list[str] = []
        for part, factor in term.terms:
            size = abs(factor)
            text = self._term(part, _TERM_PRODUCT) + ("" if size == 1 else f"*{size}")
            parts.append(
                (" - " if factor < 0 else " + ") + text if parts else ("-" if factor < 0 else "") + text
            )
        if term.constant:
            parts.append(f" {'-' if term.constant < 0 else '+'} {abs(term.constant)}")
        text = "".join(parts)
        return text if strength == _TERM_SUM else f"({text})"

    # --- expressions

    def _argument(self, expr: Expr, expected: DType | None, strength: int) -> str:
        """The text of an expression as an operand: the name of its let, if it has one."""
        name = self._names.get(expr)
        if name is not None:
            return name
        if isinstance(expr, Const):
            return self._literal(expr, expected)
        return self._expression(expr, strength)

    def _literal(self, expr: Const, expected: DType | None) -> str:
        value = expr.value
        if isinstance(value, bool):
            text, implied = "true" if value else "false", expr.dtype if expr.dtype.is_bool else None
        else:
            text = float_text(value) if isinstance(value, float) else str(value)
            implied = expected or literal_dtype(value)
        return text if implied == expr.dtype else f"{text}:{expr.dtype}"

    def _expression(self, expr: Expr, strength: int) -> str:
        match expr:
            case Const():
                return self._literal(expr, None)
            case Load():
                text = f"{value_text(expr.buffer)}[{', '.join(map(self.term, expr.index))}]"
                return text + self._suffix(expr.dtype, self.scope.buffers.get(expr.buffer))
            case Scalar():
                return scalar_text(expr.name) + self._suffix(expr.dtype, self.scope.scalars.get(expr.name))
            case Param():
                known = self.scope.parameter(expr.position)
                return f"${expr.position}" + self._suffix(expr.dtype, known)
            case Index():
                return f"index({self.term(expr.term)})"
            case Masked():
                cond = self._argument(expr.cond, None, 0)
                return f"masked({cond}, {self._operands('masked', (expr.body, expr.other))})"
            case Checked():
                cond = self._argument(expr.cond, None, 0)
                return f"checked({cond}, {self._argument(expr.body, None, 0)}, {expr.fault})"
            case NestedReduction():
                axes = ", ".join(f"{name_text(name)}: {self.term(size)}" for name, size in expr.axes)
                return f"nested_reduce({axes} | {self._argument(expr.body, None, 0)})"
            case Op():
                return self._operation(expr, strength)
        raise TypeError(f"no text form for an expression of type {type(expr).__name__}")

    @staticmethod
    def _suffix(dtype: DType, known: DType | None) -> str:
        return "" if dtype == known else f":{dtype}"

    def _operation(self, expr: Op, strength: int) -> str:
        dtypes = tuple(arg.dtype for arg in expr.args)
        regular = operation_dtype(expr.name, dtypes, expr.dtype) == expr.dtype
        if regular and expr.name in INFIX:
            return self._infix(expr, strength)
        if regular and expr.name == "neg" and not isinstance(expr.args[0], Const):
            text = "-" + self._argument(expr.args[0], None, UNARY)
            return text if strength <= UNARY else f"({text})"
        if regular and expr.name == "cast":
            return f"{expr.dtype}({self._argument(expr.args[0], None, 0)})"
        start = min(first_operand(expr.name), len(expr.args))
        args = [self._argument(arg, None, 0) for arg in expr.args[:start]]
        if len(expr.args) > start:
            args.append(self._operands(expr.name, expr.args[start:]))
        if names_dtype(expr.name):
            args.append(str(expr.dtype))
        return f"{name_text(expr.name)}({', '.join(args)})" + ("" if regular else f":{expr.dtype}")

    def _operands(self, name: str, args: tuple[Expr, ...]) -> str:
        implied_dtype = _implied_dtype(args)
        return ", ".join(self._argument(arg, implied_dtype, 0) for arg in args)

    def _infix(self, expr: Op, strength: int) -> str:
        sign, own = INFIX[expr.name]
        implied_dtype = _implied_dtype(expr.args)
        left = self._argument(expr.args[0], implied_dtype, own + (own == COMPARE))
        text = f"{left} {sign} {self._argument(expr.args[1], implied_dtype, own + 1)}"
        return text if strength <= own else f"({text})"


def _implied_dtype(args: tuple[Expr, ...]) -> DType | None:
    """The dtype that literals among these operands need not state.

    It is that of the first operand that is not a literal, or else that of the first operand.
    """
    for arg in args:
        if not _is_number(arg):
            return arg.dtype
    first = args[0]
    return first.dtype if isinstance(first, Const) and first.dtype == literal_dtype(first.value) else None


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Const) and not expr.dtype.is_bool


def _operands_of(node: Expr) -> Iterator[Expr]:
    """Yield the expressions in a node's text, each as often as it occurs."""
    yield from node.children
    for term in node.terms:
        for atom in _indirects(term):
            yield atom.value


def _indirects(term: Size) -> Iterator[Indirect]:
    """Yield the indirect indices in a term's text, each as often as it occurs."""
    if isinstance(term, Term):
        if isinstance(term, Indirect):
            yield term
            yield from _indirects(term.size)
        elif term.atoms():
            for child in term.children():
                yield from _indirects(child)
