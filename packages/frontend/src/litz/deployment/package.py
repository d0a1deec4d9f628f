"""Files of compiled programs: their members, and the manifest that describes them."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch

from litz.artifact import AotWrapping, Artifact, unit_data
from litz.cache.artifacts import ArtifactCache
from litz.cache.key import versions
from litz.cache.store import created
from litz.cuda_graphs.eligibility import overwritten, shared_with_inputs
from litz.deployment.archive import MANIFEST, SIGNATURE, Chunk, Member, checksum, member_size, write_archive
from litz.deployment.exported import FlatProgram
from litz.deployment.manifest import FORMAT, FORWARD, VERSION, Weight, tree_data, weight_data
from litz.deployment.saved_weights import weights_content
from litz.standalone.compiled_program import CallForm
from litz.targets import TargetSet
from litz_ir.errors import ArtifactError, CodegenError
from litz_ir.loops import Ref, ScalarInput, Value
from litz_ir.plan import CallStep, Plan, plans_in
from litz_ir.serial import to_json
from litz_ir.symbols import Size, Symbol
from litz_ir.target import HostTarget, interface_of

log = logging.getLogger(__name__)

WeightsForm = Literal["archive", "file", "none"]
"""Forms of weights: a member of the archive, a file beside it, or no file: they are given when the model is loaded."""

_WEIGHTS = "weights.safetensors"
"""Member with the weights."""

_SUFFIX = ".litz"
"""Usual suffix of archives, which the name of the file of weights lacks."""

_PLAN_CONSTANT = "litz."
"""Prefix of the names of constants that lowering made, among the weights."""

_SIGNING = "litz.deployment.signing"
"""Module of signatures; loaded where a model is signed, since it needs the extra ``signing``."""


@dataclass(frozen=True, slots=True)
class CompiledFor:
    """An exported program, compiled for one machine."""

    artifact: Artifact
    """The compiled graph."""

    wrapping: AotWrapping
    """The work to do around its call."""

    form: CallForm
    """The form of its calls."""

    constants: Mapping[str, torch.Tensor]
    """Tensors that the plan contains."""

    capabilities: Mapping[str, str]
    """Name of the instruction set or chip of each kind of device."""

    targets: TargetSet
    """Targets that it was compiled by."""

    options: Mapping[str, bool]
    """Options of loading that it was compiled with."""

    cache: ArtifactCache
    """Owner of the binaries, which may be in a temporary folder of it."""


def write_package(
    path: Path,
    flat: FlatProgram,
    compiled: Sequence[CompiledFor],
    form: WeightsForm,
    sign_with: Any = None,
) -> Path:
    """Write a program that was compiled for some machines, and return its path.

    A file of weights beside it is written first. Raises :class:`ArtifactError` where a file cannot be written.
    """
    members: dict[str, Member] = {}
    compiled = [_with_ordered_symbols(each) for each in compiled]
    constants = {name: tensor for each in compiled for name, tensor in each.constants.items()}
    entry = {
        **_entry_point(flat, compiled[0]),
        "constants": {name: _PLAN_CONSTANT + name for name in constants},
        "programs": [_program(each, members, len(flat.weights)) for each in compiled],
    }
    tensors = {name: tensor for name, (_, tensor) in flat.weights.items()}
    described = [weight for weight, _ in flat.weights.values()]
    for name, tensor in constants.items():
        tensors[_PLAN_CONSTANT + name] = tensor
        dtype, shape, strides = _dtype_name(tensor), tuple(tensor.shape), tuple(tensor.stride())
        described.append(Weight(_PLAN_CONSTANT + name, "constant", dtype, shape, strides))
    left_out = [each.name for each in described if each.kind != "constant"] if form == "none" else []
    about: dict[str, Any] = {
        "file": None,
        "tensors": {each.name: weight_data(each) for each in described},
        "left_out": left_out,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = {name: tensor for name, tensor in tensors.items() if name not in left_out}
        if stored and form == "file":
            about |= _written_separately(path, weights_content(stored))
        elif stored:
            about["file"], members[_WEIGHTS] = _WEIGHTS, weights_content(stored)
        text = _manifest(members, entry, about)
        first: dict[str, Member] = {MANIFEST: (Chunk(text),)}
        if sign_with is not None:
            first[SIGNATURE] = (Chunk(import_module(_SIGNING).signature(text, sign_with)),)
        write_archive(path, {**first, **members})
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error
    return path


def _written_separately(path: Path, content: Member) -> dict[str, Any]:
    """Write a file of weights beside an archive, in one step, and return its description."""
    # Of the whole name: "llama-3.1" and "llama-3.2" have a file each, and one named as weights is not overwritten.
    separate = path.with_name(f"{path.name.removesuffix(_SUFFIX)}.safetensors")
    unfinished = path.parent / f".writing-{secrets.token_hex(8)}"
    try:
        with open(unfinished, "xb", opener=created) as file:
            file.writelines(chunk.data for chunk in content)
        os.replace(unfinished, separate)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
    return {"file": separate.name, "sha256": checksum(content), "bytes": member_size(content)}


def _manifest(members: Mapping[str, Member], entry: Mapping[str, Any], weights: Mapping[str, Any]) -> bytes:
    """Return the manifest of an archive."""
    known = dict(each.split()[:2] for each in versions())
    document = {
        "format": FORMAT,
        "version": VERSION,
        "writers": {**known, "torch": torch.__version__},
        "files": {
            name: {"sha256": checksum(member), "bytes": member_size(member)}
            for name, member in members.items()
        },
        "entry_points": {FORWARD: entry},
        "weights": weights,
    }
    return json.dumps(document, indent=1).encode()


def _program(compiled: CompiledFor, members: dict[str, Member], weights: int) -> dict[str, Any]:
    """Return the description of a program for one machine, after adding its members; its first inputs are weights."""
    artifact, kind = compiled.artifact, compiled.artifact.plan.device.kind
    name = "-".join((FORWARD, *dict.fromkeys((compiled.capabilities[kind], *compiled.capabilities.values()))))
    plan, sources = f"{name}.plan.json", f"{name}.sources.json"
    # Decisions are for reports; they are as long as all the rest.
    members[plan] = (Chunk(to_json(replace(artifact.plan, decisions=())).encode()),)
    members[sources] = (Chunk(json.dumps([unit_data(each) for each in artifact.units]).encode()),)
    binaries = [f"{name}.{number}{each.suffix}" for number, each in enumerate(artifact.binaries)]
    for member, path in zip(binaries, artifact.binaries, strict=True):
        members[member] = (Chunk(path.read_bytes()),)
    targets = compiled.targets.by_kind
    return {
        "device": kind,
        "isa": compiled.capabilities[kind],
        "capabilities": dict(compiled.capabilities),
        "interfaces": {each: interface_of(target) for each, target in targets.items()},
        "plan": plan,
        "sources": sources,
        "binaries": binaries,
        **_host_program(compiled, name, members, weights),
    }


def _with_ordered_symbols(compiled: CompiledFor) -> CompiledFor:
    """Return a program whose symbols are in the order in which inputs have them: C passes values by position."""
    plan = compiled.artifact.plan
    shapes = (each.type.shape if isinstance(each, Value) else () for each in plan.inputs)
    first = dict.fromkeys(name for shape in shapes for size in shape for name in _names_in(size))
    rank = {name: k for k, name in enumerate(first)}
    infos = tuple(sorted(plan.symbols.infos, key=lambda info: rank.get(info.name, len(rank))))
    ordered = replace(plan, symbols=replace(plan.symbols, infos=infos))
    return replace(compiled, artifact=replace(compiled.artifact, plan=ordered))


def _names_in(size: Size) -> tuple[str, ...]:
    """Return the name of a size that is a symbol; terms of symbols give no order."""
    return (size.name,) if isinstance(size, Symbol) else ()


def _host_program(
    compiled: CompiledFor, name: str, members: dict[str, Member], weights: int
) -> dict[str, str | None]:
    """Return the name of the host program, after adding it; ``None`` and the reason where the program needs Python or
    torch."""
    plan = compiled.artifact.plan
    target = compiled.targets.by_kind[plan.device.kind]
    if not isinstance(target, HostTarget) or len(compiled.capabilities) > 1:
        kinds = ", ".join(compiled.capabilities)
        return {"host": None, "host_refusal": f"no host program: it runs on {kinds}, and those are for CPUs"}
    if any(position < weights for position in overwritten(plan)):
        return {
            "host": None,
            "host_refusal": "no host program: a call overwrites a weight or buffer of the model",
        }
    try:
        unit = target.emit_host(plan, [each.name for each in plan.inputs[:weights]])
    except CodegenError as error:
        log.info("litz: %s cannot be run from C: %s", name, error.message)
        return {"host": None, "host_refusal": error.message}
    member = f"{name}.host.so"
    members[member] = (Chunk(compiled.cache.binary(unit, target).read_bytes()),)
    return {"host": member}


def _entry_point(flat: FlatProgram, compiled: CompiledFor) -> dict[str, Any]:
    """Return the description of inputs, outputs, sizes and calls."""
    plan, form = compiled.artifact.plan, compiled.form
    count = len(flat.weights)
    written = sorted({*overwritten(plan), *compiled.wrapping.written})
    tree = flat.tree(form.returned_inputs, tuple(written))
    labels = [
        label for label, leaf in zip(tree.labels, tree.argument_leaves, strict=True) if "position" in leaf
    ]
    given = zip(labels, plan.inputs[count:], strict=True)
    returned = dict(form.returned_inputs)
    return {
        "inputs": [
            _input(label, each, overwritten=count + k in written) for k, (label, each) in enumerate(given)
        ],
        "outputs": _outputs(plan, {**shared_with_inputs(plan), **returned}, count),
        "symbols": {
            each.name: {"low": each.low, "high": each.high, "divisor": each.divisor} for each in plan.symbols
        },
        "equalities": [[str(left), str(right)] for left, right in plan.symbols.equalities],
        "weights": [{"name": name, "position": k} for k, name in enumerate(flat.weights)],
        "calls": _calls(plan),
        "options": dict(compiled.options),
        "tree": tree_data(tree),
    }


def _input(label: str, given: object, *, overwritten: bool) -> dict[str, Any]:
    """Return the description of an input of the user."""
    if isinstance(given, ScalarInput):
        return {"name": label, "kind": given.kind, "symbol": given.symbol, "overwritten": False}
    if not isinstance(given, Value):
        raise ArtifactError(f"{label} is neither a tensor nor a number")
    return {"name": label, "kind": "tensor", **_tensor(given), "overwritten": overwritten}


def _tensor(value: Value) -> dict[str, Any]:
    """Return the type of a tensor as JSON data."""
    kind = value.type
    return {
        "dtype": kind.dtype.torch_name,
        "shape": list(map(_size, kind.shape)),
        "strides": list(map(_size, kind.layout.strides)),
        "device": kind.device.kind,
    }


def _outputs(plan: Plan, aliases: Mapping[int, int], weights: int) -> list[dict[str, Any]]:
    """Return the descriptions of outputs; ``alias_of`` is the position of an input whose memory one is in."""
    types = dict(plan.buffers)
    inputs = {each.name: each for each in plan.inputs if isinstance(each, Value)}
    found = []
    for k, output in enumerate(plan.outputs):
        name = output.name if isinstance(output, Ref) else ""
        known = types[name].type if name in types else inputs[name].type if name in inputs else None
        source = aliases.get(k)
        described = {"kind": "number"} if known is None else {"kind": "tensor", **_tensor(Value(name, known))}
        alias = {} if source is None or source >= weights else {"alias_of_weight": source}
        found.append(
            {**described, "alias_of": None if source is None or alias else source - weights, **alias}
        )
    return found


def _size(size: Size) -> int | str:
    """Return a size or stride: a number, or a term as text."""
    if isinstance(size, int):
        return size
    return size.name if isinstance(size, Symbol) else str(size)


def _calls(plan: Plan) -> list[str]:
    """Return the operators of torch that a program calls: names of overloads, which have a namespace."""
    steps = (step for each in plans_in(plan) for step in each.steps if isinstance(step, CallStep))
    return sorted({step.target for step in steps if step.target.count(".") >= 2})


def _dtype_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype in torch."""
    return str(tensor.dtype).removeprefix("torch.")
