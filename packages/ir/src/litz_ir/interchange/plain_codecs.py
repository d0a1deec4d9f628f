"""Codecs of values that are no objects: JSON's own types, numbers, words and references to expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, NoneType
from typing import Any, Protocol

from litz_ir.dtypes import ALL, DType, dtype
from litz_ir.faults import FAULTS
from litz_ir.interchange.constructors import FaultName, Number
from litz_ir.interchange.damage import Json, damaged, expect
from litz_ir.scalar.node import Expr

NOT_FINITE: Mapping[str, float] = MappingProxyType({"nan": math.nan, "inf": math.inf, "-inf": -math.inf})
"""The floats that JSON lacks, which documents spell as strings."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class Writer(Protocol):
    """The table of expressions of a document that is written."""

    def reference(self, expression: Expr) -> Json:
        """A reference to an expression, which is added to the table."""


class Reader(Protocol):
    """The table of expressions of a document that is read."""

    def expression(self, data: Json, path: str) -> Expr:
        """The expression that a reference refers to."""


@dataclass(frozen=True, slots=True)
class Codec:
    """Encoder and decoder of one type."""

    encode: Callable[[Any, Writer], Json]
    """Function from a value to JSON."""
    decode: Callable[[Json, str, Reader], Any]
    """Function from JSON at a path to a value; raises :class:`SerialError`."""
    types: tuple[type, ...]
    """Classes of its values; those of subclasses too."""
    forms: tuple[str, ...]
    """Forms of its JSON, as ``form_of`` names them."""
    expected: str
    """Description of its JSON for errors."""


def _plain(kind: type, form: str) -> Codec:
    return Codec(
        lambda value, writer: value,
        lambda data, path, reader: expect(data, kind, path),
        (kind,),
        (form,),
        form,
    )


def _string(data: Json, path: str, reader: Reader) -> str:
    text: str = expect(data, str, path)
    if not text.isascii() and _SURROGATE.search(text):
        damaged(path, "string without unpaired surrogates", data)
    return text


def _write_number(value: float, writer: Writer) -> Json:
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _number(data: Json, path: str, reader: Reader) -> int | float | bool:
    if type(data) is str and data in NOT_FINITE:
        return NOT_FINITE[data]
    if not isinstance(data, int | float) or (isinstance(data, float) and not math.isfinite(data)):
        damaged(path, f"number of 64 bits or one of {', '.join(NOT_FINITE)}", data)
    return data


def _float(data: Json, path: str, reader: Reader) -> float:
    if type(data) is bool:
        damaged(path, "number", data)
    try:
        return float(_number(data, path, reader))
    except OverflowError:
        damaged(path, "number of 64 bits", data)


def choice(words: Sequence[str]) -> Codec:
    """The codec of a string that is one of some words."""
    expected = f"one of {', '.join(words)}"

    def decode(data: Json, path: str, reader: Reader) -> Any:
        if type(data) is not str or data not in words:
            damaged(path, expected, data)
        return data

    return Codec(lambda value, writer: value, decode, (str,), ("string",), expected)


_DTYPES = choice([each.name for each in ALL])
BARE = (float, DType)
"""Types that are bare JSON, but objects where a field may have several types."""

PLAIN: Mapping[Any, Codec] = MappingProxyType(
    {
        NoneType: _plain(NoneType, "null"),
        bool: _plain(bool, "boolean"),
        int: _plain(int, "integer"),
        str: Codec(lambda value, writer: value, _string, (str,), ("string",), "string"),
        float: Codec(_write_number, _float, (float,), ("number",), "number"),
        Number: Codec(_write_number, _number, (float, int), ("number",), "number"),
        FaultName: choice(tuple(FAULTS)),
        DType: Codec(
            lambda value, writer: value.name,
            lambda data, path, reader: dtype(_DTYPES.decode(data, path, reader)),
            (DType,),
            ("string",),
            _DTYPES.expected,
        ),
        Expr: Codec(
            lambda value, writer: writer.reference(value),
            lambda data, path, reader: reader.expression(data, path),
            (Expr,),
            ("reference",),
            "reference to an expression",
        ),
    }
)
"""The codecs by type hint."""
