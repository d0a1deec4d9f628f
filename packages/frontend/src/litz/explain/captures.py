"""Compilations by Dynamo: guards, sizes that it specialised, and the reasons of recompilations."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch._dynamo.config
from torch._dynamo.utils import CompilationMetrics, get_compilation_metrics
from torch._guards import CompileContext, Guard, TracingContext

_UNLIMITED = 1 << 30
"""Number of compilations that no program reaches."""

_MARKS = re.compile(r"hasattr\(.*, '_dynamo_\w+'\) == False")
"""Guard on marks of ``torch._dynamo.mark_dynamic``, which every tensor has."""

_ADDRESS = re.compile(r", \d{9,}(?=[),])")
"""Address of an object in a guard's code."""

_TRACE = "User stack trace:"
"""Start of the stack that Dynamo appends to a reason."""


@dataclass(frozen=True, slots=True)
class GuardReport:
    """A condition that Dynamo checks before each call of compiled code."""

    kind: str
    """Dynamo's name of the check, such as ``TENSOR_MATCH``."""

    name: str
    """The checked value as an expression, such as ``L['x']``; empty for global state."""

    code: tuple[str, ...]
    """Conditions as Python, where Dynamo gives them, without addresses."""

    line: str
    """The user's line that read the value; empty where it is unknown."""

    module: bool = False
    """True for an attribute of a module, such as a parameter, and for an imported module."""


@dataclass(frozen=True, slots=True)
class SizeReport:
    """A size, stride or number that Dynamo made a symbol."""

    name: str
    """The value as an expression, such as ``L['x'].size()[0]``."""

    symbol: str
    """Its symbol, such as ``s77``."""

    value: int | None
    """The number to which it was specialised; ``None`` where it stays a symbol."""

    low: str
    """Smallest value for which the code is valid; empty without a bound."""

    high: str
    """Largest value for which the code is valid; empty without a bound."""

    reasons: tuple[str, ...]
    """Conditions on it, each with the user's line that asked for it."""


@dataclass(frozen=True, slots=True)
class FrameReport:
    """One compilation of a function by Dynamo."""

    compile_id: str
    """Dynamo's name of the compilation: ``0/1`` is the second one of the first function."""

    function: str
    """Name of the function; empty where Dynamo gives none."""

    file: str
    """File that defines it."""

    line: int
    """First line of its definition."""

    recompile_reason: str
    """Guard that failed, where the function was compiled before among those that are reported; else empty."""

    seconds: float | None
    """Time of the whole compilation, in seconds; ``None`` where Dynamo gives none."""

    guards: tuple[GuardReport, ...] = ()
    """Conditions for the use of the code."""

    sizes: tuple[SizeReport, ...] = ()
    """Sizes and numbers that are symbols, or were and are specialised."""

    @property
    def specialised(self) -> tuple[SizeReport, ...]:
        """Symbols that a condition specialised to a number."""
        return tuple(size for size in self.sizes if size.value is not None)


def without_recompile_limit() -> contextlib.AbstractContextManager[object]:
    """Let Dynamo compile a function as often as it is asked to, inside a ``with`` block.

    Each report or probe compiles the same code by a backend of its own, of which Dynamo keeps few.
    """
    limits = ("recompile_limit", "accumulated_recompile_limit")
    patched: contextlib.AbstractContextManager[object] = torch._dynamo.config.patch(
        dict.fromkeys(limits, _UNLIMITED)
    )
    return patched


