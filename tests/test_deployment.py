"""Models for deployment: `litz.aot_compile` in one process, `litz.load` in another, against eager."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deployed_models
import pytest
import torch
from deployed_models import CASES, Counted

import litz
from litz_ir.errors import ArtifactError

pytestmark = pytest.mark.sampled  # it compiles whole programs

PROCESS = Path(deployed_models.__file__)


def in_a_new_process(folder: Path) -> dict[str, Any]:
    """Load the model of a folder, and compare its calls with eager's, in a process with an empty cache."""
    environment = {**os.environ, "LITZ_CACHE_DIR": str(folder / "no-cache")}
    command = [sys.executable, str(PROCESS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (folder / "no-cache").exists(), "a process that loads compiles nothing"
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_new_process_calls_a_model_as_eager_does(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    pytest.importorskip(case.needs)
    torch.manual_seed(0)
    model = case.make()
    args, kwargs = case.arguments(case.sizes[0])
    with litz.config.patch(fallback="error"), torch.no_grad():
        program = torch.export.export(model, args, kwargs, dynamic_shapes=case.dynamic_shapes)
        litz.aot_compile(program, path=tmp_path / "elsewhere" / "model.litz")
    (tmp_path / "elsewhere").rename(tmp_path / "here")
    calls = []
    with torch.no_grad():
        for size in case.sizes:
            args, kwargs = case.arguments(size)
            before = copy.deepcopy((args, kwargs))
            expected = copy.deepcopy(model(*args, **kwargs))
            calls.append((*before, expected, (args, kwargs)))
    torch.save(calls, tmp_path / "here" / "calls.pt")
    torch.save(dict(model.state_dict()), tmp_path / "here" / "state.pt")
    seen = in_a_new_process(tmp_path / "here")
    assert seen["calls"] == len(case.sizes)
    # The scheduler's options are part of litz.config; its passes are not loaded.
    assert set(seen["loaded"]) <= {"litz_scheduler", "litz_scheduler.options"}


def counted(tmp_path: Path) -> tuple[Any, Any]:
    """Return the model with buffers, and its loaded form."""
    torch.manual_seed(0)
    model = Counted()
    args, kwargs = CASES["counted"].arguments(4)
    shapes = CASES["counted"].dynamic_shapes
    path = litz.aot_compile(model, args, kwargs, dynamic_shapes=shapes, path=tmp_path / "model.litz")
    return model, litz.load(path)


def test_results_share_memory_as_eager_s_do(tmp_path: Path) -> None:
    _, loaded = counted(tmp_path)
    (x,), kwargs = CASES["counted"].arguments(6)
    result = loaded(x, **kwargs)
    assert result["views"][1] is kwargs["state"]["sum"]
    assert result["views"][0].data_ptr() == x.data_ptr() and result["views"][0].stride() == (1, 8)
    assert result["name"] == "litz" and result["none"] is None
    inputs = {each["name"]: each for each in loaded.manifest["entry_points"]["forward"]["inputs"]}
    assert inputs["state['sum']"]["overwritten"] and not inputs["x"]["overwritten"]
    outputs = loaded.manifest["entry_points"]["forward"]["outputs"]
    assert [each["alias_of"] for each in outputs] == [None, 0, 1]


REFUSED = {
    "dtype": ("x of .* is torch.float32 of .* got torch.float64", lambda x, s: ((x.double(),), s)),
    "rank": (r"x of .* got torch.float32 of \(4,\)", lambda x, s: ((x[:, 0].contiguous(),), s)),
    "strides": (r"x of .* with strides \(8, 1\) .* strides \(1, 4\)", lambda x, s: ((torch.randn(8, 4).t(),), s)),
    "width": (r"x of .* got torch.float32 of \(4, 9\)", lambda x, s: ((torch.randn(4, 9),), s)),
    "too few": ("sizes 2 to 64, got 1 in dimension 0 of argument x", lambda x, s: ((x[:1],), s)),
    "too many": ("sizes 2 to 64, got 65 in dimension 0 of argument x", lambda x, s: ((torch.randn(65, 8),), s)),
    "device": ("x of .* on cpu, got .* on meta", lambda x, s: ((x.to("meta"),), s)),
    "number": ("x of .* got int", lambda x, s: ((3,), s)),
    "nested": (r"sum'\] of .* is torch.float32 of \(8\).* got torch.float32 of \(9,\)",
               lambda x, s: ((x,), {**s, "state": {"sum": torch.randn(9)}})),
    "tree": ("takes arguments of the form .*'sum'.*, got", lambda x, s: ((x,), {**s, "state": [x]})),
    "missing": ("takes arguments of the form", lambda x, s: ((), s)),
    "constant": ("name of .* is 'litz', got 'other'", lambda x, s: ((x,), {**s, "name": "other"})),
    "overlap": (r"overwrites state\['sum'\], whose memory x shares",
                lambda x, s: ((x,), {**s, "state": {"sum": x[0]}})),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_arguments_are_refused_by_their_names(name: str, tmp_path: Path) -> None:
    _, loaded = counted(tmp_path)
    message, change = REFUSED[name]
    (x,), kwargs = CASES["counted"].arguments(4)
    args, kwargs = change(x, kwargs)
    with pytest.raises(ArtifactError, match=message):
        loaded(*args, **kwargs)
    assert loaded.state_dict()["calls"] == 0, "nothing was executed"


def test_arguments_by_position_or_by_name(tmp_path: Path) -> None:
    def function(x: torch.Tensor, scale: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
        return x * scale + shift

    x, scale, shift = torch.randn(4, 3), torch.randn(3), torch.randn(3)
    path = litz.aot_compile(function, (x, scale), {"shift": shift}, path=tmp_path / "model.litz")
    loaded, expected = litz.load(path), function(x, scale, shift=shift)
    torch.testing.assert_close(loaded(x, scale, shift=shift), expected)
    torch.testing.assert_close(loaded(shift=shift, scale=scale, x=x), expected)
    with pytest.raises(ArtifactError, match="takes arguments of the form"):
        loaded(x, scale, scale=scale, shift=shift)


def test_sizes_with_relations(tmp_path: Path) -> None:
    half = torch.export.Dim("half", min=2, max=16)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2, 4).sum(1) + y

    shapes = {"x": {0: 2 * half}, "y": {0: half}}
    path = tmp_path / "model.litz"
    litz.aot_compile(function, (torch.randn(8, 4), torch.randn(4, 4)), dynamic_shapes=shapes, path=path)
    loaded = litz.load(path)
    x, y = torch.randn(20, 4), torch.randn(10, 4)
    torch.testing.assert_close(loaded(x, y), function(x, y))
    with pytest.raises(ArtifactError, match=r"x of .* got torch.float32 of \(18, 4\)"):
        loaded(x[:18], y)


def test_sizes_that_are_terms(tmp_path: Path) -> None:
    """Arguments whose sizes have no symbol of their own are checked too."""
    half = torch.export.Dim("half", min=2, max=5)

    def pairs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).view(-1, 2).sum(1)

    shapes = {"x": {0: 2 * half}, "y": {0: 2 * half}}
    path = tmp_path / "model.litz"
    args = torch.ones(6), torch.ones(6)
    model = litz.load(litz.aot_compile(pairs, args, dynamic_shapes=shapes, path=path))
    for size in (4, 6, 10):
        x, y = torch.randn(size), torch.randn(size)
        torch.testing.assert_close(model(x, y), pairs(x, y))
    for sizes in ((5, 5), (2, 2), (12, 12), (0, 0), (8, 4), (4, 8)):
        with pytest.raises(ArtifactError, match=r"argument [xy]|sizes 2 to 5, got \d+ for .* of argument x"):
            model(*map(torch.ones, sizes))


def test_sizes_that_are_sums(tmp_path: Path) -> None:
    longer = torch.export.Dim("longer", min=3, max=9)
    model = litz.load(
        litz.aot_compile(
            lambda x: x[1:] * x[0],
            (torch.ones(6),),
            dynamic_shapes={"x": {0: longer + 1}},
            path=tmp_path / "m",
        )
    )
    for size in (4, 10):
        x = torch.randn(size)
        torch.testing.assert_close(model(x), x[1:] * x[0])
    for size in (3, 11):
        with pytest.raises(ArtifactError, match="sizes 3 to 9"):
            model(torch.ones(size))
