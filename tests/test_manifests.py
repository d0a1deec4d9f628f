"""Manifests, licences, versions and READMEs of the packages: what an index and an installer read of them."""

from __future__ import annotations

import importlib
import re
import tomllib
from typing import Any

import pytest
from release import changelog_sections, module_version
from workspace import ROOT, Package, Requirement, read_packages, spelled

PACKAGES = read_packages()
FOLDERS = ("ir", "lowering", "scheduler", "codegen-cpp", "codegen-triton", "frontend")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")

each_package = pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)


def manifest(package: Package) -> dict[str, Any]:
    """Return the whole manifest of a package."""
    return tomllib.loads((package.path / "pyproject.toml").read_text(encoding="utf-8"))


def test_packages_are_in_the_order_of_the_layers() -> None:
    assert tuple(PACKAGES) == FOLDERS


@each_package
def test_a_manifest_states_licence_readme_and_types(package: Package) -> None:
    project = manifest(package)["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert project["readme"] == "README.md"
    assert "Typing :: Typed" in project["classifiers"]
    assert not any(each.startswith("License ::") for each in project["classifiers"]), "PEP 639 refuses them"
    assert project["keywords"] == sorted(project["keywords"], key=str.lower)
    assert (package.path / "src" / package.module / "py.typed").exists()
    assert (package.path / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each_package
def test_the_build_backend_knows_licence_files(package: Package) -> None:
    (backend,) = manifest(package)["build-system"]["requires"]
    assert Requirement.of(backend).lowest >= (1, 27)


@each_package
def test_versions_agree(package: Package) -> None:
    assert module_version(package) == spelled(package.version)
    sections = changelog_sections((package.path / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert spelled(package.version) in sections or sections["Unreleased"][1]
    names = {sibling.name: sibling for sibling in PACKAGES.values()}
    for requirement in package.requirements(package.extras):
        if requirement.name in names:
            major, minor, *_ = names[requirement.name].version
            assert (requirement.lowest, requirement.above) == ((major, minor), (major, minor + 1))


@each_package
def test_a_readme_says_how_to_install_and_links_to_nothing_that_an_index_lacks(package: Package) -> None:
    readme = (package.path / "README.md").read_text(encoding="utf-8")
    assert f"## Install\n\n```\npip install {package.name}" in readme
    assert LINK.findall(readme) == []


@each_package
def test_the_docstring_names_a_page(package: Package) -> None:
    pages = re.findall(r"`(docs/[\w.-]+\.md)`", importlib.import_module(package.module).__doc__ or "")
    assert pages and all((ROOT / page).exists() for page in pages)


@pytest.mark.parametrize("folder", ["c_target", "numba_target", "opencl_target"])
def test_examples_allow_the_packages_of_the_tree(folder: str) -> None:
    path = ROOT / "examples" / folder
    if not (path / "pyproject.toml").exists():
        pytest.skip("there is no such example")
    package = Package.read(path)
    versions = {sibling.name: sibling.version for sibling in PACKAGES.values()}
    for requirement in package.requirements(package.extras):
        assert requirement.name not in versions or requirement.allows(versions[requirement.name])


def test_numpy_alone_comes_with_ir_and_scheduler() -> None:
    ir, scheduler = PACKAGES["ir"], PACKAGES["scheduler"]
    assert [each.name for each in ir.dependencies] == ["numpy"]
    assert [each.name for each in ir.extras["sympy"]] == ["sympy"]
    assert [(each.name, each.extras) for each in scheduler.dependencies] == [("litz-ir", ())]
    users = [
        folder for folder, each in PACKAGES.items() for need in each.dependencies if "sympy" in need.extras
    ]
    assert users == ["lowering"], "torch brings sympy anyway"
