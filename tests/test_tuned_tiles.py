"""Tiles from autotuning for a GPU, applied to a graph that was compiled without them."""

from __future__ import annotations

from litz.artifact import Artifact, TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.host.emit.source import host_program
from litz.tuning.applied import applied
from litz.tuning.tunable_kernels import tunable_kernels
from litz_codegen_triton.runtime import CompiledKernel
from litz_codegen_triton.target import CudaTarget
from litz_ir.passes import PassContext
from litz_ir.plan import TileLoops
from litz_ir.text import parse_graph
from litz_scheduler import schedule

GPU = """
graph both on cuda (%x: f32[16384, 4096] fixed) -> (%s, %t) {
  %s = reduce.sum f32[i0: 16384 | r0: 4096] fixed { %x[i0, r0] }
  %t = pointwise f32[i0: 4096, i1: 16384] fixed { %x[i1, i0] * 2.0 }
}
"""


def test_a_choice_for_a_gpu_changes_its_own_kernel_alone() -> None:
    target, cache = CudaTarget("sm_90"), ArtifactCache(None, None)
    capabilities = target.capabilities()
    plan = target.schedule(schedule(parse_graph(GPU), PassContext({capabilities.device: capabilities})))
    units = target.emit(plan)
    assert len(units) == 2
    artifact = Artifact("key", plan, units, tuple(cache.binary(unit, target) for unit in units))
    subject, other = tunable_kernels(plan, target)
    assert subject.seconds > other.seconds
    faster = target.candidates(subject.kernel)[1]
    name, kept = subject.kernel.name, other.kernel.name
    choices = {
        name: TunedTiles((faster.schedule,), 1.0, 2.0, (subject.kernel.schedule,)),
        kept: TunedTiles((other.kernel.schedule,), 1.0, 1.0, (other.kernel.schedule,)),
    }
    made = applied(artifact, choices, target, cache)
    before, after = ({unit.name: unit for unit in each.units} for each in (artifact, made))
    assert before[kept] == after[kept] and before[name] != after[name]
    assert {kernel.name: kernel.schedule for kernel in made.plan.kernels}[name] == faster.schedule
    binary = dict(zip(after, made.binaries, strict=True))[name]
    assert isinstance(faster.schedule, TileLoops)
    assert CompiledKernel.from_bytes(binary.read_bytes()).warps == faster.schedule.warps
    assert host_program(made.plan) == host_program(plan)
