"""torch's dtypes and litz's: every map follows from the rows of ``litz_ir.dtypes``."""

from __future__ import annotations

import pytest
import torch

from litz.host.torch_types import COMPLEX_DTYPES, TORCH_DTYPES
from litz_ir.dtypes import ALL, DType
from litz_lowering import torch_dtype
from litz_lowering.types.torch_types import known_dtype, litz_dtype, part_dtype


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_row_describes_torchs_dtype(dtype: DType) -> None:
    theirs = torch_dtype(dtype)
    assert litz_dtype(theirs) == dtype and TORCH_DTYPES[dtype] == str(theirs)
    assert theirs.itemsize == dtype.itemsize
    assert (theirs.is_floating_point, theirs.is_signed) == (dtype.is_float, dtype.is_signed)
    if dtype.is_float:
        known = torch.finfo(theirs)
        assert known.max == dtype.largest
        assert known.smallest_normal == dtype.smallest * 2.0**dtype.mantissa


def test_complex_dtypes_have_parts() -> None:
    found = {
        text: part_dtype(getattr(torch, text.removeprefix("torch."))) for text in COMPLEX_DTYPES.values()
    }
    assert found == {text: part for part, text in COMPLEX_DTYPES.items()}
    assert not any(known_dtype(getattr(torch, text.removeprefix("torch."))) for text in found)
