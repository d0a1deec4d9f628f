"""Time matmuls of few rows, as of a language model's decode, against a copy: `python benchmarks/decode.py`.

A program multiplies one small input with the weights of several equal layers, so that every call reads as much memory
as a model does. All backends and a copy of as many bytes take turns in one process; a row of the table has the least
time of each as GB/s over the weights as they are in memory, and litz's rate over that of the copy, which counts bytes
read and written. `--prepare` compiles alone, to fill caches before a run that is timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SHAPES = ((2048, 5632), (4096, 4096), (768, 3072), (768, 50257))
ROWS = (1, 2, 4, 8)
GROUP = 128  # elements of a row that share a scale
MOST_LAYERS = 24
Layer = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to spell a matmul with weights of N rows and K columns, and the weights it takes."""

    dtype: torch.dtype
    layer: Layer
    weights: Callable[[int, int, torch.dtype], tuple[Tensor, ...]]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return a matmul with plain weights."""
    return F.linear(x, weight)


def swiglu(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Return a gated matmul."""
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def int8_linear(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return a matmul with int8 weights and a scale for each of its columns."""
    return F.linear(x, weight.to(x.dtype)) * scales


def int8_operator(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return the same by torch's operator."""
    return torch._weight_int8pack_mm(x, weight, scales)


def int4_linear(x: Tensor, pairs: Tensor, scales: Tensor) -> Tensor:
    """Return a matmul with two weights in each byte and a scale for each group of them."""
    low, high = (pairs & 15).to(torch.int8) - 8, (pairs >> 4).to(torch.int8) - 8
    weight = torch.stack((low, high), -1).view(pairs.shape[0], -1, GROUP)
    return F.linear(x, (weight.to(x.dtype) * scales[..., None]).view(pairs.shape[0], -1))


def int4_operator(x: Tensor, pairs: Tensor, scales: Tensor) -> Tensor:
    """Return the same by torch's operator, in its own form of weights."""
    result: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, pairs, GROUP, scales)
    return result


def int8_dynamic(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return a matmul of int8 weights with rows that are quantised, each by its largest element, as it runs."""
    step = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    quantised = (x / step).round().clamp(-127, 127).to(torch.int8)
    return torch._int_mm(quantised, weight.t()).to(x.dtype) * step * scales


def plain_weights(k: int, n: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return one matrix."""
    return (torch.randn(n, k).to(dtype),)


def gated_weights(k: int, n: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return two matrices."""
    return (*plain_weights(k, n, dtype), *plain_weights(k, n, dtype))


def int8_weights(k: int, n: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return int8 weights and scales."""
    return torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n).to(dtype)


def int4_weights(k: int, n: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return weights of four bits, two in a byte, and scales of groups."""
    return torch.randint(0, 256, (n, k // 2), dtype=torch.uint8), torch.rand(n, k // GROUP).to(dtype)


def int4_operator_weights(k: int, n: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return weights in the form of torch's operator, with scales and zeros of groups."""
    own = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        torch.randint(0, 16, (n, k), dtype=torch.int32), 1
    )
    return own, torch.rand(k // GROUP, n, 2).to(dtype)


KINDS = {
    "f32": Kind(torch.float32, linear, plain_weights),
    "bf16": Kind(torch.bfloat16, linear, plain_weights),
    "bf16 swiglu": Kind(torch.bfloat16, swiglu, gated_weights),
    "int8 f32": Kind(torch.float32, int8_linear, int8_weights),
    "int8 bf16": Kind(torch.bfloat16, int8_linear, int8_weights),
    "int8 operator": Kind(torch.bfloat16, int8_operator, int8_weights),
    "int8 dynamic": Kind(torch.float32, int8_dynamic, int8_weights),
    "int4 f32": Kind(torch.float32, int4_linear, int4_weights),
    "int4 bf16": Kind(torch.bfloat16, int4_linear, int4_weights),
    "int4 operator": Kind(torch.bfloat16, int4_operator, int4_operator_weights),
}


def nbytes(layers: Sequence[tuple[Tensor, ...]]) -> int:
    """Return the bytes of all weights."""
    return sum(each.numel() * each.element_size() for layer in layers for each in layer)


def least_seconds(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Return the least time of each call; they take turns for at least so many seconds in all.

    On one thread it is CPU time, in which other processes of a busy machine do not count.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
        rounds += 1
    return best


def program(layer: Layer) -> Callable[..., list[Tensor]]:
    """Return a program of equal layers."""

    def run(x: Tensor, layers: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
        return [layer(x, *weights) for weights in layers]

    return run


def compiled(run: Callable[..., list[Tensor]], backend: str) -> Callable[..., list[Tensor]]:
    """Return a program compiled by a backend; `litz-calls` is litz with library calls for all matmuls."""
    if backend == "eager":
        return run
    options: dict[str, Any] | None = {"force": "few_rows_bytes=0"} if backend == "litz-calls" else None
    return torch.compile(run, backend=backend.removesuffix("-calls"), dynamic=False, options=options)


def measure(
    kind: Kind, rows: int, shape: tuple[int, int], backends: Sequence[str], mib: int, seconds: float
) -> tuple[dict[str, float], int, float]:
    """Return the least seconds of every backend and of a copy, the bytes of the weights, and litz's error."""
    k, n = shape
    torch.manual_seed(0)
    first = kind.weights(k, n, kind.dtype)
    count = max(1, min(MOST_LAYERS, (mib << 20) // nbytes([first])))
    layers = [first, *(kind.weights(k, n, kind.dtype) for _ in range(count - 1))]
    x = torch.randn(rows, k).to(kind.dtype)
    run = program(kind.layer)
    torch._dynamo.reset()
    made = {name: compiled(run, name) for name in backends}
    expected = run(x, layers)[0].float()
    error = 0.0
    for name, call in made.items():
        found = call(x, layers)[0].float()
        if name == "litz":
            error = float((found - expected).norm() / expected.norm())
    source = torch.ones(nbytes(layers) // 2, dtype=torch.uint8)
    target = torch.empty_like(source)
    calls: dict[str, Callable[[], object]] = {"copy": lambda: target.copy_(source)}
    for name, call in made.items():
        calls[name] = partial(call, x, layers)
    best = least_seconds(calls, seconds) if seconds else dict.fromkeys(calls, float("inf"))
    return best, nbytes(layers), error


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--shapes", default=",".join(f"{k}x{n}" for k, n in SHAPES))
    parser.add_argument("--backends", default="eager,inductor,litz")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--mib", type=int, default=128, help="memory of the weights of a program, at most 24 layers"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each row")
    parser.add_argument("--prepare", action="store_true", help="compile, and time nothing")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    backends = given.backends.split(",")
    print("| weights | K x N | M | copy | " + " | ".join(backends) + " | litz over copy | error |")
    print("|---" * (6 + len(backends)) + "|")
    shapes = [(int(k), int(n)) for k, n in (each.split("x") for each in given.shapes.split(","))]
    with torch.no_grad():
        for name in given.kinds.split(","):
            for shape in shapes:
                for rows in map(int, given.rows.split(",")):
                    seconds = 0.0 if given.prepare else given.seconds
                    best, total, error = measure(KINDS[name], rows, shape, backends, given.mib, seconds)
                    rates = [f"{total / best[each] / 1e9:.2f}" for each in ("copy", *backends)]
                    over = (
                        f"{best['copy'] / best['litz']:.2f}" if "litz" in best and not given.prepare else ""
                    )
                    cells = [name, f"{shape[0]} x {shape[1]}", str(rows), *rates, over, f"{error:.1e}"]
                    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
