"""pyproject.toml, constraints.txt and environment.yml say the same."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
ON_CONDA_FORGE = {"torch": "pytorch"}


def requirements(*extras):
    lines = sum((PROJECT["optional-dependencies"][extra] for extra in extras), PROJECT["dependencies"])
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def constraints(text):
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Requirement(line) for line in lines]


def pinned_version(constraint):
    (specifier,) = constraint.specifier
    assert specifier.operator == "==", f"{constraint} does not name one version"
    return Version(specifier.version)


def conda_specs(environment):
    """Split conda's ``name>=1.2`` into name and versions, by conda's names."""
    parsed = [Requirement(line) for line in environment["dependencies"] if isinstance(line, str)]
    return {requirement.name: requirement.specifier for requirement in parsed}


@pytest.fixture(scope="module")
def pins():
    return {canonicalize_name(pin.name): pin for pin in constraints((ROOT / "constraints.txt").read_text())}


@pytest.fixture(scope="module")
def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def test_every_requirement_is_pinned_to_a_version_it_admits(pins):
    wanted = requirements("lab", "models", "pretrained", "classroom", "test")
    assert {"torch", "jupyterlab", "transformers", "pytest"} <= set(wanted)
    for name, requirement in wanted.items():
        assert name in pins, f"constraints.txt does not pin {name}"
        assert requirement.specifier.contains(pinned_version(pins[name])), f"{pins[name]}, not {requirement}"


def test_no_name_is_pinned_twice(pins):
    assert len(constraints((ROOT / "constraints.txt").read_text())) == len(pins)


def test_pins_are_installable_on_every_python_they_apply_to(pins):
    checked = 0
    for name, pin in pins.items():
        if not installed(name, pinned_version(pin)):
            continue
        needs = SpecifierSet(metadata.metadata(name)["Requires-Python"] or "")
        for python in PYTHONS:
            if pin.marker is None or pin.marker.evaluate({"python_version": python}):
                assert needs.contains(f"{python}.99"), f"{pin} needs Python {needs}"
                checked += 1
    assert checked > 0, "nothing that constraints.txt pins is installed here"


def installed(name, version):
    try:
        return Version(metadata.version(name)).public == str(version)
    except metadata.PackageNotFoundError:
        return False


def test_conda_installs_what_make_lab_installs(environment):
    needed = requirements("lab", "models").items()
    wanted = {ON_CONDA_FORGE.get(name, name): requirement.specifier for name, requirement in needed}
    offered = conda_specs(environment)
    assert offered.pop("python") == SpecifierSet(PROJECT["requires-python"])
    assert offered.pop("pip") == SpecifierSet()
    assert offered == wanted


def test_conda_takes_the_package_from_the_checkout(environment):
    assert environment["channels"] == ["conda-forge"]
    assert environment["dependencies"][-1] == {"pip": ["--editable .[pretrained]"]}


def test_the_makefile_installs_those_extras():
    makefile = (ROOT / "Makefile").read_text()
    assert "LAB_EXTRAS := lab,models,pretrained\n" in makefile
    assert "TEST_EXTRAS := lab,models,pretrained,classroom,test\n" in makefile


def test_stubs_and_data_are_installed_with_the_package():
    package = ROOT / "amp_lessons"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    installed = {path for pattern in patterns["amp_lessons"] for path in package.glob(pattern)}
    assert {*package.rglob("*.pyi"), *package.rglob("*.yaml"), package / "py.typed"} <= installed
