"""C++ spelling of dtypes, literals and names."""

from __future__ import annotations

import math
import re
import struct

from litz_ir.dtypes import DType, f64

_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const
    constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern
    false final float for friend goto if inline int long main mutable namespace new noexcept not not_eq nullptr
    operator or or_eq override private protected public register reinterpret_cast requires return rt short signed
    sizeof static static_assert static_cast struct switch template this throw true try typedef typeid typename
    union unsigned using virtual void volatile wchar_t while xor xor_eq buffers symbols litz std""".split()
)


def memory_type(dtype: DType) -> str:
    """Return the element type of a buffer in memory; the headers define those of bools and low-precision floats."""
    if dtype.is_integer:
        return f"{dtype.kind}{dtype.bits}_t"
    return {64: "double", 32: "float"}.get(dtype.bits, dtype.name)


def register_type(dtype: DType) -> str:
    """Return the type of one value in a register: ``float`` for low-precision floats, ``bool`` for ``b1``."""
    return "float" if dtype.is_low_precision else "bool" if dtype.is_bool else memory_type(dtype)


def vector_type(dtype: DType) -> str:
    """Return the type of one value per lane; ``mask`` for ``b1``."""
    return "mask" if dtype.is_bool else f"vec<{register_type(dtype)}>"


def literal(value: int | float | bool, dtype: DType) -> str:
    """Return a C++ constant of exactly the register type of ``dtype``."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    return _integer_literal(int(value), dtype)


def _integer_literal(value: int, dtype: DType) -> str:
    kind = register_type(dtype)
    if dtype.kind == "uint":
        return f"{kind}({value}u)" if dtype.bits < 64 else f"{kind}({value}ull)"
    if value == -(1 << (dtype.bits - 1)) and dtype.bits >= 32:
        return f"{kind}({value + 1} - 1)"
    return str(value) if dtype.bits == 32 else f"{kind}({value})"


def _float_literal(value: float, dtype: DType) -> str:
    suffix = "" if dtype == f64 else "f"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"-__builtin_inf{suffix}()" if value < 0 else f"__builtin_inf{suffix}()"
    if dtype == f64:
        return repr(value)
    text = _shortest_single(value)
    return f"round_{dtype.name}({text})" if dtype.is_low_precision else text


def _shortest_single(value: float) -> str:
    """Return the shortest decimal that reads back as the f32 that ``value`` rounds to."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    if math.isinf(rounded):
        return "-__builtin_inff()" if rounded < 0 else "__builtin_inff()"
    for digits in range(1, 10):
        text = f"{rounded:.{digits}g}"
        if (
            abs(float(text)) < 3.4028235e38
            and struct.unpack("f", struct.pack("f", float(text)))[0] == rounded
        ):
            break
    else:
        text = rounded.hex()
    return (text if any(mark in text for mark in ".exn") else f"{text}.0") + "f"


def identifier(name: str) -> str:
    """Return ``name`` with characters that C++ allows."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII)
    return cleaned if cleaned and not cleaned[0].isdigit() and not cleaned.startswith("_") else f"n{cleaned}"


def remark(text: str) -> str:
    """Return a text with user-given names as what may stand in a comment: on one line, without a backslash."""
    return re.sub(r"[^\w ,.:()-]", "_", text, flags=re.ASCII)


class CppNames:
    """C++ names, unique within one function and different from those that the headers declare."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._used = set(_KEYWORDS | reserved)
        self._next: dict[str, int] = {}

    def exact(self, name: str) -> str:
        """Return ``name`` itself where it is free, else with a number."""
        cleaned = identifier(name)
        if cleaned in self._used or cleaned.endswith("_t"):
            return self.fresh(cleaned)
        self._used.add(cleaned)
        return cleaned

    def fresh(self, stem: str) -> str:
        """Return ``stem`` with the next free number."""
        cleaned = identifier(stem)
        while True:
            number = self._next.get(cleaned, 0)
            self._next[cleaned] = number + 1
            name = f"{cleaned}_{number}"
            if name not in self._used:
                self._used.add(name)
                return name
