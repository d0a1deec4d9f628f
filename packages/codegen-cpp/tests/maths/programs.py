"""The two libraries of the harness: litz's function over arrays, and the reference that judges it."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litz_codegen_cpp.emit.source.ops_table import SPELLINGS
from litz_codegen_cpp.toolchain.build import BuildOptions, compile_source
from litz_codegen_cpp.toolchain.compilers import find_compiler
from litz_codegen_cpp.toolchain.isa import by_name, detect
from maths.functions import DType, Function
from maths.inputs import Array
from maths.tally import Tally, TallyStruct

HERE = Path(__file__).resolve().parent
CTYPE = {"f32": "float", "f64": "double"}
EXACT = {"f32": np.float64, "f64": np.longdouble}
"""The NumPy dtype of exact values."""

UNIT = """
#include <litz/{header}.h>
#include <litz/memory.h>
using namespace litz;
extern "C" void evaluate(const {type}* a, const {type}* b, {type}* out, int64_t n) {{
  for (int64_t i = 0; i < n; i += LITZ_LANES) {{
    const vec<{type}> x = load(a + i), y = load(b + i);
    store(out + i, {call});
  }}
}}
"""
REFERENCE_FLAGS = ("-std=gnu++17", "-O3", "-w", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
REFERENCE_LIBRARIES = ("-lmvec", "-lquadmath", "-lm")


@dataclass(frozen=True, slots=True)
class Subject:
    """A function as kernels call it, compiled for one instruction set: ``values(a, b)`` for whole registers."""

    function: Function
    dtype: DType
    code: str
    library: ctypes.CDLL

    def values(self, a: Array, b: Array) -> Array:
        """The function at ``a``, or at the pairs of ``a`` and ``b``; as many as fill registers."""
        out = np.empty_like(a)
        self.library.evaluate(_address(a), _address(b), _address(out), ctypes.c_int64(len(a)))
        return out


@dataclass(frozen=True, slots=True)
class Reference:
    """The library of exact values and of comparisons with them."""

    library: ctypes.CDLL

    def exact(self, function: Function, dtype: DType, a: Array, b: Array) -> Array:
        """The exact values: ``float64`` for ``f32``, ``longdouble`` for ``f64``."""
        out = np.empty(len(a), EXACT[dtype])
        entry = self.library[f"exact_{function.name}_{CTYPE[dtype]}"]
        entry(_address(a), _address(b), _address(out), ctypes.c_int64(len(a)))
        return out

    def judge(self, dtype: DType, a: Array, b: Array, got: Array, want: Array) -> Tally:
        """Return the distances of ``got`` from the exact ``want``."""
        struct = TallyStruct()
        entry = self.library[f"judge_{CTYPE[dtype]}"]
        arrays = (_address(each) for each in (a, b, got, want))
        entry(*arrays, ctypes.c_int64(len(a)), ctypes.byref(struct))
        return Tally.of(struct)

    def compare_kinds(self, dtype: DType, a: Array, b: Array, one: Array, other: Array) -> Tally:
        """Count the positions at which one of two results is NaN, infinite or a negative zero, and the other is not."""
        struct = TallyStruct()
        entry = self.library[f"compare_kinds_{CTYPE[dtype]}"]
        arrays = (_address(each) for each in (a, b, one, other))
        entry(*arrays, ctypes.c_int64(len(a)), ctypes.byref(struct))
        return Tally.of(struct)


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def subject(function: Function, dtype: DType, isa: str, folder: Path) -> Subject:
    """Compile a function's loop into ``folder`` for the instruction set ``isa``; ``Subject.code`` is its digest."""
    spelling = SPELLINGS[function.name]
    call = spelling.text.format(*("x", "y")[: function.arity])
    source = UNIT.format(header=spelling.header, type=CTYPE[dtype], call=call)
    out = folder / f"{function.name}-{dtype}-{isa}.so"
    compile_source(source, isa=by_name(isa), compiler=find_compiler(), out=out, options=BuildOptions())
    code = hashlib.sha256(out.read_bytes()).hexdigest()[:12]
    return Subject(function, dtype, code, ctypes.CDLL(str(out)))


def reference(folder: Path) -> Reference:
    """Compile the reference library; needs GCC for its 113-bit floats and glibc's vector functions."""
    sources = [HERE / "reference.cpp", HERE / "reference.h"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    out = folder / f"reference-{digest}.so"
    if not out.exists():
        compiler = find_compiler()
        words = (*compiler.command, *REFERENCE_FLAGS, *detect().flags, "-o", str(out), str(sources[0]))
        subprocess.run((*words, *REFERENCE_LIBRARIES), check=True)
    return Reference(ctypes.CDLL(str(out)))
