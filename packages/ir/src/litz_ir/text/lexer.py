"""The lexer of the text form, and a stream of its tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from litz_ir.device import Device
from litz_ir.dtypes import DType, dtype
from litz_ir.errors import LitzError, ParseError
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.text.spelling import DTYPE_NAMES, PLAIN, parse_origin, unquoted

_QUOTED = r"'(?:[^'\\\n]|\\.)*'"
_TOKEN = re.compile(
    rf"""
      (?P<space>\s+|\#[^\n]*)
    | (?P<origin>@[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | %(?P<value>{PLAIN}|{_QUOTED})
    | \$(?P<scalar>{PLAIN}|\d+|{_QUOTED})
    | (?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    | (?P<int>\d+)
    | (?P<name>{PLAIN})
    | (?P<quoted>{_QUOTED})
    | (?P<punct>->|::|//|==|!=|<=|>=|[-+*/%<>=&|(){{}}\[\],:;])
    """,
    re.VERBOSE,
)


T = TypeVar("T")


class Token(NamedTuple):
    """A token of the text form."""

    kind: str
    """Group of the lexer's regular expression, or ``end``."""
    text: str
    """A name's or string's content without sigil, quotes and escapes; the source text of other tokens."""
    offset: int
    """Position of the token in the source."""


def _tokenize(source: str) -> list[Token]:
    """All tokens, ending with an ``end`` token; raises :class:`ParseError` for an unexpected character."""
    tokens: list[Token] = []
    offset = 0
    while offset < len(source):
        match = _TOKEN.match(source, offset)
        if match is None:
            fail(source, offset, f"unexpected character {source[offset]!r}")
        kind = match.lastgroup
        assert kind is not None
        if kind != "space":
            text = match.group(kind)
            if text[0] == "'" or kind == "string":
                try:
                    text = unquoted(text)
                except ValueError as error:
                    fail(source, offset, f"cannot read the escapes in {text}: {error}")
            tokens.append(Token(kind, text, offset))
        offset = match.end()
    tokens.append(Token("end", "", len(source)))
    return tokens


def fail(source: str, offset: int, message: str) -> NoReturn:
    """Raise :class:`ParseError` with the line and column of ``offset``."""
    line = source.count("\n", 0, offset) + 1
    column = offset - source.rfind("\n", 0, offset)
    shown = source[offset - column + 1 :].split("\n", 1)[0].strip()
    raise ParseError(message, line=line, column=column, hint=f"the line reads: {shown}" if shown else "")


class Stream:
    """A stream of tokens; its methods raise :class:`ParseError` with the expected construct if another one follows."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = _tokenize(source)
        self.position = 0
        self.token = self.tokens[0]

    def advance(self) -> Token:
        """Consume the current token."""
        token = self.token
        if token.kind != "end":
            self.position += 1
            self.token = self.tokens[self.position]
        return token

    def rewind(self, position: int) -> None:
        """Return to an earlier token."""
        self.position = position
        self.token = self.tokens[position]

    def next_is(self, text: str) -> bool:
        """True if the token after the current one is this word or sign."""
        following = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        return following.text == text and following.kind in ("punct", "name")

    def at(self, text: str) -> bool:
        """True if the current token is this word or sign."""
        return self.token.text == text and self.token.kind in ("punct", "name")

    def accept(self, text: str) -> bool:
        """Consume the word or sign if it is the current token."""
        if self.at(text):
            self.advance()
            return True
        return False

    def expect(self, text: str) -> Token:
        """Consume the word or sign; raises :class:`ParseError` for another token."""
        if not self.at(text):
            self.expected(f"'{text}'")
        return self.advance()

    def expected(self, what: str) -> NoReturn:
        """Raise :class:`ParseError` at the current token."""
        token = self.token
        found = "the end of the text" if token.kind == "end" else repr(token.text)
        fail(self.source, token.offset, f"expected {what}, found {found}")

    def fail(self, message: str, at: Token | None = None) -> NoReturn:
        """Raise :class:`ParseError` at a token, by default the current one."""
        fail(self.source, (at or self.token).offset, message)

    def _take(self, kind: str, what: str) -> str:
        if self.token.kind != kind:
            self.expected(what)
        return self.advance().text

    def end(self) -> None:
        """Raise :class:`ParseError` unless the text ends here."""
        if self.token.kind != "end":
            self.expected("the end of the text")

    def value(self) -> str:
        """A buffer's name, without its sigil."""
        return self._take("value", "a value such as %x")

    def scalar(self) -> str:
        """A scalar's name, without its sigil."""
        return self._take("scalar", "a scalar such as $s")

    def string(self, what: str = "a string") -> str:
        """A string literal's content."""
        return self._take("string", what)

    def name(self, what: str = "a name") -> str:
        """A name, bare or quoted."""
        if self.token.kind not in ("name", "quoted"):
            self.expected(what)
        return self.advance().text

    def word(self, what: str, choices: tuple[str, ...]) -> str:
        """One of the given bare words."""
        if self.token.kind != "name" or self.token.text not in choices:
            self.expected(f"{what} ({', '.join(choices)})")
        return self.advance().text

    def integer(self) -> int:
        """An integer literal, signed."""
        negative = self.accept("-")
        number = int(self._take("int", "an integer"))
        return -number if negative else number

    def dtype(self) -> DType:
        """A dtype's name."""
        if not self.at_dtype():
            self.expected("a dtype such as f32")
        return dtype(self.advance().text)

    def at_dtype(self) -> bool:
        """True if the current token is a dtype's name."""
        return self.token.kind == "name" and self.token.text in DTYPE_NAMES

    def device(self) -> Device:
        """A device: ``cpu`` or ``cuda:1``."""
        kind = self.name("a device such as cpu")
        return Device(kind, self.integer() if self.accept(":") else 0)

    def origin(self) -> Origin:
        """An origin, or the unknown origin if none follows."""
        if self.token.kind != "origin":
            return UNKNOWN
        token = self.advance()
        try:
            return parse_origin(token.text)
        except (LitzError, ValueError) as error:
            message = error.message if isinstance(error, LitzError) else str(error)
            self.fail(message, token)


def separated(stream: Stream, item: Callable[[], T], *, start: str = "(", stop: str = ")") -> tuple[T, ...]:
    """A list: ``(item, item, …)``."""
    stream.expect(start)
    found: list[T] = []
    while not stream.at(stop):
        found.append(item())
        if not stream.accept(","):
            break
    stream.expect(stop)
    return tuple(found)


def read_whole(text: str, rule: Callable[[Stream], T]) -> T:
    """Parse all of the text by ``rule``; raises :class:`ParseError`, also for a value that is no text."""
    if not isinstance(text, str):
        raise ParseError(
            f"expected text, found a value of type {type(text).__name__}",
            line=1,
            column=1,
            hint="give the output of litz_ir.to_text, or the contents of a file by Path.read_text",
        )
    stream = Stream(text)
    try:
        found = rule(stream)
    except RecursionError:
        stream.fail("parentheses are nested too deeply here")
    stream.end()
    return found
