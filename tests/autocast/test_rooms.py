"""Faces: no name that a package offers hides a module of it; ``lint-imports`` holds who imports what."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

FACES = [
    "amp_lessons",
    "amp_lessons.autocast",
    *(f"amp_lessons.autocast.{room}" for room in ("cast_policy", "cuda_on_cpu", "running", "islands")),
    "amp_lessons.course.bench",
    "amp_lessons.formats",
    "amp_lessons.course.material",
    "amp_lessons.measure",
]


@pytest.mark.parametrize("face", FACES)
def test_no_name_of_a_face_hides_a_module(face):
    package = import_module(face)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("__"):
            import_module(f"{face}.{module.name}")
            assert isinstance(getattr(package, module.name), ModuleType), module.name
