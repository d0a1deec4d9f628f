"""The pass that replaces what a function computes by what another one does."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from litz.cache.identity import Unidentified, identity
from litz.passes import ReportingPass, reasons
from litz.passes.metadata import fake_mode_of, is_same_type, result_of
from litz.patterns.matching import Match, find_matches, insertion_point, obstacle
from litz.patterns.traced import Call, GivenDevice, NumberInput, TensorInput, TracedFunction, traced
from litz_ir.errors import ConfigError
from litz_ir.fused import Decision
from litz_lowering import origin_of

_OWN_METADATA = ("val", "tensor_meta", "unbacked_bindings", "eager_input_vals", "desc")
"""Metadata that describes a node itself; what replaces it has the rest."""


@dataclass(frozen=True, eq=False)  # tensors do not compare; no slots: what is traced is kept
class Rewrite(ReportingPass):
    """A pass over AOT graphs that replaces each match of a pattern.

    Both functions are traced as litz traces programs: sizes are symbolic, and mutations inside them are functional. A
    match has the pattern's operators with equal constants; tensors of the examples' dtypes and numbers of dimensions;
    sizes that agree as in the pattern. Nothing else reads its intermediate values, and nothing writes to memory in
    between. It belongs to the stage ``post_grad_after`` of :class:`litz.passes.Passes`, where the graph has no views
    that change nothing.
    """

    name: str
    """Name of the pass."""

    pattern: Callable[..., Any]
    """Function of tensors and numbers, which returns a tensor or several."""

    replacement: Callable[..., Any]
    """Function of the same parameters, which returns tensors of the same dtypes and shapes."""

    example_inputs: Sequence[Any]
    """A tensor or a number for each parameter. Of a tensor count the dtype, the number of dimensions, and sizes of 0
    and 1; it may be on the device ``meta``. A number stands for any number of its type."""

    check: Callable[[Match], bool] | None = None
    """Condition on a match, for strides, devices, sizes and values of numbers."""

    more_example_inputs: Sequence[Sequence[Any]] = ()
    """Further example inputs, of other dtypes or numbers of dimensions, which are looked for too."""

    def uuid(self) -> str | None:
        """Return a digest of what both functions trace to and of ``check``; ``None`` where that has no identity."""
        texts = [self.name]
        for variant in self._variants:
            texts += [each.text() for each in variant]
        try:
            texts.append("" if self.check is None else identity(self.check, "check"))
        except Unidentified:
            return None
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    def rewrite(self, graph: Graph) -> tuple[Decision, ...]:
        """Replace each match in a graph; return a decision for each, and for what resembles one.

        Raises :class:`ValueError` for a graph without ``meta["val"]``, and for results of other types.
        """
        gm = graph.owning_module
        if gm is None or any("val" not in node.meta for node in graph.find_nodes(op="placeholder")):
            raise ValueError("a rewrite needs an AOT graph, as passes of post_grad_after are given")
        decisions: list[Decision] = []
        for pattern, replacement in self._variants:
            erased: set[Node] = set()
            for match in find_matches(pattern, graph, erased):
                decisions.append(self._replaced(gm, match, pattern, replacement, erased))
        return tuple(decisions)

    @functools.cached_property
    def _variants(self) -> tuple[tuple[TracedFunction, TracedFunction], ...]:
        """The pattern and the replacement for each of the example inputs."""
        return tuple(map(self._traced, (self.example_inputs, *self.more_example_inputs)))

    def _traced(self, inputs: Sequence[Any]) -> tuple[TracedFunction, TracedFunction]:
        """Trace both functions of example inputs; raise ``ConfigError`` where they do not fit each other."""
        pattern, replacement = (
            traced(function, inputs, f"the {what} of the rewrite {self.name}")
            for what, function in (("pattern", self.pattern), ("replacement", self.replacement))
        )
        if not pattern.results or not all(isinstance(each, Call) for each in pattern.results):
            raise ConfigError(
                f"the pattern of the rewrite {self.name} returns an input or nothing",
                hint="let it return the results of operators",
            )
        if len(pattern.results) != len(replacement.results):
            counts = f"{len(replacement.results)} results, the pattern {len(pattern.results)}"
            raise ConfigError(
                f"the replacement of the rewrite {self.name} has {counts}", hint="return as many"
            )
        read = _read_by(pattern)
        for own, other in zip(pattern.inputs, replacement.inputs):
            if id(own) not in read and id(other) in _read_by(replacement):
                raise ConfigError(
                    f"the pattern of the rewrite {self.name} does not read its input {own.name}, which the "
                    "replacement needs",
                    hint="write its value into the replacement",
                )
        return pattern, replacement

    def _replaced(
        self,
        gm: GraphModule,
        match: Match,
        pattern: TracedFunction,
        replacement: TracedFunction,
        erased: set[Node],
    ) -> Decision:
        """Replace a match unless something is in the way; return the decision."""
        origins = [origin_of(node) for node in match.nodes]
        lines = dict.fromkeys(f"{each.file}:{each.line}" for each in origins if each.file)
        note = f"{self.name}, for {', '.join(lines) or 'unknown lines'}"
        replaced = ", ".join(node.name for node in match.results)
        reason = obstacle(match)
        if reason is None and self.check is not None and not self.check(match):
            reason = reasons.CHECK
        if reason is not None:
            return Decision("", replaced, "leave", reason, note=note)
        _insert(gm, match, pattern, replacement)
        for node in reversed(match.nodes):
            if not node.users:
                gm.graph.erase_node(node)
                erased.add(node)
        return Decision("", replaced, "replace", reasons.MATCHED, note=note)


def _insert(gm: GraphModule, match: Match, pattern: TracedFunction, replacement: TracedFunction) -> None:
    """Insert the replacement of a match into the graph, and let readers of its results read the new ones."""
    graph, mode, last = gm.graph, fake_mode_of(gm), match.results[-1]
    inherited = {key: value for key, value in last.meta.items() if key not in _OWN_METADATA}
    given = dict(zip(replacement.inputs, (match.inputs[each.name] for each in pattern.inputs), strict=True))
    device = next(
        each.meta["val"].device for each in (*match.inputs.values(), last) if isinstance(each, Node)
        and isinstance(each.meta["val"], torch.Tensor)
    )  # fmt: skip
    made: dict[Call, Any] = {}

    def operand(value: Any) -> Any:
        match value:
            case Call():
                return made[value]
            case TensorInput() | NumberInput():
                return given[value]
            case GivenDevice():
                return device
            case tuple() | list():
                return type(value)(map(operand, value))
            case Mapping():
                return {key: operand(item) for key, item in value.items()}
        return value

    with graph.inserting_before(insertion_point(match)):
        for call in replacement.calls:
            node = graph.call_function(call.target, operand(call.args), operand(dict(call.kwargs)))
            node.meta = dict(inherited)
            value = node.meta["val"] = result_of(gm, node, mode)
            made[call] = node
            if isinstance(value, int | float) and call.size is not None:
                made[call] = value  # a size that is fixed in this graph
                graph.erase_node(node)
    for position, (old, result) in enumerate(zip(match.results, replacement.results, strict=True)):
        new = operand(result)
        if not is_same_type(old.meta["val"], new.meta["val"]):
            was, found = (f"{each.meta['val'].dtype} {tuple(each.meta['val'].shape)}" for each in (old, new))
            raise ValueError(f"result {position} of the replacement is {found}, that of the pattern {was}")
        old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in match.nodes)


def _read_by(function: TracedFunction) -> set[int]:
    """Return the identities of inputs that a function reads."""
    found: set[int] = set()

    def visit(value: Any) -> None:
        if isinstance(value, tuple | list):
            for each in value:
                visit(each)
        elif isinstance(value, Mapping):
            for each in value.values():
                visit(each)
        else:
            found.add(id(value))

    for call in function.calls:
        visit(call.args)
        visit(dict(call.kwargs))
    visit(function.results)
    return found
