"""Plans over several devices: each kernel runs on the device of its values."""

from __future__ import annotations

from collections.abc import Callable

from scheduler_builder import CPU_LIKE

from litz_ir.device import CPU, Device
from litz_ir.passes import PassContext
from litz_ir.plan import Launch, Plan, kernel_devices, launched_on
from litz_ir.target import Capabilities, DeviceModel
from litz_ir.text import parse_graph, print_plan
from litz_ir.verifier import verify
from litz_scheduler import schedule
from litz_scheduler.simplification.simplify import DeadCode
from litz_scheduler.simplification.sink_constants import SinkConstants

GPU = Device("cuda")
GPU_LIKE = Capabilities("sm_90", GPU, DeviceModel(sm_count=4), max_tile_elements=1024)


def planned(text: str) -> Plan:
    plan = schedule(parse_graph(text), PassContext({CPU: CPU_LIKE, GPU: GPU_LIKE}))
    verify(plan)
    return plan


PIPELINE = """
graph pipeline on cuda (%x: f32[64, 256] fixed) -> (%loss, %last) {
  %a = pointwise f32[i0: 64, i1: 256] { exp(%x[i0, i1]) }
  %b = pointwise f32[i0: 64, i1: 256] { %a[i0, i1] * 2.0 }
  %there = extern aten._to_copy.default(%b, device=device(cuda:1)) -> f32[64, 256] fixed on cuda:1
  %c = pointwise f32[i0: 64, i1: 256] on cuda:1 { exp(%there[i0, i1]) }
  %last = pointwise f32[i0: 64, i1: 256] fixed on cuda:1 { %c[i0, i1] * 2.0 }
  %here = extern aten._to_copy.default(%b, device=device(cpu)) -> f32[64, 256] fixed on cpu
  %d = pointwise f32[i0: 64, i1: 256] on cpu { exp(%here[i0, i1]) * 2.0 }
  %loss = reduce.sum f32[ | r0: 64, r1: 256] fixed on cpu { %d[r0, r1] }
}
"""


def test_kernels_run_where_their_values_are(golden: Callable[[str, str], None]) -> None:
    golden("devices.txt", print_plan(planned(PIPELINE)))


def test_equal_kernels_of_equal_devices_are_one_and_no_others() -> None:
    plan = planned(PIPELINE.replace("-> (%loss, %last)", "-> (%d, %last)"))
    placements = dict(plan.buffers)
    where = [
        (step.kernel, str(launched_on(step, placements))) for step in plan.steps if isinstance(step, Launch)
    ]
    (first, _), (other, _), (here, _) = where
    assert where == [(first, "cuda"), (first, "cuda:1"), (here, "cpu")]
    assert other == first != here
    assert [len(devices) for devices in kernel_devices(plan).values()] == [2, 1]


def test_memory_of_one_device_is_not_used_for_another() -> None:
    plan = planned(PIPELINE)
    storages = {storage.name: storage.device for storage in plan.storages}
    for name, placement in plan.buffers:
        if placement.storage is not None:
            assert storages[placement.storage] == placement.type.device, name


def test_a_graph_whose_gpu_is_not_the_first_is_for_that_one() -> None:
    plan = planned("graph g (%x: f32[8] on cuda:1, %y: f32[8] on cpu) -> (%y) { }")
    assert str(plan.device) == "cuda:1" and plan.capability == "sm_90"


MASKS = """
graph masks on cuda (%x: f32[64, 64] fixed, %lengths: i64[64] fixed on cpu) -> (%masked, %half, %kept, %rows) {
  %ones = pointwise b1[i0: 64, i1: 64] on cpu { true }
  %causal = pointwise b1[i0: 64, i1: 64] on cpu { masked(index(i1) <= index(i0), %ones[i0, i1], false) }
  %transposed = view b1[i0: 64, i1: 64] on cpu { %causal[i1, i0] }
  %there = extern aten._to_copy.default(%transposed, device=device(cuda)) -> b1[64, 64] strides(1, 64) fixed
  %masked = pointwise f32[i0: 64, i1: 64] fixed { where(%there[i0, i1], %x[i0, i1], 0.0) }
  %steps = pointwise i64[i0: 64] on cpu { index(i0*2 + 1) }
  %half = extern aten._to_copy.default(%steps, dtype=bf16, device=device(cuda:1)) -> bf16[64] fixed on cuda:1
  %waves = pointwise f32[i0: 64] on cpu { cos(f32(%steps[i0])) }
  %kept = extern aten._to_copy.default(%waves, device=device(cuda)) -> f32[64] fixed
  %beyond = pointwise b1[i0: 64] on cpu { %steps[i0] < %lengths[i0] }
  %rows = extern aten._to_copy.default(%beyond, device=device(cuda)) -> b1[64] fixed
}
"""


def test_constant_creation_is_sunk_to_the_device_of_its_copy() -> None:
    graph, context = parse_graph(MASKS), PassContext({CPU: CPU_LIKE, GPU: GPU_LIKE})
    verify(graph)
    made = DeadCode().apply(SinkConstants().apply(graph, context), context)
    verify(made)
    assert [decision.subject for decision in context.decisions] == ["there", "half"]


def test_overwritten_constants_are_copied() -> None:
    text = """
    graph g on cuda (%x: f32[8] fixed on cpu) -> (%there, %a1) {
      %a = pointwise f32[i0: 8] on cpu { 1.0 }
      %a1 replaces %a = mutate %a with %x -> f32[8] on cpu
      %there = extern aten._to_copy.default(%a1, device=device(cuda)) -> f32[8] fixed
    }
    """
    graph, context = parse_graph(text), PassContext({CPU: CPU_LIKE, GPU: GPU_LIKE})
    assert SinkConstants().apply(graph, context) == graph
