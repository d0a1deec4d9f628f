"""State that the emitters of one kernel share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from litz_codegen_cpp.emit.source.prefetch import Stream
from litz_codegen_cpp.emit.source.scopes import CppValue, Scopes
from litz_codegen_cpp.emit.source.spelling import CppNames, register_type, vector_type
from litz_ir.dtypes import DType, bf16
from litz_ir.plan import Kernel
from litz_ir.symbols import Range, Size


@dataclass(frozen=True, slots=True)
class BufferPointer:
    """A buffer as a pointer in the C++ function."""

    pointer: str
    """The pointer's name or expression."""
    dtype: DType
    """The element type in memory."""
    laned: bool = False
    """True for scratch with ``LITZ_LANES`` adjacent outer points per element."""


@dataclass(frozen=True, slots=True)
class TransposedTile:
    """The copy of a tile of a buffer, in which elements along the lanes are next to one another."""

    pointer: str
    """The array's name."""
    dtype: DType
    """The dtype of its elements."""
    pitch: int
    """Registers from a row of the tile to the next."""
    row: str
    """The number of the row in the tile, as text inside the loop over rows."""


@dataclass(slots=True)
class Context:
    """The state of the emission of one kernel."""

    kernel: Kernel
    """The kernel."""
    names: CppNames
    """The C++ names in use."""
    ranges: dict[str, Range]
    """The ranges of axes and symbols."""
    lanes: int
    """A power of two that divides the number of lanes of all vectors."""
    scopes: Scopes = field(default_factory=Scopes)
    """The open scopes."""
    buffers: dict[str, BufferPointer] = field(default_factory=dict)
    """The pointers of parameters and scratch arrays."""
    axis_names: dict[str, str] = field(default_factory=dict)
    """The C++ names of loop variables."""
    streamed: frozenset[str] = frozenset()
    """Axes of a register tile's points: contiguous loads that depend on them are prefetched."""
    streams: Mapping[str, Stream] = field(default_factory=dict)
    """The buffers of which such a point reads adjacent rows."""
    written: frozenset[str] = frozenset()
    """The buffers that the kernel stores to."""
    storing: frozenset[str] = frozenset()
    """The buffers that the current phase stores to."""
    point: int = 0
    """The level of the scope of one outer point."""
    vector: str | None = None
    """The axis along the lanes while a vector loop is open."""
    registers: int = 1
    """The vector registers that one step of that loop computes."""
    tiles: dict[tuple[str, Size], TransposedTile] = field(default_factory=dict)
    """The accesses, by buffer and offset, to copies of tiles."""
    faults: dict[str, str] = field(default_factory=dict)
    """The faults that the kernel checks for, each with its flag."""

    @contextmanager
    def vectorised(self, axis: str | None, registers: int) -> Iterator[None]:
        """Open a vector loop along ``axis``, with ``registers`` registers a step."""
        before = (self.vector, self.registers)
        self.vector, self.registers = axis, registers
        yield
        self.vector, self.registers = before

    @property
    def pairs(self) -> bool:
        """True where registers come in pairs without a mask: the CPU converts bf16 two registers at a time."""
        return self.registers % 2 == 0 and self.scopes.active is None

    def define(self, stem: str, text: str | tuple[str, ...], dtype: DType, level: int, *, varying: bool = False,
               reads: frozenset[str] = frozenset()) -> CppValue:  # fmt: skip
        """Define a variable in the scope at ``level``, or one per register where several texts are given."""
        texts = (text,) if isinstance(text, str) else text
        kind = vector_type(dtype) if varying else register_type(dtype)
        names = []
        for each in texts:
            name = self.names.fresh(stem)
            self.scopes.line(f"const {kind} {name} = {each};", level)
            names.append(name)
        return CppValue(tuple(names), dtype, level, varying, reads)

    def define_pairs(self, stem: str, texts: Sequence[str], dtype: DType, level: int,
                     reads: frozenset[str]) -> CppValue:  # fmt: skip
        """Define variables of two registers each."""
        halves: list[str] = []
        for each in texts:
            name = self.names.fresh(stem)
            self.scopes.line(f"const wide<{vector_type(dtype)}> {name} = {each};", level)
            halves.extend((f"{name}.lo", f"{name}.hi"))
        return CppValue(tuple(halves), dtype, level, True, reads)

    def define_as(self, kind: str, stem: str, text: str, level: int, reads: frozenset[str]) -> CppValue:
        """Define a variable of a C++ type of its own, one that holds bf16 numbers of several registers."""
        name = self.names.fresh(stem)
        self.scopes.line(f"const {kind} {name} = {text};", level)
        return CppValue((name,), bf16, level, True, reads)

    def flag(self, fault: str) -> str:
        """Return the flag of a fault, which the outermost scope declares."""
        return self.faults.setdefault(fault, f"bad_{fault}")

    def spread(self, value: CppValue) -> CppValue:
        """Return the value in every lane: itself when it varies, else broadcast in its own scope."""
        if value.varying:
            return value
        text = value.registers[0]
        spelled = spread(text, value.dtype)
        if not text.isidentifier() or text in ("true", "false"):
            return CppValue((spelled,), value.dtype, value.scope_level, True, value.reads)
        key = ("spread", text)
        found = self.scopes.find(key)
        if found is None:
            found = self.scopes.remember(
                key,
                self.define(
                    f"{text}_all", spelled, value.dtype, value.scope_level, varying=True, reads=value.reads
                ),
            )
        return found

    def divisor(self, value: CppValue) -> CppValue:
        """Return a divisor of all lanes as an object with its reciprocal, in its own scope."""
        key = ("divisor", value.registers)
        found = self.scopes.find(key)
        if found is None:
            name = self.names.fresh(f"{value.registers[0]}_divisor")
            kind = f"divisor<{register_type(value.dtype)}>"
            self.scopes.line(f"const {kind} {name}({value.registers[0]});", value.scope_level)
            found = self.scopes.remember(
                key, CppValue((name,), value.dtype, value.scope_level, True, value.reads)
            )
        return found


def spread(text: str, dtype: DType) -> str:
    """Return a scalar broadcast to every lane."""
    return f"broadcast_mask({text})" if dtype.is_bool else f"broadcast<{register_type(dtype)}>({text})"
