"""Judges the vector maths: `nox -s maths -- --functions exp,log --inputs 2^32`.

Each function runs over its inputs in blocks; a block's row goes to one JSON Lines file, so that a run that was stopped
goes on where it was with the same `--out`, as long as the function's machine code is the same. Exit code
1 when one lies further from the exact value than its bound, or has other specials than eager.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch

from litz_codegen_cpp.toolchain.isa import detect
from maths.eager import eager
from maths.functions import DTYPES, FUNCTIONS, DType, Function
from maths.inputs import CHUNK, chunk
from maths.programs import Reference, Subject, reference, subject
from maths.report import HEADER, as_table, summary, write_results
from maths.rows import Row
from maths.tally import Tally, added

BLOCK = 64
"""Chunks in a row: 2^24 inputs."""
EAGER_EVERY = 16
"""Eager runs on one chunk of as many, the first included, which holds all zeros and infinities."""


def run_block(subject: Subject, judge: Reference, isa: str, block: int, chunks: int) -> Row:
    """Judge ``chunks`` chunks from ``block * BLOCK`` on."""
    function, dtype = subject.function, subject.dtype
    began = time.perf_counter()
    found: dict[str, list[Tally]] = {"litz": [], "eager": [], "kinds": []}
    for number in range(block * BLOCK, block * BLOCK + chunks):
        a, b = chunk(function, dtype, number)
        got, want = subject.values(a, b), judge.exact(function, dtype, a, b)
        found["litz"].append(judge.judge(dtype, a, b, got, want))
        if number % EAGER_EVERY == 0:
            other = eager(function, a, b)
            found["eager"].append(judge.judge(dtype, a, b, other, want))
            found["kinds"].append(judge.compare_kinds(dtype, a, b, got, other))
    tallies = {name: added(each) for name, each in found.items()}
    seconds = round(time.perf_counter() - began, 2)
    return Row(function.name, dtype, isa, subject.code, block, chunks, **tallies, seconds=seconds)


def blocks(inputs: int) -> list[tuple[int, int]]:
    """The blocks of ``inputs`` inputs, and how many chunks each has."""
    total = max(inputs // CHUNK, 1)
    return [(block, min(BLOCK, total - block * BLOCK)) for block in range(-(-total // BLOCK))]


def run_function(
    function: Function, dtype: DType, chosen: argparse.Namespace, judge: Reference, before: Sequence[Row]
) -> list[Row]:
    """Run what is left of a function, append its rows to the file, and return all of them."""
    made = subject(function, dtype, chosen.isa, chosen.out.parent)
    key = (function.name, dtype, chosen.isa, made.code)
    wanted = blocks(chosen.inputs)
    done = {
        (row.block, row.chunks): row
        for row in before
        if (row.function, row.dtype, row.isa, row.code) == key and (row.block, row.chunks) in wanted
    }
    rows = list(done.values())
    with open(chosen.out, "a", encoding="utf-8") as out, ThreadPoolExecutor(chosen.threads) as pool:
        todo = (each for each in wanted if each not in done)
        for row in pool.map(lambda each: run_block(made, judge, chosen.isa, *each), todo):
            rows.append(row)
            out.write(json.dumps(asdict(row)) + "\n")
            out.flush()
    return rows


def number(text: str) -> int:
    """A number such as ``65536`` or ``2^16``."""
    base, _, power = text.partition("^")
    return int(int(base) ** int(power or 1))


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--functions", type=lambda text: text.split(","), default=list(FUNCTIONS), help="names, by commas"
    )
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=list(DTYPES))
    parser.add_argument("--inputs", type=number, default=1 << 24, help="how many; 2^32 are all floats")
    parser.add_argument("--isa", default=detect().name, help="instruction set: avx512, avx2, scalar, neon")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/maths/maths.jsonl"),
        help="rows of results; an old file is gone on with",
    )
    parser.add_argument("--results", type=Path, help="also write this file of JSON")
    return parser.parse_args()


def main() -> int:
    """Run the functions and print what they gave; the exit code."""
    chosen = options()
    torch.set_num_threads(1)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    judge = reference(chosen.out.parent)
    before = [Row.read(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    lines = []
    print(HEADER)
    for name in chosen.functions:
        for dtype in chosen.dtypes:
            function = FUNCTIONS[name]
            if function.bound(dtype) is None:
                continue
            rows = run_function(function, dtype, chosen, judge, before)
            lines.append(summary(function, dtype, chosen.isa, rows))
            print(as_table(lines[-1:]), flush=True)
    if chosen.results:
        write_results(chosen.results, lines)
    return 0 if all(line.good for line in lines) else 1
