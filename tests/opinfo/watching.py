"""Backends like `"litz"` that keep the compiled graphs and litz's warnings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from litz import compile_fx, config
from litz.loading import Compiled
from litz_ir.plan import CallStep

FORCED = "requested by the option force_extern"


@dataclass(slots=True)
class Made:
    """The compiled graphs and log messages of one run."""

    compiled: list[Compiled] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def fell_back(self) -> str | None:
        """Return the reason for which the graph, or operations that have a rule, fell back to ATen; else `None`."""
        for compiled in self.compiled:
            if compiled.artifact is None:
                return f"the whole graph runs as it came: {self._words()}"
            for left in compiled.artifact.fallbacks:
                if left.reason == FORCED:
                    return f"{left.target} failed: {self._words()}"
        return None

    def calls(self) -> tuple[str, ...]:
        """Return the names of the routines that are called instead of generated code."""
        plans = [compiled.artifact.plan for compiled in self.compiled if compiled.artifact is not None]
        return tuple(
            dict.fromkeys(step.target for plan in plans for step in plan.steps if isinstance(step, CallStep))
        )

    def kernels(self) -> int:
        """Return the number of generated kernels."""
        return sum(len(compiled.artifact.plan.kernels) for compiled in self.compiled if compiled.artifact)

    def _words(self) -> str:
        return (
            " | ".join(" ".join(text.split()) for text in self.said)[:400] or "(cached, see the first sample)"
        )


class _Listener(logging.Handler):
    """Log handler that keeps litz's warnings during a run."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        self.said.append(record.getMessage())


class Watcher:
    """A backend like `"litz"` that keeps the compiled graphs; one instance serves all samples of a unit."""

    def __init__(self) -> None:
        self.made = Made()

    def __call__(self, gm: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Compile as `torch.compile(backend="litz")` does."""
        return compile_fx(gm, inputs, config=config.current(), observers=(self._keep,))

    def _keep(self, compiled: Compiled) -> None:
        self.made.compiled.append(compiled)

    @contextmanager
    def watching(self) -> Iterator[Made]:
        """Collect the graphs and warnings of the block."""
        self.made = Made()
        with heard_warnings(self.made.said):
            yield self.made


@contextmanager
def heard_warnings(said: list[str]) -> Iterator[None]:
    """Add litz's warnings in the block to a list, and print none."""
    logger, listener = logging.getLogger("litz"), _Listener(said)
    logger.addHandler(listener)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = before
