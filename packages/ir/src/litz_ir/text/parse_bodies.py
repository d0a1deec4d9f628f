"""Parses index terms and loop bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast as typing_cast

from litz_ir.dtypes import DType, b1, dtype, i64
from litz_ir.errors import LitzError
from litz_ir.faults import FAULTS
from litz_ir.scalar.build import const
from litz_ir.scalar.expr import (
    BoundsCheck,
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
)
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.term import Size, add, floordiv, maximum, minimum, mod, mul, symbol
from litz_ir.text.lexer import Stream, Token, read_whole
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

_CHECKS = ("assumed", "clamped", "raised")
_SIGNS = {sign: (name, strength) for name, (sign, strength) in INFIX.items()}
_TIGHTEST_INFIX = max(strength for _, strength in INFIX.values())


@dataclass(frozen=True, slots=True)
class Literal:
    """A number whose dtype is settled by what stands beside it, unless it states one."""

    value: int | float
    dtype: DType | None
    token: Token


Operand = Expr | Literal


class BodyParser:
    """Parses bodies that share one scope and one set of lets."""

    def __init__(self, stream: Stream, scope: DTypeScope) -> None:
        self.stream = stream
        self.scope = scope
        self._lets: dict[str, Expr] = {}

    def lets(self) -> None:
        """Any number of ``let name = expression;`` lines."""
        stream = self.stream
        while stream.at("let"):
            stream.advance()
            token = stream.token
            name = stream.name("a name for the expression")
            if name in self._lets:
                stream.fail(f"{name} is bound twice", token)
            stream.expect("=")
            self._lets[name] = self.expression()
            stream.expect(";")

    def expression(self, expected: DType | None = None) -> Expr:
        """An expression; a literal without a dtype takes the ``expected`` one."""
        return self._settle(self._infix(COMPARE), expected)

    def block(self, expected: tuple[DType, ...] = ()) -> tuple[Expr, ...]:
        """``{ lets expression, … }``; the k-th literal may take the k-th of the ``expected`` dtypes."""
        stream = self.stream
        stream.expect("{")
        self.lets()
        found: list[Expr] = []
        while not stream.at("}"):
            wanted = expected[len(found)] if len(found) < len(expected) else None
            found.append(self.expression(wanted))
            if not stream.accept(","):
                break
        stream.expect("}")
        return tuple(found)

    # --- index terms

    def term(self) -> Size:
        """An index term."""
        stream = self.stream
        total = self._signed_product()
        while stream.at("+") or stream.at("-"):
            negative = stream.advance().text == "-"
            part = self._product()
            total = add(total, mul(part, -1) if negative else part)
        return total

    def terms(self) -> tuple[Size, ...]:
        """``[term, …]``."""
        stream = self.stream
        stream.expect("[")
        found: list[Size] = []
        while not stream.at("]"):
            found.append(self.term())
            if not stream.accept(","):
                break
        stream.expect("]")
        return tuple(found)

    def _signed_product(self) -> Size:
        return mul(self._product(), -1) if self.stream.accept("-") else self._product()

    def _product(self) -> Size:
        stream = self.stream
        result = self._factor()
        while stream.token.kind == "punct" and stream.token.text in ("*", "//", "%"):
            sign = stream.advance()
            right = self._factor()
            if sign.text == "*":
                result = mul(result, right)
            elif right == 0:
                stream.fail("division by zero", sign)
            else:
                result = floordiv(result, right) if sign.text == "//" else mod(result, right)
        return result

    def _factor(self) -> Size:
        stream = self.stream
        token = stream.token
        if token.kind == "int":
            return int(stream.advance().text)
        if stream.accept("-"):
            return mul(self._factor(), -1)
        if stream.accept("("):
            inner = self.term()
            stream.expect(")")
            return inner
        if token.kind == "name" and stream.next_is("("):
            return self._term_function(stream.advance())
        if token.kind not in ("name", "quoted"):
            stream.expected("an index term")
        try:
            return symbol(stream.advance().text)
        except LitzError as error:
            stream.fail(error.message, token)

    def _term_function(self, token: Token) -> Size:
        stream = self.stream
        stream.expect("(")
        if token.text == "indirect":
            return self._indirect(token)
        if token.text not in ("min", "max"):
            stream.fail(
                f"expected a function of index terms (min, max, indirect), found {token.text!r}", token
            )
        args = [self.term()]
        while stream.accept(","):
            args.append(self.term())
        stream.expect(")")
        return minimum(*args) if token.text == "min" else maximum(*args)

    def _indirect(self, token: Token) -> Size:
        stream = self.stream
        value = self.expression(i64)
        stream.expect(",")
        stream.expect("size")
        stream.expect("=")
        size = self.term()
        stream.expect(",")
        wrap = stream.accept("wrap")
        if wrap:
            stream.expect(",")
        check = typing_cast(BoundsCheck, stream.word("what happens out of range", _CHECKS))
        fault = "index" if stream.at(")") else stream.word("what is raised", tuple(FAULTS))
        stream.expect(")")
        try:
            return Indirect(value, size, wrap, check, fault)
        except LitzError as error:
            stream.fail(error.message, token)

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

    def _typed(self, known: DType | None, what: str, token: Token) -> DType:
        """The dtype after a colon, else what the scope knows."""
        if self.stream.accept(":"):
            return self.stream.dtype()
        if known is None:
            self.stream.fail(
                f"{what} is not declared here: declare it before, or append its dtype (:f32)", token
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
            stream.expected("an expression: no let binds this name")
        stream.advance()
        return found

    def _call(self, token: Token) -> Expr:
        """The arguments of an operation whose name and opening bracket are behind us."""
        stream = self.stream
        if token.text == "checked":
            return self._checked(token)
        if token.text == "nested_reduce":
            return self._fold(token)
        args: list[Operand] = []
        wanted: DType | None = None
        while not stream.at(")"):
            if names_dtype(token.text) and stream.at_dtype() and stream.next_is(")"):
                wanted = stream.dtype()
                break
            args.append(self._infix(COMPARE))
            if not stream.accept(","):
                break
        stream.expect(")")
        if token.text == "masked":
            return self._masked(args, token)
        return self._apply(token.text, args, wanted, token)

    def _checked(self, token: Token) -> Expr:
        stream = self.stream
        cond = self.expression(b1)
        stream.expect(",")
        body = self.expression()
        stream.expect(",")
        fault = stream.word("what is raised", tuple(FAULTS))
        stream.expect(")")
        try:
            return Checked(cond, body, fault)
        except LitzError as error:
            stream.fail(error.message, token)

    def _fold(self, token: Token) -> Expr:
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
            self.stream.fail(
                f"masked takes a condition, a body and another, got {len(args)} arguments", token
            )
        settled = self._settle_all("masked", args)
        try:
            return Masked(*settled)
        except LitzError as error:
            self.stream.fail(error.message, token)

    def _apply(self, name: str, args: list[Operand], wanted: DType | None, token: Token) -> Expr:
        """An operation; a dtype after its closing bracket overrules the table (the verifier may object)."""
        stream = self.stream
        settled = self._settle_all(name, args)
        if token.kind != "punct" and stream.accept(":"):
            return Op(name, settled, stream.dtype())
        result = operation_dtype(name, tuple(arg.dtype for arg in settled), wanted)
        if result is None:
            row = OPS.get(name)
            if row is None:
                stream.fail(f"unknown scalar operation {name!r}", token)
            if len(settled) != row.arity:
                stream.fail(f"{name} takes {row.arity} arguments, got {len(settled)}", token)
            given = ", ".join(str(arg.dtype) for arg in settled)
            stream.fail(
                f"{name} is not defined over ({given}): cast the arguments, or state the result's dtype",
                token,
            )
        return Op(name, settled, result)

    def _settle_all(self, name: str, args: list[Operand]) -> tuple[Expr, ...]:
        """Give literals the dtype of the first other argument, else of the first argument."""
        start = min(first_operand(name), len(args))
        shared: DType | None = None
        for arg in reversed(args[start:]):
            if isinstance(arg, Expr):
                shared = arg.dtype
        if shared is None and len(args) > start:
            shared = self._settle(args[start], None).dtype
        return tuple(self._settle(arg, None if k < start else shared) for k, arg in enumerate(args))

    def _settle(self, operand: Operand, expected: DType | None) -> Expr:
        if isinstance(operand, Expr):
            return operand
        value = operand.value
        wanted = operand.dtype or expected or literal_dtype(value)
        if wanted.is_bool:
            self.stream.fail("a b1 literal is true or false", operand.token)
        if isinstance(value, float) and not wanted.is_float:
            self.stream.fail(f"a float literal where {wanted} is expected", operand.token)
        if isinstance(value, int) and const(value, wanted).value != value:
            self.stream.fail(f"{value} does not fit {wanted}", operand.token)
        return Const(value, wanted)


def parse_term(text: str) -> Size:
    """Read an index term; loads in its indirect indices state their dtypes. Raises :class:`ParseError`."""
    return read_whole(text, lambda stream: BodyParser(stream, DTypeScope()).term())


def parse_expr(text: str, scope: DTypeScope | None = None, expected: DType | None = None) -> Expr:
    """Read what :func:`~litz_ir.text.print_bodies.print_expr` wrote. Raises :class:`ParseError`."""

    def read(stream: Stream) -> Expr:
        parser = BodyParser(stream, scope or DTypeScope())
        parser.lets()
        return parser.expression(expected)

    return read_whole(text, read)
