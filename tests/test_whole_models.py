"""Tests of the judge of whole models: it finds wrong tensors, and states the size of the error."""

from __future__ import annotations

import copy
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from whole_models import worker
from whole_models.architectures import Sample, of_classes
from whole_models.execution import Mode, Runner
from whole_models.judge import PRECISIONS, Finding, judged, measured, widened, worst_of
from whole_models.processes import Job, Limits, carried_out
from whole_models.run import described, main
from whole_models.worker import Row, findings_of, patiently, verdict_of, yardsticks_of

pytestmark = pytest.mark.sampled  # it compiles whole programs

BF16 = PRECISIONS["bf16"]


class Toy(nn.Module):
    """A linear layer and a batch norm; `fault` is the injected error."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.last = nn.Linear(32, 8)
        self.fault = ""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.fault == "gradient":
            hidden = hidden + 0.1 * (hidden - hidden.detach())
        if self.fault == "nan":
            hidden = hidden + (self.norm.running_mean / 0.0 * 0.0)
        result: Tensor = self.last(F.relu(self.norm(hidden)))
        if self.fault == "buffer":
            assert self.norm.running_var is not None
            self.norm.running_var.data.mul_(1.05)
        if self.fault == "element":
            result = result + F.pad(torch.ones(1, 1), (0, 7, 0, 63))
        return result


def toy(mode: Mode = "train") -> Runner:
    torch.manual_seed(0)
    return Runner(Sample(Toy(), (torch.randn(64, 16),), torch.randint(0, 8, (64,)), of_classes), mode, "cpu")


def found(fault: str, dtype: str, mode: Mode = "train") -> list[Finding]:
    """Return the judge's findings on a toy model with a fault, compared with one without."""
    runner = toy(mode)
    yardsticks = yardsticks_of(runner, dtype == "bf16")
    assert isinstance(runner.sample.model, Toy)
    runner.sample.model.fault = fault
    runs = [runner.run(runner.program, dtype == "bf16")]
    return findings_of(runs, yardsticks, dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_eager_is_as_far_as_itself(dtype: str) -> None:
    findings = found("", dtype)
    names = [finding.name for finding in findings]
    assert names[:4] == ["first.weight.grad", "first.bias.grad", "norm.weight.grad", "norm.bias.grad"]
    assert names[4:7] == ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert names[-2:] == ["output", "loss"]
    assert all(not finding.wrong and finding.ratio <= 1.0 for finding in findings)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_wrong_gradient_is_found(dtype: str) -> None:
    wrong = [finding for finding in found("gradient", dtype) if finding.wrong]
    assert {finding.name for finding in wrong} <= {"first.weight.grad", "first.bias.grad"}
    assert wrong[0].name == "first.weight.grad" and wrong[0].ratio > wrong[0].limit
    assert wrong[0].error == pytest.approx(0.1, rel=0.2)


def test_a_wrong_buffer_is_found() -> None:
    wrong = [finding.name for finding in found("buffer", "bf16") if finding.wrong]
    assert wrong == ["norm.running_var"]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_nan_is_found_wherever_it_reaches(mode: Mode) -> None:
    wrong = {finding.name: finding.fault for finding in found("nan", "bf16", mode) if finding.wrong}
    assert "NaN" in wrong["output"]
    assert mode == "infer" or "NaN" in wrong["first.weight.grad"]


def test_one_wrong_element_is_found() -> None:
    findings = found("element", "f32", "infer")
    assert worst_of(findings).name == "output" and worst_of(findings).wrong


class Kinked(nn.Module):
    """A ReLU with an operand so near to zero that a rounding decides its sign; `fault` is another injected error."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 16))
        self.act = nn.ReLU()
        self.flipped = False
        self.fault = 0.0

    def forward(self, x: Tensor) -> Tensor:
        own = x * self.weight
        near = own - own.detach() + (1e-9 if self.flipped else -1e-9)
        active: Tensor = self.act(torch.where(torch.arange(16) == 3, near, own))
        return active * (1 + self.fault)


def kinked(monkeypatch: pytest.MonkeyPatch, fault: float) -> Row:
    """Return the row of a model whose ReLU operand has one sign in eager and the other in litz."""
    model = Kinked()
    sample = Sample(model, (torch.ones(2, 16),), torch.zeros(2, 16), lambda y, t: (y - t).sum())
    runner = Runner(sample, "train", "cpu")

    def runs(runner: Runner, narrow: bool, fuse: bool) -> tuple[list[dict[str, Tensor]], list[float]]:
        model.flipped, model.fault = True, fault
        made = runner.run(runner.program, narrow)
        model.flipped, model.fault = False, 0.0
        return [made], [0.0, 0.0]

    monkeypatch.setattr(worker, "compiled_runs", runs)
    return worker.cell(runner, "f32", True, nullcontext())


def test_roundings_across_zero_are_judged_with_fixed_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    row = kinked(monkeypatch, 0.0)
    assert (row["verdict"], row["free_signs"]["worst"]) == ("ok", "weight.grad")
    assert "with the signs of ReLUs held (free: 1 wrong" in described(
        {"case": "a", "mode": "train", "dtype": "f32", "fuse": True, **row}
    )


def test_other_faults_stay_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinked(monkeypatch, 0.01)["verdict"] == "wrong"


def test_ratios_are_of_distances_from_the_exact_tensor() -> None:
    exact = {"x": torch.full((100,), 2.0, dtype=torch.float64)}
    eager = {"x": torch.full((100,), 2.02)}
    yardsticks = measured(exact, eager)
    nearer, further = ({"x": torch.full((100,), value)} for value in (1.98, 2.05))
    (finding,) = judged(nearer, yardsticks, BF16)
    assert finding.ratio == pytest.approx(1.0, rel=0.05) and not finding.wrong
    (finding,) = judged(further, yardsticks, BF16)
    assert finding.ratio == pytest.approx(2.5, rel=0.05) and finding.wrong
    assert finding.error == pytest.approx(0.025) and finding.eager_error == pytest.approx(0.01, rel=1e-3)
    (finding,) = judged(further, widened(yardsticks, {"x": torch.full((100,), 1.96)}), BF16)
    assert not finding.wrong


def test_infinities_that_eager_has_are_right_and_others_are_not() -> None:
    exact = {"x": torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)}
    over = {"x": torch.tensor([1.0, 2.0, float("inf")])}
    yardsticks = measured(exact, over)
    assert not judged(over, yardsticks, BF16)[0].wrong
    for other in ([1.0, 2.0, 3.0], [1.0, 2.0, -float("inf")], [1.0, float("nan"), float("inf")]):
        assert judged({"x": torch.tensor(other)}, yardsticks, BF16)[0].wrong


def test_names_shapes_dtypes_and_whole_numbers_count() -> None:
    exact = {"x": torch.ones(4, dtype=torch.float64), "n": torch.tensor(3)}
    sticks = measured(exact, {"x": torch.ones(4), "n": torch.tensor(3)})
    cases = {
        "missing": {"n": torch.tensor(3)},
        "not in eager": {"x": torch.ones(4), "n": torch.tensor(3), "y": torch.ones(1)},
        "torch.bfloat16[4] for torch.float32[4]": {
            "x": torch.ones(4, dtype=torch.bfloat16),
            "n": torch.tensor(3),
        },
        "unequal": {"x": torch.ones(4), "n": torch.tensor(4)},
    }
    for fault, tensors in cases.items():
        assert [finding.fault for finding in judged(tensors, sticks, BF16) if finding.wrong] == [fault]


def test_runs_start_from_one_state_and_leave_it() -> None:
    runner = toy()
    before = copy.deepcopy(runner.sample.model.state_dict())
    first = runner.run(runner.program, False)
    with runner.disturbed(0):
        moved = runner.run(runner.program, False)
    again = runner.run(runner.program, False)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["output"], moved["output"])
    torch.testing.assert_close(first["output"], moved["output"])
    after = runner.sample.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("norm."))


def test_a_row_names_the_first_wrong_tensors_in_forward_order() -> None:
    row = {"case": "toy", "mode": "train", "dtype": "bf16", "fuse": True, "first": 1.0}
    row |= verdict_of(found("gradient", "bf16"))
    lines = described(row).splitlines()
    assert lines[0].startswith("toy train bf16 wrong worst=first.weight.grad ")
    assert lines[1].strip().startswith("first.weight.grad: far, ")


@pytest.mark.parametrize(
    "script, verdict, reason",
    [
        ('echo BEGIN f32; echo \'ROW {"dtype": "f32"}\'; echo BEGIN bf16; kill -SEGV $$', "crash", "SIGSEGV"),
        ('echo BEGIN f32; echo \'ROW {"dtype": "f32"}\'; echo BEGIN bf16; sleep 60', "timeout", "1 s passed"),
    ],
)
def test_a_crash_or_a_hang_costs_its_cell(
    script: str, verdict: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    limits = Limits(time.monotonic() + 60, 1.0)
    first, second = carried_out(Job("toy", "train", ("f32", "bf16")), [], tmp_path, limits)
    assert first == {"dtype": "f32"}
    assert (second["dtype"], second["verdict"]) == ("bf16", verdict) and reason in second["reason"]
    spent = carried_out(Job("toy", "train", ("f32",)), [], tmp_path, Limits(time.monotonic(), 1.0))
    assert [row["verdict"] for row in spent] == ["left out"]


def test_a_cell_waits_for_memory_and_then_fails() -> None:
    left = [3]

    def judge() -> Row:
        left[0] -= 1
        if left[0] > 0:
            raise torch.OutOfMemoryError("full")
        return {"verdict": "ok"}

    assert patiently(judge, "cpu", pause=0.0) == {"verdict": "ok"}
    left[0] = 4
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        patiently(judge, "cpu", pause=0.0)


def test_jobs_survive_the_command_line() -> None:
    job = Job("toy", "infer", ("f32", "bf16"), fuse=False)
    assert Job.from_text(job.to_text()) == job


def test_a_model_is_judged_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    chosen = ["--cases", "dlrm", "--modes", "infer", "--dtypes", "f32", "--out", str(out)]
    assert main(["--device", "cpu", "--small", "--workers", "1", *chosen]) == 0
    said = capsys.readouterr().out
    assert "dlrm infer f32 ok worst=output" in said and "1 of 1 right" in said
    assert len(out.read_text().splitlines()) == 2
