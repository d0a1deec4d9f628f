"""Atomic updates of memory: native atomics where the device has them, else loops of compare-and-swap.

GPUs have atomic additions, and atomic minima and maxima of integers. Any other update reads the word around the
element, computes the new word, and repeats until a compare-and-swap finds the word unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import Form
from litz_ir.dtypes import DType, bf16

_NATIVE: Mapping[str, str] = MappingProxyType(
    {"add": "tl.atomic_add", "min": "tl.atomic_min", "max": "tl.atomic_max"}
)
_FLOATS: Mapping[str, str] = MappingProxyType(
    {
        "add": "current + value",
        "mul": "current * value",
        "min": "tl.minimum(current, value, propagate_nan=tl.PropagateNan.ALL)",
        "max": "tl.maximum(current, value, propagate_nan=tl.PropagateNan.ALL)",
    }
)
_INTEGERS: Mapping[str, str] = MappingProxyType(
    {
        "add": "current + value",
        "mul": "current * value",
        "min": "tl.minimum(current, value)",
        "max": "tl.maximum(current, value)",
    }
)
_BOOLS: Mapping[str, str] = MappingProxyType(
    {"add": "current | value", "mul": "current & value", "min": "current & value", "max": "current | value"}
)


def native(mode: str, dtype: DType, form: Form) -> str | None:
    """Return Triton's atomic function for a mode; ``None`` where there is none that agrees with eager PyTorch.

    Triton's minima and maxima of floats do not propagate NaN, and its interpreter's additions of bf16 are wrong.
    """
    if mode == "add":
        has = dtype.bits in (32, 64) or (dtype.is_float and dtype.bits == 16)
        return _NATIVE[mode] if has and not (dtype == bf16 and form == "interpreted") else None
    return _NATIVE.get(mode) if dtype.is_integer and dtype.bits in (32, 64) else None


def swapping(mode: str, dtype: DType, form: Form) -> tuple[str, str]:
    """Return the name and the source of a function that updates elements by compare-and-swap.

    Its arguments are a pointer and blocks of offsets, values and masks. Elements of less than 32 bits are updated
    within the 32-bit word around them.
    """
    name = f"litz_atomic_{mode}_{dtype.name}"
    table = _BOOLS if dtype.is_bool else _FLOATS if dtype.is_float else _INTEGERS
    whole_word = dtype.bits >= 32
    bits = dtype.bits if whole_word else 32
    stored = casts.stored_type(dtype, form)
    if whole_word:
        bits_type = f"tl.int{bits}"
        words = [f"words = pointer.to(tl.pointer_type(tl.int{bits}), bitcast=True) + offset"]
        field = "old"
    else:
        width = 8 * dtype.itemsize
        bits_type = f"tl.uint{width}"
        largest = (1 << width) - 1
        words = [
            "address = (pointer + offset).to(tl.int64)",
            "words = (address & -4).to(tl.pointer_type(tl.int32))",
            "shift = ((address & 3) * 8).to(tl.int32)",
        ]
        field = f"((old >> shift) & {largest}).to({bits_type})"
    element = field if stored == bits_type else f"{field}.to({stored}, bitcast=True)"
    updated = casts.encode("updated", dtype, form)
    updated = updated if stored == bits_type else f"{updated}.to({bits_type}, bitcast=True)"
    new = updated if whole_word else f"(old & ~({largest} << shift)) | ({updated}.to(tl.int32) << shift)"
    lines = [
        "offset = tl.where(mask, offset, 0)",
        *words,
        "pending = mask",
        "old = tl.load(words, mask=pending, other=0)",
        # Elements that are done compare and swap zero with zero.
        "while tl.max(pending.to(tl.int32)) > 0:",
        f"    current = {casts.decode(element, dtype, form)}",
        f"    updated = {table[mode]}",
        f"    new = {new}",
        '    seen = tl.atomic_cas(words, tl.where(pending, old, 0), tl.where(pending, new, 0), sem="relaxed")',
        "    pending = pending & (seen != old)",
        "    old = seen",
    ]
    text = "\n".join(f"    {line}" for line in lines)
    return name, f"@triton.jit\ndef {name}(pointer, offset, value, mask):\n{text}"
