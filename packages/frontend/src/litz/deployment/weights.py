"""Weights of a model in the format of safetensors, mapped into memory.

The library maps whole files. Here the file may be a member of an archive, so the header, eight bytes of length and
JSON, is read here, and tensors are views of the mapping: processes that load one file share its pages, and a model
that overwrites a buffer gets pages of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from litz.deployment.archive import AGAIN, Archive, mapped
from litz.deployment.manifest import Manifest, Weight
from litz_ir.errors import ArtifactError
from litz_ir.loops import Value
from litz_ir.plan import Plan, plans_in

LENGTH = 8
"""Bytes of the length of the header, little-endian."""


GivenWeights = Mapping[str, torch.Tensor] | str | Path
"""Weights that are given when a model is loaded: by name, or the path of a file of safetensors."""


class StoredWeights:
    """The weights of a model: in its archive, in a file beside it, and those that are given."""

    def __init__(self, archive: Archive, manifest: Manifest, path: Path, given: GivenWeights | None) -> None:
        """Map files; raise :class:`ArtifactError` where weights are missing or do not fit."""
        self._archive = archive
        self._manifest = manifest
        self._where = archive.where
        self._separate: mmap.mmap | None = None
        file, stored = manifest.file, dict[str, torch.Tensor]()
        left_out = set(manifest.left_out)
        expected = {each.name: each for each in manifest.weights} | {
            each.name: each for each in manifest.constants.values()
        }
        in_file = {name: each for name, each in expected.items() if name not in left_out}
        if file is not None and file in manifest.files:
            stored = mapped_weights(archive.memory, *archive.spans[file], in_file, self._where)
        elif file is not None:
            self._separate = mapped(path.parent / file)
            stored = mapped_weights(self._separate, 0, len(self._separate), in_file, str(path.parent / file))
        self._tensors = stored | self._given(given)
        missing = sorted(expected.keys() - self._tensors.keys())
        if missing:
            hint = "give them: litz.load(path, weights=module.state_dict())"
            raise ArtifactError(f"{self._where} has no value for the weight {missing[0]}", hint=hint)

    def verify(self) -> None:
        """Raise :class:`ArtifactError` where the checksum of the file of weights differs."""
        file = self._manifest.file
        if self._separate is not None:
            about = self._manifest.document["weights"]
            content = memoryview(self._separate)
            if hashlib.sha256(content).hexdigest() != about["sha256"] or len(content) != about["bytes"]:
                raise ArtifactError(f"{file} does not belong to {self._where}, or is damaged", hint=AGAIN)
        elif file is not None:
            self._archive.verify(file, *self._manifest.files[file])

    def bound(self, plan: Plan) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        """Return the weights in the order of the plan's inputs, and the constants of the plan, on their devices."""
        bound = [
            _on(self._tensors[weight.name], weight, each)
            for weight, each in zip(self._manifest.weights, plan.inputs, strict=False)
        ]
        types = {each.name: each for own in plans_in(plan) for each in own.constants}
        constants = {
            name: _on(self._tensors[weight.name], weight, types.get(name))
            for name, weight in self._manifest.constants.items()
        }
        return bound, constants

    def _given(self, given: GivenWeights | None) -> dict[str, torch.Tensor]:
        """Return copies of the weights that are given, or mappings of those in a file."""
        if given is None:
            return {}
        names = {
            name: each
            for each in self._manifest.weights
            if each.kind != "constant"
            for name in (each.name, *each.aliases)
        }
        if isinstance(given, Mapping):
            unknown = sorted(given.keys() - names.keys())
            if unknown:
                raise ArtifactError(f"{self._where} has no weight {unknown[0]}")
            found: dict[str, torch.Tensor] = {}
            for name, value in given.items():
                weight = names[name]
                refuse_untied(name, weight, checked(name, value, weight, self._where), found.get(weight.name))
                found[weight.name] = value
            return {
                each.name: strided_copy(found[each.name], each)
                for each in names.values()
                if each.name in found
            }
        memory = mapped(Path(given))
        own = {each.name: each for each in names.values()}
        return mapped_weights(memory, 0, len(memory), own, str(given))


