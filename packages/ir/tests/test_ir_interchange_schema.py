"""The schema of the interchange form: current, complete, and that of all documents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from ir_interchange_samples import TEXTS, document_of, everything
from jsonschema import Draft202012Validator

from litz_ir import interchange
from litz_ir.dtypes import f32
from litz_ir.fused.group import FusedGraph
from litz_ir.interchange import interchange_schema, to_interchange
from litz_ir.interchange.constructors import CONSTRUCTORS
from litz_ir.interchange.forms import CLASSES_BY_FIELDS, FORMS, REQUIRED
from litz_ir.interchange.json_text import json_text
from litz_ir.loops.nodes import LoopGraph
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.scalar import expr as e
from litz_ir.scalar.node import Expr
from litz_ir.serial.schema import CLASSES
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.term import Symbol
from litz_ir.text import from_text

SCHEMA_FILE = Path(interchange.__file__).with_name("schema.json")
VALIDATOR = Draft202012Validator(interchange_schema())


def test_other_things_have_no_interchange_form() -> None:
    with pytest.raises(TypeError, match="expected LoopGraph or FusedGraph or Plan or Kernel, found a DType"):
        to_interchange(f32)  # type: ignore[arg-type]  # on purpose


def test_every_class_has_a_form_under_a_name_of_its_own() -> None:
    names = [form.cls for form in FORMS.values()]
    assert set(CLASSES) <= set(names)
    expressions = {cls for cls in vars(e).values() if isinstance(cls, type) and issubclass(cls, Expr)} - {
        Expr
    }
    terms = {Symbol, Sum, Product, FloorDiv, Mod, Min, Max, e.Indirect}
    assert expressions | terms <= set(names)
    assert len(names) == len(CLASSES_BY_FIELDS) + len(CONSTRUCTORS)
    assert all(name == form.name for name, form in FORMS.items())


def test_no_field_is_called_like_a_part_of_the_header() -> None:
    for root in (LoopGraph, FusedGraph, Plan, Kernel):
        assert not {"format", "version", "expressions"} & {
            field.name for field in FORMS[root.__name__].fields
        }
    assert not [form for form in FORMS.values() if any(field.name == "class" for field in form.fields)]


def test_the_schema_is_current(request: pytest.FixtureRequest) -> None:
    text = json_text(interchange_schema())
    if request.config.getoption("--update-golden"):
        SCHEMA_FILE.write_text(text, encoding="utf-8")
    current = SCHEMA_FILE.read_text(encoding="utf-8") == text
    assert current, f"{SCHEMA_FILE} differs: --update-golden rewrites it, and the version may have to rise"


def test_the_schema_describes_every_class_and_field() -> None:
    schema = interchange_schema()
    Draft202012Validator.check_schema(schema)
    for name, form in FORMS.items():
        found = schema["$defs"][name]
        assert found["description"] and found["properties"]["class"] == {"const": name}
        required = [field.name for field in form.fields if field.default is REQUIRED]
        assert set(found["required"]) == {"class", *required} | (
            {"dtype"} if issubclass(form.cls, Expr) else set()
        )
    assert schema["$defs"]["Axis"]["properties"]["size"] == {
        "description": "Number of points.",
        "$ref": "#/$defs/Size",
    }


@settings(max_examples=40)
@given(everything)
def test_documents_fit_the_schema(data: Any) -> None:
    VALIDATOR.validate(document_of(data))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_document_that_lacks_a_field_does_not_fit_the_schema(text: str) -> None:
    document = document_of(from_text(text))
    required = VALIDATOR.schema["$defs"][document["class"]]["required"]
    for name in required:
        assert not VALIDATOR.is_valid({key: each for key, each in document.items() if key != name})


def test_importing_the_form_imports_neither_torch_nor_the_interpreter() -> None:
    program = (
        "import sys, litz_ir.interchange; "
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'triton', 'sympy') "
        "or name.startswith('litz_ir.interp')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
