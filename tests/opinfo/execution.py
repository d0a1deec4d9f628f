"""One run of an entry on one sample, eager or compiled, with all that can be seen of it afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from litz.api import compile_fx, config
from litz.loading import Compiled
from litz_ir.plan.program import CallStep
from opinfo.entries import ENTRIES, Unit
from opinfo.samples import Mode, Sample, seed

FORCED = "asked for by force_extern"
Program = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run left: values by label (results, gradients, arguments after the call), or the error it raised."""

    leaves: dict[str, Any] = field(default_factory=dict)
    structure: str = ""
    shared: frozenset[tuple[str, str]] = frozenset()
    error: Exception | None = None


@dataclass(slots=True)
class Made:
    """What litz made of the graphs of one run, and what it said on the way."""

    compiled: list[Compiled] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def fell_back(self) -> str | None:
        """Why operations that have a rule, or the whole graph, were left to ATen; `None` when none were."""
        for compiled in self.compiled:
            if compiled.artifact is None:
                return f"the whole graph runs as it came: {self._words()}"
            for left in compiled.artifact.left_to_aten:
                if left.reason == FORCED:
                    return f"{left.target} failed: {self._words()}"
        return None

    def calls(self) -> tuple[str, ...]:
        """The routines that are called instead of generated code, by name."""
        plans = [compiled.artifact.plan for compiled in self.compiled if compiled.artifact is not None]
        return tuple(
            dict.fromkeys(step.target for plan in plans for step in plan.steps if isinstance(step, CallStep))
        )

    def kernels(self) -> int:
        """How many kernels were generated."""
        return sum(len(compiled.artifact.plan.kernels) for compiled in self.compiled if compiled.artifact)

    def _words(self) -> str:
        return (
            " | ".join(" ".join(text.split()) for text in self.said)[:400] or "(cached, see the first sample)"
        )


class _Listener(logging.Handler):
    """Keeps litz's warnings while a run lasts."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        self.said.append(record.getMessage())


class Watcher:
    """A backend like `"litz"` that keeps what was made; one serves all samples of a unit."""

    def __init__(self) -> None:
        self.made = Made()

    def __call__(self, gm: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Compile as `torch.compile(backend="litz")` does."""
        return compile_fx(gm, inputs, config=config.current(), observers=(self._keep,))

    def _keep(self, compiled: Compiled) -> None:
        self.made.compiled.append(compiled)

    @contextmanager
    def watching(self) -> Iterator[Made]:
        """Collect what is made inside the block."""
        self.made = Made()
        logger, listener = logging.getLogger("litz"), _Listener(self.made.said)
        logger.addHandler(listener)
        before, logger.propagate = logger.propagate, False
        try:
            yield self.made
        finally:
            logger.removeHandler(listener)
            logger.propagate = before


def program_of(unit: Unit, mode: Mode) -> Program:
    """Return the function that is run: the operator, or its variant that writes its first argument."""
    entry = ENTRIES[unit.entry]
    operator = entry.inplace_variant if mode == "inplace" else entry.op

    def program(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return program


def run(program: Program, sample: Sample, mode: Mode) -> Seen:
    """Call the program on the sample, which it may write; an exception is part of what is seen."""
    seed()
    before = sample.tensors()
    try:
        result = program(*sample.args, **sample.kwargs)
        leaves, spec = pytree.tree_flatten(result)
        found = {f"result {number}": leaf for number, leaf in enumerate(leaves)}
        shared = _shared(found, before)
        if mode == "gradient":
            found |= _gradients(sample, result)
    except Exception as error:
        return Seen(error=error)
    found |= {f"argument {number} after the call": leaf for number, leaf in enumerate(before)}
    detached = {
        label: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for label, leaf in found.items()
    }
    return Seen(detached, str(spec), shared)


def _gradients(sample: Sample, result: Any) -> dict[str, Any]:
    """Gradients of all results, weighted so that no two elements weigh the same, for all arguments that want one."""
    results = [
        leaf
        for leaf in pytree.tree_leaves(sample.differentiable(result))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    wanted = [leaf for leaf in sample.tensors() if leaf.requires_grad]
    if not results or not wanted:
        return {}
    weights = [
        torch.linspace(0.5, 1.5, leaf.numel(), dtype=torch.float64).reshape(leaf.shape).to(leaf)
        for leaf in results
    ]
    gradients = torch.autograd.grad(results, wanted, weights, allow_unused=True)
    return {f"gradient {number}": gradient for number, gradient in enumerate(gradients)}


def _shared(results: dict[str, Any], arguments: list[torch.Tensor]) -> frozenset[tuple[str, str]]:
    """Which results share a storage with an argument or with another result."""
    owners = [(f"argument {number}", _storage(tensor)) for number, tensor in enumerate(arguments)]
    pairs = []
    for label, leaf in results.items():
        storage = _storage(leaf)
        if storage is not None:
            pairs += [(label, owner) for owner, other in owners if other == storage]
            owners.append((label, storage))
    return frozenset(pairs)


def _storage(leaf: Any) -> int | None:
    """What identifies the memory of a tensor; one without elements has none to share."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.numel() == 0:
        return None
    address: int = leaf.untyped_storage()._cdata
    return address
