"""Graphs of GPUs and the CPU, compiled without a GPU: one plan with eager's results, and each kernel on the device of
its memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import while_loop
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import litz.pipeline
import litz_ir.host.executor
from litz.artifact import Artifact
from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
from litz.cuda_graphs.partition import ROUTINES
from litz.host.emit.source import host_program
from litz.host.program import HostProgram
from litz.host.runtime.gpus import Gpus, gpus_among
from litz.host.runtime.native import segment_binder
from litz.loading import Compiled
from litz.settings import Config
from litz.targets import TargetSet
from litz_codegen_triton.capabilities import chip_capabilities
from litz_codegen_triton.target import CudaTarget
from litz_ir.device import CPU, Device
from litz_ir.errors import CompilerNotFound, UnsupportedOperation
from litz_ir.host import Executor
from litz_ir.host.memory import NumpyMemory
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops import Value
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, DefineStep, Plan, kernel_devices
from litz_ir.verifier import verify
from litz_scheduler.graph_partition import PartitionGraph

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
from lowering_check import AtenTable, to_array, to_tensor

Array = np.ndarray[Any, Any]
Program = Callable[..., Any]
FIRST, SECOND = "cuda:0", "cuda:1"


def traced(program: Program, *given: tuple[Tensor, str]) -> GraphModule:
    """Trace a program with fake tensors on the given devices."""
    shapes = ShapeEnv(allow_dynamic_output_shape_ops=True)
    with FakeTensorMode(shape_env=shapes, static_shapes=True) as mode:
        return make_fx(program)(
            *(
                mode.from_tensor(each)
                if where == "cpu"
                else torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=where)
                for each, where in given
            )
        )


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[GraphModule], Artifact]:
    """A compiler of graphs up to the artifact, with GPU kernels for sm_90; nothing is loaded."""

    def load(artifact: Artifact, *_: Any, **__: Any) -> Compiled:
        return Compiled(lambda args: (), artifact)

    def compile_it(gm: GraphModule, fallback: str = "error") -> Artifact:
        config = Config(cache=False).replaced({"fallback": fallback})
        found = Compilation(gm, "mixed", config, ArtifactCache.open(config)).run().artifact
        assert found is not None
        verify(found.plan)
        return found

    monkeypatch.setattr(litz.pipeline, "load_tuned", load)
    monkeypatch.setattr(CudaTarget, "prepare", lambda _: 1)
    return compile_it


class Spaces(NumpyMemory):
    """Memory with a range of addresses for each device, so that an address tells its device."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[Device, Array] = {}
        self._used: dict[Device, int] = {}

    def empty(self, nbytes: int, device: Device) -> Array:
        block = self._blocks.setdefault(device, np.empty(1 << 18, np.uint8))
        start = self._used.get(device, 0)
        start += -(self.address(block) + start) % 64
        self._used[device] = start + nbytes
        assert start + nbytes <= block.nbytes
        return block[start : start + nbytes]

    def placed(self, array: Array, device: Device) -> Array:
        """Return a copy on a device with the same strides."""
        reach = 1 + sum((n - 1) * s // array.itemsize for n, s in zip(array.shape, array.strides))
        made = self.empty(reach * array.itemsize, device).view(array.dtype)
        shown = np.lib.stride_tricks.as_strided(made, array.shape, array.strides)
        shown[...] = array
        return shown

    def device(self, array: Array) -> Device:
        """Return the device of an array's memory."""
        address = self.address(array)
        return next(
            device
            for device, block in self._blocks.items()
            if self.address(block) <= address < self.address(block) + block.nbytes
        )


class Routines(Mapping[str, Callable[..., Any]]):
    """ATen on arrays. Results are on the requested device, else on the common device of the arguments; only copies may
    have arguments on several."""

    def __init__(self, memory: Spaces) -> None:
        self.memory = memory

    def __getitem__(self, name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            here = {k: CPU if isinstance(v, Device) else v for k, v in kwargs.items() if k != "non_blocking"}
            found = AtenTable()[name](*args, **here)
            devices = {self.memory.device(each) for each in args if isinstance(each, np.ndarray)}
            where = kwargs.get("device")
            if where is None:
                (where,) = devices
            return self.memory.placed(np.asarray(found), where)

        return run

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Tensor]]:
    """Run a plan in the reference interpreter, and assert that each kernel accesses memory of its own device alone."""
    memory = Spaces()

    def watched(kernel: Any, arrays: Mapping[str, Array], symbols: Any) -> None:
        (device,) = {memory.device(each) for each in arrays.values() if each.size}
        assert device in devices[kernel.name]
        run_kernel(kernel, arrays, symbols)

    devices: dict[str, tuple[Device, ...]] = {}
    monkeypatch.setattr(litz_ir.host.executor, "run_kernel", watched)

    def run_it(plan: Plan, *given: Tensor) -> list[Tensor]:
        devices.update(kernel_devices(plan))
        values = [item for item in plan.inputs if isinstance(item, Value)]
        arrays = [memory.placed(to_array(x), item.type.device) for x, item in zip(given, values, strict=True)]
        found = Executor(plan, memory=memory, externs=Routines(memory)).run(arrays)
        return [to_tensor(np.array(each)) for each in found]

    return run_it


