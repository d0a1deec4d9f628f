"""Numba's spellings of types, literals and conversions."""

from __future__ import annotations

import numpy as np

from litz_ir.dtypes import DType, compute_dtype, f64, i64


def numpy_type(dtype: DType) -> str:
    """Return the type of a value; floats below 32 bits are held as ``float32``."""
    return "np.bool_" if dtype.is_bool else f"np.{compute_dtype(dtype).torch_name}"


def element_type(dtype: DType) -> str:
    """Return the type of an element in memory; bools and floats below 32 bits are unsigned integers there.

    Numba's pointers to bools would read single bits.
    """
    return f"np.uint{dtype.bits}" if dtype.is_bool or dtype.is_low_precision else numpy_type(dtype)


def literal(value: int | float | bool, dtype: DType) -> str:
    """Return a constant. Its type is spelled out, since Python adds and negates plain literals without
    wrapping."""
    if dtype.is_bool:
        return str(bool(value))
    if dtype.is_integer:
        lowest = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        return f"{numpy_type(dtype)}({(int(value) - lowest) % (1 << dtype.bits) + lowest})"
    with np.errstate(over="ignore"):
        text = repr(float(value)) if dtype == f64 else str(np.float32(value))
    text = text.replace("inf", "np.inf").replace("nan", "np.nan")
    return text if dtype == f64 else rounded(f"np.float32({text})", dtype)


def rounded(text: str, dtype: DType) -> str:
    """Return a ``float32`` rounded to ``dtype``, if that is narrower; other values are returned as they
    are."""
    return f"round_{dtype}({text})" if dtype.is_low_precision else text


def cast(text: str, source: DType, result: DType) -> str:
    """Return a value of dtype ``source`` as ``result``."""
    if result.is_bool:
        return f"{text} != 0"
    if source.is_float and result.is_integer:
        if result.kind == "int" and result != i64:
            text = f"to_i32({text})"
        else:
            text = f"to_{'u64' if result.name == 'u64' else 'i64'}({text})"
    return rounded(f"{numpy_type(result)}({text})", result)


def bitcast(text: str, source: DType, result: DType) -> str:
    """Return the bits of a value of dtype ``source`` as ``result`` of the same width."""
    if source.is_low_precision:
        text = f"{element_type(source)}(bits_of_{source}({text}))"
    if source.is_bool or result.is_bool:
        return cast(text, source, result)
    text = f"bitcast({text}, {element_type(result)})"
    return f"from_{result}({text})" if result.is_low_precision else text


def loaded(text: str, dtype: DType) -> str:
    """Return the value of an element in memory."""
    if dtype.is_low_precision:
        return f"from_{dtype}({text})"
    return f"{text} != 0" if dtype.is_bool else text


def stored(text: str, source: DType, dtype: DType) -> str:
    """Return an element of ``dtype`` in memory for a value of dtype ``source``; memory converts wider
    numbers."""
    if dtype.is_low_precision or dtype.is_bool or dtype.kind != source.kind:
        text = text if source == dtype else cast(text, source, dtype)
    return f"bits_of_{dtype}({text})" if dtype.is_low_precision else text
