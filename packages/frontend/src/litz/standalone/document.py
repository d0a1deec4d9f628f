"""Compiled programs as files: plans, sources and the form of calls as JSON, binaries and constants as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import torch

from litz.artifact import AotWrapping, Artifact, AtenFallback, CompiledCapture, unit_data, unit_from
from litz.cache.constants import constants_from_bytes, constants_to_bytes
from litz.cache.key import versions
from litz.standalone.compiled_program import CallForm, CompiledProgram, Machine
from litz.standalone.container import Contents
from litz_ir.errors import ArtifactError, LitzError
from litz_ir.plan import Plan, kernel_devices
from litz_ir.serial import from_json, to_json

PROGRAM, CONSTANTS = "program.json", "constants.bin"
"""Names of the files with the description of the program, and with the elements of its constants."""

_KINDS = ("forward", "backward")


def writers() -> tuple[str, ...]:
    """Return the packages that plans and binaries depend on, with their versions."""
    return (*versions(), f"torch {torch.__version__}")


def to_files(program: CompiledProgram) -> dict[str, bytes]:
    """Return the files of a program by name, without a manifest. Raises ``OSError`` where a binary is missing."""
    files: dict[str, bytes] = {}
    graphs = {
        kind: _graph_data(kind, artifact, files)
        for kind in _KINDS
        if (artifact := getattr(program.graphs, kind)) is not None
    }
    described, elements = constants_to_bytes(program.constants)
    description = {
        "graphs": graphs,
        "wrapping": asdict(program.graphs.wrapping),
        "form": asdict(program.form),
        "machines": [asdict(each) for each in program.machines],
        "constants": described,
        "cuda_graphs": program.cuda_graphs,
        "freezing": program.freezing,
    }
    files[PROGRAM] = json.dumps(description, indent=1).encode()
    if described:
        files[CONSTANTS] = elements
    return files


def from_files(contents: Contents, where: str) -> CompiledProgram:
    """Return the program of files whose checksums were compared; raise :class:`ArtifactError` for others.

    ``where`` names the container in messages.
    """
    try:
        description = json.loads(contents.files[PROGRAM])
        graphs = {kind: _graph(kind, each, contents) for kind, each in description["graphs"].items()}
        wrapping = _record(AotWrapping, description["wrapping"])
        form = _record(CallForm, description["form"])
        returned = tuple((int(k), int(source)) for k, source in form.returned_inputs)
        form = CallForm(bool(form.returns_tuple), returned, tuple(map(str, form.bound)))
        constants = constants_from_bytes(description["constants"], contents.files.get(CONSTANTS, b""))
        capture = CompiledCapture(graphs["forward"], wrapping, graphs.get("backward"))
        machines = tuple(_record(Machine, each) for each in description["machines"])
        flags = bool(description["cuda_graphs"]), bool(description["freezing"])
        return CompiledProgram(capture, form, machines, constants, *flags)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, LitzError) as error:
        raise ArtifactError(f"{where} cannot be read: {type(error).__name__}: {error}") from error


def _graph_data(kind: str, artifact: Artifact, files: dict[str, bytes]) -> dict[str, Any]:
    """Return a graph as JSON data, after adding its files."""
    plan = f"{kind}.plan.json"
    files[plan] = to_json(artifact.plan).encode()
    units = []
    for number, (unit, path) in enumerate(zip(artifact.units, artifact.binaries, strict=True)):
        name = f"{kind}.{number}{path.suffix}"
        files[name] = path.read_bytes()
        units.append({**unit_data(unit), "binary": name})
    return {
        "key": artifact.key,
        "plan": plan,
        "units": units,
        "fallbacks": [asdict(each) for each in artifact.fallbacks],
    }


def _graph(kind: str, data: Mapping[str, Any], contents: Contents) -> Artifact:
    """Return the graph of JSON data; raise ``KeyError`` and others for other data."""
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of graph {kind!r}")
    plan = from_json(contents.files[data["plan"]].decode())
    if not isinstance(plan, Plan):
        raise ValueError(f"{data['plan']} is no plan")
    units = tuple(unit_from(each) for each in data["units"])
    known = kernel_devices(plan)
    missing = [name for unit in units for name in unit.kernels if name not in known]
    if missing:
        raise ValueError(f"the plan launches no kernel {missing[0]}")
    binaries = tuple(contents.path(_named(each["binary"], contents)) for each in data["units"])
    fallbacks = tuple(_record(AtenFallback, each) for each in data["fallbacks"])
    return Artifact(str(data["key"]), plan, units, binaries, fallbacks, cached=True)


def _named(name: str, contents: Contents) -> str:
    """Return the name of a file; raise ``KeyError`` where its checksum is not known."""
    if name not in contents.files:
        raise KeyError(name)
    return name


def _record(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """Return a dataclass of JSON data, with tuples for lists; raise ``KeyError`` where a field is missing."""
    values = {each.name: data[each.name] for each in fields(kind)}
    return kind(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    )
