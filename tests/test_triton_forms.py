"""What only GPUs, or only large sizes, make of a graph: it is made at full size, and right at a small one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import triton_forms


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    """What differs from eager, by form, in a process whose Triton interprets."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(triton_forms.__file__))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {line["case"]: line["difference"] for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("form", triton_forms.FORMS, ids=lambda form: form.name)
def test_a_form_computes_what_eager_computes(form: triton_forms.Form, differences: Mapping[str, str]) -> None:
    assert differences[form.name] == ""


@pytest.mark.parametrize("form", triton_forms.FORMS, ids=lambda form: form.name)
def test_a_form_is_what_its_name_says(form: triton_forms.Form) -> None:
    found = triton_forms.sources(form)
    assert form.shows in "\n".join(source.text for source in found)
    assert len(found) == form.kernels
