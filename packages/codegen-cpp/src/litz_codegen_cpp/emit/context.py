"""What the emitters of one kernel share while they write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from litz_codegen_cpp.emit.scopes import CppValue, Scopes
from litz_codegen_cpp.emit.spelling import CppNames, register_type, vector_type
from litz_ir.dtypes import DType
from litz_ir.plan import Kernel
from litz_ir.symbols import Range


@dataclass(frozen=True, slots=True)
class BufferPointer:
    """A pointer in the function: ``laned`` locals hold ``LITZ_LANES`` outer points side by side per element."""

    pointer: str
    dtype: DType
    laned: bool = False


@dataclass(slots=True)
class Context:
    """The state of emitting one kernel.

    ``lanes`` is a power of two that the number of lanes of all vectors divides. ``axis_names`` holds the C++ names of
    loop variables. ``vector`` is the axis that runs along the lanes while a vector loop is open, with ``registers``
    registers side by side. ``written`` names the buffers that the kernel stores to, ``storing`` those that the present
    phase stores to; ``point`` is the position of the scope of one outer point. ``faults`` are those that the kernel
    looks for, each with the flag that says that it was found.
    """

    kernel: Kernel
    names: CppNames
    ranges: dict[str, Range]
    lanes: int
    scopes: Scopes = field(default_factory=Scopes)
    buffers: dict[str, BufferPointer] = field(default_factory=dict)
    axis_names: dict[str, str] = field(default_factory=dict)
    written: frozenset[str] = frozenset()
    storing: frozenset[str] = frozenset()
    point: int = 0
    vector: str | None = None
    registers: int = 1
    faults: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def vectorised(self, axis: str | None, parts: int) -> Iterator[None]:
        """Inside, ``axis`` runs along the lanes of ``registers`` registers."""
        before = (self.vector, self.registers)
        self.vector, self.registers = axis, parts
        yield
        self.vector, self.registers = before

    @property
    def pairs(self) -> bool:
        """Whether registers come in twos, of which all lanes count: the CPU narrows and widens bf16 two at a time."""
        return self.registers % 2 == 0 and self.scopes.active is None

    def define(self, stem: str, text: str | tuple[str, ...], dtype: DType, home: int, *, varying: bool = False,
               reads: frozenset[str] = frozenset()) -> CppValue:  # fmt: skip
        """Name a value in the scope at ``home``; several texts make several registers."""
        texts = (text,) if isinstance(text, str) else text
        kind = vector_type(dtype) if varying else register_type(dtype)
        names = []
        for each in texts:
            name = self.names.fresh(stem)
            self.scopes.line(f"const {kind} {name} = {each};", home)
            names.append(name)
        return CppValue(tuple(names), dtype, home, varying, reads)

    def define_pairs(self, stem: str, texts: Sequence[str], dtype: DType, home: int,
                     reads: frozenset[str]) -> CppValue:  # fmt: skip
        """Name values of two registers each."""
        parts: list[str] = []
        for each in texts:
            name = self.names.fresh(stem)
            self.scopes.line(f"const wide<{vector_type(dtype)}> {name} = {each};", home)
            parts.extend((f"{name}.lo", f"{name}.hi"))
        return CppValue(tuple(parts), dtype, home, True, reads)

    def flag(self, fault: str) -> str:
        """The flag of a fault, declared in the outermost scope."""
        return self.faults.setdefault(fault, f"bad_{fault}")

    def spread(self, value: CppValue) -> CppValue:
        """The value in every lane: itself when it varies, else broadcast in its own scope."""
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
        """A number that all lanes are divided by, in its own scope."""
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
    """A scalar in every lane."""
    return f"broadcast_mask({text})" if dtype.is_bool else f"broadcast<{register_type(dtype)}>({text})"
