"""Runs a range of seeds: `nox -s fuzz -- --programs 20000 --seed 0`.

Each seed is one program, run in eager and compiled by litz. Workers take slices of the range; what they find goes
to one JSON Lines file, a row for every slice that is done and for every mismatch, so that a run that was stopped goes
on where it was with the same `--out`. A mismatch is shrunk and printed as a regression test. Exit code 1 when
there was one.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

import litz
from differential.captured.draw import captured_of
from differential.captured.judge import judge_captured
from differential.captured.program import CapturedProgram
from differential.generator import COMPLEX, program_of
from differential.judge import Verdict, judge
from differential.judge_modules import judge_module
from differential.judge_numbers import judge_numbers
from differential.judge_regions import judge_regions
from differential.modules import module_of, smaller_modules
from differential.number_programs import number_program_of, smaller_number_programs
from differential.programs import Program
from differential.regions import regions_of, smaller_regions
from differential.shrinker import shrunk, smaller_programs

ROUND = 20
"""Slices that a worker process runs before it is replaced, since torch keeps memory of every program."""


@dataclass(slots=True)
class Row:
    """Results of a slice of seeds: the programs of each verdict, counted, and every mismatch in its smallest form."""

    start: int
    stop: int
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    mismatches: list[dict[str, Any]] = field(default_factory=list)
    torch: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of programs: how one is drawn, judged and shrunk, in at most ``budget`` runs.

    A ``slice`` is shorter where programs are called several times, which takes up to twenty times as long.
    """

    draw: Callable[[int], Any]
    judge: Callable[[Any], Verdict]
    smaller: Callable[[Any], Iterable[Any]]
    budget: int = 60
    slice: int = 10


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "real": Kind(program_of, judge, smaller_programs, 150, 50),
        "complex": Kind(partial(program_of, dtypes=COMPLEX), judge, smaller_programs, 150, 50),
        "module": Kind(module_of, judge_module, smaller_modules, 120),
        "regions": Kind(regions_of, judge_regions, smaller_regions),
        "numbers": Kind(number_program_of, judge_numbers, smaller_number_programs),
        "captured": Kind(captured_of, judge_captured, CapturedProgram.smaller),
    }
)
ON_DEVICES = ("real", "complex", "regions", "numbers", "captured")
"""Kinds whose tensors may be on a GPU; modules are written through NumPy too."""


def run_slice(start: int, stop: int, kind: str, device: str) -> Row:
    """Run the programs of the seeds from ``start`` to ``stop``, the last one not included, on ``device``."""
    chosen = KINDS[kind]

    def judged(program: Any) -> Verdict:
        with nullcontext() if device == "cpu" else torch.device(device):
            return chosen.judge(program)

    row, counts, began = Row(start, stop), Counter[str](), time.perf_counter()
    for seed in range(start, stop):
        program = chosen.draw(seed)
        if device != "cpu" and isinstance(program, Program) and program.views_bools_as_bytes:
            counts["left_out"] += 1
            continue
        verdict = judged(program)
        if "CUDA error" in verdict.message:
            raise RuntimeError(
                f"nothing runs on the device after the program of seed {seed}: {verdict.message}"
            )
        counts[verdict.fault] += 1
        if verdict.fault == "torch":
            row.torch.append({"seed": seed, "message": verdict.message.partition("\n")[0][:300]})
        if verdict.fault == "litz":
            small = shrunk(program, chosen.smaller, lambda p: judged(p).fault == "litz", budget=chosen.budget)
            found = judged(small) if small != program else verdict
            named = isinstance(small, Program)
            text = small.as_test(f"program_of_seed_{seed}") if named else small.as_text()
            row.mismatches.append({"seed": seed, "message": found.message, "test": text})
    row.counts, row.seconds = dict(counts), time.perf_counter() - began
    return row


def done_before(path: Path) -> list[Row]:
    """Return the slices that an earlier run finished."""
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as file:
        return [Row(**json.loads(line)) for line in file]


