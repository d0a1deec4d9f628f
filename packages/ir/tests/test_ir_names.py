"""The package's public names, which are all found, and the cost of importing it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import litz_ir
from litz_ir.errors import GraphError, VerifyError
from litz_ir.text import from_text
from litz_ir.verifier import verify


def test_every_public_name_is_found() -> None:
    for name in litz_ir.__all__:
        assert getattr(litz_ir, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="it has FusedGraph"):
        litz_ir.nothing  # noqa: B018  # asking is the test


def test_importing_loads_nothing_heavy() -> None:
    program = (
        "import litz_ir, sys; print(sorted({'numpy', 'sympy', 'torch', 'litz_ir.text'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text",
    [
        "graph g() -> (%x) { }",
        "fused { graph g() -> (%x) { } }",
        'plan p on cpu "any" () -> (%x) { }',
        "kernel k(in %x: f32, in %x: f32) { }",
    ],
)
def test_verify_accepts_every_level(text: str) -> None:
    with pytest.raises(VerifyError):
        verify(from_text(text))


def test_verify_refuses_other_things() -> None:
    with pytest.raises(GraphError, match="no verifier for int"):
        verify(3)
