"""Python identifiers of a plan's values, storages and symbols in its host program."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from litz.host.emit.code import Code, tuple_of
from litz_ir.symbols import Size

_GLOBALS = (
    "_", "torch", "math", "args", "empty", "empty_cuda", "empty_on", "gpu", "empty_gpu", "empty_at", "strided",
    "alias", "alias_as", "view", "plain", "pairs", "settle", "view_as_real", "view_as_complex", "promised",
    "run_region", "assert_sizes", "assert_aligned",
)  # fmt: skip
"""Names that the text of a host program uses without defining them."""


class Names:
    """Unique Python identifiers for a plan's names, equal to these where possible.

    Values, storages and complex tensors are local variables, and count as used where they are mentioned.
    ``constants`` are values among the globals, which are never deleted. ``function`` is the name of the program's own
    function, which is in the same scope.
    """

    def __init__(self, constants: Iterable[str] = (), function: str = "call") -> None:
        self._constants = frozenset(constants)
        self._known: dict[tuple[str, str], str] = {}
        self._taken: set[str] = {*_GLOBALS, function}

    def value(self, name: str) -> Code:
        """Return the variable of a value: a tensor, or an argument that only calls use."""
        found = self._identifier("value", name)
        return Code(found) if name in self._constants else Code(found, (found,))

    def whole(self, name: str) -> Code:
        """Return the variable of the complex tensor whose memory is the value ``name``."""
        return self._variable("complex", name)

    def storage(self, name: str) -> Code:
        """Return the variable of memory that several values share."""
        return self._variable("storage", name)

    def address(self, name: str) -> str:
        """Return the variable of the address of a value or storage."""
        return self._identifier("address", f"{name}_at")

    def symbol(self, name: str) -> str:
        """Return the variable of a symbol."""
        return self._identifier("symbol", name)

    def function(self, name: str) -> str:
        """Return the function of a subplan."""
        return self._identifier("function", name)

    def routine(self, target: str) -> str:
        """Return the function of a call's target, or of a segment."""
        return self._identifier("routine", target)

    def term(self, term: Size) -> str:
        """Return an index term over the variables of its symbols."""
        text = str(term)
        if isinstance(term, int):
            return text
        for name in term.free_symbols:
            spelled = self.symbol(name)
            if spelled != name:
                text = re.sub(rf"\b{re.escape(name)}\b", spelled, text)
        return text

    def terms(self, terms: Iterable[Size]) -> Code:
        """Return a tuple of index terms, such as a shape or strides."""
        return tuple_of(map(self.term, terms))

    def _variable(self, kind: str, name: str) -> Code:
        """Return a local variable."""
        found = self._identifier(kind, name)
        return Code(found, (found,))

    def _identifier(self, kind: str, name: str) -> str:
        """Return a unique identifier, the same one for the same kind and name."""
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
