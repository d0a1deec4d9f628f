"""Modules that importing a package loads, observed in a fresh process, and names that no source may use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(ROOT.glob("packages/*/src/**/*.py"))


def loaded_by(statement: str) -> set[str]:
    """Return the names of all modules in a fresh process after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return set(done.stdout.split())


def test_ir_scheduler_and_cpp_load_neither_torch_nor_triton_nor_sympy() -> None:
    names = "from litz_ir import *; from litz_scheduler import *; import litz_codegen_cpp.target"
    loaded = loaded_by(names)
    assert {"litz_ir.verifier", "litz_scheduler.pipeline", "litz_codegen_cpp"} <= loaded
    assert not {"torch", "triton", "sympy"} & loaded


def test_importing_ir_and_scheduler_loads_neither_numpy_nor_their_modules() -> None:
    loaded = loaded_by("import litz_ir, litz_scheduler")
    assert "numpy" not in loaded
    assert {name for name in loaded if name.startswith("litz")} == {
        "litz_ir",
        "litz_ir.collection",
        "litz_ir.deferred",
        "litz_scheduler",
    }


def test_triton_codegen_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import litz_codegen_triton")


def test_frontend_loads_no_codegen_by_name() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES if "frontend" in path.parts)
    assert "import litz_codegen" not in text
    assert "from litz_codegen" not in text


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "packages")))
def test_source_does_not_name_the_peer(path: Path) -> None:
    assert "torch._inductor" not in path.read_text(encoding="utf-8")
