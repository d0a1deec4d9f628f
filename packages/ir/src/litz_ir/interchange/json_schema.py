"""The JSON Schema of documents, made from the same forms that they are written and read by."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from textwrap import dedent
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin

from litz_ir.dtypes import ALL, DType
from litz_ir.faults import FAULTS
from litz_ir.interchange.codecs import codec_of
from litz_ir.interchange.constructors import FaultName, Number
from litz_ir.interchange.document import FORMAT, MAJOR, MINOR
from litz_ir.interchange.expressions import ExpressionWriter
from litz_ir.interchange.forms import FORMS, REQUIRED, Field, Form, forms_of
from litz_ir.interchange.plain_codecs import BARE, NOT_FINITE
from litz_ir.loops.nodes import Argument, Operation
from litz_ir.scalar.node import Expr
from litz_ir.serial.document import Document
from litz_ir.symbols.term import Size, Term

Schema = dict[str, Any]
"""A JSON Schema as data."""


def interchange_schema() -> Schema:
    """The JSON Schema (of version 2020-12) of documents; ``schema.json`` next to this module is a copy."""
    version = [{"const": MAJOR}, {"type": "integer", "minimum": 0}]
    expressions = {"type": "array", "items": _reference("Expression"), "default": []}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"litz interchange form {MAJOR}.{MINOR}",
        "description": "A loop graph, fused graph, plan or kernel. Fields that are left out have their default.",
        "type": "object",
        "properties": {
            "format": {"const": FORMAT},
            "version": {"type": "array", "prefixItems": version, "minItems": 2, "maxItems": 2},
            "expressions": {
                "description": "Expressions of the document; each refers to earlier ones by position, from 0.",
                **expressions,
            },
        },
        "required": ["format", "version"],
        **_schema(Document),
        "$defs": {
            **{name: define() for name, define in _SHARED.items()},
            **{name: _object(form) for name, form in sorted(FORMS.items())},
        },
    }


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _any_of(schemas: Iterable[Schema]) -> Schema:
    distinct = list({str(each): each for each in schemas}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def _schema(hint: Any) -> Schema:
    """The schema of the values of a field."""
    if isinstance(hint, ForwardRef | str) or _plain_members(hint) == _plain_members(Argument):
        return _reference("Argument")
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, UnionType):
        return _union(hint)
    if origin is tuple and args[-1] is Ellipsis:
        return {"type": "array", "items": _schema(args[0])}
    if origin is tuple:
        length = {"minItems": len(args), "maxItems": len(args)}
        return {"type": "array", "prefixItems": [_schema(each) for each in args], **length}
    return _family(hint)


def _plain_members(hint: Any) -> frozenset[Any]:
    """The members of a union that are no tuples: of a recursive one, the same at every depth."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    return frozenset(each for each in members if get_origin(each) is not tuple) or frozenset((hint,))


def _union(hint: Any) -> Schema:
    members = [_family(each) if each in BARE else _schema(each) for each in get_args(hint)]
    return _any_of(part for each in members for part in each.get("anyOf", [each]))


def _family(cls: type) -> Schema:
    """The schema of objects of a class and its subclasses."""
    if cls.__name__ in _SHARED:
        return _reference(cls.__name__)
    return _any_of(_reference(form.name) for form in forms_of(cls))


_SHARED: Mapping[str, Callable[[], Schema]] = MappingProxyType(
    {
        "Argument": lambda: _union(Argument),
        "DTypeName": lambda: {"enum": [each.name for each in ALL]},
        "Expression": lambda: _any_of(_reference(form.name) for form in forms_of(Expr)),
        "ExpressionReference": lambda: {
            "description": "An entry of the document's expressions, by position.",
            "type": "object",
            "properties": {"expression": {"type": "integer", "minimum": 0}},
            "required": ["expression"],
        },
        "FaultName": lambda: {"enum": list(FAULTS)},
        "Number": lambda: {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]},
        "Operation": lambda: _any_of(_reference(form.name) for form in forms_of(Operation)),
        "Size": lambda: _union(Size),
        "Term": lambda: _any_of(_reference(form.name) for form in forms_of(Term)),
    }
)
"""Definitions other than those of objects."""

_PLAIN: Mapping[Any, Schema] = MappingProxyType(
    {
        NoneType: {"type": "null"},
        bool: {"type": "boolean"},
        int: {"type": "integer"},
        str: {"type": "string"},
        float: _reference("Number"),
        Number: {"anyOf": [_reference("Number"), {"type": "boolean"}]},
        DType: _reference("DTypeName"),
        FaultName: _reference("FaultName"),
        Expr: _reference("ExpressionReference"),
        Size: _reference("Size"),
    }
)


def _object(form: Form) -> Schema:
    texts = _field_texts(form.cls)
    properties = {"class": {"const": form.name}}
    required = ["class"]
    if issubclass(form.cls, Expr):
        properties["dtype"] = {"description": "Dtype of the value.", **_reference("DTypeName")}
        required.append("dtype")
    for field in form.fields:
        properties[field.name] = _field(field, texts.get(field.name, ""))
        if field.default is REQUIRED and field.name not in required:
            required.append(field.name)
    return {
        "description": _prose(form.make.__doc__ or form.cls.__doc__ or ""),
        "type": "object",
        "properties": properties,
        "required": required,
    }


def _field(field: Field, text: str) -> Schema:
    schema: Schema = {**({"description": text} if text else {}), **_schema(field.hint)}
    if field.default is not REQUIRED:
        schema["default"] = codec_of(field.hint).encode(field.default, ExpressionWriter())
    return schema


def _field_texts(cls: type) -> dict[str, str]:
    """The literals below the fields of a class and its bases, which describe them."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("litz_ir."):
            (tree,) = ast.parse(dedent(inspect.getsource(base))).body
            assert isinstance(tree, ast.ClassDef)
            for field, below in zip(tree.body, tree.body[1:]):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                        value=ast.Constant(value=str() as text)
                    ):
                        found[name] = _prose(text)
    return found


def _prose(text: str) -> str:
    """A docstring as one line, without Python's markup of references."""
    plain = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", " ".join(text.split())).replace("``", "`")
    return plain.replace("`None`", "`null`")
