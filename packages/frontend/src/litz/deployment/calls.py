"""Calls of models: arguments become the flat inputs of a plan, and its results the containers that eager returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from litz.deployment.manifest import CallTree, Leaf
from litz_ir.errors import ArtifactError

_ELSE = "export the program with such arguments"
"""Hint for arguments of another form."""


class CallForm:
    """The form of a model's calls, from its manifest."""

    def __init__(self, tree: CallTree, where: str) -> None:
        """Raise :class:`ArtifactError` for containers that this process does not know."""
        try:
            self._arguments = pytree.treespec_loads(tree.arguments)
            self._results = pytree.treespec_loads(tree.results)
            args, kwargs = _unflattened(self._arguments, range(len(tree.labels)))
        except (NotImplementedError, ValueError, TypeError, KeyError, AttributeError) as error:
            hint = "import the module that defines the containers of its arguments and results first"
            raise ArtifactError(f"the form of calls of {where} cannot be read: {error}", hint=hint) from error
        self._where = where
        self._labels = tree.labels
        self._leaves = tree.argument_leaves
        self._result_leaves = tree.result_leaves
        self._constant_results = any("value" in leaf for leaf in tree.result_leaves)
        self._keywords = tuple(kwargs)
        named = len(tree.names) == len(args) + len(kwargs)
        self._names = tree.names[: len(args)] if named else ()
        self.labels = tuple(
            label for label, leaf in zip(tree.labels, tree.argument_leaves, strict=True) if "position" in leaf
        )
        """Name of each input in messages."""

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the flat inputs of a call; raise :class:`ArtifactError` for arguments of another form."""
        if tuple(kwargs) != self._keywords:
            args, kwargs = self._by_signature(args, kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._arguments:
            message = f"{self._where} takes arguments of the form {_shown(self._arguments)}"
            raise ArtifactError(f"{message}, got {_shown(spec)}", hint=_ELSE)
        given = []
        for value, leaf, label in zip(leaves, self._leaves, self._labels, strict=True):
            if "position" in leaf:
                given.append(value)
            elif not _same(value, leaf["value"]):
                raise ArtifactError(
                    f"argument {label} of {self._where} is {leaf['value']!r}, got {value!r:.80}", hint=_ELSE
                )
        return given

    def results(self, outputs: Sequence[Any]) -> Any:
        """Return the results of a call, given those of the plan."""
        leaves = list(outputs)
        if self._constant_results:
            leaves = [_result(leaf, outputs) for leaf in self._result_leaves]
        return pytree.tree_unflatten(leaves, self._results)

    def _by_signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments as the program was exported with them: by position, or by name in order."""
        left = dict(kwargs)
        by_name = self._names[len(args) :]
        if all(name in left for name in by_name):
            args = (*args, *(left.pop(name) for name in by_name))
        positional = len(self._names)
        for name, value in zip(self._keywords, args[positional:] if self._names else ()):
            if name in left:
                raise ArtifactError(f"argument {name} of {self._where} is given twice")
            left[name] = value
        args = args[:positional] if self._names else args
        if left.keys() == set(self._keywords):
            left = {name: left[name] for name in self._keywords}
        return args, left


class _Star:
    """A value in the text of a form."""

    def __repr__(self) -> str:
        return "*"


def _shown(spec: pytree.TreeSpec) -> str:
    """Return the form of arguments as text, one star for each value."""
    args, kwargs = _unflattened(spec, [_Star()] * spec.num_leaves)
    return f"({', '.join([*map(repr, args), *(f'{name}={each!r}' for name, each in kwargs.items())])})"


def _unflattened(spec: pytree.TreeSpec, leaves: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments and keyword arguments with these leaves."""
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return tuple(args), dict(kwargs)


def _same(given: Any, expected: Any) -> bool:
    """Report whether a constant is the one that the program was exported with."""
    return type(given) is type(expected) and bool(given == expected)


def _result(leaf: Leaf, outputs: Sequence[Any]) -> Any:
    """Return a leaf of the results."""
    return outputs[leaf["position"]] if "position" in leaf else leaf["value"]


def refuse_overlaps(
    labels: Sequence[str], overwritten: Sequence[int], where: str
) -> Callable[[Sequence[Any]], None]:
    """Return a function that raises :class:`ArtifactError` for inputs in memory that another one overwrites."""

    def check(inputs: Sequence[Any]) -> None:
        ranges: Mapping[int, tuple[torch.device, int, int]] = {
            k: _extent(each)
            for k, each in enumerate(inputs)
            if isinstance(each, torch.Tensor) and each.numel()
        }
        for k in overwritten:
            if k not in ranges:
                continue
            device, first, end = ranges[k]
            for other, (at, start, stop) in ranges.items():
                if other != k and at == device and start < end and first < stop:
                    raise ArtifactError(
                        f"{where} overwrites {labels[k]}, whose memory {labels[other]} shares",
                        hint=f"pass a copy as {labels[other]}",
                    )

    return check


def _extent(tensor: torch.Tensor) -> tuple[torch.device, int, int]:
    """Return the device of a tensor, its address, and the address after its last element."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.data_ptr()
    return tensor.device, first, first + span * tensor.element_size()
