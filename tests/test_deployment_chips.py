"""Models for several chips: compiled without a GPU, each chip's cubins in one file, and the choice among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import litz
from litz.deployment.archive import MANIFEST, open_archive
from litz.deployment.chosen_program import chosen_program
from litz.deployment.manifest import parsed_manifest
from litz_ir.errors import ArtifactError, TargetError

pytest.importorskip("triton")
shared_pool = pytest.importorskip("litz_codegen_triton.runtime").shared_pool
TARGET = "litz_codegen_triton.target.current_chip"
CHIPS = ("sm_80", "sm_90")
EM_CUDA = 190


class Normalised(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1) + 1


def exported() -> torch.export.ExportedProgram:
    """Return a program on a GPU that this machine does not have."""
    with FakeTensorMode():
        x = torch.empty(8, 64, device="cuda")
    return torch.export.export(Normalised(), (x,))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the path of a model for two chips; the compiling processes end with the module."""
    yield litz.aot_compile(
        exported(),
        path=tmp_path_factory.mktemp("chips") / "model.litz",
        chips=CHIPS,
        options={"fallback": "error"},
    )
    shared_pool().close()


def test_each_chip_has_a_program_of_its_own(path: Path) -> None:
    archive = open_archive(path)
    programs = json.loads(bytes(archive.content(MANIFEST)))["entry_points"]["forward"]["programs"]
    assert [(each["device"], each["isa"]) for each in programs] == [("cuda", chip) for chip in CHIPS]
    members = [(each["plan"], each["sources"], *each["binaries"]) for each in programs]
    assert len({name for own in members for name in own}) == sum(map(len, members))
    for chip, program in zip(CHIPS, programs, strict=True):
        for name in program["binaries"]:
            content = bytes(archive.content(name))
            start = content.index(b"\x7fELF")
            assert int.from_bytes(content[start + 18 : start + 20], "little") == EM_CUDA
            assert f"sm_{chip[3:]}".encode() in content


@pytest.mark.parametrize("chip", CHIPS)
def test_the_program_of_the_chip_is_chosen(path: Path, chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TARGET, lambda: chip)
    manifest = parsed_manifest(bytes(open_archive(path).content(MANIFEST)), str(path))
    for device in (None, torch.device("cuda")):
        program, targets = chosen_program(manifest, device, str(path))
        assert program.capabilities == {"cuda": chip}
        assert targets.by_kind["cuda"].capabilities().name == chip


def test_other_chips_and_machines_without_a_gpu_are_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TARGET, lambda: "sm_86")
    with pytest.raises(ArtifactError, match="compiled for sm_80, and this machine has sm_86") as failure:
        litz.load(path)
    assert "sm_90" in failure.value.message and "chips" in (failure.value.hint or "")
    monkeypatch.setattr(TARGET, lambda: None)
    with pytest.raises(ArtifactError, match="this machine has no cuda"):
        litz.load(path)
    with pytest.raises(ArtifactError, match="compiled for cuda, not for cpu"):
        litz.load(path, "cpu")


def test_chips_that_are_unknown_or_named_twice(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="sm_1"):
        litz.aot_compile(exported(), path=tmp_path / "model.litz", chips=("sm_1",))
    with pytest.raises(ArtifactError, match="sm_90 is named twice"):
        litz.aot_compile(exported(), path=tmp_path / "model.litz", chips=("sm_90", "sm_90"))
    assert not (tmp_path / "model.litz").exists()


def test_what_is_compiled_for_another_machine_cannot_be_called() -> None:
    with pytest.raises(ArtifactError, match="compiled for another machine"):
        litz.loading.not_loaded([])
