"""Graph results that are views of the same memory, with torch's own view semantics.

Loop operations know memory and index maps only. The conjugate bit, and autograd's notion of a view, are restored
on returned tensors by calls of ATen operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import AOTOutput
from torch.fx import Node

from litz_lowering.aten.fallback import call_aten
from litz_lowering.contexts.builder import GraphBuilder
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.registry import Registry, RuleEntry, RuleResult
from litz_lowering.contexts.values import Complex, Lowered, Tensor
from litz_lowering.fx_passes.views import is_detached, viewed

_CONJUGATE = "a returned conjugate shares memory with another result, under the conjugate bit"
_DETACHED = "autograd must not see the result as a view of another result"


@dataclass(frozen=True, slots=True)
class AliasedResults:
    """Finds results that alias one another and replaces those that need an ATen call."""

    env: Mapping[Node, Lowered]
    """The lowered value of each FX node."""
    builder: GraphBuilder
    rules: Registry
    read: Callable[[Any], Any]
    """Converts an FX argument to the form that rules take."""
    context: Callable[[Node], LoweringContext]
    """Makes the lowering context of a node."""
    ask: Callable[[RuleEntry, LoweringContext, tuple[Any, ...], dict[str, Any]], RuleResult]
    """Applies a rule to arguments."""

    def of(self, leaves: Sequence[object], output: Node) -> Mapping[Node, Tensor | Complex]:
        """Map each returned node of the node ``output`` whose value has to change to its new value."""
        nodes = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
        descriptors = output.meta.get("desc", ())
        saved = {leaf for leaf, each in zip(leaves, descriptors, strict=False) if _is_saved(each)}
        seen = {leaf for leaf, each in zip(leaves, descriptors, strict=False) if not _is_saved(each)}
        return {**self._conjugates(nodes), **self._detached(nodes, saved - seen)}

    # --- conjugates -----------------------------------------------------------------------------------------

    def _conjugates(self, nodes: list[Node]) -> Mapping[Node, Complex]:
        """Map results that are conjugates of memory that another result also shows to values over that memory."""
        became = {node: value for node in nodes if isinstance(value := self.read(node), Complex)}
        found = {node: base for node in became if (base := self._unconjugated(node)) is not None}
        owners = Counter(self.builder.root(value.name) for value in (became | found).values())
        return {
            node: self._conjugate(node, base)
            for node, base in found.items()
            if owners[self.builder.root(base.name)] > 1
        }

    def _conjugate(self, node: Node, base: Complex) -> Complex:
        """Value that eager returns for ``node``: the memory of ``base``, with or without the conjugate bit."""
        if not node.meta["val"].is_conj():
            return base
        (made,) = call_aten(self.context(node), torch.ops.aten._conj.default, (base,), {}, _CONJUGATE)
        assert isinstance(made, Complex), "the conjugate of a complex tensor"
        return made

    def _unconjugated(self, node: Node) -> Complex | None:
        """Find the unconjugated value of which a node is a conjugate view; None for other nodes."""
        source = viewed(node)
        if source is None:
            return None
        base = self._unconjugated(source)
        if node.target is torch.ops.aten._conj.default:
            # An input that came with the bit is stored resolved.
            if base is None and source.meta["val"].is_conj():
                return None
            found = base or self.env[source]
            return found if isinstance(found, Complex) and self._is_current(found) else None
        rule = self.rules.find(str(node.target), is_complex=True)
        if base is None or rule is None:
            return None
        kwargs = {key: self.read(item) for key, item in node.kwargs.items()}
        result = self.ask(rule, self.context(node), (base, *map(self.read, node.args[1:])), kwargs)
        return result if isinstance(result, Complex) else None

    def _is_current(self, value: Complex) -> bool:
        return self.builder.current(value.pairs) == value.pairs

    # --- views as autograd sees them ------------------------------------------------------------------------

    def _detached(self, nodes: list[Node], saved: Collection[object]) -> Mapping[Node, Tensor]:
        """Map results that alias another result, but are no views of it to eager's autograd, to detached values:
        only the other result has a gradient. Autograd does not see those that are ``saved`` for a backward alone."""
        became = {node: value for node in nodes if isinstance(value := self.read(node), Tensor)}
        owners = Counter(self.builder.root(value.name) for value in became.values())
        shared = {owner for owner, count in owners.items() if count > 1 and self.builder.producer(owner)}
        return {
            node: self._detach(node, value)
            for node, value in became.items()
            if node not in saved and self.builder.root(value.name) in shared and is_detached(node)
        }

    def _detach(self, node: Node, value: Tensor) -> Tensor:
        (made,) = call_aten(self.context(node), torch.ops.aten.detach.default, (value,), {}, _DETACHED)
        assert isinstance(made, Tensor), "detach returns a real tensor"
        return made


def _is_saved(descriptor: AOTOutput | None) -> bool:
    """True for AOTAutograd's descriptor of a result that a forward graph saves for its backward; absent gradients have
    none."""
    return descriptor is not None and descriptor.expr().startswith("__saved_for_backwards")
