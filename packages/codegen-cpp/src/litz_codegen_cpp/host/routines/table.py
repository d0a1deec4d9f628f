"""The routines that host programs call, by the names that plans have for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_codegen_cpp.host.routines.attention_calls import ATTENTION
from litz_codegen_cpp.host.routines.call_site import Routine
from litz_codegen_cpp.host.routines.convolution_calls import CONVOLUTIONS
from litz_codegen_cpp.host.routines.matmul_calls import MATMULS

ROUTINES: Mapping[str, Routine] = MappingProxyType({**MATMULS, **CONVOLUTIONS, **ATTENTION})
"""The table."""
