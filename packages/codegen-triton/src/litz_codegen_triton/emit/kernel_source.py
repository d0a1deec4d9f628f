"""The Triton function of a kernel, as text with the facts that compiling and launching it need."""

from __future__ import annotations

from dataclasses import dataclass

from litz_codegen_triton.emit.indexing.vector_accesses import VectorAccess
from litz_codegen_triton.emit.source.tensor_descriptors import TensorDescriptor
from litz_ir.symbols import Size


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A Triton function and the facts that compiling and launching it need."""

    name: str
    """The name of the function."""
    text: str
    """The module that defines it, with the functions that it calls."""
    signature: tuple[str, ...]
    """The types of its arguments in Triton's spelling, such as ``*fp32`` and ``i64``."""
    divisible: tuple[int, ...]
    """Positions of arguments that are multiples of 16: bytes of addresses, values of integers."""
    warps: int
    """Warps of a CTA."""
    asserts: bool
    """True where it contains ``tl.device_assert``."""
    grid_size: Size
    """The number of CTAs of a launch, a term of the kernel's symbols; 0 means that there is nothing to launch."""
    vector_accesses: tuple[VectorAccess, ...] = ()
    """Accesses that must move 16 bytes a thread where buffers are aligned (see ``emit.indexing.vector_accesses``)."""
    cluster_barriers: int = 0
    """Cluster barriers that each CTA passes; the interpreted form takes as its last argument the one to stop at."""
    contract: bool = True
    """True where a multiplication and an addition may be rounded once: in kernels that sum floats, whose sums differ
    from eager's in the last place anyway."""
    descriptors: tuple[TensorDescriptor, ...] = ()
    """The arguments that follow those of ``signature``: tensor descriptors that a launch makes."""
