"""Compilation ahead of time: ``litz.aot_compile`` writes an exported program as a file for deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch
from torch.export import ExportedProgram

from litz.configuration import config
from litz.deployment.exported import FlatProgram, exported, flat_program
from litz.deployment.package import CompiledFor, WeightsForm, write_package
from litz.options import config_from
from litz.settings import Config
from litz.standalone.artifact import machines_of
from litz.standalone.compile_graph import compiled_parts
from litz.targets import targets_for
from litz_ir.errors import ArtifactError
from litz_ir.target import PortableTarget


def aot_compile(
    program: ExportedProgram | Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] | None = None,
    path: str | Path = "model.litz",
    weights: WeightsForm = "archive",
    isas: Sequence[str] = (),
    chips: Sequence[str] = (),
    sign_with: Any = None,
) -> Path:
    """Compile an exported program, and write it to a file that :func:`litz.load` loads without a compiler.

    ``program`` is what ``torch.export.export`` returns; a function or module is exported first, with ``args``,
    ``kwargs`` and ``dynamic_shapes`` as that takes them. ``options`` are those of ``torch.compile``. ``weights``
    selects their form: ``archive``, ``file`` for a file of safetensors beside ``path``, or ``none``. The program is
    compiled for each of the instruction sets ``isas`` (``avx512``, ``avx2``, ``neon``, ``scalar``) and the GPUs'
    ``chips`` (such as ``sm_90``), by default those of this machine; loading takes the best that its machine runs.
    ``sign_with`` is a private Ed25519 key: an object of the package cryptography, its 32 bytes, or PEM as bytes.
    Returns the path, whose missing parent folders are made. The program is compiled without gradients.

    Raises ``ArtifactError`` for a program that cannot be saved and a path that cannot be written, ``ConfigError``
    for unknown options, ``ToolchainError`` for unknown instruction sets, and ``TargetError`` for unknown chips.
    """
    if weights not in get_args(WeightsForm):
        raise ArtifactError(
            f"unknown form of weights {weights!r}", hint=f"it is one of {get_args(WeightsForm)}"
        )
    flat = flat_program(exported(program, args, kwargs, dynamic_shapes))
    chosen = config_from(config.current(), None, options)
    compiled = [
        _compiled(flat, each, loads=not chips and _runs(each))
        for each in _machines(flat, chosen, isas, chips)
    ]
    return write_package(Path(path), flat, compiled, weights, sign_with)


def _machines(
    flat: FlatProgram, chosen: Config, isas: Sequence[str], chips: Sequence[str]
) -> Iterator[Config]:
    """Yield the options of each compilation, for the widest instruction set first."""
    kinds = {
        value.device.type
        for node in flat.gm.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
    }
    if chips and kinds <= {"cpu"}:
        raise ArtifactError("chips are those of GPUs, and the program runs on the CPU", hint="give isas")
    for name, kind in product(chips, kinds - {"cpu"}):
        made = targets_for([kind], chosen.replaced({"chip": name}))
        made.by_kind[kind].capabilities()  # raises for an unknown chip
    for names in (chips, isas):
        twice = [name for number, name in enumerate(names) if name in names[:number]]
        if twice:
            raise ArtifactError(f"{twice[0]} is named twice")
    sets = sorted(isas, key=lambda isa: -_vector_bytes(chosen.replaced({"isa": isa})))
    asked: list[str | None] = [*chips]
    for chip, isa in product(asked or [chosen.chip], sets or [_name("cpu", chosen)]):
        yield chosen.replaced({"isa": isa, "chip": chip})


def _name(kind: str, chosen: Config) -> str:
    """Return the name of the instruction set that this machine has, which stands for no more than it says."""
    return targets_for([kind], chosen).by_kind[kind].capabilities().name


def _vector_bytes(chosen: Config) -> int:
    """Return the bytes of the vectors of an instruction set."""
    return targets_for(["cpu"], chosen).by_kind["cpu"].capabilities().model.vector_bytes


def _runs(chosen: Config) -> bool:
    """Report whether this machine runs what is compiled for the instruction set that the options name."""
    target = targets_for(["cpu"], chosen).by_kind["cpu"]
    return not isinstance(target, PortableTarget) or target.capabilities().name in target.runs()


def _compiled(flat: FlatProgram, chosen: Config, *, loads: bool) -> CompiledFor:
    """Compile a program for one machine; raise :class:`ArtifactError` where it cannot be saved.

    Cubins of one chip may not load on another, so those of named chips are not loaded here, nor are libraries for
    another architecture.
    """
    count = sum(node.op == "placeholder" for node in flat.gm.graph.nodes)
    positions = frozenset(range(len(flat.weights)))
    with torch.no_grad():
        own, session, parts, call = compiled_parts(
            flat.gm, [None] * count, chosen, "from_graph", positions, loads=loads
        )
    if call is own:
        raise ArtifactError("litz could not compile the program", hint="fallback='error' raises the reason")
    if parts.graphs is None or parts.form is None:
        raise ArtifactError(f"the program cannot be saved: {parts.why_not}")
    machines = machines_of(parts.graphs, chosen)
    return CompiledFor(
        parts.graphs.forward, parts.graphs.wrapping, parts.form, parts.constants,
        {each.kind: each.name for each in machines}, targets_for([each.kind for each in machines], chosen),
        {"cuda_graphs": chosen.cuda_graphs, "deterministic": chosen.deterministic}, session.cache,
    )  # fmt: skip