def slices(seed: int, programs: int, done: list[Row], size: int) -> Iterator[tuple[int, int]]:
    """Return the remaining slices of the range, each of so many seeds."""
    finished = {row.start: row.stop for row in done}
    for start in range(seed, seed + programs, size):
        stop = min(start + size, seed + programs)
        if finished.get(start, start) < stop:
            yield start, stop


def start_worker(cache: str) -> None:
    """Set up a worker: two threads, so that kernels run in parallel as they do for users, no warnings of torch, and a
    cache folder."""
    torch.set_num_threads(2)
    litz.config.cache_dir = cache
    for name in ("torch", "torch._subclasses.fake_tensor", "torch.fx.experimental"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def results(todo: Sequence[tuple[int, int]], workers: int, kind: str, device: str) -> Iterator[Row]:
    """Yield the rows of slices as they come. A worker that dies ends the run: ``BrokenProcessPool``."""
    context = multiprocessing.get_context("spawn")
    for first in range(0, len(todo), workers * ROUND):
        with (
            TemporaryDirectory() as cache,
            ProcessPoolExecutor(workers, context, start_worker, (cache,)) as pool,
        ):
            batch = todo[first : first + workers * ROUND]
            for future in as_completed([pool.submit(run_slice, *each, kind, device) for each in batch]):
                yield future.result()


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--kind",
        default="real",
        choices=tuple(KINDS),
        help="the tensors that programs are over, modules that are called several times and written in between, or "
        "regions inside regions, numbers that change between calls, or modules with the Python that programs write "
        "around tensors",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="rows of results; an old file is gone on with (default: build/fuzz-KIND.jsonl, on a GPU "
        "build/fuzz-KIND-cuda.jsonl)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.device != "cpu" and chosen.kind not in ON_DEVICES:
        parser.error(f"programs of the kind {chosen.kind} run on the CPU alone: leave out --device")
    if chosen.out is None:
        device = "" if chosen.device == "cpu" else f"-{chosen.device}"
        chosen.out = Path("build", f"fuzz-{chosen.kind}{device}.jsonl")
    return chosen


def main() -> int:
    """Run the range, print its results and return the exit code."""
    chosen = options()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    before = done_before(chosen.out)
    todo = list(slices(chosen.seed, chosen.programs, before, KINDS[chosen.kind].slice))
    rows = [row for row in before if chosen.seed <= row.start < chosen.seed + chosen.programs]
    done = chosen.programs - sum(stop - start for start, stop in todo)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        open(chosen.out, "a", encoding="utf-8") as out,
        Progress(*columns, TimeRemainingColumn(), console=console) as progress,
    ):
        bar = progress.add_task("programs", total=chosen.programs, completed=done)
        for row in results(todo, chosen.workers, chosen.kind, chosen.device):
            rows.append(row)
            out.write(json.dumps(asdict(row)) + "\n")
            out.flush()
            wrong = sum(len(each.mismatches) for each in rows)
            progress.update(bar, advance=row.stop - row.start, description=f"programs, {wrong} wrong")
            for found in row.mismatches:
                text = f"seed {found['seed']}: {found['message']}\n{found['test']}"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
    return report(rows)


def report(rows: list[Row]) -> int:
    """Print the summary as JSON and return the exit code."""
    counts = Counter[str]()
    for row in rows:
        counts.update(row.counts)
    seconds = sum(row.seconds for row in rows)
    programs = sum(counts.values())
    summary = {
        "first_seed": min((row.start for row in rows), default=0),
        "last_seed": max((row.stop for row in rows), default=0) - 1,
        "programs": programs,
        "compared": counts["none"],
        "wrong": counts["litz"],
        "wrong_under_aot_eager_too": counts["torch"],
        "rejected_by_eager": counts["rejected"],
        "left_out": counts["left_out"],
        "seconds_per_program_and_worker": round(seconds / max(programs, 1), 3),
        "torch": torch.__version__,
    }
    print(json.dumps(summary, indent=2))
    return 1 if counts["litz"] else 0
