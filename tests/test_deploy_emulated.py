"""Models for CPUs that this machine is not: compiled here with litz's own matmuls, convolutions and attention, run by
the program in C under qemu, and compared with eager."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from test_deploy_c import EXAMPLES, MODELS, ROOT
from torch import nn

import litz
from litz_codegen_cpp.host import build_runtime
from litz_ir.errors import ArtifactError

sys.path.append(str(ROOT / "packages" / "codegen-cpp" / "tests"))
from emulated_cpu import EMULATIONS, Emulation

EMULATED = {
    "neon": EMULATIONS["neon under qemu"],
    # Host programs make no masked accesses whose lanes qemu's CPU with AVX2 would access.
    "avx2": Emulation("avx2", command=("qemu-x86_64", "-cpu", "Haswell")),
    "scalar": EMULATIONS["scalar under qemu"],
}
"""The emulations of models by instruction set."""


class Decoder(nn.Module):
    """Causal attention over grouped heads, a scan, a sort, and norms of bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(48, 96)
        self.norm = nn.LayerNorm(48, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(2, 37, 6, 16).transpose(1, 2).split(2, 1)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        joined = torch.cat((attended.transpose(1, 2).flatten(2), x[..., :16]), -1)
        narrow = self.norm(joined.bfloat16()).float()
        return narrow.cumsum(1) + torch.softmax(joined, 1) + torch.special.ndtr(joined * 9)


class Strided(nn.Module):
    """Convolutions of one and two dimensions, dilated, strided, in groups and depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 5, stride=2, padding=3, dilation=2)
        self.depthwise = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.grouped = nn.Conv2d(24, 36, 1, groups=3)
        self.row = nn.Conv1d(36, 7, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.grouped(torch.relu(self.depthwise(nn.functional.gelu(self.first(x)))))
        return torch.sigmoid(self.row(nn.functional.max_pool2d(made, 3).flatten(2)))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **MODELS,
    "decoder": (Decoder, (2, 37, 48)),
    "strided": (Strided, (2, 3, 31, 29)),
    "rows": (lambda: nn.Sequential(nn.Linear(300, 130), nn.Tanh(), nn.Linear(130, 33)), (5, 300)),
}


@pytest.fixture(scope="module", params=EMULATED)
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An instruction set, and a folder with the program in C for it."""
    emulation = EMULATED[request.param]
    if obstacle := emulation.obstacle():
        pytest.skip(obstacle)
    folder = tmp_path_factory.mktemp(emulation.isa)
    warnings = ("-Wall", "-Wextra", "-Werror")
    build_runtime(folder, compiler=emulation.compiler, flags=warnings)
    flags = ("-std=c11", *warnings, "-O2", f"-I{folder}", "-pthread")
    link = (f"-L{folder}", "-llitz_runtime", "-Wl,-rpath,$ORIGIN")
    compiling = (emulation.compiler, *flags, EXAMPLES / "deploy_c/mlp.c", "-o", folder / "mlp", *link)
    subprocess.run(compiling, check=True)
    return request.param, folder


@pytest.mark.parametrize("name", CASES)
def test_models_agree_with_eager(programs: tuple[str, Path], tmp_path: Path, name: str) -> None:
    isa, folder = programs
    make, shape = CASES[name]
    torch.manual_seed(1)
    model, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        path = litz.aot_compile(model, (x,), path=tmp_path / "model.litz", isas=(isa,))
        expected = model(x).numpy()
    command = [*EMULATED[isa].command, folder / "mlp", path, "0", "2"]
    done = subprocess.run(command, input=x.numpy().tobytes(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0 and f"for {isa}".encode() in done.stderr, done.stderr
    got = np.frombuffer(done.stdout, np.float32).reshape(expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_one_file_has_programs_for_two_architectures(tmp_path: Path) -> None:
    """Nothing is loaded that this machine does not run, and its own program is."""
    if obstacle := EMULATED["neon"].obstacle():
        pytest.skip(obstacle)
    x = torch.randn(3, 8)
    path = litz.aot_compile(nn.GELU(), (x,), path=tmp_path / "model.litz", isas=("neon", "scalar"))
    assert litz.load(path).isa == "scalar"
    torch.testing.assert_close(litz.load(path)(x), nn.functional.gelu(x))
    path = litz.aot_compile(nn.GELU(), (x,), path=tmp_path / "neon.litz", isas=("neon",))
    with pytest.raises(ArtifactError, match="compiled for neon, and this machine has"):
        litz.load(path)
