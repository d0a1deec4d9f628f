"""Graphs and plans as JSON, and their digests."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from hashlib import sha256

from litz_ir.errors import LitzError, SerialError
from litz_ir.fused.group import FusedGraph
from litz_ir.loops.nodes import LoopGraph
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.scalar.node import Expr
from litz_ir.serial.nodes import Json, NodeReader, expect
from litz_ir.serial.schema import CLASSES, SchemaWriter, codec_of

_FORMAT = "litz"
"""Name of the format."""
_VERSION = 1
"""Version of the format; it changes if an entry changes its meaning. The schema digest covers changed fields."""

_DAMAGED_HINT = "write it again by litz_ir.to_json; an entry of a cache may be deleted"
"""Next step for damaged text."""

Document = LoopGraph | FusedGraph | Plan | Kernel
"""Data of any level that has a serial form."""
_ROOTS: dict[str, type[Document]] = {cls.__name__: cls for cls in (LoopGraph, FusedGraph, Plan, Kernel)}


def to_json(data: Document) -> str:
    """Serialise a loop graph, fused graph, plan or kernel, including origins and decisions.

    Equal data with equal origins give equal texts, in every process. Raises ``TypeError`` for other data.
    """
    return _dump(data, SchemaWriter())


def from_json(text: str) -> Document:
    """Parse the output of :func:`to_json`; ``from_json(to_json(x)) == x``.

    Only classes of the schema are instantiated, and every field is checked. Raises :class:`SerialError` for damaged
    text, text of another version, and a value that is no text.
    """
    if not isinstance(text, str | bytes | bytearray):
        raise SerialError(
            f"expected text, found a value of type {type(text).__name__}",
            hint="give the output of litz_ir.to_json",
        )
    try:
        document = expect(json.loads(text), dict)
        _check_header(document)
        root = _ROOTS[document["kind"]]
        reader = NodeReader(document["nodes"])
        found: Document = codec_of(root).decode(document["data"], reader)
        return found
    except SerialError:
        raise
    except (
        LitzError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        message = error.message if isinstance(error, LitzError) else f"{type(error).__name__}: {error}"
        raise SerialError(f"damaged data: {message}", hint=_DAMAGED_HINT) from error


def _check_header(document: dict[str, Json]) -> None:
    """The text has this format, version and schema; raises :class:`SerialError`."""
    expected = {"format": _FORMAT, "version": _VERSION, "schema": _schema_digest()}
    for key, value in expected.items():
        if document.get(key) != value:
            found = document.get(key)
            raise SerialError(
                f"{key} is {found!r:.60}, not {value!r}", hint="another version of litz wrote it"
            )


def digest(data: Document | Expr) -> str:
    """A hash of all fields that compare: 64 hexadecimal digits, equal for equal data, in every process.

    Origins and decisions are left out.
    """
    return sha256(_dump(data, SchemaWriter(identity=True)).encode()).hexdigest()


@cache
def _schema_digest() -> str:
    """A hash of all classes and their fields, which changes if a field is added, renamed or moved."""
    text = ";".join(
        f"{cls.__name__}({','.join(f'{f.name}: {f.type}' for f in fields(cls))})" for cls in CLASSES
    )
    return sha256(text.encode()).hexdigest()[:16]


def _dump(data: Document | Expr, writer: SchemaWriter) -> str:
    kind = Expr if isinstance(data, Expr) else type(data)
    if kind is not Expr and kind.__name__ not in _ROOTS:
        raise TypeError(f"no serial form for {kind.__name__}")
    body = codec_of(kind).encode(data, writer)
    header = {"format": _FORMAT, "version": _VERSION, "schema": _schema_digest(), "kind": kind.__name__}
    return json.dumps(
        {**header, "nodes": writer.entries, "data": body}, separators=(",", ":"), allow_nan=False
    )
