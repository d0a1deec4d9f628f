"""First compilations in several threads at once, and the registration of the backend's name with torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tree_metadata import PACKAGES, manifests, write_metadata

pytestmark = pytest.mark.sampled  # it compiles whole programs

THREADS = """
import sys, threading
import torch
import litz

barrier, failures = threading.Barrier(8), []

def shared(x):
    return torch.softmax((x @ x).sin() + 1, -1).sum(0)

def work(k):
    own = lambda x: (x * (k + 1)).tanh().sum(1) + k
    x = torch.randn(8 + k % 4, 8 + k % 4, requires_grad=k % 2 == 1)
    barrier.wait()
    try:
        for function in (shared, own):
            result = torch.compile(function, backend="litz", dynamic=False)(x)
            torch.testing.assert_close(result, function(x))
            if x.requires_grad:
                mine, = torch.autograd.grad(result.sum(), x)
                torch.testing.assert_close(mine, torch.autograd.grad(function(x).sum(), x)[0])
    except BaseException as error:
        failures.append(f"{type(error).__name__}: {error}")

threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
"""

BY_NAME = """
import sys
import torch
assert "litz" in torch._dynamo.list_backends()
assert not {name.partition(".")[0] for name in sys.modules} & {"litz", "litz_ir"}, "listing imports nothing"
compiled = torch.compile(lambda x: x.sin() + 1, backend="litz")
x = torch.ones(4)
torch.testing.assert_close(compiled(x), x.sin() + 1)
import litz
assert litz.explain(lambda x: x.sin() + 1, x).kernels
torch._dynamo.reset()
torch.testing.assert_close(compiled(x), x.sin() + 1)
torch.testing.assert_close(torch.compile(lambda x: x.cos(), backend="litz", options={"fuse": False})(x), x.cos())
"""

AFTER_LISTING = """
import torch
torch._dynamo.list_backends()
import litz
from torch._dynamo.backends.registry import lookup_backend
assert lookup_backend("litz") is litz.backend.litz
assert "litz" in torch._dynamo.list_backends()
x = torch.ones(4)
torch.testing.assert_close(torch.compile(lambda x: x.cos(), backend="litz")(x), x.cos())
"""

OLDER = """
import torch
x = torch.ones(4)
torch.testing.assert_close(torch.compile(lambda x: x.cos(), backend="litz")(x), x.cos())
import litz
torch.testing.assert_close(torch.compile(lambda x: x.sin(), backend="litz")(x), x.sin())
"""


def run(program: str, folder: Path, entry: str = "") -> None:
    """Run a program in a process that finds the packages by the metadata of this tree; ``entry`` is another value of
    the entry point."""
    metadata = folder / "metadata"
    for project in manifests(PACKAGES).values():
        write_metadata(project, metadata)
    if entry:
        (path,) = metadata.glob("litz-*.dist-info/entry_points.txt")
        path.write_text(path.read_text().replace("litz_backend:litz", entry))
    search = os.pathsep.join([str(metadata), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ, "PYTHONPATH": search, "LITZ_CACHE_DIR": str(folder / "cache"), "LITZ_FALLBACK": "error",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=170, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_the_first_compilations_are_in_eight_threads(tmp_path: Path) -> None:
    run(THREADS, tmp_path)  # on an empty cache
    run(THREADS, tmp_path)


def test_a_program_that_does_not_import_litz(tmp_path: Path) -> None:
    run(BY_NAME, tmp_path)


def test_an_import_after_torch_has_found_the_entry_point(tmp_path: Path) -> None:
    run(AFTER_LISTING, tmp_path)


def test_the_metadata_of_an_older_installation(tmp_path: Path) -> None:
    run(OLDER, tmp_path, "litz.backend:litz")
