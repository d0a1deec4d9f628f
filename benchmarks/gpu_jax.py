"""Compare litz and `jax.jit` on memory-bound programs on the NVIDIA GPU at hand: `python benchmarks/gpu_jax.py`.

Five programs of `gpu_cases.py` are written once more in JAX and read the same memory. Both are timed in one process, by
turns: a round is a run of calls that the host starts without waiting, and one wait for the last of them, divided by the
number of calls. The table has the median of the rounds, and the bytes of inputs and outputs divided by it, next to the
rate of a copy. Exit code 1 where a result of JAX differs from litz's by more than bf16 rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the memory is torch's too

import jax
import jax.numpy as jnp
import torch
import torch.utils.dlpack
from gpu import copy_rate
from gpu_cases import LARGE
from jax import Array
from models import relative_error, tensors
from rich.console import Console
from rich.table import Table
from torch import Tensor

ROUNDS, CALLS = 15, 20
BOUND = 2e-2  # bf16 rounds to eight bits


def gelu_chain(x: Array, y: Array) -> Array:
    """GELU and other functions of single elements."""
    return jnp.tanh(jax.nn.gelu(x, approximate=False) * y) + jnp.sqrt(jax.nn.sigmoid(x))


def softmax(x: Array) -> Array:
    """Softmax of each row."""
    return jax.nn.softmax(x, axis=-1)


def layer_norm(x: Array, y: Array, scale: Array, shift: Array) -> Array:
    """Layer norm of a sum."""
    total = x + y
    centred = total - total.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + shift


def rms_norm(x: Array, scale: Array) -> Array:
    """RMS norm in f32, between casts from and to bf16."""
    wide = x.astype(jnp.float32)
    return scale * (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def statistics_of_columns(x: Array) -> tuple[Array, Array, Array]:
    """Mean, variance and maximum of each column."""
    return x.mean(0), x.var(0, ddof=1), x.max(0)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "GELU chain": gelu_chain,
    "softmax of long rows": softmax,
    "layer norm with residual": layer_norm,
    "bf16 RMS norm": rms_norm,
    "statistics of columns": statistics_of_columns,
}
"""Programs in JAX, by the names that `gpu_cases.LARGE` gives them."""


def seconds(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """Return the seconds of a call, by a run of them and one wait."""
    start = time.perf_counter()
    for _ in range(CALLS):
        found = call()
    wait(found)
    return (time.perf_counter() - start) / CALLS


def measure(name: str) -> dict[str, Any]:
    """Measure a program under litz and JAX."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    program, args = LARGE[name]()
    compiled, other = torch.compile(program, backend="litz"), jax.jit(PROGRAMS[name])
    given = [jnp.from_dlpack(each) for each in args if isinstance(each, Tensor)]
    with torch.no_grad():
        found = list(tensors(compiled(*args)))
        expected = [torch.utils.dlpack.from_dlpack(each) for each in jax.tree.leaves(other(*given))]
        row: dict[str, Any] = {"case": name, "error": relative_error(found, expected)}
        row["bytes"] = sum(each.nbytes for each in (*args, *found))
        calls = {
            "litz": (lambda: compiled(*args), lambda _: torch.cuda.synchronize()),
            "jax": (lambda: other(*given), jax.block_until_ready),
        }
        for call, wait in calls.values():
            seconds(call, wait)
        rounds = [{key: seconds(*each) for key, each in calls.items()} for _ in range(ROUNDS)]
    return row | {key: statistics.median(each[key] for each in rounds) for key in calls}


def main() -> int:
    """Measure all programs, and print their table."""
    if not torch.cuda.is_available():
        print("no NVIDIA GPU here", file=sys.stderr)
        return 2
    rate = copy_rate()
    shown = Table("case", "JAX ms", "litz ms", "litz over JAX", "JAX of a copy", "litz of a copy")
    wrong = []
    for name in PROGRAMS:
        row = measure(name)
        print(json.dumps(row), flush=True)
        shares = (f"{row['bytes'] / row[key] / rate:.0%}" for key in ("jax", "litz"))
        times = (f"{1e3 * row[key]:.3f}" for key in ("jax", "litz"))
        shown.add_row(name, *times, f"{row['jax'] / row['litz']:.2f}", *shares)
        wrong += [name] if not row["error"] <= BOUND else []
    Console(width=120).print(shown)
    print("not right:", ", ".join(wrong) or "none")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
