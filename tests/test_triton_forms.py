"""What only GPUs, or only large sizes, make of a graph: it is made at full size, and right at a small one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import triton_forms
from interpreted import lines_by_case


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    """What differs from eager, by form, in a process whose Triton interprets."""
    lines = lines_by_case(triton_forms.__file__, seconds=170)
    return {case: line["difference"] for case, line in lines.items()}


@pytest.mark.parametrize("form", triton_forms.FORMS, ids=lambda form: form.name)
def test_a_form_computes_what_eager_computes(form: triton_forms.Form, differences: Mapping[str, str]) -> None:
    assert differences[form.name] == ""


@pytest.mark.parametrize("form", triton_forms.FORMS, ids=lambda form: form.name)
def test_a_form_is_what_its_name_says(form: triton_forms.Form) -> None:
    found = triton_forms.sources(form)
    assert form.shows in "\n".join(source.text for source in found)
    assert len(found) == form.kernels
