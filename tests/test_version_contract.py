"""The version contract: public names change only under a higher version."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_repository import commit, repository, tag, write_package
from release_tags import released
from version_contract import Verdict, judge, main, names_in
from workspace import read_packages

NAMES = "fake_low.a() -> int\nclass fake_low.B\n    x: int\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two packages."""
    return repository(tmp_path / "repository")


def verdict(root: Path, version: str, names: str) -> Verdict:
    """The verdict on the lower package after a change of its version and names."""
    write_package(root, "low", version, "numpy>=1.26", names=names)
    return judge(root, read_packages(root)["low"])


def test_without_tags_there_is_nothing_to_compare(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(root) == 0
    assert "fake-low 0.2.0: no tag such as fake-low-0.2.0, so there is nothing to compare with" in (
        capsys.readouterr().out
    )


def test_outside_a_repository_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert verdict(tmp_path, "0.2.0", NAMES).holds


def test_tags_of_other_packages_do_not_count(root: Path) -> None:
    for name in ("fake-low-0.2.0", "fake-low-0.10.0", "fake-low-extra-0.3.0", "fake-low-0.4.0rc1"):
        tag(root, name)
    assert released(root, "fake-low") == [(0, 2, 0), (0, 10, 0)]


@pytest.mark.parametrize(
    ("version", "names", "said"),
    [
        ("0.2.0", NAMES, "are those of fake-low-0.2.0"),
        ("0.2.1", NAMES + "fake_low.c = 1\n", "which is a lower version"),
        ("0.3.0", "fake_low.a() -> int\n", "which is a lower version"),
        ("0.2.0", NAMES + "fake_low.c = 1\n", "!the version has to be higher"),
        ("0.1.9", NAMES + "fake_low.c = 1\n", "!the version has to be higher"),
        ("0.2.1", "fake_low.a() -> int\n", "!fake_low.B of fake-low-0.2.0 is gone, so the minor version"),
    ],
)
def test_names_that_differ_from_the_latest_release(root: Path, version: str, names: str, said: str) -> None:
    tag(root, "fake-low-0.2.0")
    found = verdict(root, version, names)
    assert found.holds is not said.startswith("!")
    assert said.removeprefix("!") in found.text


def test_from_1_0_on_removals_need_a_higher_major_version(root: Path) -> None:
    write_package(root, "low", "1.0.0", names=NAMES)
    commit(root, "one")
    tag(root, "fake-low-1.0.0")
    assert "the major version has to be higher" in verdict(root, "1.1.0", "").text
    assert verdict(root, "2.0.0", "").holds


def test_a_broken_contract_is_an_exit_code(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tag(root, "fake-low-0.2.0")
    write_package(root, "low", "0.2.0", names="")
    assert main(root) == 1
    assert "fake-low 0.2.0" in capsys.readouterr().err


def test_names_are_the_first_words_of_lines_without_indentation() -> None:
    text = "class a.B(Base, metaclass=type)\n    x: int\na.LIMITS: dict[str, int]\na.f(x: int) -> int\na.g = a.f\n"
    assert names_in(text) == {"a.B", "a.LIMITS", "a.f", "a.g"}
