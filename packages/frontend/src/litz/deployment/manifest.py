"""The manifest of a model: its programs, the form of its calls and its weights, as data and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from litz.deployment.archive import AGAIN
from litz_ir.errors import ArtifactError

FORMAT, VERSION = "litz model", 1
"""Name and version of the format; a loader refuses other versions."""

FORWARD = "forward"
"""Name of the entry point of an exported program."""

WeightKind = Literal["parameter", "buffer", "constant"]
"""Roles of weights: ``state_dict()`` has parameters and buffers; constants are buffers that it leaves out, and small
tensors of the program."""

Leaf = Mapping[str, Any]
"""A leaf of the tree of arguments or results: ``{"position": 3}``, or the constant ``{"value": None}``."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor that is bound to an input of the plan, or a constant of the plan."""

    name: str
    """Name in the module, and in the file of weights."""

    kind: WeightKind
    """Role in the module."""

    dtype: str
    """Name of the dtype in torch."""

    shape: tuple[int, ...]
    """Sizes."""

    strides: tuple[int, ...]
    """Strides that the program was compiled for, in elements."""

    aliases: tuple[str, ...] = ()
    """Further names of the same tensor in the module."""

    def torch_dtype(self) -> torch.dtype:
        """Return the dtype; raise ``ValueError`` where torch has none of this name."""
        found = getattr(torch, self.dtype, None)
        if not isinstance(found, torch.dtype):
            raise ValueError(f"unknown dtype {self.dtype!r}")
        return found


@dataclass(frozen=True, slots=True)
class Program:
    """The compiled program for one instruction set or chip."""

    device: str
    """Kind of device that it runs on."""

    isa: str
    """Name of the instruction set or chip of that device."""

    capabilities: Mapping[str, str]
    """Name of the instruction set or chip of each kind of device that it runs kernels on."""

    interfaces: Mapping[str, int]
    """Version of the interface of binaries of each kind."""

    plan: str
    """Member with the plan."""

    units: str
    """Member with the sources of binaries."""

    binaries: tuple[str, ...]
    """Members with the binaries of the sources, in their order."""

    host: str | None = None
    """Member with a compiled host program, for loaders without Python."""


@dataclass(frozen=True, slots=True)
class CallTree:
    """The form of a program's calls."""

    arguments: str
    """Spec of the pair of arguments and keyword arguments, as ``torch.utils._pytree`` writes it."""

    results: str
    """Spec of the results."""

    names: tuple[str, ...]
    """Names of the arguments in the signature, positional ones first."""

    labels: tuple[str, ...]
    """Name of each leaf of the arguments, in messages."""

    argument_leaves: tuple[Leaf, ...]
    """Position among the inputs, or the constant that the program was exported with, of each leaf of the arguments."""

    result_leaves: tuple[Leaf, ...]
    """Position among the outputs, or the constant, of each leaf of the results."""

    returned_inputs: tuple[tuple[int, int], ...]
    """Positions of outputs that are inputs of the plan, each with the position of that input."""

    written: tuple[int, ...]
    """Positions of inputs of the plan that a call overwrites."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest that a loader needs."""

    document: Mapping[str, Any]
    """The whole manifest."""

    files: Mapping[str, tuple[str, int]]
    """SHA-256 sum and number of bytes of each member, by name."""

    programs: tuple[Program, ...]
    """Compiled programs, best first."""

    tree: CallTree
    """The form of calls."""

    weights: tuple[Weight, ...]
    """Weights in the order of the plan's first inputs."""

    constants: Mapping[str, Weight]
    """Tensors that the plan contains, by their names in the plan."""

    file: str | None
    """Name of the file of weights, a member or a file beside the archive; ``None`` for a model without."""

    left_out: tuple[str, ...]
    """Names of weights that no file has: they are given when the model is loaded."""

    options: Mapping[str, bool]
    """Options of loading that the program was compiled with."""


def tree_data(tree: CallTree) -> dict[str, Any]:
    """Return the form of calls as JSON data."""
    return {
        **asdict(tree),
        "arguments": json.loads(tree.arguments),
        "results": json.loads(tree.results),
    }


