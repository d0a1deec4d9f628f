"""Application of tuned schedules to an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from litz.artifact import Artifact, TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz_ir.plan import Kernel, Plan, kernels_in, launches_on, schedules_of, with_schedules
from litz_ir.target import Target


def applied(
    artifact: Artifact, choices: Mapping[str, TunedTiles], target: Target, cache: ArtifactCache
) -> Artifact:
    """Return the artifact with the schedules chosen by tuning; changed kernels are emitted and compiled.

    Raises ``CodegenError`` and ``ToolchainError``.
    """
    changed = changes(artifact.plan, choices)
    known = dict(artifact.tuned_tiles) | dict(choices)
    artifact = replace(artifact, tuned_tiles=tuple(known.items()))
    if not changed:
        return artifact
    plan = _scheduled(artifact.plan, changed)
    launches = launches_on(plan.device.kind, plan)
    own = {kernel.name for kernel in launches.kernels}
    if all(len(unit.kernels) <= 1 for unit in artifact.units if own.issuperset(unit.kernels)):
        launches = replace(launches, kernels=tuple(k for k in launches.kernels if k.name in changed))
    built = {unit.name: (unit, cache.binary(unit, target)) for unit in target.emit(launches)}
    pairs = zip(artifact.units, artifact.binaries, strict=True)
    merged = {unit.name: (unit, binary) for unit, binary in pairs} | built
    units, binaries = zip(*merged.values(), strict=True)
    return replace(artifact, plan=plan, units=units, binaries=binaries)


def changes(plan: Plan, choices: Mapping[str, TunedTiles]) -> dict[str, TunedTiles]:
    """Return the choices that differ from the schedules in the plan."""
    own = {kernel.name: schedules_of(kernel) for kernel in kernels_in(plan)}
    return {name: choice for name, choice in choices.items() if choice.schedules != own[name]}


def _scheduled(plan: Plan, choices: Mapping[str, TunedTiles]) -> Plan:
    """Return the plan with these schedules, subplans included."""

    def chosen(kernel: Kernel) -> Kernel:
        choice = choices.get(kernel.name)
        return kernel if choice is None else with_schedules(kernel, choice.schedules)

    return replace(
        plan,
        kernels=tuple(map(chosen, plan.kernels)),
        subplans=tuple(_scheduled(each, choices) for each in plan.subplans),
    )
