"""Fixtures of every package's tests: Hypothesis profile, private cache folder, golden files, text tests, samples."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import text_tests
from hypothesis import HealthCheck, settings

settings.register_profile(
    "litz", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("litz")

CACHE_KEY = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden` and `--sample`."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden files with the text that the tests produce",
    )
    parser.addoption(
        "--sample",
        type=int,
        default=1,
        metavar="N",
        help="run one case in N of each test or module that is marked as sampled",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of sampled tests that `--sample` does not take: always the same ones."""
    cases: dict[str, set[str]] = defaultdict(set)
    for item in items:
        if (case := sampled_case(item)) is not None:
            cases[case.of].add(case.name)
    taken: dict[str, set[str]] = {}
    for of, names in cases.items():
        count = -(-len(names) // config.getoption("--sample"))
        taken[of] = set(sorted(names, key=lambda name: zlib.crc32(name.encode()))[:count])
    left = {i for i in items if (case := sampled_case(i)) is not None and case.name not in taken[case.of]}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


class SampledCase(NamedTuple):
    """A case that a sample may leave out."""

    of: str
    """The test that it is a case of, or the module of a test without parameters."""
    name: str
    """The value of the parameter that the mark names, all values, or the test of a module."""


def sampled_case(item: pytest.Item) -> SampledCase | None:
    """Return the case that a test is; ``None`` for one that always runs."""
    mark, parameters = item.get_closest_marker("sampled"), getattr(item, "callspec", None)
    if mark is None:
        return None
    test = item.nodeid.partition("[")[0]
    if parameters is None:
        return SampledCase(test.partition("::")[0], test)
    return SampledCase(test, str(parameters.params.get(mark.kwargs.get("by"), parameters.id)))


def pytest_configure(config: pytest.Config) -> None:
    """Verify between passes, and keep compiled kernels away from the user's own cache."""
    os.environ.setdefault("LITZ_VERIFY", "1")
    if "LITZ_CACHE_DIR" not in os.environ:
        config.stash[CACHE_KEY] = os.environ["LITZ_CACHE_DIR"] = tempfile.mkdtemp(prefix="litz-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the private cache folder."""
    folder = config.stash.get(CACHE_KEY, None)
    if folder is not None:
        os.environ.pop("LITZ_CACHE_DIR", None)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return `golden(name, text)`: text must equal the file `golden/<name>` in the test module's folder.

    With `--update-golden` the file is written instead, to be read in the diff.
    """
    folder = Path(request.path).parent / "golden"
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = folder / name
        text = text if text.endswith("\n") else text + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {path}: run this test with --update-golden and read what it wrote")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs: --update-golden rewrites it"

    return compare


@pytest.fixture
def check_case(
    request: pytest.FixtureRequest,
) -> Callable[[text_tests.Case, Mapping[str, text_tests.Command]], None]:
    """Return `check_case(case, commands)`, which runs a text test; `--update-golden` rewrites the checks of one that
    fails."""
    update = bool(request.config.getoption("--update-golden"))
    return lambda case, commands: text_tests.check(case, commands, update=update)