def weight_data(weight: Weight) -> dict[str, Any]:
    """Return the description of a weight as JSON data."""
    return {name: value for name, value in asdict(weight).items() if name != "name"}


def parsed_manifest(text: bytes, where: str) -> Manifest:
    """Return a manifest; raise :class:`ArtifactError` for another format or version, and for damaged text."""
    try:
        document = json.loads(text)
        found = (document["format"], document["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{where} has no readable manifest: {error}", hint=AGAIN) from error
    if found != (FORMAT, VERSION):
        hint = "load it with the version of litz that wrote it, or compile the program again"
        message = f"{where} has the format {found[0]!r:.40} {found[1]!r:.20}, this is {FORMAT!r} {VERSION}"
        raise ArtifactError(message, hint=hint)
    try:
        return _manifest(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"the manifest of {where} is damaged: {type(error).__name__}: {error}"
        raise ArtifactError(message, hint=AGAIN) from error


def _manifest(document: Mapping[str, Any]) -> Manifest:
    """Return the manifest of JSON data; raise ``KeyError`` and others for other data."""
    entry, weights = document["entry_points"][FORWARD], document["weights"]
    known = {name: _weight(name, each) for name, each in weights["tensors"].items()}
    bound = sorted(entry["weights"], key=lambda each: int(each["position"]))
    if [each["position"] for each in bound] != list(range(len(bound))):
        raise ValueError("weights are not the first inputs of the plan")
    file = weights["file"]
    if file is not None and (not isinstance(file, str) or "/" in file or file.startswith(".")):
        raise ValueError(f"the weights are in {file!r}")
    return Manifest(
        document,
        {str(name): (str(each["sha256"]), int(each["bytes"])) for name, each in document["files"].items()},
        tuple(map(_program, entry["programs"])),
        _tree(entry["tree"]),
        tuple(known[each["name"]] for each in bound),
        {str(name): known[weight] for name, weight in entry["constants"].items()},
        file,
        tuple(map(str, weights["left_out"])),
        {str(name): bool(value) for name, value in entry["options"].items()},
    )


def _weight(name: str, data: Mapping[str, Any]) -> Weight:
    """Return the description of a weight."""
    kind: WeightKind = data["kind"]
    shape, strides = (tuple(map(int, data[each])) for each in ("shape", "strides"))
    weight = Weight(str(name), kind, str(data["dtype"]), shape, strides, tuple(map(str, data["aliases"])))
    weight.torch_dtype()
    if len(shape) != len(strides) or min((*shape, *strides), default=0) < 0:
        raise ValueError(f"{name} has no sizes")
    return weight


def _program(data: Mapping[str, Any]) -> Program:
    """Return the description of a program."""
    return Program(
        str(data["device"]),
        str(data["isa"]),
        {str(kind): str(name) for kind, name in data["capabilities"].items()},
        {str(kind): int(version) for kind, version in data["interfaces"].items()},
        str(data["plan"]),
        str(data["sources"]),
        tuple(map(str, data["binaries"])),
        None if data["host"] is None else str(data["host"]),
    )


def _tree(data: Mapping[str, Any]) -> CallTree:
    """Return the form of calls."""
    return CallTree(
        json.dumps(data["arguments"]),
        json.dumps(data["results"]),
        tuple(map(str, data["names"])),
        tuple(map(str, data["labels"])),
        _leaves(data["argument_leaves"]),
        _leaves(data["result_leaves"]),
        tuple((int(k), int(source)) for k, source in data["returned_inputs"]),
        tuple(map(int, data["written"])),
    )


def _leaves(data: Sequence[Mapping[str, Any]]) -> tuple[Leaf, ...]:
    """Return leaves; raise ``ValueError`` for one that is neither a position nor a constant."""
    if any(len(each) != 1 or not each.keys() <= {"position", "value"} for each in data):
        raise ValueError("a leaf is neither a position nor a value")
    return tuple(dict(each) for each in data)
