"""Graphs and plans as documents in the interchange form."""

from __future__ import annotations

from litz_ir.errors import SerialError
from litz_ir.interchange.codecs import codec_of
from litz_ir.interchange.damage import Json, damaged, expect
from litz_ir.interchange.expressions import ExpressionReader, ExpressionWriter
from litz_ir.interchange.json_text import json_text, parse_json
from litz_ir.serial.document import Document

FORMAT = "litz-interchange"
"""Name of the form."""
MAJOR, MINOR = 1, 0
"""Version that is written; documents of the same major version can be read.

The minor version rises with each class or word that is added, which readers of the version before refuse, and with
each field that they may ignore: one that has a default and does not change what the data computes. Any other change
raises the major version.
"""
_HINT = "read it with a version of litz that writes this version"


def to_interchange(data: Document) -> str:
    """Write a loop graph, fused graph, plan or kernel as JSON, including origins and decisions.

    Raises ``TypeError`` for other data.
    """
    writer = ExpressionWriter()
    body = codec_of(Document).encode(data, writer)
    header = {"format": FORMAT, "version": [MAJOR, MINOR]}
    return json_text({**header, **body, "expressions": writer.entries})


def from_interchange(text: str) -> Document:
    """Read the output of :func:`to_interchange`; ``from_interchange(to_interchange(x)) == x``.

    Documents of another minor version are read too: absent fields get their defaults, and unknown ones are ignored.
    Only listed classes are instantiated. Raises :class:`SerialError`, with the JSON path of what is wrong, for damaged
    documents, those of another major version, and its :class:`UnknownClass` for objects of unknown classes. The data is
    not verified.
    """
    try:
        document = _parsed(text)
        minor = _minor_version(document)
        try:
            return _read(document)
        except SerialError as error:
            if minor > MINOR:
                raise SerialError(f"{error.message}; {_versions(MAJOR, minor)}", hint=_HINT) from error
            raise
    except RecursionError as error:
        raise SerialError("$: expected less nesting, found more than the reader's stack holds") from error


def _parsed(text: str) -> Json:
    if not isinstance(text, str | bytes | bytearray):
        raise SerialError(
            f"$: expected JSON text, found a value of type {type(text).__name__}",
            hint="give the output of litz_ir.interchange.to_interchange, or the contents of a file",
        )
    try:
        return expect(parse_json(text), dict, "$")
    except ValueError as error:
        raise SerialError(f"$: expected JSON, found text that is none: {error}") from error


def _minor_version(document: Json) -> int:
    """The minor version of a document that can be read; raises :class:`SerialError` for others."""
    if document.get("format") != FORMAT:
        damaged("$.format", f'"{FORMAT}"', document.get("format"))
    version = expect(document.get("version"), list, "$.version")
    if len(version) != 2:
        damaged("$.version", "array of 2", version)
    major, minor = [_natural(each, f"$.version[{k}]") for k, each in enumerate(version)]
    if major != MAJOR:
        raise SerialError(
            f"$.version[0]: expected {MAJOR}, found {major}; {_versions(major, minor)}", hint=_HINT
        )
    return minor


def _natural(data: Json, path: str) -> int:
    if type(data) is not int or data < 0:
        damaged(path, "integer from 0", data)
    return data


def _versions(major: int, minor: int) -> str:
    return f"the document has version {major}.{minor}, the reader {MAJOR}.{MINOR}"


def _read(document: Json) -> Document:
    reader = ExpressionReader(document.get("expressions", []), "$.expressions")
    found: Document = codec_of(Document).decode(document, "$", reader)
    return found
