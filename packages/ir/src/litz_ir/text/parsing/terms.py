"""Parser of index terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

from litz_ir.dtypes import DType, i64
from litz_ir.errors import LitzError
from litz_ir.faults import FAULTS
from litz_ir.scalar.expr import BoundsCheck, Indirect
from litz_ir.scalar.node import Expr
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size, symbol
from litz_ir.text.lexer import Stream, Token

_CHECKS = ("assumed", "clamped", "raised")


class TermParser(ABC):
    """Parser of index terms, whose indirect indices contain expressions."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @abstractmethod
    def expression(self, expected: DType | None = None) -> Expr:
        """An expression; a literal without a dtype gets the ``expected`` one."""

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
        """A list of index terms: ``[term, …]``."""
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
        check = cast(BoundsCheck, stream.word("a bounds check", _CHECKS))
        fault = "index" if stream.at(")") else stream.word("a fault", tuple(FAULTS))
        stream.expect(")")
        try:
            return Indirect(value, size, wrap, check, fault)
        except LitzError as error:
            stream.fail(error.message, token)
