"""Modules of the package that work where sympy is not installed: all but the conversion from and to it."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = "import sys; sys.modules['sympy'] = None  # as if it were not installed\n"


def run(program: str) -> str:
    """Return what a program prints in a process that cannot import sympy."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_every_other_module_can_be_imported() -> None:
    program = (
        "import importlib, pkgutil, litz_ir\n"
        "names = [m.name for m in pkgutil.walk_packages(litz_ir.__path__, 'litz_ir.')]\n"
        "for name in names:\n"
        "    if name != 'litz_ir.symbols.sympy_io':\n"
        "        importlib.import_module(name)\n"
        "print(len(names) > 50, {'torch', 'triton'} & set(sys.modules))"
    )
    assert run(program) == "True set()"


def test_public_names_of_the_symbols_compute() -> None:
    program = (
        "from litz_ir.symbols import evaluate, symbol\n"
        "s = symbol('s')\n"
        "print(evaluate(s * 2 // 3, {'s': 6}), s + s)"
    )
    assert run(program) == "4 s*2"


def test_the_conversion_names_the_extra() -> None:
    program = (
        "try:\n"
        "    import litz_ir.symbols.sympy_io\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name, '|', error)"
    )
    assert run(program) == (
        "sympy | the conversion from and to sympy needs sympy: pip install 'litz-ir[sympy]'"
    )
