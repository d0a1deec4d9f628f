"""`python -m replay [REF]`: emit the corpus of a commit and of the working tree, and print which kernels differ."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from replay.compare import Comparison, Emitted, compared

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ("packages/lowering/tests", "tests/replay/graphs_of_forms.py")
SHOWN = 40
"""Largest number of printed groups of kernels that differ in the same way; the folder has all."""

FIXED: Mapping[str, str] = {
    "PYTHONHASHSEED": "0",
    "TRITON_INTERPRET": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "OMP_NUM_THREADS": "1",
}
"""Environment of the processes that emit."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Keys that may differ, as a pattern in which ``*`` stands for any text, and the reason."""

    pattern: str
    reason: str

    def covers(self, key: str) -> bool:
        """Say whether a key is among them."""
        parts = map(re.escape, self.pattern.split("*"))
        return re.fullmatch(".*".join(parts), key) is not None


def main(words: Sequence[str] | None = None) -> int:
    """Compare two trees and return the exit code: 1 where a difference is not expected."""
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("ref", nargs="?", default="HEAD", help="the commit before (default: HEAD)")
    parser.add_argument(
        "--expected", type=Path, help="differences that are right: PATTERN # REASON, one a line"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "replay", help="folder of records and diffs"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="emit the commit's kernels though they are there"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that emit")
    parser.add_argument("--tests", nargs="+", default=CORPUS, help="parts of the corpus (default: all)")
    parser.add_argument(
        "--emit", type=Path, metavar="FOLDER", help="leave this tree's records there, no more"
    )
    given = parser.parse_args(words)
    if given.emit is not None:
        return emit(given.emit, given.tests, given.workers)
    expected = expectations(given.expected.read_text(encoding="utf-8")) if given.expected else []
    console = Console(soft_wrap=True)
    out: Path = given.out.resolve()
    how = ["--workers", str(given.workers), "--tests", *given.tests]
    before = _emitted_before(given.ref, out, how, given.fresh, console)
    after = out / "working-tree"
    _emit_in(ROOT, after, how, "working tree", console)
    return report(load(before), load(after), expected, out, console)


def emit(folder: Path, tests: Sequence[str], workers: int) -> int:
    """Run the corpus of this tree under the plugin and return pytest's exit code."""
    split = ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
    draws = ["--hypothesis-profile=replay", "--hypothesis-seed=0"]
    command = [sys.executable, "-m", "pytest", "-q", *split, "-p", "replay.plugin", "-p", "no:cacheprovider"]
    environment = os.environ | FIXED | {"REPLAY_RECORDS": str(folder)}
    return subprocess.run([*command, *draws, *tests], cwd=ROOT, env=environment).returncode


def _emitted_before(ref: str, out: Path, how: Sequence[str], fresh: bool, console: Console) -> Path:
    """Return the folder of a commit's records, which is kept from run to run."""
    commit = _git("rev-parse", "--verify", f"{ref}^{{commit}}")
    of_what = re.sub(r"\W+", "-", " ".join([version("torch"), *how[3:]]))[:80]
    folder = out / f"{commit[:12]}-{of_what}"
    if fresh or not folder.exists():
        with _worktree(commit) as tree:
            if not (tree / "tests" / "replay").exists():
                raise SystemExit(f"{ref} has no tests/replay, by which a tree emits its kernels")
            _emit_in(tree, folder, how, f"{ref} ({commit[:12]})", console)
    return folder


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    """A worktree of a commit in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="litz-replay-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _emit_in(tree: Path, folder: Path, how: Sequence[str], name: str, console: Console) -> None:
    """Let a tree emit its kernels to a folder, which appears once all are there."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="litz-replay-") as made:
        records = Path(made) / "records"
        records.mkdir()
        command = [sys.executable, str(tree / "tools" / "tree_metadata.py"), str(Path(made) / "metadata")]
        path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        environment = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{tree / 'tests'}"}
        environment["LITZ_CACHE_DIR"] = str(Path(made) / "cache")
        command = [sys.executable, "-m", "replay", "--emit", str(records), *how]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if done.returncode:
            last = "\n".join(done.stdout.splitlines()[-20:])
            console.print(
                f"{name}: tests failed, whose graphs may be missing\n{last}{done.stderr[-2000:]}",
                markup=False,
            )
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(records, folder)
    console.print(f"{name}: emitted in {time.perf_counter() - started:.0f} s", markup=False)


def load(folder: Path) -> dict[str, Emitted]:
    """Return the records of a folder by key, in the order of keys."""
    found = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            for place, each in enumerate(row["records"]):
                key = f"{row['key']} record {place}"
                text, facts = each["text"], tuple(each["facts"])
                found[key] = Emitted(key, each["name"], each["language"], text, facts)
    return dict(sorted(found.items()))


def expectations(text: str) -> list[Expectation]:
    """Parse a file of expected differences; raises ``SystemExit`` for a line without a reason."""
    found = []
    for line in text.splitlines():
        pattern, _, reason = (part.strip() for part in line.partition(" # "))
        if not pattern or pattern.startswith("#"):
            continue
        if not reason:
            raise SystemExit(f"an expected difference without a reason: {line}")
        found.append(Expectation(pattern, reason))
    return found


def report(
    before: Mapping[str, Emitted],
    after: Mapping[str, Emitted],
    expected: Sequence[Expectation],
    out: Path,
    console: Console,
) -> int:
    """Compare records, print the result, write diffs, and return the exit code."""
    if not before or not after:
        raise SystemExit("a tree left no records")
    found = compared(before, after)
    console.print(_counts(before, after, found))
    for one, other in found.renamed.items():
        console.print(f"renamed in headers and all kernels: {one} -> {other}", markup=False)
    diffs = out / "diffs"
    shutil.rmtree(diffs, ignore_errors=True)
    groups = grouped(found)
    for number, (text, keys) in enumerate(groups.items()):
        diffs.mkdir(parents=True, exist_ok=True)
        path = diffs / f"{number:04}.diff"
        path.write_text("\n".join([*(f"# {key}" for key in keys), text]), encoding="utf-8")
        if number < SHOWN:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            console.print(f"differs: {keys[0]}{more}: {path}", markup=False)
    if len(groups) > SHOWN:
        console.print(f"and {len(groups) - SHOWN} more in {diffs}", markup=False)
    left = unexpected(found.keys(), expected, console)
    console.print(
        f"{found.same + found.moved} the same, {len(found.keys())} not, {len(left)} of these unexpected"
    )
    return 1 if left else 0


def unexpected(keys: Sequence[str], expected: Sequence[Expectation], console: Console) -> list[str]:
    """Return the keys that no expectation covers, and print how many each of them does."""
    for each in expected:
        count = sum(map(each.covers, keys))
        console.print(f"expected, {count} of them: {each.pattern}: {each.reason}", markup=False)
    return [key for key in keys if not any(each.covers(key) for each in expected)]


def grouped(found: Comparison) -> dict[str, list[str]]:
    """Return the diffs of all records that differ, each with the keys that share it."""
    groups: dict[str, list[str]] = defaultdict(list)
    for old, new in found.different:
        groups[_diff(old, new)].append(f"{new.key} ({new.name})")
    for title, those in (("before only", found.gone), ("after only", found.new)):
        for each in those:
            groups[f"{title}\n{each.raw()}"].append(f"{each.key} ({each.name}, {title})")
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def _diff(old: Emitted, new: Emitted) -> str:
    lines = difflib.unified_diff(
        old.raw().splitlines(),
        new.raw().splitlines(),
        f"before: {old.name}",
        f"after: {new.name}",
        lineterm="",
    )
    return "\n".join(lines) + "\n"


def _counts(before: Mapping[str, Emitted], after: Mapping[str, Emitted], found: Comparison) -> Table:
    """Return a table of the numbers of records by language, equal and different."""
    changed = {each.key: each for _, each in found.different}
    columns = [
        Counter(each.language for each in those)
        for those in (before.values(), after.values(), changed.values(), found.gone, found.new)
    ]
    table = Table("records", "before", "after", "differ", "before only", "after only")
    graphs = [len({each.graph for each in side.values()} - {""}) for side in (before, after)]
    table.add_row("graphs", *map(str, graphs), "", "", "")
    titles = {
        "c++": "C++ kernels and headers",
        "triton": "Triton kernels",
        "plan": "plans",
        "error": "refused",
    }
    for language, title in titles.items():
        table.add_row(title, *(str(column[language]) for column in columns))
    return table
