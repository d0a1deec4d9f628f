"""The error tree. Each error names the stage, the node, the user's line and what to do next."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litz_ir.origin import UNKNOWN, Origin


class LitzError(Exception):
    """Root of every error that litz raises on purpose.

    ``message`` says what is wrong; ``stage`` which part of the pipeline noticed; ``node`` the operation or value at
    fault; ``origin`` the user's line; ``hint`` what to do next.
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
    """A stage raised an exception that is none of litz's: a defect, or no memory, disk or stack left. The exception is
    its ``__cause__``."""

    @staticmethod
    def of(error: Exception, stage: str, *, node: str = "", origin: Origin = UNKNOWN) -> InternalError:
        """The error of a ``stage`` that raised ``error``; names the line of code that did."""
        frames = list(traceback.walk_tb(error.__traceback__))
        where = ""
        if frames:
            frame, line = frames[-1]
            where = f" (raised at {Path(frame.f_code.co_filename).name}:{line})"
        return InternalError(f"{type(error).__name__}: {error}{where}", stage=stage, node=node, origin=origin)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Raise ``InternalError`` of this stage, from it, for every exception inside that is no ``LitzError``."""
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
    """A verifier found a broken invariant; ``check`` names which."""

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
    """Text form that cannot be read; ``line`` and ``column`` are 1-based."""

    stage = "parse"

    def __init__(self, message: str, *, line: int, column: int, hint: str = "") -> None:
        self.line = line
        self.column = column
        super().__init__(f"line {line}, column {column}: {message}", hint=hint)


class SerialError(LitzError):
    """Serialised data that cannot be read: wrong version, missing field, unknown kind."""

    stage = "serial"


class PassError(LitzError):
    """A pass failed or changed a value that it promised to keep."""

    stage = "pass"


class UnsupportedOperation(LitzError):
    """Lowering met an operation that it cannot express, not even as an extern call."""

    stage = "lowering"


class NotCompiled(UnsupportedOperation):
    """A graph is of a kind that runs as ATen operations on purpose: no failure."""


class ScheduleError(LitzError):
    """The scheduler cannot make a plan from a graph."""

    stage = "scheduler"


class CodegenError(LitzError):
    """A code generator cannot express a kernel."""

    stage = "codegen"


class ToolchainError(LitzError):
    """Root of what goes wrong between source text and a loaded binary."""

    stage = "toolchain"


class CompilerNotFound(ToolchainError):
    """No usable compiler; ``looked_for`` lists what was tried."""

    def __init__(self, message: str, *, looked_for: tuple[str, ...] = (), hint: str = "") -> None:
        self.looked_for = looked_for
        super().__init__(message, hint=hint)


class CompileFailed(ToolchainError):
    """The compiler refused a source; ``output`` is what it printed, ``command`` how it was called."""

    def __init__(
        self, message: str, *, command: tuple[str, ...] = (), output: str = "", hint: str = ""
    ) -> None:
        self.command = command
        self.output = output
        super().__init__(message, hint=hint)


class CompileTimeout(CompileFailed):
    """The compiler did not finish in time; ``kernels`` are those that it was given, where they are known."""

    kernels: tuple[str, ...] = ()


class ExternNotFound(LitzError):
    """A plan calls an extern that the table at hand does not hold."""

    stage = "executor"


class KernelError(LitzError):
    """A kernel reported an error code while it ran; ``code`` is what it returned."""

    stage = "kernel"

    def __init__(
        self, message: str, *, code: int, node: str = "", origin: Origin = UNKNOWN, hint: str = ""
    ) -> None:
        self.code = code
        super().__init__(message, node=node, origin=origin, hint=hint)


class IndexOutOfRange(KernelError, IndexError):
    """An indirect index was outside its dimension; an ``IndexError`` too, as eager raises."""


class ValueRefused(KernelError, RuntimeError):
    """A value that an operation does not take; a ``RuntimeError`` too, as eager raises."""


class OutOfMemory(KernelError, RuntimeError):
    """A kernel got no memory for its scratch; a ``RuntimeError`` too, as torch's allocators raise."""


class AssertionFailed(LitzError, RuntimeError):
    """An assertion of the program does not hold; a ``RuntimeError`` too, as eager raises."""

    stage = "assert"


class AssertedIndex(AssertionFailed, IndexError):
    """An index that an assertion of the program forbids; an ``IndexError`` too."""


class AssertedByPython(AssertionFailed, AssertionError):
    """What eager asserts in Python does not hold; an ``AssertionError`` too."""


_ASSERTED: dict[str, type[AssertionFailed]] = {
    "RuntimeError": AssertionFailed,
    "IndexError": AssertedIndex,
    "AssertionError": AssertedByPython,
}


def asserted(error: str, message: str) -> AssertionFailed:
    """The error of an assertion that is to raise Python's class ``error``."""
    return _ASSERTED[error](message)


class NanFound(AssertedByPython):
    """A graph was given, or computed, NaN where that is asserted against; an ``AssertionError`` too."""

    stage = "nan_asserts"


class WrongResult(LitzError):
    """Compiled kernels gave other results than ATen, beyond what rounding explains."""

    stage = "self-check"


class TargetError(LitzError):
    """A target is unknown, registered twice or lacks a capability."""

    stage = "target"


class ConfigError(LitzError):
    """An option is unknown or has a value of the wrong type."""

    stage = "config"


class CacheError(LitzError):
    """A cache folder cannot be used; a damaged entry is a miss, never this."""

    stage = "cache"
