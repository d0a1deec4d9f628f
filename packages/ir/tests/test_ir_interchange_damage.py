"""Damaged documents of the interchange form: each is an error with the path of the fault, or has a meaning."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_interchange_samples import GRAPH, TEXTS, document_of, everything, place, places_in, read
from jsonschema import Draft202012Validator

from litz_ir import errors
from litz_ir.errors import SerialError, UnknownClass
from litz_ir.interchange import from_interchange, interchange_schema, to_interchange
from litz_ir.interchange.forms import FORMS
from litz_ir.text import from_text, parse_graph

VALIDATOR = Draft202012Validator(interchange_schema())
REMOVED = object()
DAMAGE: list[tuple[str, Any, str]] = [
    ("format", "json", '.format: expected "litz-interchange", found "json"'),
    ("format", REMOVED, '.format: expected "litz-interchange", found null'),
    ("version", "1.0", '.version: expected array, found "1.0"'),
    ("version", [1], ".version: expected array of 2, found array of 1"),
    ("version", [1, True], ".version[1]: expected integer from 0, found true"),
    ("version", [1, -1], ".version[1]: expected integer from 0, found -1"),
    ("version", [2, 0], ".version[0]: expected 1, found 2; the document has version 2.0, the reader 1.0"),
    ("version", [0, 9], ".version[0]: expected 1, found 0; the document has version 0.9, the reader 1.0"),
    (
        "class",
        "Popen",
        ": expected LoopGraph or FusedGraph or Plan or Kernel, found object of the unknown class Popen",
    ),
    ("class", "Axis", ": expected LoopGraph or FusedGraph or Plan or Kernel, found object of class Axis"),
    ("class", REMOVED, ": expected LoopGraph or FusedGraph or Plan or Kernel, found object without a class"),
    ("inputs", REMOVED, ".inputs: expected array, found no such field in the object of class LoopGraph"),
    ("inputs", {}, ".inputs: expected array, found object without a class"),
    ("name", "\ud800", '.name: expected string without unpaired surrogates, found "\\ud800"'),
    ("operations[1].axes[0].size", "s0", '.operations[1].axes[0].size: expected integer or Term, found "s0"'),
    ("operations[1].axes[0].size", 4.0, ".operations[1].axes[0].size: expected integer or Term, found 4.0"),
    (
        "operations[0].class",
        "Operation",
        ".operations[0]: expected Operation, found object of the unknown class Operation",
    ),
    ("operations[0]", {"expression": 0}, ".operations[0]: expected Operation, found reference to an expr"),
    ("operations[1].combiner.name", "mean", ".operations[1].combiner: unknown combiner 'mean'"),
    (
        "operations[0].bodies[0]",
        {"expression": 9},
        ".operations[0].bodies[0].expression: expected position of an earlier expression, found 9",
    ),
    ("operations[0].bodies[0]", 3, ".operations[0].bodies[0]: expected object, found 3"),
    (
        "operations[0].bodies[0]",
        {},
        ".operations[0].bodies[0]: expected reference to an expression, found obj",
    ),
    (
        "operations[0].results[0].type.dtype",
        "f31",
        ".operations[0].results[0].type.dtype: expected one of f64",
    ),
    ("symbols.infos[0].divisor", 0, ".symbols.infos[0]: symbol 's0' has divisor 0"),
    ("symbols.equalities", [[1]], ".symbols.equalities[0]: expected array of 2, found array of 1"),
    (
        "outputs[1]",
        {"class": "Mod", "dividend": 1, "divisor": 0},
        ".outputs[1]: no Mod has these fields: rem",
    ),
    ("outputs[1]", {"class": "Symbol", "name": "a b"}, ".outputs[1]: 'a b' is not a symbol's name"),
    ("outputs[2].value", "naan", ".outputs[2].value: expected number of 64 bits or one of nan, inf, -inf"),
    ("outputs[2].value", 10**400, ".outputs[2].value: expected number of 64 bits"),
    ("outputs[2].value", True, ".outputs[2].value: expected number, found true"),
    (
        "expressions[2].args",
        [{"expression": 2}],
        ".expressions[2].args[0].expression: expected position of an earlier expression, found 2",
    ),
    ("expressions[0]", 5, ".expressions[0]: expected Expr, found 5"),
]


@pytest.mark.parametrize(("path", "value", "message"), DAMAGE)
def test_errors_name_the_path_and_what_belongs_there(path: str, value: Any, message: str) -> None:
    document = document_of(parse_graph(GRAPH))
    inside, key = place(document, path)
    if value is REMOVED:
        del inside[key]
    else:
        inside[key] = value
    with pytest.raises(SerialError) as found:
        read(document)
    assert found.value.message.startswith(f"${message}"), found.value.message


def test_literals_and_dtypes_have_to_agree() -> None:
    document = document_of(from_text("graph g() -> (%o) { %o = pointwise f32[] { exp(2.0) } }"))
    for literal, dtype in ((1.5, "i64"), (True, "i64"), (True, "f32"), (1, "b1"), ("nan", "u8")):
        document["expressions"][0].update(value=literal, dtype=dtype)
        with pytest.raises(
            SerialError, match=rf"^serial: \$\.expressions\[0\]: expected a literal of {dtype}"
        ):
            read(document)
    document["expressions"][0] = {"class": "Index", "dtype": "i32", "term": 3}
    with pytest.raises(SerialError, match=r'expressions\[0\]\.dtype: expected "i64", .* found "i32"'):
        read(document)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "{" * 100_000, "[" * 100_000, '{"format": NaN}', "1" * 5000, "\ud800"]
)
def test_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(SerialError, match=r"^serial: \$"):
        from_interchange(text)


@pytest.mark.parametrize("text", [3, None, {}, []])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(SerialError, match=r"\$: expected JSON text, found a value of type ") as found:
        from_interchange(text)
    assert found.value.hint


def test_a_key_that_occurs_twice_is_refused_at_its_path() -> None:
    text = to_interchange(parse_graph(GRAPH))
    for right, wrong, message in (
        ("{", '{"name": "g", ', r'\$: expected each key once, found "name" twice'),
        (
            '{"class": "Axis"',
            '{"class": "Axis", "class": "Axis"',
            r"\$\.operations\[\d+\]\S*: expected each key once",
        ),
    ):
        assert right in text
        with pytest.raises(SerialError, match=message):
            from_interchange(text.replace(right, wrong, 1))


def test_an_unknown_class_is_an_error_of_its_own() -> None:
    assert "UnknownClass" in errors.__all__
    document = document_of(parse_graph(GRAPH))
    document["operations"][0]["class"] = "Operation"
    with pytest.raises(UnknownClass, match="unknown class Operation"):
        read(document)


def test_terms_that_are_too_deep_are_refused() -> None:
    document = document_of(parse_graph("graph g() -> () { }"))
    nested = json.dumps(document).replace('"outputs": []', f'"outputs": [{"[" * 600}{"]" * 600}]')
    with pytest.raises(SerialError, match=r"^serial: \$"):
        from_interchange(nested)
    minimum = '{"class": "Min", "args": [1, '
    nested = json.dumps(document).replace('"outputs": []', f'"outputs": [{minimum * 300}2{"]}" * 300}]')
    with pytest.raises(SerialError, match=r"^serial: \$: expected less nesting"):
        from_interchange(nested)


REPLACEMENTS = (
    REMOVED, None, True, 0, -1, 2**70, 1.5, "", "nan", "zz", [], [[]], ["zz", 1], {}, {"class": "Popen"}, {"class": 1},
    {"class": "Axis", "name": "i9", "size": 2}, {"class": "Symbol", "name": "s9"}, {"class": "DType", "name": "f32"},
    {"class": "Sum", "terms": []}, {"expression": 0}, {"expression": 99}, {"expression": None},
)  # fmt: skip
ERROR = re.compile(r"(\$[\w.\[\]]*): .+")


@pytest.mark.parametrize("level", TEXTS)
def test_a_replaced_value_is_an_error_at_its_place_or_fits_the_schema(level: str) -> None:
    """Every place of a document, but one of those that differ by positions alone, times every replacement."""
    document = document_of(from_text(TEXTS[level]))
    places = {re.sub(r"\d+", "", path): (path, inside, key) for path, inside, key in places_in(document)}
    errors = 0
    for path, inside, key in places.values():
        kept = inside[key]
        for value in REPLACEMENTS:
            if value is REMOVED:
                del inside[key]
            else:
                inside[key] = value
            errors += not is_read(document, path)
            if value is REMOVED and isinstance(inside, list):
                inside.insert(key, kept)
            else:
                inside[key] = kept
    assert errors > len(places) * len(REPLACEMENTS) / 2


def is_read(document: Any, path: str) -> bool:
    """True if a document with a replacement at ``path`` has a meaning, False if it is an error about that place."""
    try:
        found = read(document)
    except SerialError as error:
        match = ERROR.fullmatch(error.message)
        assert match, error.message
        is_near = path.startswith(match[1]) or match[1].startswith(path)
        # A change of an expression may be an error of those that use it.
        assert is_near or path.startswith("$.expressions"), (path, error.message)
        return False
    again = to_interchange(found)
    assert to_interchange(from_interchange(again)) == again
    assert VALIDATOR.is_valid(document), path
    return True


scalars = st.sampled_from((None, True, False, 0, 1, -1, 2**70, 0.5, "nan", "", "x", "f32", "i64"))
words = st.sampled_from((*FORMS, "class", "Popen"))
values = st.recursive(
    scalars | words | st.builds(lambda k: {"expression": k}, st.integers(-1, 9)),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.builds(lambda name, each: {"class": name, "name": each}, words, inner)
    ),
    max_leaves=3,
)


@settings(max_examples=100)
@given(st.sampled_from(list(TEXTS.values())).map(from_text) | everything, st.data())
def test_damage_is_an_error_or_gives_data(data: Any, choose: st.DataObject) -> None:
    document = document_of(data)
    for _ in range(choose.draw(st.integers(1, 3))):
        places = [(inside, key) for _, inside, key in places_in(document)]
        inside, key = places[choose.draw(st.integers(0, len(places) - 1))]
        change = choose.draw(st.sampled_from(("replace", "copy", "delete", "rename")))
        if change == "delete":
            del inside[key]
        elif change == "copy":
            other, name = places[choose.draw(st.integers(0, len(places) - 1))]
            inside[key] = copy.deepcopy(other[name])
        elif change == "rename" and isinstance(inside, dict):
            inside[choose.draw(words)] = inside.pop(key)
        else:
            inside[key] = choose.draw(values)
    gives_data_or_an_error(json.dumps(document))


@settings(max_examples=100)
@given(st.sampled_from(list(TEXTS.values())), st.data())
def test_damaged_text_is_an_error_or_gives_data(source: str, choose: st.DataObject) -> None:
    text = to_interchange(from_text(source))
    start = choose.draw(st.integers(0, len(text) - 1))
    length = choose.draw(st.integers(0, 12))
    noise = choose.draw(st.text(alphabet='0123456789"[]{},:-.tfnul', max_size=4))
    gives_data_or_an_error(text[:start] + noise + text[start + length :])


def gives_data_or_an_error(text: str) -> None:
    try:
        found = from_interchange(text)
    except SerialError as error:
        assert error.message.startswith("$")
        return
    again = to_interchange(found)
    assert to_interchange(from_interchange(again)) == again
