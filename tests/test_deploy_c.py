"""Programs in C and Rust that run a model of ``litz.aot_compile``, in processes without Python and torch."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from deployed_models import Block
from torch import nn

import litz
from litz_codegen_cpp.host import build_runtime

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runtime, the model of the example, its input and eager's results."""
    found = tmp_path_factory.mktemp("deployed")
    build_runtime(found)
    subprocess.run([sys.executable, EXAMPLES / "deploy_c/write_model.py", found], check=True)
    return found


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    """The example in C."""
    source = EXAMPLES / "deploy_c/mlp.c"
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{folder}", "-pthread")
    link = (f"-L{folder}", "-llitz_runtime", "-Wl,-rpath,$ORIGIN")
    subprocess.run(["cc", *flags, source, "-o", folder / "mlp", *link], check=True)
    return folder / "mlp"


def run(program: Path, *arguments: object, given: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, timeout=60, env={}, check=False)


def test_the_example_in_c_agrees_with_eager(folder: Path, program: Path) -> None:
    done = run(program, folder / "model.litz", 5, 4, given=(folder / "input.bin").read_bytes())
    assert done.returncode == 0, done.stderr
    expected = np.fromfile(folder / "expected.bin", np.float32)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), expected, rtol=1e-5, atol=1e-6)
    one = run(program, folder / "model.litz", 2, 1, given=(folder / "input.bin").read_bytes())
    np.testing.assert_allclose(np.frombuffer(one.stdout, np.float32), expected[:20], rtol=1e-5, atol=1e-6)


def test_no_torch_and_no_python_is_linked(folder: Path, program: Path, tmp_path: Path) -> None:
    host = tmp_path / "host.so"
    host.write_bytes(host_of(folder / "model.litz"))
    for each in (program, folder / "liblitz_runtime.so", host):
        output = subprocess.run(["ldd", each], capture_output=True, text=True, check=True).stdout
        # The addresses beside the names are random, and some contain the letters of a name.
        linked = {line.split()[0] for line in output.splitlines()}
        assert any(name.startswith("libc.so") for name in linked), output
        libraries = ("libtorch", "libpython", "libc10", "libgomp", "libstdc++")
        assert not [name for name in linked if name.startswith(libraries)]


def test_errors_are_a_code_and_a_message(folder: Path, program: Path, tmp_path: Path) -> None:
    given, damaged = (folder / "input.bin").read_bytes(), tmp_path / "damaged.litz"
    too_large = run(program, folder / "model.litz", 257, 1, given=given)
    assert too_large.returncode == 1 and b"error 8" in too_large.stderr and b"256" in too_large.stderr
    data = bytearray((folder / "model.litz").read_bytes())
    place = data.index(host_of(folder / "model.litz"))
    data[place + 5000] ^= 1
    damaged.write_bytes(data)
    assert b"error 3" in run(program, damaged, 5, 1, given=given).stderr
    damaged.write_bytes(data[: len(data) // 2])
    assert b"error 2" in run(program, damaged, 5, 1, given=given).stderr


def test_the_example_in_rust_agrees_with_eager(folder: Path) -> None:
    rustc = shutil.which("rustc")
    if rustc is None:
        pytest.skip("there is no rustc")
    out = folder / "mlp-rust"
    flags = ("--edition=2021", "-O", "-Dwarnings", f"-Lnative={folder}", "-Clink-arg=-Wl,-rpath,$ORIGIN")
    subprocess.run([rustc, *flags, EXAMPLES / "deploy_rust/mlp.rs", "-o", out], check=True)
    done = run(out, folder / "model.litz", 5, given=(folder / "input.bin").read_bytes())
    assert done.returncode == 0, done.stderr
    expected = np.fromfile(folder / "expected.bin", np.float32)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), expected, rtol=1e-5, atol=1e-6)
    refused = run(out, folder / "input.bin", 5, given=b"")
    assert refused.returncode == 1 and b"error 2" in refused.stderr


