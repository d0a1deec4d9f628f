"""Loading of models: ``litz.load`` checks a file, chooses its program for this machine, and compiles nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from litz.artifact import AotWrapping, Artifact, unit_from
from litz.capture.counters import count_graph
from litz.capture.runtime_wrappers import inference_call, uncast, without_autograd
from litz.configuration import config
from litz.deployment.archive import AGAIN, MANIFEST, SIGNATURE, Archive, open_archive
from litz.deployment.binaries import Binaries
from litz.deployment.calls import CallForm, refuse_overlaps
from litz.deployment.chosen_program import chosen_program
from litz.deployment.manifest import Manifest, Program, parsed_manifest
from litz.deployment.model import Check, LoadedModel
from litz.deployment.verification import Verification
from litz.deployment.weights import GivenWeights, StoredWeights
from litz.host.runtime.graph_devices import first_gpu
from litz.loading import Compiled, loader_of
from litz.standalone.argument_checks import Described, argument_check
from litz.targets import TargetSet
from litz_ir.collection import collection_paused
from litz_ir.errors import ArtifactError, ExternNotFound, LitzError
from litz_ir.plan import Plan, kernel_devices
from litz_ir.serial import from_json

Verify = Literal["load", "first_call", "code"]
"""Time at which checksums of weights are compared; those of everything else are compared before it is used."""

_SIGNING = "litz.deployment.signing"
"""Module of signatures; loaded where a model has to be signed, since it needs the extra ``signing``."""

_OTHER = "compile the program with other arguments or dynamic_shapes"
"""Hint for arguments that do not fit."""


@collection_paused()
def load(
    path: str | Path,
    device: str | torch.device | None = None,
    *,
    weights: GivenWeights | None = None,
    trusted_keys: Sequence[Any] | None = None,
    verify: Verify = "first_call",
) -> LoadedModel:
    """Load a model that :func:`litz.aot_compile` wrote, without compiling anything.

    ``device`` selects one of the devices that it was compiled for, by default the first. ``weights`` are those of a
    model that was written without, by name, or the path of a file of safetensors; they replace those of others.
    ``trusted_keys`` are public Ed25519 keys, one of whose private keys signed the file: objects of the package
    cryptography, their 32 bytes, or PEM as bytes.
    ``verify`` is the time at which the checksum of the weights is compared: in a thread, for which the first call
    waits (``first_call``), before this function returns (``load``), or never (``code``).

    What is loaded is executed: a file that belongs to another user than you and root, or that others may write, is
    refused. Raises ``ArtifactError`` for these, for an unknown ``verify``, for a damaged file, for one of another
    format, and where this machine runs none of its programs.
    """
    if verify not in get_args(Verify):
        raise ArtifactError(f"unknown time to verify {verify!r}", hint=f"it is one of {get_args(Verify)}")
    where = str(path)
    archive = open_archive(Path(path))
    manifest = _manifest(archive, trusted_keys)
    program, targets = chosen_program(manifest, None if device is None else torch.device(device), where)
    with torch.inference_mode(False):  # weights that calls write to have a version
        stored = StoredWeights(archive, manifest, Path(path), weights)
    verified = _verified(stored, verify)
    binaries = Binaries()
    artifact = _artifact(archive, manifest, program, binaries)
    plan = artifact.plan
    chosen = [] if device is None else [torch.device(device)]
    with first_gpu(chosen), torch.inference_mode(False):
        bound, constants = stored.bound(plan)
        compiled = _compiled(artifact, targets, constants, manifest, where)
        form = CallForm(manifest.tree, where)
        wrapping = AotWrapping(len(plan.outputs), (), manifest.tree.written)
        function = inference_call(wrapping, without_autograd(uncast(compiled.call)))
    checks = _checks(plan, manifest, form, where)
    return LoadedModel(manifest, program, form, checks, function, bound, verified, binaries, where)


def _manifest(archive: Archive, trusted_keys: Sequence[Any] | None) -> Manifest:
    """Return the manifest of an archive whose members it names, with the right checksums but for the weights."""
    where, text = archive.where, bytes(archive.content(MANIFEST))
    if trusted_keys is not None:
        if SIGNATURE not in archive.spans:
            raise ArtifactError(f"{where} is not signed", hint="aot_compile(..., sign_with=key) signs")
        import_module(_SIGNING).check(text, bytes(archive.content(SIGNATURE)), trusted_keys, where)
    manifest = parsed_manifest(text, where)
    members = archive.spans.keys() - {MANIFEST, SIGNATURE}
    missing, unknown = sorted(manifest.files.keys() - members), sorted(members - manifest.files.keys())
    if missing or unknown:
        lacks = (
            f"has no {missing[0]}" if missing else f"has {unknown[0]}, of which the manifest knows nothing"
        )
        raise ArtifactError(f"{where} is damaged: it {lacks}", hint=AGAIN)
    for name, (sha256, size) in manifest.files.items():
        if name != manifest.file:
            archive.verify(name, sha256, size)
    return manifest


def _verified(stored: StoredWeights, verify: Verify) -> Verification | None:
    """Compare the checksum of the weights now, or begin to."""
    if verify == "code":
        return None
    if verify == "load":
        stored.verify()
        return None
    return Verification(stored.verify)


def _artifact(archive: Archive, manifest: Manifest, program: Program, binaries: Binaries) -> Artifact:
    """Return the compiled graph of a program; raise :class:`ArtifactError` where it cannot be read."""
    try:
        plan = from_json(bytes(archive.content(program.plan)).decode())
        if not isinstance(plan, Plan):
            raise ValueError(f"{program.plan} is no plan")
        units = tuple(map(unit_from, json.loads(bytes(archive.content(program.units)))))
        known = kernel_devices(plan)
        unknown = [name for unit in units for name in unit.kernels if name not in known]
        if unknown or len(units) != len(program.binaries):
            raise ValueError(f"the plan launches other kernels than {program.units} has")
        paths = tuple(
            binaries.path(name, manifest.files[name][0], archive.content(name)) for name in program.binaries
        )
    except ArtifactError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, LitzError) as error:
        message = f"the program of {archive.where} cannot be read: {type(error).__name__}: {error}"
        hint = "load it with the version of litz that wrote it, or compile the program again"
        raise ArtifactError(message, hint=hint) from error
    return Artifact(manifest.files[program.plan][0], plan, units, paths, cached=True)


def _compiled(
    artifact: Artifact,
    targets: TargetSet,
    constants: Mapping[str, torch.Tensor],
    manifest: Manifest,
    where: str,
) -> Compiled:
    """Load a compiled graph; raise :class:`ArtifactError` where that fails."""
    # Weights are other objects after an update, and calls overwrite none that is in a frozen region.
    current = config.current()
    repeats = manifest.options.get("deterministic", False) or current.deterministic
    options = current.replaced({**manifest.options, "deterministic": repeats, "freezing": True})
    try:
        compiled = loader_of(artifact, artifact.plan.name, targets, options, constants).compiled()
    except ExternNotFound:
        raise
    except Exception as error:
        raise ArtifactError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    count_graph(compiled)
    return compiled


def _checks(plan: Plan, manifest: Manifest, form: CallForm, where: str) -> list[Check]:
    """Return the checks of a call's inputs."""
    first = len(manifest.weights)
    words = Described(where, form.labels, _OTHER, _OTHER)
    checks: list[Check] = [argument_check(plan, words, first)]
    overwritten = [k - first for k in manifest.tree.written if k >= first]
    if overwritten:
        checks.append(refuse_overlaps(form.labels, overwritten, where))
    return checks
