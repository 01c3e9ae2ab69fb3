"""Rooms: no name hides a module, imports inside autocast go down, and from outside its faces are used."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import amp_lessons

HERE = Path(amp_lessons.__file__).parent
ROOMS = ["cast_policy", "cuda_on_cpu", "running", "ledger"]  # from the ground up
FACES = [
    "amp_lessons",
    "amp_lessons.autocast",
    *(f"amp_lessons.autocast.{room}" for room in ROOMS if (HERE / "autocast" / room).is_dir()),
    "amp_lessons.course.bench",
    "amp_lessons.formats",
    "amp_lessons.course.material",
    "amp_lessons.measure",
]


def imports_from_autocast(file: Path) -> Iterator[list[str]]:
    """Yield the parts of each dotted name below amp_lessons.autocast that a file imports from."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("amp_lessons.autocast."):
            yield str(node.module).split(".")[2:]


@pytest.mark.parametrize("face", FACES)
def test_no_name_of_a_face_hides_a_module(face: str) -> None:
    package = import_module(face)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("__"):
            import_module(f"{face}.{module.name}")
            assert isinstance(getattr(package, module.name), ModuleType), module.name


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_those_below_it(room: str) -> None:
    below = ROOMS[: ROOMS.index(room)]
    files = [*(HERE / "autocast").glob(f"{room}.py"), *(HERE / "autocast" / room).glob("*.py")]
    assert files
    for file in files:
        for source, *inside in imports_from_autocast(file):
            assert source == room or (source in below and not inside), f"{file.name}: {source}, {inside}"


@pytest.mark.parametrize("package", ["scaling", "measure", "bench"])
def test_the_packages_above_import_from_faces(package: str) -> None:
    for file in (HERE / package).glob("*.py"):
        assert [names for names in imports_from_autocast(file) if len(names) > 1] == [], file.name
