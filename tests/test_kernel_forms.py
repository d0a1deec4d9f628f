"""Tests of the table of kernel forms: each is selected at full size, and right at small extents with a tail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from forms import interpreted, judge
from forms.form import Cell, Form
from forms.run import table
from forms.table import FORMS
from interpreted import cases_in

INTERPRETED = [form for form in FORMS if form.interpreted]
pytestmark = pytest.mark.sampled


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Mapping[str, dict[str, Any]]:
    """Rows of the first dtype of each form with an idle thread, warp or block, from a process with Triton's
    interpreter."""
    forms = ",".join(form.name for form in cases_in(request, "form"))
    command = [sys.executable, "-W", "ignore", "-m", "forms", "--tails", "idle", "--first-dtype"]
    command += ["--forms", forms]
    folder = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    own = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=550)
    return {row["form"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", [form for form in INTERPRETED if not form.slow], ids=lambda form: form.name)
def test_a_form_is_right_where_somebody_has_no_element(
    form: Form, rows: Mapping[str, dict[str, Any]]
) -> None:
    assert rows[form.name]["difference"] == ""


@pytest.mark.parametrize("form", INTERPRETED, ids=lambda form: form.name)
def test_a_form_is_what_its_name_says_at_full_size(form: Form) -> None:
    found = interpreted.sources(Cell(form, "exact", form.dtypes[0]))
    assert form.shows in "\n".join(source.text for source in found)
    assert form.kernels in (0, len(found))


def test_the_judge_finds_a_value_that_is_not_eagers() -> None:
    eager = torch.linspace(1, 2, 100)
    exact, wrong, nan = eager.double(), eager.clone(), eager.clone()
    wrong[7], nan[7] = wrong[7] + 1e-5, torch.nan
    assert judge.difference([eager], [eager], [exact]) == ""
    assert "off by 1e-05" in judge.difference([wrong], [eager], [exact])
    assert "1 of 100 elements are infinite or NaN" in judge.difference([nan], [eager], [exact])
    assert "1 of 3 elements differ" in judge.difference(
        [torch.tensor([1, 2, 3])], [torch.tensor([1, 2, 4])], [torch.tensor([1, 2, 4])]
    )


def test_the_table_counts_what_is_right() -> None:
    row = {"form": "map", "tail": "over", "dtype": "f32", "difference": ""}
    text = table([row, {**row, "dtype": "bf16", "difference": "off"}])
    assert text.splitlines()[-1] == "| map | f32, bf16 | 1 of 2 |"
