"""Fixtures of every package's tests: Hypothesis profile, private cache folder, golden files and text tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import text_tests
from hypothesis import HealthCheck, settings

settings.register_profile(
    "litz", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("litz")

CACHE_KEY = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden files with the text that the tests produce",
    )


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
