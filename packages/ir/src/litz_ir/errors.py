"""The error tree. Each error names the stage, the operation, the user's line and a next step."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litz_ir.origin import UNKNOWN, Origin

__all__ = [
    "LitzError",
    "InternalError",
    "stage",
    "SymbolError",
    "DTypeError",
    "GraphError",
    "VerifyError",
    "ParseError",
    "SerialError",
    "UnknownClass",
    "PassError",
    "UserPassError",
    "UnsupportedOperation",
    "NotCompiled",
    "ScheduleError",
    "UnblockedAttention",
    "CodegenError",
    "ToolchainError",
    "CompilerNotFound",
    "CompileFailed",
    "CompileTimeout",
    "ProcessFailed",
    "ExternNotFound",
    "KernelError",
    "IndexOutOfRange",
    "ValueRefused",
    "OutOfMemory",
    "AssertionFailed",
    "AssertedIndex",
    "AssertedByPython",
    "NanFound",
    "WrongResult",
    "NothingFails",
    "TargetError",
    "ConfigError",
    "CacheError",
    "ArtifactError",
]


class LitzError(Exception):
    """Root of every error that litz raises on purpose.

    ``message`` describes the fault, ``stage`` the part of the pipeline that found it, ``node`` the operation or value,
    ``origin`` the user's line, ``hint`` a next step.
    """

    stage = "litz"

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        node: str = "",
        origin: Origin = UNKNOWN,
        hint: str = "",
    ) -> None:
        self.message = message
        self.stage = stage or type(self).stage
        self.node = node
        self.origin = origin
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.stage}: {self.message}"]
        if self.node:
            lines.append(f"  operation: {self.node}")
        if self.origin:
            lines.append(f"  from: {self.origin.describe()}")
        if self.hint:
            lines.append(f"  next: {self.hint}")
        return "\n".join(lines)


class InternalError(LitzError):
    """An exception inside a stage that is not one of litz's: a defect, or memory, disk or stack exhausted.

    The exception is its ``__cause__``.
    """

    @staticmethod
    def of(error: Exception, stage: str, *, node: str = "", origin: Origin = UNKNOWN) -> InternalError:
        """The error of a ``stage`` that raised ``error``, with the line of code that raised it."""
        frames = list(traceback.walk_tb(error.__traceback__))
        where = ""
        if frames:
            frame, line = frames[-1]
            where = f" (raised at {Path(frame.f_code.co_filename).name}:{line})"
        return InternalError(f"{type(error).__name__}: {error}{where}", stage=stage, node=node, origin=origin)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Convert every exception inside that is not a ``LitzError`` to an ``InternalError`` of this stage."""
    try:
        yield
    except LitzError:
        raise
    except Exception as error:
        raise InternalError.of(error, name) from error


class SymbolError(LitzError):
    """A symbolic size or index term is malformed or cannot be expressed."""

    stage = "symbols"


class DTypeError(LitzError):
    """A dtype is unknown, or an operation does not accept it."""

    stage = "types"


class GraphError(LitzError):
    """A loop graph, fused graph or plan is malformed; raised by builders."""

    stage = "graph"


class VerifyError(LitzError):
    """A verifier found a violated invariant, named by ``check``."""

    stage = "verify"

    def __init__(
        self,
        message: str,
        *,
        check: str,
        stage: str | None = None,
        node: str = "",
        origin: Origin = UNKNOWN,
        hint: str = "",
    ) -> None:
        self.check = check
        super().__init__(f"[{check}] {message}", stage=stage, node=node, origin=origin, hint=hint)


class ParseError(LitzError):
    """Text form that cannot be parsed; ``line`` and ``column`` are 1-based."""

    stage = "parse"

    def __init__(self, message: str, *, line: int, column: int, hint: str = "") -> None:
        self.line = line
        self.column = column
        super().__init__(f"line {line}, column {column}: {message}", hint=hint)


class SerialError(LitzError):
    """Serialised data that cannot be read: wrong version, missing field, unknown kind."""

    stage = "serial"


class UnknownClass(SerialError):
    """An object of a class that this version of litz does not have, in a document that another program wrote."""


class PassError(LitzError):
    """A pass failed, or changed a value beyond its bound."""

    stage = "pass"


class UserPassError(PassError):
    """A pass of the user failed, or left a malformed program. It is raised whatever fallback the options ask for,
    since a graph without the pass may be another program."""


class UnsupportedOperation(LitzError):
    """An operation that lowering cannot express, not even as an extern call."""

    stage = "lowering"