def _on(tensor: torch.Tensor, weight: Weight, value: object) -> torch.Tensor:
    """Return a weight on the device of an input or constant of a plan."""
    kind = value.type.device.kind if isinstance(value, Value) else tensor.device.type
    return tensor if tensor.device.type == kind else strided_copy(tensor, weight, torch.device(kind))


def mapped_weights(
    memory: mmap.mmap, offset: int, size: int, expected: Mapping[str, Weight], where: str
) -> dict[str, torch.Tensor]:
    """Return the weights in a mapping, of which the format takes ``size`` bytes from ``offset``.

    A weight whose elements are not in row-major order is a copy. Raises :class:`ArtifactError` where they are not the
    expected ones.
    """
    try:
        length = int.from_bytes(memory[offset : offset + LENGTH], "little")
        if length > size - LENGTH:
            raise ValueError("the header is longer than the file")
        header = json.loads(memory[offset + LENGTH : offset + LENGTH + length])
        first, end = offset + LENGTH + length, offset + size
        return {
            name: _mapped(memory, _described(header, each, where), each, first, end)
            for name, each in expected.items()
        }
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = f"the weights of {where} cannot be read: {type(error).__name__}: {error}"
        raise ArtifactError(message, hint=AGAIN) from error


def _described(header: Mapping[str, Any], weight: Weight, where: str) -> Mapping[str, Any]:
    """Return a weight's description in a header: tied ones have one, by any of their names."""
    found = next((header[name] for name in (weight.name, *weight.aliases) if name in header), None)
    if not isinstance(found, Mapping):
        raise ArtifactError(
            f"{where} has no weight {weight.name}", hint="give a file with all weights of state_dict()"
        )
    return found


def _mapped(
    memory: mmap.mmap, entry: Mapping[str, object], weight: Weight, first: int, end: int
) -> torch.Tensor:
    """Return one weight; raise ``ValueError`` for an entry of other bytes."""
    bounds = entry["data_offsets"]
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise ValueError(f"{weight.name} has no place")
    begin, stop = first + int(bounds[0]), first + int(bounds[1])
    dtype, count = weight.torch_dtype(), math.prod(weight.shape)
    if entry["shape"] != list(weight.shape) or stop - begin != count * dtype.itemsize:
        raise ValueError(f"{weight.name} has another shape")
    if begin < first or stop > end:
        raise ValueError(f"{weight.name} is outside of the file")
    if not count:
        return torch.empty_strided(weight.shape, weight.strides, dtype=dtype)
    found = torch.frombuffer(memory, dtype=dtype, count=count, offset=begin).reshape(weight.shape)
    return found if found.stride() == weight.strides else strided_copy(found, weight)


def strided_copy(tensor: torch.Tensor, weight: Weight, device: torch.device | None = None) -> torch.Tensor:
    """Return a copy of a tensor, without gradients, with the strides that a program was compiled for."""
    with torch.inference_mode(False):
        made = torch.empty_strided(
            weight.shape, weight.strides, dtype=weight.torch_dtype(), device=device or tensor.device
        )
        return made.copy_(tensor.detach())


def checked(name: str, value: object, weight: Weight, where: str) -> torch.Tensor:
    """Return a value for a weight; raise :class:`ArtifactError` for one of another dtype or shape."""
    if not isinstance(value, torch.Tensor):
        raise ArtifactError(f"the weight {name} of {where} is a tensor, got {type(value).__name__}")
    if value.dtype is not weight.torch_dtype() or tuple(value.shape) != weight.shape:
        promised = f"{weight.torch_dtype()} of {weight.shape}"
        raise ArtifactError(
            f"the weight {name} of {where} is {promised}, got {value.dtype} of {tuple(value.shape)}",
            hint="compile the program again for other weights",
        )
    return value


def refuse_untied(name: str, weight: Weight, value: torch.Tensor, other: torch.Tensor | None) -> None:
    """Raise :class:`ArtifactError` where tied weights are given different values, of which ``other`` is the first."""
    if other is not None and not torch.equal(other, value.to(other.device)):
        raise ArtifactError(
            f"the weights {name} and {weight.name} are tied, and differ",
            hint="give one of them, or equal ones",
        )
