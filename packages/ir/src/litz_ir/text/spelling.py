"""Spelling of names, literals and origins in the text form; the lexer has the matching regular expressions."""

from __future__ import annotations

import json
import re

from litz_ir.dtypes import ALL
from litz_ir.errors import LitzError
from litz_ir.origin import UNKNOWN, Origin

PLAIN = r"[^\W\d]\w*(?:\.\w+)*"
"""Regular expression of a name that needs no quotes: an identifier, possibly with dots."""

DTYPE_NAMES = frozenset(d.name for d in ALL)
"""Names of all dtypes."""
_RESERVED = DTYPE_NAMES | {
    "complex",
    "device",
    "false",
    "indirect",
    "inf",
    "max",
    "min",
    "nan",
    "none",
    "true",
}
"""Words with a meaning of their own where a name may stand; an equal name is quoted."""

_plain = re.compile(PLAIN).fullmatch


def is_plain(name: str) -> bool:
    """True if a name needs no quotes."""
    return _plain(name) is not None and name not in _RESERVED


def name_text(name: str) -> str:
    """The name, quoted ``'like this'`` if it is not an identifier or is reserved."""
    return name if is_plain(name) else quoted(name)


def value_text(name: str) -> str:
    """A buffer's name with its sigil: ``%x``."""
    return "%" + (name if _plain(name) else quoted(name))


def scalar_text(name: str) -> str:
    """A scalar's name with its sigil: ``$scale``."""
    return "$" + (name if _plain(name) else quoted(name))


def quoted(name: str) -> str:
    """The name in single quotes, with JSON's escapes."""
    return "'" + json.dumps(name, ensure_ascii=False)[1:-1].replace("'", "\\u0027") + "'"


def unquoted(text: str) -> str:
    """The argument of :func:`quoted` that gave ``text``; raises ``ValueError`` for an unknown escape."""
    return str(json.loads('"' + text[1:-1] + '"'))


def string_text(text: str) -> str:
    """A string literal in double quotes, with JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


def float_text(value: float) -> str:
    """The shortest literal that parses to the same double; it never looks like an integer."""
    return repr(value)


# --- origins ----------------------------------------------------------------------------------------------------

_STRING = r'"(?:[^"\\]|\\.)*"'
_WORD = r"[\w.\-]+"
_FILE = r'[^\s":()=]+'
_ORIGIN_PART = re.compile(
    rf"""\s*(?:
      (?P<file>{_FILE}|file={_STRING}):(?P<line>-?\d+)(?!\S)
    | in\ (?P<module>{_WORD}|{_STRING})(?!\S)
    | \((?P<operation>{_WORD}|{_STRING})\)(?!\S)
    | (?P<node>{_WORD}|node={_STRING})(?!\S)
    | (?P<source>{_STRING})(?!\S)
    )""",
    re.VERBOSE,
)


def origin_text(origin: Origin) -> str:
    """The text of an origin, without empty fields: ``@ node (operation) in module "source" file:line``.

    Empty for an unknown origin.
    """
    if origin == UNKNOWN:
        return ""
    parts = ["@"]
    if origin.node:
        # A node called "in" would read as the start of a module.
        plain = re.fullmatch(_WORD, origin.node) and origin.node != "in"
        parts.append(origin.node if plain else f"node={string_text(origin.node)}")
    if origin.operation:
        parts.append(f"({_word_or_string(origin.operation)})")
    if origin.module:
        parts.append(f"in {_word_or_string(origin.module)}")
    if origin.source:
        parts.append(string_text(origin.source))
    if origin.file or origin.line:
        file = origin.file if re.fullmatch(_FILE, origin.file) else f"file={string_text(origin.file)}"
        parts.append(f"{file}:{origin.line}")
    return " ".join(parts)


def parse_origin(text: str) -> Origin:
    """Parse the output of :func:`origin_text`; raises :class:`LitzError` naming the text that is not understood."""
    fields: dict[str, str] = {}
    position = 1
    text = text.rstrip()
    while position < len(text):
        part = _ORIGIN_PART.match(text, position)
        if part is None:
            expected = 'an origin\'s node, (operation), in module, "source" or file:line'
            raise LitzError(f"expected {expected} at {text[position:]!r}")
        fields.update(
            (key, _plain_string(found)) for key, found in part.groupdict().items() if found is not None
        )
        position = part.end()
    line = int(fields.pop("line", "0"))
    return Origin(line=line, **fields)


def _word_or_string(text: str) -> str:
    return text if re.fullmatch(_WORD, text) else string_text(text)


def _plain_string(text: str) -> str:
    """The text of a word, or of a string with or without its key."""
    start = text.find('"')
    return text if start < 0 else str(json.loads(text[start:]))
