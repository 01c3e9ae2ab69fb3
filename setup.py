"""Put lessons and glossary into the wheel: they lie beside the package, where GitHub shows them."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LESSONS = Path(__file__).parent / "notebooks"
GLOSSARY = Path(__file__).parent / "docs" / "glossary.md"


class BuildWithLessons(build_py):
    """Build the package and copy the lessons into it; an editable install finds them where they are."""

    def run(self) -> None:
        """Build as setuptools does, then add the lessons."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "amp_lessons" / "course" / "lessons" / "notebooks"
        target.mkdir(parents=True, exist_ok=True)
        for lesson in LESSONS.glob("[0-9][0-9]_*.ipynb"):
            shutil.copyfile(lesson, target / lesson.name)
        shutil.copy(GLOSSARY, target)


setup(cmdclass={"build_py": BuildWithLessons})
