"""Settings of the emission of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litz_codegen_triton.emit.source.ops_table import Form
from litz_ir.plan import Parameter
from litz_ir.symbols import Range


@dataclass(frozen=True, slots=True)
class EmitSettings:
    """Settings that hold for a whole kernel."""

    form: Form
    """The form of the kernel: for Triton's compiler, or for its interpreter."""
    parameters: Mapping[str, Parameter]
    """The buffer parameters by name."""
    pointers: Mapping[str, str]
    """The variable that points to each buffer."""
    read: frozenset[str]
    """The buffers that the kernel reads."""
    ranges: Mapping[str, Range]
    """The range of each index and symbol."""
    narrow: bool
    """True where all index arithmetic fits 32 bits."""
