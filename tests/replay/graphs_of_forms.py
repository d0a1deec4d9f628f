"""Graphs of the table of kernel forms at full size, lowered under the plugin: a test file that runs when named."""

from __future__ import annotations

import pytest
from forms.form import Cell, Form, Tail
from forms.interpreted import FULL_SIZE, graph_of, graph_on_gpu, options_of
from forms.table import FORMS

from replay.plugin import RECORDER


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tail", ["exact", "over"])
@pytest.mark.parametrize("form", [form for form in FORMS if form.interpreted], ids=lambda form: form.name)
def test_form(form: Form, tail: Tail) -> None:
    cell = Cell(form, tail, form.dtypes[0])
    with RECORDER.scheduling(options_of(cell, FULL_SIZE, form.look_back[0])):
        graph_on_gpu(cell, full=True) if form.gpu_rules else graph_of(cell)
    assert len(RECORDER.graphs) == 1
