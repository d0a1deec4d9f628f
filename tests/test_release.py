"""Checks of a release: the tree before it is built, and the archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from fake_repository import repository, tag, write_package
from release import absent_from, archives, changelog_sections, problems, selected, uncommitted
from workspace import read_packages


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two packages."""
    return repository(tmp_path / "repository")


def low(root: Path) -> list[str]:
    """Return what forbids to release the lower package."""
    return problems(root, read_packages(root)["low"])


def test_a_clean_tree_can_be_released(root: Path) -> None:
    assert uncommitted(root) == []
    assert low(root) == []
    (root / "new").write_text("")
    assert uncommitted(root) == ["?? new"]


def test_problems_name_what_to_mend(root: Path) -> None:
    changelog = root / "packages" / "low" / "CHANGELOG.md"
    whole = changelog.read_text()
    changelog.write_text(whole.replace(" - 2026-11-26", ""))
    assert low(root) == ["fake-low: the section [0.2.0] of CHANGELOG.md has no date"]
    changelog.write_text(whole.replace("[Unreleased]\n", "[Unreleased]\n\n- More.\n"))
    assert low(root) == ["fake-low: CHANGELOG.md has unreleased changes; they belong to a version"]
    changelog.write_text(whole.replace("[0.2.0]", "[0.1.0]"))
    (root / "packages" / "low" / "LICENSE").write_text("another\n")
    (root / "packages" / "low" / "src" / "fake_low" / "__init__.py").write_text("")
    assert low(root) == [
        "fake-low: CHANGELOG.md has no section [0.2.0]",
        "fake-low: __version__ is '', the manifest says 0.2.0",
        "fake-low: LICENSE is not that of the repository",
    ]


def test_a_version_is_released_once(root: Path) -> None:
    tag(root, "fake-low-0.2.0")
    assert low(root) == ["fake-low: the tag fake-low-0.2.0 exists already"]
    write_package(root, "low", "0.2.0", names="")
    assert any("the version has to be higher" in each for each in low(root))


def test_packages_are_selected_in_publish_order(root: Path) -> None:
    packages = read_packages(root)
    assert selected(packages, []) == selected(packages, ["fake-high", "fake-low"]) == ["low", "high"]
    assert selected(packages, ["fake-high"]) == ["high"]
    with pytest.raises(ValueError, match="no package is called fake-lo; there are fake-low, fake-high"):
        selected(packages, ["fake-lo"])


def test_sections_of_a_changelog_end_at_the_next_one() -> None:
    text = "# Title\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-26\n\n### Added\n\n- A.\n\n## [0.1.0]\n- B.\n"
    assert changelog_sections(text) == {
        "Unreleased": (False, ""),
        "0.2.0": (True, "### Added\n\n- A."),
        "0.1.0": (False, "- B."),
    }


def test_archives_have_licence_readme_and_marker_of_types(root: Path, tmp_path: Path) -> None:
    package = read_packages(root)["low"]
    with zipfile.ZipFile(tmp_path / "fake_low-0.2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("fake_low-0.2.0.dist-info/METADATA", "Name: fake-low\n\n# fake-low\n")
        wheel.writestr("fake_low/py.typed", "")
    with tarfile.open(tmp_path / "fake_low-0.2.0.tar.gz", "w:gz") as source:
        for name in ("README.md", "LICENSE", "PKG-INFO", "CHANGELOG.md"):
            source.addfile(tarfile.TarInfo(f"fake_low-0.2.0/{name}"), io.BytesIO())
    built = archives(tmp_path, package)
    assert [absent_from(path, package) for path in built] == [
        ["fake_low-0.2.0.dist-info/licenses/LICENSE", "License-Expression"],
        ["src/fake_low/py.typed"],
    ]
    assert archives(tmp_path, read_packages(root)["high"]) == []
