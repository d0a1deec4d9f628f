"""Modules, files and programs that a first call loads and starts, observed in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

FOREIGN = ("rich", "jinja2", "litz_codegen_triton")
"""Modules that compiling for a CPU does not load; torch itself loads sympy, NumPy and Triton."""

OWN_MODULES = 22
"""Modules of litz that `import litz` may load: each takes about half a millisecond."""

STAGES = (
    "litz_lowering.rules", "litz_lowering.driver", "litz_scheduler.pipeline", "litz_scheduler.fusion",
    "litz_codegen_cpp.emit.kernel",
)  # fmt: skip
"""Modules that a graph from the cache needs nothing of; with what they import they are half of litz's."""

PROGRAM = """
import json, os, sys
import torch
from torch import nn

events = []
WATCHED = ("open", "subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.system", "os.listdir",
           "os.scandir", "ctypes.dlopen")

def watch(name, args):
    if name in WATCHED:
        events.append((name, str(args[0])))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))
compiled = torch.compile(model, backend="litz")
x = torch.randn(4, 16)
sys.addaudithook(watch)
if {train}:
    compiled(x).sum().backward()
else:
    with torch.no_grad():
        compiled(x)
seen = list(events)
print(json.dumps({{"events": seen, "modules": sorted(sys.modules)}}))
"""


@dataclass(frozen=True)
class Seen:
    """Observations of a process during its first call: audit events, and the modules loaded by then."""

    events: list[tuple[str, str]]
    modules: set[str]

    def of(self, *names: str) -> list[str]:
        """Return the first arguments of the events of these names."""
        return [what for name, what in self.events if name in names]


def first_call(folder: Path, *, train: bool) -> Seen:
    """Run the first call of a small model in a process of its own."""
    command = [sys.executable, "-c", PROGRAM.format(train=train)]
    environment = {**os.environ, "LITZ_CACHE_DIR": str(folder), "LITZ_FALLBACK": "error", "LITZ_VERIFY": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return Seen([(name, what) for name, what in found["events"]], set(found["modules"]))


STARTED = ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.system")


@pytest.mark.parametrize("train", [False, True])
def test_first_calls(tmp_path: Path, train: bool) -> None:
    cold, warm = (first_call(tmp_path / "cache", train=train) for _ in range(2))
    for seen in (cold, warm):
        loaded = {name for name in FOREIGN if name in seen.modules}
        assert not loaded, "needed by nobody who compiles"
        assert "torch._inductor.ir" not in seen.modules, (
            "torch's own compiler, which takes longer to load than litz"
        )
    assert {*STAGES} <= cold.modules
    assert not {*STAGES, "litz_ir.interp", "litz_ir.host.executor"} & warm.modules
    assert cold.of(*STARTED), "the watch sees the compiler where there is one"
    assert warm.of(*STARTED) == []
    assert [what for what in warm.of("os.listdir", "os.scandir") if str(tmp_path) in what] == []
    opened = [what for what in warm.of("open") if str(tmp_path) in what]
    graphs = 2 if train else 1
    # A capture, plans and binaries, each with its manifest; each file is read once.
    assert len(opened) == len(set(opened)) <= 2 + graphs * 6
    libraries = [what for what in warm.of("ctypes.dlopen") if str(tmp_path) in what]
    assert len(libraries) == graphs


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in addition to those of torch's compiler stack."""
    code = f"import sys, torch, torch._dynamo, torch._functorch.aot_autograd\nbefore = set(sys.modules)\n{statement}"
    code += "\nprint(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return set(done.stdout.split())


def test_importing_litz_loads_little() -> None:
    loaded = loaded_by("import litz.backend")
    packages = {name.partition(".")[0] for name in loaded}
    own = {name for name in loaded if name.startswith("litz")}
    assert packages - {"numpy", "torch", "platformdirs", "wrapt"} <= {name.partition(".")[0] for name in own}
    assert not {name for name in loaded if name.startswith("torch._inductor")}
    assert len(own) <= OWN_MODULES, f"{len(own)} modules of litz"
    assert not {name for name in own if name.startswith(("litz_ir.target.cases", "litz_ir.text"))}


def test_importing_litz_does_not_import_dynamo() -> None:
    code = (
        "import sys, torch, litz; print('torch._dynamo' in sys.modules); "
        "import torch._dynamo; print('litz' in torch._dynamo.list_backends())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["False", "True"]
