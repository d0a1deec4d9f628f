"""Combinations of a package with the oldest releases that bounds of siblings allow."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_repository import commit, repository, tag, write_package
from oldest_siblings import Combination, Combinations, combinations
from workspace import Requirement, lowest_pins, read_packages, required, spelled


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two packages."""
    return repository(tmp_path / "repository")


def found(root: Path, tested: str = "high") -> Combinations:
    """The combinations for a package."""
    return combinations(root, read_packages(root), tested, root.parent / "releases")


def versions(combination: Combination) -> dict[str, str]:
    """The versions of a combination by folder."""
    return {folder: spelled(combination.packages[folder].version) for folder in combination.needed}


def test_without_tags_the_working_tree_stands_in(root: Path) -> None:
    planned = found(root)
    assert [each.text for each in planned.found] == ["the working tree"]
    assert planned.missing == (
        "no tag fake-low-0.2.0: the working tree stands in for it",
        "no tag fake-high-0.2.0: the working tree stands in for it",
    )


def test_both_directions_take_the_oldest_release_that_is_allowed(root: Path) -> None:
    for version in ("0.2.0", "0.2.1"):
        write_package(root, "low", version, "numpy>=1.26")
        write_package(root, "high", version, "fake-low>=0.2,<0.3")
        commit(root, version)
        tag(root, f"fake-low-{version}")
        tag(root, f"fake-high-{version}")
    write_package(root, "low", "0.2.2")
    write_package(root, "high", "0.2.2", "fake-low>=0.2,<0.3")
    planned = found(root)
    assert not planned.missing
    assert [versions(each) for each in planned.found] == [
        {"low": "0.2.2", "high": "0.2.2"},
        {"low": "0.2.0", "high": "0.2.2"},
        {"low": "0.2.2", "high": "0.2.0"},
    ]
    now, low, high = planned.found
    assert now.tree == low.tree == root, "the tests are those of the working tree"
    assert high.tree == root.parent / "releases" / "fake-high-0.2.0", "the tests are those of the release"
    assert (low.packages["low"].path / "src" / "fake_low" / "__init__.py").read_text().endswith('"0.2.0"\n')
    assert low.text == "fake-low-0.2.0 with the rest of the working tree"


def test_bounds_leave_out_releases(root: Path) -> None:
    tag(root, "fake-low-0.2.0")
    tag(root, "fake-high-0.2.0")
    write_package(root, "low", "0.3.0")
    write_package(root, "high", "0.3.0", "fake-low>=0.3,<0.4")
    planned = found(root)
    assert len(planned.found) == 1
    assert planned.missing[0] == (
        "no tag of fake-low is allowed (fake-low-0.2.0): the working tree stands in for it"
    )
    assert "fake-high-0.2.0" in planned.missing[1], "it does not allow fake-low 0.3.0"


def test_packages_come_after_what_they_require(tmp_path: Path) -> None:
    write_package(tmp_path, "a", "1.0", "fake-b>=1.0")
    write_package(tmp_path, "b", "1.0", "fake-c[fast]>=1.0")
    write_package(tmp_path, "c", "1.0")
    manifest = tmp_path / "packages" / "c" / "pyproject.toml"
    manifest.write_text(manifest.read_text() + 'fast = ["numpy>=2"]\n')
    packages = read_packages(tmp_path)
    assert list(packages) == ["c", "b", "a"]
    assert required(packages, "a") == {"c": {"fast"}, "b": frozenset(), "a": frozenset()}
    write_package(tmp_path, "c", "1.0", "fake-a>=1.0")
    with pytest.raises(ValueError, match="fake-a, fake-b, fake-c require one another"):
        read_packages(tmp_path)


def test_the_lowest_versions_satisfy_every_package(root: Path) -> None:
    packages = read_packages(root)
    assert lowest_pins(packages, required(packages, "high", ["test"])) == ["numpy==1.26", "pytest==8.0"]


def test_requirements_are_read_as_manifests_write_them() -> None:
    whole = Requirement.of("litz-ir[sympy, extra]>=0.2,<0.3")
    assert (whole.name, whole.extras, whole.lowest, whole.above) == (
        "litz-ir",
        ("sympy", "extra"),
        (0, 2),
        (0, 3),
    )
    assert [whole.allows(version) for version in ((0, 1, 9), (0, 2, 0), (0, 2), (0, 2, 7), (0, 3))] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert Requirement.of("torchvision").allows((0, 1))
    with pytest.raises(ValueError, match=r"requirement 'a~=1\.0'"):
        Requirement.of("a~=1.0")
