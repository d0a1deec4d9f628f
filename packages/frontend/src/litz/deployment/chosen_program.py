"""The program of a model for this machine, of those that were compiled for different instruction sets and chips."""

from __future__ import annotations

import torch

from litz.configuration import config
from litz.deployment.manifest import Manifest, Program
from litz.targets import TargetSet, targets_for
from litz_ir.errors import ArtifactError, TargetError
from litz_ir.target import PortableTarget, Target, interface_of


def chosen_program(manifest: Manifest, device: torch.device | None, where: str) -> tuple[Program, TargetSet]:
    """Return the best program for a device that this machine runs, with the targets that load its binaries.

    Raises :class:`ArtifactError` where it runs none, with what the file has and what this machine has.
    """
    programs = manifest.programs
    of_device = [each for each in programs if device is None or each.device == device.type]
    if not of_device:
        kinds = ", ".join(sorted({each.device for each in programs}))
        hint = "compile the program on that device"
        raise ArtifactError(f"{where} was compiled for {kinds or 'no device'}, not for {device}", hint=hint)
    obstacles: list[str] = []
    ranked: list[tuple[tuple[int, ...], int, TargetSet]] = []
    for number, program in enumerate(of_device):
        try:
            targets = targets_for(program.capabilities, config.current())
        except TargetError as error:
            obstacles.append(error.message)
            continue
        ranks = [_rank(program, kind, target) for kind, target in targets.by_kind.items()]
        reasons = [each for each in ranks if isinstance(each, str)]
        if reasons:
            obstacles += reasons
        else:
            ranked.append((tuple(each for each in ranks if isinstance(each, int)), number, targets))
    if not ranked:
        raise ArtifactError(
            f"this machine runs no program of {where}: {'; '.join(dict.fromkeys(obstacles))}",
            hint="compile the program for it: aot_compile(..., isas=(...)), for GPUs chips=(...)",
        )
    _, number, targets = min(ranked, key=lambda each: each[:2])
    return of_device[number], targets


def _rank(program: Program, kind: str, target: Target) -> int | str:
    """Return the place of a program among those that this machine runs, 0 for the best, or the reason not to."""
    name = program.capabilities[kind]
    known = target.runs() if isinstance(target, PortableTarget) else (target.capabilities().name,)
    if name not in known:
        return f"it was compiled for {name}, and this machine has {', '.join(known) or f'no {kind}'}"
    written, own = program.interfaces.get(kind), interface_of(target)
    if written != own:
        return f"binaries for {name} have the interface {written}, and the installed target has {own}"
    return known.index(name)
