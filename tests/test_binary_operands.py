"""Binary operators of 16-bit floats with numbers and 0-d tensors give eager's bits.

``tests/binary_operands.py`` compares all operators, dtypes and operands; this is a sample of what once differed.
"""

from __future__ import annotations

from binary_operands import cases, differences

NARROW = ("f16", "bf16")


def test_quotients_round_as_eagers() -> None:
    drawn = cases(["//", "div trunc"], NARROW, ["n"])
    kinds = ("number", "0-d f16", "0-d f64", "1 bf16", "n bf16", "n f16")
    assert list(differences([case for case in drawn if case.kind in kinds][::6])) == []


def test_operands_are_rounded_as_eagers() -> None:
    drawn = cases(["*", "/", "eq", "-", "clamp min"], ["f16"], ["n"])
    kinds = ("number", "0-d f64", "0-d i64")
    assert list(differences([case for case in drawn if case.kind in kinds][::6])) == []


def test_numbers_that_change_are_rounded_as_eagers() -> None:
    drawn = cases(["//", "+", "eq"], ["f16"], ["n"])
    numbers = [case for case in drawn if type(case.operand) is float and case.operand]
    assert list(differences(numbers, dynamic=True)) == []
