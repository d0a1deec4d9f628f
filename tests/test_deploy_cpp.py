"""A program in C++ that runs models of ``litz.aot_compile`` with libtorch, in processes without Python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import cpp_extension

import litz
from litz_codegen_cpp.host import build_runtime, include_paths

SOURCE = Path(__file__).resolve().parent.parent / "examples/deploy_cpp/run.cpp"
LIBRARIES = Path(torch.__file__).parent / "lib"

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(
        not (LIBRARIES / "libtorch_cpu.so").exists(), reason="torch has no libtorch beside it"
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, compiled without warnings."""
    folder = tmp_path_factory.mktemp("cpp")
    build_runtime(folder)
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", *(f"-I{each}" for each in include_paths())]
    for each in cpp_extension.include_paths():
        flags += ["-isystem", each]
    flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
    link = [f"-L{folder}", "-llitz_runtime", f"-L{LIBRARIES}", "-ltorch", "-ltorch_cpu", "-lc10"]
    link += [f"-Wl,-rpath,{LIBRARIES}", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(["g++", *flags, SOURCE, "-o", folder / "run", *link], check=True)
    return folder / "run"


class Weights(nn.Module):
    """A function of tensors, with weights of several dtypes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        generator = torch.Generator().manual_seed(0)
        self.narrow = nn.Parameter(torch.randn(24, 16, generator=generator).bfloat16(), requires_grad=False)
        self.table = nn.Parameter(torch.randn(10, 6, generator=generator), requires_grad=False)
        self.register_buffer("wide", torch.randn(16, 16, generator=generator, dtype=torch.float64))

    def forward(self, *arguments: torch.Tensor) -> Any:
        return self.function(self, *arguments)


@dataclass(frozen=True)
class Case:
    """A function of the weights and tensors, and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    called: tuple[torch.Tensor, ...] | None = None
    """Arguments of the call; those that the model was compiled with if there are none."""
    dynamic: Any = None


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


BATCH = torch.export.Dim("batch", min=2, max=64)
F = nn.functional
CASES: dict[str, Case] = {
    "bf16 linear": Case(
        lambda m, x: F.gelu(F.linear(x, m.narrow)) @ m.narrow.float().bfloat16(),
        (tensor(4, 16, dtype=torch.bfloat16),),
        (tensor(7, 16, dtype=torch.bfloat16),),
        ({0: BATCH},),
    ),
    "f64 addmm": Case(
        lambda m, x: torch.addmm(x, x, m.wide.T, beta=0.5, alpha=-2) + 1,
        (tensor(16, 16, dtype=torch.float64),),
    ),
    "svd": Case(lambda m, x: torch.linalg.svd(x * 2, full_matrices=False)[1] + 1, (tensor(5, 8),)),
    "fft": Case(lambda m, x: torch.fft.rfft(x).abs(), (tensor(4, 9),)),
    "complex result": Case(lambda m, x: torch.fft.fft(x * 3), (tensor(4, 8).to(torch.complex64),)),
    "sort": Case(lambda m, x: tuple(torch.sort(x * 2, dim=0, stable=True)), (tensor(40, 8),)),
    "topk": Case(lambda m, x: tuple(torch.topk(x * 2, 3)), (tensor(40, 8),)),
    "embedding bag": Case(
        lambda m, i, o: F.embedding_bag(i, m.table, o, mode="max"),
        (torch.tensor([0, 1, 9, 3]), torch.tensor([0, 2])),
    ),
    "int8": Case(lambda m, x, y: torch._int_mm(x, y) + 1, (torch.arange(1024).view(32, 32).to(torch.int8),) * 2),
    "conv3d": Case(lambda m, x: F.conv3d(x, m.table.view(5, 1, 3, 2, 2), stride=2).relu(), (tensor(1, 1, 5, 8, 8),)),
    "masked select": Case(lambda m, x: torch.masked_select(x, x > 0).sin(), (tensor(4, 8),), (-tensor(4, 8),)),
    "nothing selected": Case(lambda m, x: torch.masked_select(x, x > 0).sin(), (tensor(4, 8),), (torch.zeros(4, 8),)),
    "selected rows": Case(
        lambda m, x: torch.softmax(F.linear(x[x[:, 0] > 0], m.table), 1), (tensor(9, 6),), (-tensor(9, 6),)
    ),
    "no selected rows": Case(
        lambda m, x: F.linear(x[x[:, 0] > 0], m.table).sum(0), (tensor(9, 6),), (torch.zeros(9, 6),)
    ),
    "nonzero": Case(lambda m, x: (x > 0).nonzero(), (tensor(4, 8),), (torch.eye(4, 8),)),
    "number": Case(lambda m, x: (x + 1, x.sum().item(), x.argmax().item()), (tensor(4, 8),)),
    "dynamic size": Case(lambda m, x: (x * 2, x.shape[0] * 3), (tensor(4, 8),), (tensor(9, 8),), ({0: BATCH},)),
    "quantile": Case(lambda m, x: torch.quantile(x, 0.25, dim=1), (tensor(6, 9),)),
    "inverse": Case(lambda m, x: torch.linalg.inv_ex(x @ x.mT + 3 * torch.eye(6))[0] * 2, (tensor(2, 6, 6),)),
    "strides": Case(lambda m, x: torch.linalg.qr(x)[1] + x[:1], (tensor(8, 5),), (tensor(5, 8).T,)),
    "no elements": Case(lambda m, x: (torch._int_mm(x, x[:0].T), x), (torch.ones(32, 32, dtype=torch.int8),)),
}  # fmt: skip


def run(
    program: Path, model: Path, arguments: tuple[torch.Tensor, ...]
) -> subprocess.CompletedProcess[bytes]:
    torch.save(list(arguments), model.parent / "inputs.pt")
    command = [program, model, model.parent / "inputs.pt", model.parent / "outputs.pt"]
    return subprocess.run(command, capture_output=True, timeout=60, env={}, check=False)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_programs_with_operators_agree_with_eager(program: Path, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    model = Weights(case.function)
    arguments = case.called or case.arguments
    shapes = {"dynamic_shapes": (case.dynamic,)} if case.dynamic else {}
    litz.aot_compile(model, case.arguments, path=tmp_path / "model.litz", **shapes)
    done = run(program, tmp_path / "model.litz", arguments)
    assert done.returncode == 0, done.stderr.decode()
    found = torch.load(tmp_path / "outputs.pt")
    expected = model(*arguments)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        if isinstance(wanted, torch.Tensor):
            assert got.stride() == wanted.stride() or 1 in wanted.shape or not wanted.numel()
            torch.testing.assert_close(got, wanted)
        else:
            assert got.shape == () and abs(got.item() - wanted) <= 1e-5 * abs(wanted)


def test_an_overwritten_input_of_other_strides(program: Path, tmp_path: Path) -> None:
    """The example saves results alone, so the program returns what it wrote."""
    model = Weights(lambda m, x: (x.index_put_((torch.tensor([1]),), m.table[0, :5]), x * 2)[1])
    litz.aot_compile(model, (tensor(8, 5),), path=tmp_path / "model.litz")
    done = run(program, tmp_path / "model.litz", (tensor(5, 8).T,))
    assert done.returncode == 0, done.stderr.decode()
    torch.testing.assert_close(torch.load(tmp_path / "outputs.pt")[0], model(tensor(5, 8).T.clone()))


def test_failures_name_the_operator(program: Path, tmp_path: Path) -> None:
    litz.aot_compile(
        Weights(lambda m, x: torch.linalg.svd(x)[1] + 1), (torch.eye(4),), path=tmp_path / "model.litz"
    )
    done = run(program, tmp_path / "model.litz", (torch.full((4, 4), torch.nan),))
    assert done.returncode == 1 and b"error 10" in done.stderr
    assert b"_linalg_svd" in done.stderr and b"non-finite" in done.stderr
    for wrong, words in (
        ((torch.eye(4).double(),), b"Float"),
        ((torch.eye(4)[0],), b"2 dimensions, not 1"),
        ((torch.eye(3),), b"4"),
        ((), b"1 tensors, not 0"),
    ):
        refused = run(program, tmp_path / "model.litz", wrong)
        assert refused.returncode == 1 and b"error 8" in refused.stderr and words in refused.stderr


def test_an_operator_that_is_not_registered(program: Path, tmp_path: Path) -> None:
    with torch.library._scoped_library("litz_deploy_test", "DEF") as library:
        library.define("mine(Tensor x) -> Tensor")
        library.impl("mine", lambda x: x.cos(), "CompositeExplicitAutograd")
        model = Weights(lambda m, x: torch.ops.litz_deploy_test.mine(x) + 1)
        litz.aot_compile(model, (tensor(4),), path=tmp_path / "model.litz")
    done = run(program, tmp_path / "model.litz", (tensor(4),))
    assert done.returncode == 1 and b"error 6" in done.stderr and b"litz_deploy_test.mine" in done.stderr
