"""Combining into memory that other programs combine into at the same time.

The device adds, and takes extremes of integers, by itself. Anything else is tried until nobody came between: the word
that holds the element is read, a new one is made of it, and put in its place if it still is what was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.ops_table import Form
from litz_ir.dtypes import DType, bf16

_NATIVE: Mapping[str, str] = MappingProxyType(
    {"add": "tl.atomic_add", "min": "tl.atomic_min", "max": "tl.atomic_max"}
)
_FLOATS: Mapping[str, str] = MappingProxyType(
    {
        "add": "held + value",
        "mul": "held * value",
        "min": "tl.minimum(held, value, propagate_nan=tl.PropagateNan.ALL)",
        "max": "tl.maximum(held, value, propagate_nan=tl.PropagateNan.ALL)",
    }
)
_INTEGERS: Mapping[str, str] = MappingProxyType(
    {
        "add": "held + value",
        "mul": "held * value",
        "min": "tl.minimum(held, value)",
        "max": "tl.maximum(held, value)",
    }
)
_BOOLS: Mapping[str, str] = MappingProxyType(
    {"add": "held | value", "mul": "held & value", "min": "held & value", "max": "held | value"}
)


def native(mode: str, dtype: DType, form: Form) -> str | None:
    """Triton's own function for a way of combining, where the device has it and it does as eager.

    Its extremes of floats take a NaN for a number, and the interpreter's sums of bf16 are wrong.
    """
    if mode == "add":
        has = dtype.bits in (32, 64) or (dtype.is_float and dtype.bits == 16)
        return _NATIVE[mode] if has and not (dtype == bf16 and form == "interpreted") else None
    return _NATIVE.get(mode) if dtype.is_integer and dtype.bits in (32, 64) else None


def swapping(mode: str, dtype: DType, form: Form) -> tuple[str, str]:
    """The name and the source of a function of (pointer, offsets, values, mask), all blocks but the pointer, that
    combines by compare and swap. Elements of less than 32 bits change within the word around them."""
    name = f"litz_atomic_{mode}_{dtype.name}"
    table = _BOOLS if dtype.is_bool else _FLOATS if dtype.is_float else _INTEGERS
    wide = dtype.bits >= 32
    bits = dtype.bits if wide else 32
    stored = casts.stored_type(dtype, form)
    if wide:
        bits_type = f"tl.int{bits}"
        words = [f"words = pointer.to(tl.pointer_type(tl.int{bits}), bitcast=True) + offset"]
        field = "old"
    else:
        width = 8 * dtype.itemsize
        bits_type = f"tl.uint{width}"
        largest = (1 << width) - 1
        words = [
            "place = (pointer + offset).to(tl.int64)",
            "words = (place & -4).to(tl.pointer_type(tl.int32))",
            "shift = ((place & 3) * 8).to(tl.int32)",
        ]
        field = f"((old >> shift) & {largest}).to({bits_type})"
    held = field if stored == bits_type else f"{field}.to({stored}, bitcast=True)"
    made = casts.encode("joined", dtype, form)
    made = made if stored == bits_type else f"{made}.to({bits_type}, bitcast=True)"
    new = made if wide else f"(old & ~({largest} << shift)) | ({made}.to(tl.int32) << shift)"
    lines = [
        "offset = tl.where(mask, offset, 0)",
        *words,
        "pending = mask",
        "old = tl.load(words, mask=pending, other=0)",
        # What is done swaps nothing for nothing.
        "while tl.max(pending.to(tl.int32)) > 0:",
        f"    held = {casts.decode(held, dtype, form)}",
        f"    joined = {table[mode]}",
        f"    new = {new}",
        '    seen = tl.atomic_cas(words, tl.where(pending, old, 0), tl.where(pending, new, 0), sem="relaxed")',
        "    pending = pending & (seen != old)",
        "    old = seen",
    ]
    text = "\n".join(f"    {line}" for line in lines)
    return name, f"@triton.jit\ndef {name}(pointer, offset, value, mask):\n{text}"
