"""Parser of loop bodies."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.dtypes import DType, b1, dtype
from litz_ir.errors import LitzError
from litz_ir.faults import FAULTS
from litz_ir.scalar.build import const
from litz_ir.scalar.expr import (
    Checked,
    Const,
    Index,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
)
from litz_ir.scalar.node import Expr
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.term import Size
from litz_ir.text.lexer import Stream, Token, read_whole
from litz_ir.text.parsing.terms import TermParser
from litz_ir.text.scope import (
    COMPARE,
    INFIX,
    DTypeScope,
    first_operand,
    literal_dtype,
    names_dtype,
    operation_dtype,
)
from litz_ir.text.spelling import DTYPE_NAMES

_SIGNS = {sign: (name, strength) for name, (sign, strength) in INFIX.items()}
_TIGHTEST_INFIX = max(strength for _, strength in INFIX.values())


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, whose dtype follows from its context unless the text states one."""

    value: int | float
    """The number."""
    dtype: DType | None
    """Dtype that the text states; None if it states none."""
    token: Token
    """Token of the number, for errors."""


Operand = Expr | Literal
"""A parsed operand: an expression, or a literal whose dtype is still open."""


class BodyParser(TermParser):
    """Parser of bodies that have one scope and one set of lets."""

    def __init__(self, stream: Stream, scope: DTypeScope) -> None:
        super().__init__(stream)
        self.scope = scope
        self._lets: dict[str, Expr] = {}

    def lets(self) -> None:
        """Parse any number of ``let name = expression;`` lines."""
        stream = self.stream
        while stream.at("let"):
            stream.advance()
            token = stream.token
            name = stream.name("a name for the expression")
            if name in self._lets:
                stream.fail(f"{name} is defined twice", token)
            stream.expect("=")
            self._lets[name] = self.expression()
            stream.expect(";")

    def expression(self, expected: DType | None = None) -> Expr:
        """An expression; a literal without a dtype gets the ``expected`` one."""
        return self._with_dtype(self._infix(COMPARE), expected)

    def block(self, expected: tuple[DType, ...] = ()) -> tuple[Expr, ...]:
        """A block ``{ lets expression, … }``; a literal in position k gets the k-th of the ``expected`` dtypes."""
        stream = self.stream
        stream.expect("{")
        self.lets()
        found: list[Expr] = []
        while not stream.at("}"):
            requested = expected[len(found)] if len(found) < len(expected) else None
            found.append(self.expression(requested))
            if not stream.accept(","):
                break
        stream.expect("}")
        return tuple(found)

    # --- expressions

    def _infix(self, strength: int) -> Operand:
        if strength > _TIGHTEST_INFIX:
            return self._unary()
        stream = self.stream
        left = self._infix(strength + 1)
        while stream.token.kind == "punct":
            name, own = _SIGNS.get(stream.token.text, ("", 0))
            if own != strength:
                break
            sign = stream.advance()
            left = self._apply(name, [left, self._infix(strength + 1)], None, sign)
            if strength == COMPARE:
                break
        return left

    def _unary(self) -> Operand:
        stream = self.stream
        if not stream.at("-"):
            return self._atom()
        sign = stream.advance()
        if stream.token.kind in ("int", "float") or stream.token.text in ("inf", "nan"):
            literal = self._number()
            return Literal(-literal.value, literal.dtype, literal.token)
        return self._apply("neg", [self._unary()], None, sign)

    def _atom(self) -> Operand:
        stream = self.stream
        token = stream.token
        match token.kind:
            case "int" | "float":
                return self._number()
            case "value":
                name = stream.value()
                return Load(
                    name, self.terms(), self._typed(self.scope.buffers.get(name), f"buffer %{name}", token)
                )
            case "scalar":
                return self._scalar(stream.advance())
            case "name" | "quoted":
                return self._named(token)
        if stream.accept("("):
            inner = self._infix(COMPARE)
            stream.expect(")")
            return inner
        stream.expected("an expression")

    def _number(self) -> Literal:
        token = self.stream.advance()
        value = int(token.text) if token.kind == "int" else float(token.text)
        return Literal(value, self.stream.dtype() if self.stream.accept(":") else None, token)

    def _typed(self, known: DType | None, description: str, token: Token) -> DType:
        """The dtype after a colon, or else the one known in the scope."""
        if self.stream.accept(":"):
            return self.stream.dtype()
        if known is None:
            self.stream.fail(
                f"{description} is not declared here: declare it before, or append its dtype (:f32)", token
            )
        return known

    def _scalar(self, token: Token) -> Expr:
        if token.text.isdigit():
            position = int(token.text)
            return Param(
                position, self._typed(self.scope.parameter(position), f"parameter ${position}", token)
            )
        return Scalar(
            token.text, self._typed(self.scope.scalars.get(token.text), f"scalar ${token.text}", token)
        )

    def _named(self, token: Token) -> Operand:
        stream = self.stream
        if not stream.next_is("("):
            return self._word(token)
        stream.advance()
        stream.expect("(")
        if token.kind == "quoted" or (token.text not in DTYPE_NAMES and token.text != "index"):
            return self._call(token)
        result = (
            Index(self.term())
            if token.text == "index"
            else Op("cast", (self.expression(),), dtype(token.text))
        )
        stream.expect(")")
        return result

    def _word(self, token: Token) -> Operand:
        stream = self.stream
        if token.kind == "name" and token.text in ("true", "false"):
            stream.advance()
            value = token.text == "true"
            return Const(value, stream.dtype() if stream.accept(":") else b1)
        if token.kind == "name" and token.text in ("inf", "nan"):
            return self._number()
        found = self._lets.get(token.text)
        if found is None:
            stream.expected("an expression; no let defines this name")
        stream.advance()
        return found

    def _call(self, token: Token) -> Expr:
        """The arguments of an operation, from after its opening parenthesis."""
        stream = self.stream
        if token.text == "checked":
            return self._checked(token)
        if token.text == "nested_reduce":
            return self._nested_reduction(token)
        args: list[Operand] = []
        requested: DType | None = None
        while not stream.at(")"):
            if names_dtype(token.text) and stream.at_dtype() and stream.next_is(")"):
                requested = stream.dtype()
                break
            args.append(self._infix(COMPARE))
            if not stream.accept(","):
                break
        stream.expect(")")
        if token.text == "masked":
            return self._masked(args, token)
        return self._apply(token.text, args, requested, token)

    def _checked(self, token: Token) -> Expr:
        stream = self.stream
        cond = self.expression(b1)
        stream.expect(",")
        body = self.expression()
        stream.expect(",")
        fault = stream.word("a fault", tuple(FAULTS))
        stream.expect(")")
        try:
            return Checked(cond, body, fault)
        except LitzError as error:
            stream.fail(error.message, token)

    def _nested_reduction(self, token: Token) -> Expr:
        stream = self.stream
        axes: list[tuple[str, Size]] = []
        while not axes or stream.accept(","):
            name = stream.name("an axis to sum over")
            stream.expect(":")
            axes.append((name, self.term()))
        stream.expect("|")
        body = self.expression()
        stream.expect(")")
        try:
            return NestedReduction(tuple(axes), body)
        except LitzError as error:
            stream.fail(error.message, token)

    def _masked(self, args: list[Operand], token: Token) -> Expr:
        if len(args) != 3:
            self.stream.fail(f"masked takes a condition and two values, got {len(args)} arguments", token)
        typed = self._with_common_dtype("masked", args)
        try:
            return Masked(*typed)
        except LitzError as error:
            self.stream.fail(error.message, token)

    def _apply(self, name: str, args: list[Operand], requested: DType | None, token: Token) -> Expr:
        """An operation; a dtype after its closing parenthesis overrides the table's, and the verifier may
        reject it.
        """
        stream = self.stream
        typed = self._with_common_dtype(name, args)
        if token.kind != "punct" and stream.accept(":"):
            return Op(name, typed, stream.dtype())
        result = operation_dtype(name, tuple(arg.dtype for arg in typed), requested)
        if result is None:
            row = OPS.get(name)
            if row is None:
                stream.fail(f"unknown scalar operation {name!r}", token)
            if len(typed) != row.arity:
                stream.fail(f"{name} takes {row.arity} arguments, got {len(typed)}", token)
            given = ", ".join(str(arg.dtype) for arg in typed)
            stream.fail(
                f"{name} is not defined over ({given}): cast the arguments, or state the result's dtype",
                token,
            )
        return Op(name, typed, result)

    def _with_common_dtype(self, name: str, args: list[Operand]) -> tuple[Expr, ...]:
        """Give literals the dtype of the first operand that is not a literal, or else of the first operand."""
        start = min(first_operand(name), len(args))
        operand_dtype: DType | None = None
        for arg in reversed(args[start:]):
            if isinstance(arg, Expr):
                operand_dtype = arg.dtype
        if operand_dtype is None and len(args) > start:
            operand_dtype = self._with_dtype(args[start], None).dtype
        return tuple(
            self._with_dtype(arg, None if k < start else operand_dtype) for k, arg in enumerate(args)
        )

    def _with_dtype(self, operand: Operand, expected: DType | None) -> Expr:
        """Give a literal its dtype."""
        if isinstance(operand, Expr):
            return operand
        value = operand.value
        requested = operand.dtype or expected or literal_dtype(value)
        if requested.is_bool:
            self.stream.fail("a b1 literal is true or false", operand.token)
        if isinstance(value, float) and not requested.is_float:
            self.stream.fail(f"a float literal where {requested} is expected", operand.token)
        if isinstance(value, int) and const(value, requested).value != value:
            self.stream.fail(f"{value} does not fit {requested}", operand.token)
        return Const(value, requested)


def parse_term(text: str) -> Size:
    """Parse an index term; loads in its indirect indices state their dtypes. Raises :class:`ParseError`."""
    return read_whole(text, lambda stream: BodyParser(stream, DTypeScope()).term())


def parse_expr(text: str, scope: DTypeScope | None = None, expected: DType | None = None) -> Expr:
    """Parse the output of :func:`~litz_ir.text.printing.bodies.print_expr`; raises :class:`ParseError`."""

    def read(stream: Stream) -> Expr:
        parser = BodyParser(stream, scope or DTypeScope())
        parser.lets()
        return parser.expression(expected)

    return read_whole(text, read)
