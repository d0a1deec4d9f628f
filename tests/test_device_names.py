"""The lint refuses the name of a device kind outside the modules that own it."""

from __future__ import annotations

import pytest
from device_names import ROOT, is_owner, main, names_in


@pytest.mark.parametrize(
    "source",
    [
        'on_gpu = device.kind == "cuda"',
        'KINDS = ("cpu", "cuda")',
        'there = torch.device(f"cuda:{ordinal}")',
        'there = "cuda:1"',
        "now = torch.cuda.current_device()",
        "from torch.cuda import current_device",
        "from torch import cuda",
        "def f(stream: torch.cuda.Stream) -> None: ...",
    ],
)
def test_names_of_the_kind_are_found(source: str) -> None:
    assert [line for line, _ in names_in(f"import torch\n{source}\n")] == [2]


@pytest.mark.parametrize(
    "source",
    [
        '"""A device kind, such as ``cuda`` or "cuda:1"."""',
        'options = {"cuda_graphs": True}',
        "on_gpu = capabilities.is_gpu",
        'setting = "torch.backends.cuda.matmul.fp32_precision"',
    ],
)
def test_other_uses_of_the_word_are_left_alone(source: str) -> None:
    assert list(names_in(source)) == []


def test_owners_exist_and_name_the_kind() -> None:
    assert is_owner("packages/codegen-triton/src/litz_codegen_triton/target.py")
    assert not is_owner("packages/frontend/src/litz/devices.pyi")
    assert list(names_in((ROOT / "packages/frontend/src/litz/devices.py").read_text(encoding="utf-8")))


def test_sources_name_it_nowhere_else() -> None:
    assert main() == 0