class NotCompiled(UnsupportedOperation):
    """A graph of a kind that runs as ATen operations by design; not a failure."""


class ScheduleError(LitzError):
    """The scheduler cannot make a plan of a graph."""

    stage = "scheduler"


class UnblockedAttention(ScheduleError):
    """A CPU cannot compute attention in blocks; it has to be lowered to matmuls, which store its scores."""


class CodegenError(LitzError):
    """A code generator cannot express a kernel."""

    stage = "codegen"


class ToolchainError(LitzError):
    """Root of errors between source text and loaded binary."""

    stage = "toolchain"


class CompilerNotFound(ToolchainError):
    """No usable compiler was found; ``looked_for`` lists the candidates."""

    def __init__(self, message: str, *, looked_for: tuple[str, ...] = (), hint: str = "") -> None:
        self.looked_for = looked_for
        super().__init__(message, hint=hint)


class CompileFailed(ToolchainError):
    """The compiler rejected a source; ``output`` is its output, ``command`` its command line."""

    def __init__(
        self, message: str, *, command: tuple[str, ...] = (), output: str = "", hint: str = ""
    ) -> None:
        self.command = command
        self.output = output
        super().__init__(message, hint=hint)


class CompileTimeout(CompileFailed):
    """The compiler did not finish in time; ``kernels`` are those that it compiled, if known."""

    kernels: tuple[str, ...] = ()
    """Names of the kernels that it compiled; empty if they are not known."""


class ProcessFailed(LitzError):
    """A child process that compiles a graph ended, did not finish in time, or gave no valid answer."""

    stage = "compile"


class ExternNotFound(LitzError):
    """A plan calls a routine that the extern table does not have."""

    stage = "executor"


class KernelError(LitzError):
    """A kernel reported the error ``code`` while it ran."""

    stage = "kernel"

    def __init__(
        self, message: str, *, code: int, node: str = "", origin: Origin = UNKNOWN, hint: str = ""
    ) -> None:
        self.code = code
        super().__init__(message, node=node, origin=origin, hint=hint)


class IndexOutOfRange(KernelError, IndexError):
    """An indirect index was out of bounds; an ``IndexError`` too, as eager raises."""


class ValueRefused(KernelError, RuntimeError):
    """A value that an operation does not accept; a ``RuntimeError`` too, as eager raises."""


class OutOfMemory(KernelError, RuntimeError):
    """A kernel could not allocate its scratch memory; a ``RuntimeError`` too, as torch's allocators raise."""


class AssertionFailed(LitzError, RuntimeError):
    """An assertion of the program failed; a ``RuntimeError`` too, as eager raises."""

    stage = "assert"


class AssertedIndex(AssertionFailed, IndexError):
    """An assertion of the program about an index failed; an ``IndexError`` too."""


class AssertedByPython(AssertionFailed, AssertionError):
    """An assertion that eager makes in Python failed; an ``AssertionError`` too."""


_ASSERTED: dict[str, type[AssertionFailed]] = {
    "RuntimeError": AssertionFailed,
    "IndexError": AssertedIndex,
    "AssertionError": AssertedByPython,
}


def asserted(error: str, message: str) -> AssertionFailed:
    """The error of a failed assertion for which eager raises Python's class ``error``."""
    return _ASSERTED[error](message)


class NanFound(AssertedByPython):
    """An input or a computed value is NaN, against an assertion; an ``AssertionError`` too."""

    stage = "nan_asserts"


class InputMismatch(AssertedByPython):
    """An input has another shape, stride or dtype than its graph was compiled for, against an assertion; an
    ``AssertionError`` too."""

    stage = "size_asserts"


class Misaligned(AssertedByPython):
    """The address of an input is no multiple of what kernels need, against an assertion; an ``AssertionError`` too."""

    stage = "alignment_asserts"


class WrongResult(LitzError):
    """Compiled kernels gave results that differ from ATen's by more than rounding."""

    stage = "self-check"


class NothingFails(LitzError):
    """A debugging tool was given a program that does not fail."""

    stage = "debugging"


class TargetError(LitzError):
    """A target is unknown, registered twice or lacks a capability."""

    stage = "target"


class ConfigError(LitzError):
    """An option is unknown or has a value of the wrong type."""

    stage = "config"


class CacheError(LitzError):
    """A cache folder cannot be used; a damaged entry is a miss instead."""

    stage = "cache"


class ArtifactError(LitzError):
    """A compiled graph cannot be saved, a saved one cannot be loaded, or arguments do not fit one."""

    stage = "artifact"