class Frames:
    """Dynamo's compilations since this object was created."""

    def __init__(self) -> None:
        self._seen = list(get_compilation_metrics())
        self._contexts: dict[str, tuple[TracingContext, list[Guard]]] = {}
        self._finished: list[tuple[CompilationMetrics, tuple[TracingContext, list[Guard]] | None]] = []

    def note(self) -> None:
        """Note the compilation that is going on; called where Dynamo calls its backend."""
        self._take()
        context, identity = TracingContext.try_get(), CompileContext.current_compile_id()
        if context is not None and identity is not None:
            # Dynamo forgets its list once the frame is compiled, but completes the guards in it before.
            guards = list(context.guards_context.dynamo_guards)
            self._contexts[str(identity)] = (context, guards)

    def found(self) -> tuple[FrameReport, ...]:
        """Return the compilations in order."""
        self._take()
        found: list[FrameReport] = []
        functions: set[str] = set()
        for metrics, context in self._finished:
            report, function = _report(metrics, context), str(metrics.compile_id).partition("/")[0]
            # A first compilation has a reason too where an earlier report, or another backend, compiled the function.
            found.append(report if function in functions else replace(report, recompile_reason=""))
            functions.add(function)
        return tuple(found)

    def _take(self) -> None:
        """Keep Dynamo's records of finished compilations, of which it holds the last few only.

        Records are told apart as objects: identities of compilations begin anew after ``torch._dynamo.reset()``.
        """
        records = get_compilation_metrics()
        for each in records:
            if any(each is seen for seen in self._seen) or not each.compile_id or not each.is_forward:
                continue
            self._finished.append((each, self._contexts.pop(str(each.compile_id), None)))
        self._seen = records


def _report(metrics: CompilationMetrics, context: tuple[TracingContext, list[Guard]] | None) -> FrameReport:
    """Return the report of one compilation."""
    report = FrameReport(
        str(metrics.compile_id),
        metrics.co_name or "",
        metrics.co_filename or "",
        metrics.co_firstlineno or 0,
        _reason(metrics.recompile_reason),
        metrics.entire_frame_compile_time_s,
    )
    if context is None:
        return report
    tracing, guards = context
    shapes = None if tracing.fake_mode is None else tracing.fake_mode.shape_env
    reported = tuple(_guard(each) for each in sorted(guards))
    return replace(report, guards=reported, sizes=tuple(_sizes(shapes)))


def _reason(text: str | None) -> str:
    """Return Dynamo's reason for a recompilation on one line, without the stack."""
    return " ".join((text or "").partition(_TRACE)[0].split())


def _guard(guard: Guard) -> GuardReport:
    """Return the report of one guard."""
    code = [_ADDRESS.sub("", each) for each in guard.code_list or () if not _MARKS.fullmatch(each)]
    frame = guard.user_stack[-1] if guard.user_stack else None
    module = "NN_MODULE" in guard.source.name or guard.create_fn_name() in ("MODULE_MATCH",)
    module = module or guard.name.startswith("G['__import_")
    return GuardReport(guard.create_fn_name(), guard.name, tuple(code), _described(frame), module)


def _sizes(shapes: Any) -> Iterator[SizeReport]:
    """Yield the symbols of a shape environment."""
    if shapes is None:
        return
    for symbol, sources in shapes.var_to_sources.items():
        if not sources:
            continue
        fixed = shapes.replacements.get(symbol)
        value = int(fixed) if fixed is not None and fixed.is_Integer else None
        bounds = shapes.var_to_range.get(symbol)
        low, high = ("", "") if bounds is None else map(_bound, (bounds.lower, bounds.upper))
        reasons = dict.fromkeys(
            _condition(guard.expr, guard.sloc) for guard in shapes.guards if symbol in guard.expr.free_symbols
        )
        name = sources[0].name
        yield SizeReport(
            name if isinstance(name, str) else name(), str(symbol), value, low, high, tuple(reasons)
        )


def _bound(value: Any) -> str:
    """Return a bound as text; empty for one that bounds nothing."""
    return "" if "oo" in str(value) else str(value)


def _condition(expression: Any, location: Any) -> str:
    """Return a condition on sizes with the user's line."""
    line = location.maybe_user_loc or ""
    return f"{expression}: {' '.join(line.split())}" if line else str(expression)


def _described(frame: traceback.FrameSummary | None) -> str:
    """Return a line of the user's program as text."""
    return "" if frame is None else f"{frame.filename}:{frame.lineno}: {(frame.line or '').strip()}"


def shared_guards(guards: Iterable[GuardReport]) -> dict[str, int]:
    """Return the number of guards on modules by kind, the most frequent first: a model has thousands that differ in
    names alone."""
    found: dict[str, int] = {}
    for each in guards:
        if each.module:
            found[each.kind] = found.get(each.kind, 0) + 1
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
