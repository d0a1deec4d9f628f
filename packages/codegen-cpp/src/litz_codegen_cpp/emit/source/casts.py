"""C++ conversions between dtypes. Low-precision floats are computed as ``float``, and ``b1`` vectors as masks."""

from __future__ import annotations

from litz_codegen_cpp.emit.source.spelling import register_type
from litz_ir.dtypes import DType


def cast(text: str, source: DType, target: DType) -> str:
    """Return the C++ conversion of ``text``, a scalar or vector of ``source``, rounded to ``target``."""
    if source == target:
        return text
    if target.is_bool:
        return f"to_mask({text})"
    register = register_type(target)
    if source.is_bool:
        return f"from_mask<{register}>({text})"
    if register_type(source) != register:
        text = f"convert<{register}>({text})"
    exact = target.represents(source) if source.is_low_precision else _is_short_integer(source, target)
    return f"round_{target.name}({text})" if target.is_low_precision and not exact else text


def _is_short_integer(source: DType, target: DType) -> bool:
    """Return True for integers that a float represents, such as ``i8`` and ``u8`` for ``bf16``."""
    return source.is_integer and source.bits <= target.mantissa + 1


def bitcast(text: str, source: DType, target: DType, varying: bool) -> str:
    """Return the C++ reinterpretation of ``text``, a ``source``, as a ``target`` of the same width."""
    if source == target:
        return text
    if source.is_low_precision:
        text = f"narrow_{source.name}({text})"
        if varying:
            text = f"bits_as<{_vector(target)}>({text})" if not target.is_low_precision else text
        elif not target.is_low_precision:
            text = f"bits_as<{register_type(target)}>({text})"
        return f"widen_{target.name}({text})" if target.is_low_precision else text
    if target.is_low_precision:
        raw = f"uint{target.bits}_t"
        return f"widen_{target.name}(bits_as<{f'vec<{raw}>' if varying else raw}>({text}))"
    if target.is_bool or source.is_bool:
        return cast(text, source, target)
    return f"bits_as<{_vector(target) if varying else register_type(target)}>({text})"


def _vector(dtype: DType) -> str:
    return f"vec<{register_type(dtype)}>"
