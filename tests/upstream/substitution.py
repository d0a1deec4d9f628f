"""Substitution of the compiler that PyTorch's tests call."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._inductor.compile_fx
from opinfo.watching import Watcher
from torch._dynamo.backends.registry import lookup_backend
from torch.fx import GraphModule

import litz
from litz.options import config_from
from upstream.outcome import LITZ
from upstream.set_aside import CHECKS_LEFT_OUT

ENTRY_POINT = torch._inductor.compile_fx.compile_fx


class Compilers(Watcher):
    """Compiler in the place of Inductor's: litz, whose graphs are kept, or another one, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = "inductor"

    def install(self) -> None:
        """Replace Inductor's entry point, which has to happen before a test module imports it."""

        def compile_fx(model_: GraphModule, example_inputs_: list[Any], *args: Any, **options: Any) -> Any:
            return self.compile(model_, example_inputs_, *args, **options)

        torch._inductor.compile_fx.compile_fx = compile_fx  # type: ignore[assignment]  # it has fewer parameters

    def select(self, backend: str) -> None:
        """Compile with a backend from now on. What another one compiled is forgotten: to Dynamo all are Inductor."""
        torch._dynamo.reset()
        self.backend = backend

    def compile(self, model_: GraphModule, example_inputs_: list[Any], *args: Any, **options: Any) -> Any:
        """Compile a graph as Inductor's function `compile_fx` does."""
        if self.backend == "inductor":
            return ENTRY_POINT(model_, example_inputs_, *args, **options)
        if self.backend != LITZ:
            return lookup_backend(self.backend)(model_, example_inputs_)
        config = config_from(litz.config.current(), None, options.get("config_patches"))
        return litz.compile_fx(model_, example_inputs_, config=config, observers=(self._keep,))


def claim_gpu() -> None:
    """Let decorators of PyTorch's tests take it that there is a GPU; modules imported before this are not affected."""
    # Imported for these suites alone, since it compiles C++.
    inductor_utils = importlib.import_module("torch.testing._internal.inductor_utils")
    vars(inductor_utils).update(
        HAS_GPU=True,
        HAS_GPU_AND_TRITON=True,
        requires_gpu=functools.partial(unittest.skipIf, False, "requires gpu"),
    )


class DroppedName:
    """Stand-in for a name that the tests import and this version of torch no longer has.

    As a flag it is false, as a list it is empty; a test that it decorates is skipped.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __radd__(self, other: list[Any]) -> list[Any]:
        return other

    def __call__(self, *args: Any, **_: Any) -> Any:
        if len(args) == 1 and (isinstance(args[0], type) or hasattr(args[0], "__code__")):
            return unittest.skip(f"{self.name} is not in torch {torch.__version__}")(args[0])
        return self


def leave_out_checks() -> None:
    """Replace the functions of PyTorch's tests that compare Inductor's counters by one that does nothing."""
    for module in list(sys.modules.values()):
        for name in CHECKS_LEFT_OUT:
            if inspect.isfunction(vars(module).get(name)):
                setattr(module, name, lambda *_, **__: None)


IMPORT_ERROR = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def add_dropped_names(import_module: Callable[[], object]) -> tuple[str, ...]:
    """Import a test module, with a stand-in for each name that torch lacks; return the names. Raises
    ``ImportError`` for modules that torch lacks."""
    dropped: list[str] = []
    while True:
        before = set(sys.modules)
        try:
            import_module()
            return tuple(dropped)
        except ImportError as error:
            match = next(filter(None, map(IMPORT_ERROR.search, _messages(error))), None)
            if match is None or f"{match[2]}.{match[1]}" in dropped:
                raise
            name, owner = match.groups()
            setattr(importlib.import_module(owner), name, DroppedName(name))
            dropped.append(f"{owner}.{name}")
            for partial in set(sys.modules) - before:
                if not partial.startswith(("torch", "functorch")):
                    del sys.modules[partial]


def _messages(error: BaseException | None) -> Iterator[str]:
    """Yield the messages of an error and of those during whose handling it was raised: of the modules that a test
    imports by one name or another."""
    while error is not None:
        yield str(error)
        error = error.__context__
