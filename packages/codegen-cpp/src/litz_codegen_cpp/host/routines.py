"""The routines that host programs call, by the names that plans have for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_codegen_cpp.host.attention_calls import ATTENTION
from litz_codegen_cpp.host.call_site import Routine
from litz_codegen_cpp.host.convolution_calls import CONVOLUTIONS
from litz_codegen_cpp.host.matmul_calls import MATMULS

ROUTINES: Mapping[str, Routine] = MappingProxyType({**MATMULS, **CONVOLUTIONS, **ATTENTION})
"""The table."""
