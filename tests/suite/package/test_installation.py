"""What is installed where: both pyproject.toml, environment.yml and requirements.lock agree."""

import re
import tomllib

import pytest
import yaml
from graph_data import REPOSITORY
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECTS = {
    place: tomllib.loads((REPOSITORY / place / "pyproject.toml").read_text())["project"]
    for place in (".", "./suite")
}
LIBRARY, SUITE = PROJECTS.values()
LOCK = (REPOSITORY / "requirements.lock").read_text().splitlines()


def declared():
    """Every requirement of the library and of the suite, but the library itself."""
    for project in PROJECTS.values():
        extras = project["optional-dependencies"].values()
        for line in (*project["dependencies"], *(line for extra in extras for line in extra)):
            if line != LIBRARY["name"]:
                yield Requirement(line)


@pytest.fixture
def lock():
    """Packages and versions of requirements.lock."""
    pins = {}
    for line in LOCK:
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (pin,) = requirement.specifier
            pins[canonicalize_name(requirement.name)] = Version(pin.version)
    return pins


def test_lock_holds_pins_and_no_host():
    for line in LOCK:
        assert line.startswith("#") or re.fullmatch(
            r"[a-z0-9._-]+==[A-Za-z0-9.!]+(; sys_platform == \"linux\")?", line
        ), line
        assert "://" not in line


def test_lock_satisfies_every_declared_requirement(lock):
    for requirement in declared():
        version = lock[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), requirement


def test_lock_is_complete(lock):
    """What a locked package needs is locked too, at a version it accepts."""
    from importlib.metadata import PackageNotFoundError, requires

    for name in lock:
        try:
            needed = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue  # of another system
        for requirement in needed:
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            other = canonicalize_name(requirement.name)
            if other in ("pip", "setuptools", "wheel"):
                continue
            assert other in lock, f"{name} needs {requirement}"
            assert requirement.specifier.contains(lock[other], prereleases=True), (
                f"{name} needs {requirement}, locked is {lock[other]}"
            )


def test_environment_is_that_of_the_project():
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text())
    assert environment["name"] == LIBRARY["name"]
    python, pip = (
        next(Requirement(d) for d in environment["dependencies"] if str(d).startswith(name))
        for name in ("python", "pip")
    )
    assert python.specifier == SpecifierSet(LIBRARY["requires-python"])
    assert pip.name == "pip"
    (by_pip,) = (d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    for install, (place, project) in zip(by_pip, PROJECTS.items(), strict=True):
        found = re.fullmatch(rf"--editable {re.escape(place)}\[([a-z,]+)\]", install)
        assert found
        assert set(found[1].split(",")) == set(project["optional-dependencies"])


def test_library_needs_torch_alone():
    assert [Requirement(line).name for line in LIBRARY["dependencies"]] == ["torch"]


def test_both_support_the_same_versions_of_python():
    supported = SpecifierSet(LIBRARY["requires-python"])
    assert SpecifierSet(SUITE["requires-python"]) == supported
    named = re.findall(r"Python :: (3\.\d+)", " ".join(LIBRARY["classifiers"]))
    makefile = (REPOSITORY / "Makefile").read_text()
    assert all(supported.contains(version) for version in named)
    assert f"Python {named[0]} to {named[-1]} is supported" in makefile
