"""Results of a graph that show memory of one another, where the views between them have a meaning of torch's own.

Loops know memory and index maps. A conjugate bit, and what autograd takes for a view, are kept by calls on what is
returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from litz_lowering.builder import GraphBuilder
from litz_lowering.context import LoweringContext
from litz_lowering.fallback import call_aten
from litz_lowering.fx_passes.views import is_detached, viewed
from litz_lowering.registry import Registry, RuleEntry, RuleResult
from litz_lowering.values import Complex, Lowered, Tensor

_CONJUGATE = "a conjugate that is returned is other memory under a bit"
_DETACHED = "autograd must not take it for a view of another result"


@dataclass(frozen=True, slots=True)
class AliasedResults:
    """What nodes became in the driver (``env``), and its ways: ``read`` gives an FX argument as rules see it,
    ``context`` the context of a node, ``ask`` a rule's answer."""

    env: Mapping[Node, Lowered]
    builder: GraphBuilder
    rules: Registry
    read: Callable[[Any], Any]
    context: Callable[[Node], LoweringContext]
    ask: Callable[[RuleEntry, LoweringContext, tuple[Any, ...], dict[str, Any]], RuleResult]

    def of(self, leaves: Iterable[object]) -> Mapping[Node, Tensor | Complex]:
        """What the returned nodes are to be instead of what they became, where that differs."""
        nodes = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
        return {**self._conjugates(nodes), **self._detached(nodes)}

    # --- conjugates -----------------------------------------------------------------------------------------

    def _conjugates(self, nodes: list[Node]) -> Mapping[Node, Complex]:
        """Of the results that show a conjugate of other memory, those whose memory another result shows too."""
        became = {node: value for node in nodes if isinstance(value := self.read(node), Complex)}
        found = {node: shown for node in became if (shown := self._unconjugated(node)) is not None}
        homes = Counter(self.builder.root(value.name) for value in (became | found).values())
        return {
            node: self._conjugate(node, shown)
            for node, shown in found.items()
            if homes[self.builder.root(shown.name)] > 1
        }

    def _conjugate(self, node: Node, shown: Complex) -> Complex:
        """What ``node`` returns in eager: the memory of ``shown``, under a conjugate bit or not."""
        if not node.meta["val"].is_conj():
            return shown
        (made,) = call_aten(self.context(node), torch.ops.aten._conj.default, (shown,), {}, _CONJUGATE)
        assert isinstance(made, Complex), "the conjugate of a complex tensor"
        return made

    def _unconjugated(self, node: Node) -> Complex | None:
        """The memory of which a node shows a conjugate, seen as it is."""
        source = viewed(node)
        if source is None:
            return None
        shown = self._unconjugated(source)
        if node.target is torch.ops.aten._conj.default:
            # What came with a bit is held with it worked in.
            if shown is None and source.meta["val"].is_conj():
                return None
            found = shown or self.env[source]
            return found if isinstance(found, Complex) and self._is_current(found) else None
        rule = self.rules.find(str(node.target), is_complex=True)
        if shown is None or rule is None:
            return None
        kwargs = {key: self.read(item) for key, item in node.kwargs.items()}
        result = self.ask(rule, self.context(node), (shown, *map(self.read, node.args[1:])), kwargs)
        return result if isinstance(result, Complex) else None

    def _is_current(self, value: Complex) -> bool:
        return self.builder.current(value.pairs) == value.pairs

    # --- what autograd sees ---------------------------------------------------------------------------------

    def _detached(self, nodes: list[Node]) -> Mapping[Node, Tensor]:
        """Of the results that show memory of other results, those that are no views of it to eager's autograd: where
        the other result has a gradient, they have none."""
        became = {node: value for node in nodes if isinstance(value := self.read(node), Tensor)}
        homes = Counter(self.builder.root(value.name) for value in became.values())
        shared = {home for home, count in homes.items() if count > 1 and self.builder.producer(home)}
        return {
            node: self._detach(node, value)
            for node, value in became.items()
            if self.builder.root(value.name) in shared and is_detached(node) and self.builder.reshapes(value)
        }

    def _detach(self, node: Node, value: Tensor) -> Tensor:
        (made,) = call_aten(self.context(node), torch.ops.aten.detach.default, (value,), {}, _DETACHED)
        assert isinstance(made, Tensor), "what is detached is real"
        return made