def host_of(path: Path) -> bytes:
    """The host object of a model's only program."""
    with zipfile.ZipFile(path) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".host.so"))
        return archive.read(name)


class SmallCnn(nn.Module):
    """Convolutions with groups, strides and batch norms, pooling, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.Hardswish(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=2), nn.BatchNorm2d(32), nn.SiLU(),
            nn.Conv2d(32, 40, 1, bias=False), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(640, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


class FixedTable(nn.Module):
    """A table of constants, which is no parameter."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]) + 1


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "block": (lambda: Block(64, 4), (2, 60, 64)),
    "cnn": (SmallCnn, (2, 3, 32, 32)),
    "constants": (FixedTable, (3, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_eager(folder: Path, program: Path, tmp_path: Path, name: str) -> None:
    """The program of the example runs any model of one input and one output; its batch is then ignored."""
    make, shape = MODELS[name]
    torch.manual_seed(1)
    model = make().eval()
    x = torch.randn(shape)
    with torch.no_grad():
        for each in model.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.running_mean = torch.rand(each.num_features) - 0.5
                each.running_var = torch.rand(each.num_features) + 0.5
        litz.aot_compile(model, (x,), path=tmp_path / "model.litz")
        expected = model(x).numpy()
    with zipfile.ZipFile(tmp_path / "model.litz") as archive:
        (given,) = json.loads(archive.read("manifest.json"))["entry_points"]["forward"]["inputs"]
    assert not given["overwritten"], "litz's own routines write to no argument"
    done = run(program, tmp_path / "model.litz", 0, 2, given=x.numpy().tobytes())
    assert done.returncode == 0, done.stderr
    got = np.frombuffer(done.stdout, np.float32).reshape(expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_program_with_calls_of_torch_names_them(program: Path, tmp_path: Path) -> None:
    layer = nn.Linear(4, 4, dtype=torch.float64)
    litz.aot_compile(layer, (torch.eye(4, dtype=torch.float64),), path=tmp_path / "model.litz")
    done = run(program, tmp_path / "model.litz", 0, 1, given=b"")
    assert done.returncode == 1 and b"error 6" in done.stderr and b"aten.addmm.default" in done.stderr


class Counter(nn.Module):
    """A module that overwrites a buffer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


def test_a_program_that_writes_to_a_buffer_says_so(program: Path, tmp_path: Path) -> None:
    path = litz.aot_compile(Counter(), (torch.ones(4),), path=tmp_path / "model.litz")
    (described,) = litz.load(path).manifest["entry_points"]["forward"]["programs"]
    assert described["host"] is None and "overwrites" in described["host_refusal"]
    done = run(program, path, 0, 1, given=b"")
    assert done.returncode == 1 and b"error 6" in done.stderr and b"overwrites" in done.stderr


def test_symbols_have_the_order_of_the_inputs_sizes(tmp_path: Path) -> None:
    sizes = {k: torch.export.Dim(name, min=2, max=64) for k, name in enumerate(("one", "two", "three"))}
    path = litz.aot_compile(
        lambda x: x + 1, (torch.ones(4, 16, 9),), dynamic_shapes=(sizes,), path=tmp_path / "model.litz"
    )
    entry = litz.load(path).manifest["entry_points"]["forward"]
    assert list(entry["symbols"]) == entry["inputs"][0]["shape"]
    library = ctypes.CDLL(str(build_runtime(tmp_path)))
    library.litz_entry_at.restype = ctypes.c_void_p
    model, error, layout = ctypes.c_void_p(), ctypes.create_string_buffer(1024), (ctypes.c_int64 * 64)()
    assert library.litz_open(str(path).encode(), None, ctypes.byref(model), error) == 0, error.raw
    found = ctypes.c_void_p(library.litz_entry_at(model, ctypes.c_size_t(0)))
    values = (ctypes.c_int64 * 3)(5, 6, 7)
    assert library.litz_input_layout(found, ctypes.c_size_t(0), values, layout, error) == 0, error.raw
    assert list(layout[1:4]) == [5, 6, 7]
    library.litz_close(model)
