"""Compilation as kernels are compiled, and instructions that Numba has no function for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba import types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile a function as kernels are: floats by IEEE, without exceptions and without Python's global
    lock."""
    compiled: Any = numba.njit(cache=False, error_model="numpy", nogil=True)(function)
    ready: Function = compiled
    return ready


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of types, which returns a signature and a generator of LLVM code, callable in kernels.

    Kernels leave out its first argument, the context.
    """
    ready: Callable[..., Any] = intrinsic(function)
    return ready


@instruction
def pointer(context: Any, address: Any, dtype: Any) -> Any:
    """Memory at an address, to be indexed by elements of the NumPy type ``dtype``."""
    pointer_to: Any = types.CPointer
    result = pointer_to(dtype.instance_type)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(result))

    return result(address, dtype), generate


@instruction
def bitcast(context: Any, value: Any, dtype: Any) -> Any:
    """Bits of ``value`` as the NumPy type ``dtype`` of the same width."""
    result = dtype.instance_type

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(result))

    return result(value, dtype), generate


@instruction
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Sum ``a * b + c`` of floats of one type, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return a(a, b, c), generate