def calls(plan: Plan) -> tuple[str, ...]:
    return tuple(step.target for step in plan.steps if isinstance(step, CallStep))


def kinds(plan: Plan) -> list[str]:
    """Return the devices of the kernels, in the order of the kernels' names."""
    return [" ".join(map(str, devices)) for devices in kernel_devices(plan).values()]


def adam(p: Tensor, step: Tensor, rate: Tensor) -> tuple[Tensor, ...]:
    step = step + 1
    return p - (rate / (1 - torch.pow(0.9, step))) * p.sign() / (p.abs().sqrt() + 1e-8), step


def loss_on_cpu(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    y = (x * 2).tanh().cpu()
    return (y - target).square().mean(), y.argmax(-1)


def masked(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(x.shape[-1])[None, :] < lengths[:, None]
    return x.masked_fill(mask.to(x.device).logical_not(), float("-inf")).softmax(-1)


def masked_by_constants(x: Tensor) -> Tensor:
    causal = torch.ones(4, 6, dtype=torch.bool).tril().to(x.device)
    steps = torch.arange(6).to(x.device, torch.float32, non_blocking=True)
    return torch.where(causal, x, 0) * steps


def to_and_fro(x: Tensor, c: Tensor) -> Tensor:
    y = (x.exp() + 1).cpu()
    z = (y * c).cumsum(-1) + y.mean()
    return z.to(x.device).sin() * x


def stages(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    h = ((x @ w).relu() + 1).to(v.device)
    y = (h @ v).relu() + 1
    return y, y.to(x.device) * 0.5


COPY = "aten._to_copy.default"
MM = "aten.mm.default"
_GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    """Return the same numbers in every process, whatever was drawn before."""
    return torch.randn(shape, generator=_GENERATOR)


X, ROW, NUMBER = normal(4, 6), normal(6), torch.tensor(0.3)
PROGRAMS: dict[str, tuple[Program, list[tuple[Tensor, str]], list[str], tuple[str, ...]]] = {
    "a number by value": (lambda x, s: x * s + 1, [(X, FIRST), (NUMBER, "cpu")], ["cuda"], ()),
    "two of them, one in bf16": (
        lambda x, s, t: (x - s) / t,
        [(X, FIRST), (torch.tensor(0.3, dtype=torch.float64), "cpu"), (torch.tensor(1.5).bfloat16(), "cpu")],
        ["cuda"], (),
    ),
    "a number in a row's sum": (lambda x, s: (x * s).sum(-1), [(X, FIRST), (NUMBER, "cpu")], ["cuda"], ()),
    "an integer and a bool": (
        lambda x, n, b: torch.where(b, x * n, x), [(X, FIRST), (torch.tensor(-3), "cpu"), (torch.tensor(True), "cpu")],
        ["cuda"], (),
    ),
    "a number that is known": (lambda x: x * torch.tensor(0.7), [(X, FIRST)], ["cuda"], ()),
    "arithmetic beside": (
        adam, [(X, FIRST), (torch.tensor(3.0), "cpu"), (torch.tensor(0.01), "cpu")], ["cpu", "cuda"], (),
    ),
    "a copy from the CPU": (lambda x, c: x + c.to(x.device), [(X, FIRST), (ROW, "cpu")], ["cuda"], (COPY,)),
    "a loss on the CPU": (loss_on_cpu, [(X, FIRST), (X.clone(), "cpu")], ["cuda", "cpu", "cpu"], (COPY,)),
    "a mask created on the GPU": (masked, [(X, FIRST), (torch.tensor([6, 2, 5, 1]), "cpu")], ["cpu", "cuda"], (COPY,)),
    "masks and positions created on the GPU": (masked_by_constants, [(X, FIRST)], ["cuda"], ()),
    "there and back": (to_and_fro, [(X, FIRST), (ROW, "cpu")], ["cuda", "cpu", "cpu", "cuda"], (COPY, COPY)),
    "two stages": (
        stages, [(X, FIRST), (normal(6, 8), FIRST), (normal(8, 8), SECOND)],
        ["cuda cuda:1", "cuda"], (MM, COPY, MM, COPY),
    ),
    "a second GPU and the CPU": (
        lambda x, y, s: (x + s, y * s, (x.cpu() + y.cpu()).exp()), [(X, FIRST), (X.clone(), SECOND), (NUMBER, "cpu")],
        ["cuda", "cuda:1", "cpu"], (COPY, COPY),
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_plan_computes_what_eager_computes(
    name: str, compiled: Callable[[GraphModule], Artifact], run: Callable[..., list[Tensor]]
) -> None:
    program, given, where, called = PROGRAMS[name]
    made = compiled(traced(program, *given))
    assert made.plan.device == Device("cuda")
    assert (kinds(made.plan), calls(made.plan)) == (where, called)
    assert len(made.binaries) == len(made.units)
    languages = {unit.language for unit in made.units}
    assert languages == {"c++" if "cpu" in each else "triton" for each in where}
    tensors = [each.clone() for each, _ in given]
    wanted = program(*tensors)
    found = run(made.plan, *tensors)
    torch.testing.assert_close(found, list(wanted) if isinstance(wanted, tuple) else [wanted])


def counted_steps(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    counted: tuple[Tensor, Tensor] = while_loop(
        lambda i, a: i < 4, lambda i, a: (i + 1, a.sin() * 2 + i), (i, x)
    )
    return counted


def summed_steps(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    summed: tuple[Tensor, Tensor] = while_loop(
        lambda i, a: a.sum() < 40, lambda i, a: (i + 1, a.abs() * 2), (i, x)
    )
    return summed


def chosen(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    either: tuple[Tensor, Tensor] = torch.cond(
        i > 0, lambda x, i: (x + i, i * 2), lambda x, i: (x - i, i + 1), (x, i)
    )
    return either


@pytest.mark.parametrize("where", ["cpu", FIRST])
@pytest.mark.parametrize("program", [counted_steps, summed_steps, chosen])
def test_operands_of_control_flow_stay_where_they_are(
    program: Program,
    where: str,
    compiled: Callable[[GraphModule], Artifact],
    run: Callable[..., list[Tensor]],
) -> None:
    """A counter may be on the CPU or on the GPU; it decides either way."""
    count = torch.tensor(0)
    made = compiled(traced(program, (X, FIRST), (count, where)))
    assert COPY not in calls(made.plan)
    assert ("cpu" in kinds(made.plan)) == (where == "cpu")
    torch.testing.assert_close(run(made.plan, X.clone(), count), list(program(X, count)))


def test_a_number_is_read_once_and_passed_to_the_kernel(compiled: Callable[[GraphModule], Artifact]) -> None:
    program, given, *_ = PROGRAMS["a number by value"]
    made = compiled(traced(program, *given))
    assert sum(isinstance(step, DefineStep) for step in made.plan.steps) == 1
    (kernel,) = made.plan.kernels
    assert [info.kind for info in kernel.symbols] == ["float"]
    assert re.search(r"= float\(\w+\.item\(\)\)", host_program(made.plan).text)


@pytest.mark.parametrize(("name", "gpus"), [("there and back", (3,)), ("two stages", (5, 2))])
def test_which_gpus_they_are_makes_no_difference(
    name: str, gpus: tuple[int, ...], compiled: Callable[[GraphModule], Artifact]
) -> None:
    program, given, *_ = PROGRAMS[name]
    elsewhere = {FIRST: f"cuda:{gpus[0]}", SECOND: f"cuda:{gpus[-1]}", "cpu": "cpu"}
    first = compiled(traced(program, *given))
    second = compiled(traced(program, *((each, elsewhere[where]) for each, where in given)))
    assert first.key == second.key and first.plan == second.plan and first.units == second.units


def test_which_of_the_gpus_of_a_graph_it_is_makes_one(compiled: Callable[[GraphModule], Artifact]) -> None:
    def keys(first: str, second: str) -> str:
        return compiled(traced(lambda x, y: (x + 1, y + 1), (X, first), (X, second))).key

    assert keys(FIRST, SECOND) == keys(SECOND, FIRST) != keys(FIRST, FIRST)


def program_of(name: str, compiled: Callable[[GraphModule], Artifact]) -> HostProgram:
    program, given, *_ = PROGRAMS[name]
    return host_program(compiled(traced(program, *given)).plan)


def test_host_programs_launch_on_every_device(
    compiled: Callable[[GraphModule], Artifact], golden: Callable[[str, str], None]
) -> None:
    names = ("a loss on the CPU", "there and back", "two stages", "a second GPU and the CPU")
    text = "\n".join(f"# {name}\n{program_of(name, compiled).text}" for name in names)
    golden("mixed_host_programs.txt", text)


class Cuda:
    """A stand-in for `torch.cuda` that has a current device."""

    def __init__(self) -> None:
        self.current = 0

    @contextmanager
    def device(self, ordinal: int) -> Iterator[None]:
        before, self.current = self.current, ordinal
        try:
            yield
        finally:
            self.current = before


class Kernels:
    """A target that notes the current device when it loads and launches."""

    def __init__(self, name: str, cuda: Cuda, seen: list[tuple[str, str, int]]) -> None:
        self.name, self.cuda, self.seen = name, cuda, seen

    def load(self, units: Sequence[Any], binaries: Sequence[Path], kernels: Mapping[str, Any]) -> Kernels:
        self.seen.append(("load", self.name, self.cuda.current))
        return self

    def function(self, kernel: str) -> Callable[..., None]:
        return lambda places, values: self.seen.append(("launch", self.name, self.cuda.current))


def test_kernels_are_loaded_and_launched_with_their_device_current(
    compiled: Callable[[GraphModule], Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, given, *_ = PROGRAMS["a second GPU and the CPU"]
    made = compiled(traced(program, *given))
    cuda, seen = Cuda(), list[tuple[str, str, int]]()
    monkeypatch.setattr(torch.cuda, "device", cuda.device)
    targets: Any = TargetSet({kind: Kernels(kind, cuda, seen) for kind in ("cpu", "cuda")})  # type: ignore[misc]
    with cuda.device(4):
        bind = segment_binder(
            made.plan, list(zip(made.units, made.binaries, strict=True)), targets, Gpus((4, 7))
        )
        assert sorted(seen) == [("load", "cpu", 4), ("load", "cuda", 4), ("load", "cuda", 7)]
        seen.clear()
        for segment in host_program(made.plan).segments:
            bind(segment)([0] * 9, [0] * 9)
        assert cuda.current == 4
    assert sorted(seen) == [("launch", "cpu", 4), ("launch", "cuda", 4), ("launch", "cuda", 7)]


def test_gpus_of_one_graph_are_of_one_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [torch.device(name) for name in ("cuda:1", "cuda:0")]
    chips = {1: (9, 0), 0: (9, 0)}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: chips[device.index])
    assert gpus_among(devices) == Gpus((1, 0))
    assert gpus_among(devices[:1]) == Gpus()
    chips[0] = (8, 0)
    with pytest.raises(UnsupportedOperation, match="cuda:1 and cuda:0 have different compute capabilities"):
        gpus_among(devices)


def test_without_a_compiler_what_is_on_the_cpu_runs_as_aten(
    compiled: Callable[..., Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: Any) -> Path:
        raise CompilerNotFound("there is none")

    monkeypatch.setattr("litz_codegen_cpp.target.CpuTarget.build", build)
    program, given, *_ = PROGRAMS["arithmetic beside"]
    plan = compiled(traced(program, *given), "silent").plan
    assert kinds(plan) == ["cuda"]
    assert calls(plan) == ("aten.add.Tensor", "aten.pow.Scalar", "aten.rsub.Scalar", "aten.div.Tensor")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a loss on the CPU", "not replayed: "),
        ("two stages", "2 of 7 launches and calls replayed as a CUDA graph; between them: "),
    ],
)
def test_partitions_on_one_gpu_are_captured_and_nothing_else(
    name: str, says: str, compiled: Callable[[GraphModule], Artifact]
) -> None:
    program, given, *_ = PROGRAMS[name]
    divide = PartitionGraph(ROUTINES, replay=10e-6)  # a launch and a call are enough
    machine = chip_capabilities("sm_90")
    choice = divide.apply(compiled(traced(program, *given)).plan, PassContext({machine.device: machine}))
    assert choice.summary.startswith(says), choice.summary
    for part in choice.partitions:
        assert all(
            placement.type.device == Device("cuda") for _, placement in choice.plan.subplan(part).buffers
        )
