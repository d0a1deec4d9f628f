"""Graph results with torch's own view semantics: conjugate and negative bits, and views of the same memory.

Loop operations know memory and index maps only. The bits, and autograd's notion of a view, are restored on returned
tensors by calls of ATen operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._functorch._aot_autograd.descriptors import AOTOutput, PlainAOTOutput
from torch.fx import Node

from litz_lowering.aten.fallback import call_aten
from litz_lowering.contexts.builder import GraphBuilder
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.registry import Registry, RuleEntry, RuleResult
from litz_lowering.contexts.values import Complex, Lowered, Tensor
from litz_lowering.fx_passes.views import is_detached, viewed

_BIT = "eager returns the result under a bit, as a view of what it is the conjugate or the negative of"
_DETACHED = "autograd must not see the result as a view of another result"


class _Bit(NamedTuple):
    """A bit of torch's tensors, which says that they show another value than that in memory."""

    flip: torch._ops.OpOverload
    """The operator that makes a view with the other bit."""
    is_set: Callable[[torch.Tensor], bool]
    """Returns the bit of a tensor."""


_BITS = (
    _Bit(torch.ops.aten._conj.default, torch.Tensor.is_conj),
    _Bit(torch.ops.aten._neg_view.default, torch.Tensor.is_neg),
)


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
        shown = {
            leaf for leaf, each in zip(leaves, descriptors, strict=False) if isinstance(each, PlainAOTOutput)
        }
        conjugates, negatives = (self._under_bit(nodes, bit, shown) for bit in _BITS)
        return {**self._detached(nodes, saved - seen), **negatives, **conjugates}

    # --- bits -----------------------------------------------------------------------------------------------

    def _under_bit(
        self, nodes: list[Node], bit: _Bit, shown: Collection[object]
    ) -> Mapping[Node, Tensor | Complex]:
        """Map results that eager returns under a bit, or that share memory with others but for the bit, to values over
        that memory.

        Those that share no memory are results of the captured program, ``shown`` to its caller; programs that run
        without torch compute them. Of a complex result under both bits, the conjugate bit is kept.
        """
        became = {node: value for node in nodes if isinstance(value := self.read(node), Tensor | Complex)}
        found = {node: base for node in became if (base := self._without_bit(node, bit)) is not None}
        owners = Counter(self.builder.root(value.name) for value in (became | found).values())
        return {
            node: self._with_bit(node, base, bit)
            for node, base in found.items()
            if owners[self.builder.root(base.name)] > 1 or (bit.is_set(node.meta["val"]) and node in shown)
        }

    def _with_bit(self, node: Node, base: Tensor | Complex, bit: _Bit) -> Tensor | Complex:
        """Value that eager returns for ``node``: the memory of ``base``, with or without the bit."""
        if not bit.is_set(node.meta["val"]):
            return base
        (made,) = call_aten(self.context(node), bit.flip, (base,), {}, _BIT)
        assert isinstance(made, Tensor | Complex), "a view of a tensor"
        return made

    def _without_bit(self, node: Node, bit: _Bit) -> Tensor | Complex | None:
        """Find the value of which a node is a view under the bit; None for other nodes."""
        source = viewed(node)
        if source is None:
            return None
        base = self._without_bit(source, bit)
        if node.target is bit.flip:
            # An input that came with the bit is stored resolved.
            if base is None and bit.is_set(source.meta["val"]):
                return None
            found = base or self.env[source]
            return found if isinstance(found, Tensor | Complex) and self._is_current(found) else None
        if base is None:
            return None
        rule = self.rules.find(str(node.target), is_complex=isinstance(base, Complex))
        if rule is None:
            return None
        kwargs = {key: self.read(item) for key, item in node.kwargs.items()}
        result = self.ask(rule, self.context(node), (base, *map(self.read, node.args[1:])), kwargs)
        return result if isinstance(result, Tensor | Complex) else None

    def _is_current(self, value: Tensor | Complex) -> bool:
        memory = value.pairs if isinstance(value, Complex) else value
        return self.builder.current(memory) == memory

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
