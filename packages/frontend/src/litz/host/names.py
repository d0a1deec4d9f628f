"""What a plan's values, storages and symbols are called in a host program."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from litz.host.code import Code, tuple_of
from litz_ir.symbols import Size

_GLOBALS = (
    "_", "torch", "math", "args", "call", "empty", "empty_cuda", "gpu", "empty_gpu", "empty_at", "strided", "alias",
    "view", "plain", "pairs", "settle", "view_as_real", "view_as_complex", "promised", "run_region",
)  # fmt: skip
"""What a host program's text takes for granted."""


class Names:
    """Python identifiers for the plan's names: its own where possible, unique always.

    Values, storages and complex tensors are variables of the function, and so are used where they are mentioned.
    ``constants`` are the values that it finds among its globals, which nothing drops.
    """

    def __init__(self, constants: Iterable[str] = ()) -> None:
        self._constants = frozenset(constants)
        self._known: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set(_GLOBALS)

    def value(self, name: str) -> Code:
        """The variable of a value: a tensor, or an argument that only calls can use."""
        found = self._identifier("value", name)
        return Code(found) if name in self._constants else Code(found, (found,))

    def whole(self, name: str) -> Code:
        """The variable of the complex tensor whose memory is the value ``name``."""
        return self._variable("complex", name)

    def storage(self, name: str) -> Code:
        """The variable of memory that several values share."""
        return self._variable("storage", name)

    def address(self, name: str) -> str:
        """The number where a value or storage begins."""
        return self._identifier("address", f"{name}_at")

    def symbol(self, name: str) -> str:
        """The variable of a symbol, which holds a number."""
        return self._identifier("symbol", name)

    def function(self, name: str) -> str:
        """The function of a subplan."""
        return self._identifier("function", name)

    def routine(self, target: str) -> str:
        """The function that a call's target, or a run of kernels, stands for."""
        return self._identifier("routine", target)

    def term(self, term: Size) -> str:
        """An index term over the variables of its symbols."""
        text = str(term)
        if isinstance(term, int):
            return text
        for name in term.free_symbols:
            spelled = self.symbol(name)
            if spelled != name:
                text = re.sub(rf"\b{re.escape(name)}\b", spelled, text)
        return text

    def terms(self, terms: Iterable[Size]) -> Code:
        """A tuple of index terms: a shape, or strides."""
        return tuple_of(map(self.term, terms))

    def _variable(self, kind: str, name: str) -> Code:
        found = self._identifier(kind, name)
        return Code(found, (found,))

    def _identifier(self, kind: str, name: str) -> str:
        found = self._known.get((kind, name))
        if found is None:
            base = re.sub(r"\W", "_", name) or "_"
            base = f"_{base}" if base[0].isdigit() or keyword.iskeyword(base) else base
            found, count = base, 2
            while found in self._taken:
                found, count = f"{base}_{count}", count + 1
            self._taken.add(found)
            self._known[kind, name] = found
        return found
