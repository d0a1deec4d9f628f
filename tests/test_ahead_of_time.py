"""Graphs that torch serialises with the code around them: `aot_compile`, and packages of `caching_precompile`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from counted_stages import COUNTED_STAGES

from litz.standalone.ahead_of_time import SerializableGraph
from litz_ir.errors import ArtifactError

PROGRAM = (
    COUNTED_STAGES
    + """
import json, sys
from pathlib import Path
import torch
import torch._dynamo.config
import litz
from torch._dynamo.utils import counters

mode, folder = sys.argv[1], Path(sys.argv[2])

def infer(x, w):
    return torch.softmax(x @ w, -1).sum(0) * x.shape[0]

def train(x, w):
    return (x @ w).tanh().pow(2).mean()

x, w = torch.linspace(-1, 1, 48).reshape(6, 8), torch.linspace(0, 1, 40).reshape(8, 5)

def check(called, function):
    inputs = [each.clone().requires_grad_(function is train) for each in (x, w)]
    result, expected = called(*inputs), function(*inputs)
    torch.testing.assert_close(result, expected)
    if function is train:
        grads = [torch.autograd.grad(each, inputs) for each in (result, expected)]
        torch.testing.assert_close(*grads)

# Saved by the program: a function that was compiled with its guards.
for function, dynamic in ((infer, None), (infer, True), (train, None)):
    path = folder / f"{function.__name__}_{dynamic}"
    inputs = [each.clone().requires_grad_(function is train) for each in (x, w)]
    if mode == "save":
        called = torch.compile(function, fullgraph=True, backend="litz", dynamic=dynamic).aot_compile((inputs, {}))
        called.save_compiled_function(str(path))
    else:
        with path.open("rb") as file:
            called = torch.compiler.load_compiled_function(file)
    check(called, function)
    if dynamic:
        # torch 2.13's guards of such functions refuse other sizes, whatever the backend.
        called.disable_guard_check()
        larger = torch.randn(9, 8)
        torch.testing.assert_close(called(larger, w), infer(larger, w))

# Saved by torch, in its mega-cache: whatever Dynamo compiles.
with torch._dynamo.config.patch(caching_precompile=True):
    path = folder / "packages"
    if mode == "load":
        torch.compiler.load_cache_artifacts(path.read_bytes())
    for function in (infer, train):
        check(torch.compile(function, backend="litz"), function)
    if mode == "save":
        data, info = torch.compiler.save_cache_artifacts()
        assert len(info.precompile_artifacts) == 2, info
        path.write_bytes(data)

counts.update(traced=counters["aot_autograd"]["total"], captured=counters["stats"]["unique_graphs"])
print(json.dumps({**counts, "graphs": counters["litz"]["graphs"]}))
"""
)


def run(mode: str, folder: Path) -> dict[str, Any]:
    """Save functions in a process, or load them in one; both without litz's cache."""
    inductor = str(folder / f"inductor_{mode}")
    environment = {**os.environ, "LITZ_CACHE": "0", "TORCHINDUCTOR_CACHE_DIR": inductor}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, mode, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.timeout(400)
def test_a_second_process_captures_traces_and_compiles_nothing(tmp_path: Path) -> None:
    first = run("save", tmp_path)
    assert min(first.values()) > 0 and first["graphs"] == 7
    second = run("load", tmp_path)
    graphs = second.pop("graphs")
    assert graphs == first["graphs"] and second == dict.fromkeys(second, 0)


@pytest.mark.parametrize(
    ("function", "dynamic", "reason"),
    [
        (lambda x: x.sin().sum(0), True, "training graph"),
        (lambda x: x[1:], None, "a view of an argument that needs gradients"),
    ],
)
def test_a_function_that_cannot_be_saved_says_why(
    function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool | None, reason: str
) -> None:
    compiled: Any = torch.compile(function, fullgraph=True, backend="litz", dynamic=dynamic)
    with pytest.raises(ArtifactError, match=f"cannot be compiled ahead of time: .*{reason}"):
        compiled.aot_compile(((torch.ones(4, 3, requires_grad=True),), {}))


def test_damaged_bytes_are_refused() -> None:
    with pytest.raises(ArtifactError, match="is not a saved artifact"):
        SerializableGraph.deserialize_compile_artifacts(b"\x80\x04damaged")
