"""Whose notebooks they are: a folder of notebooks, or one with a folder for each learner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amp_lessons.course.lessons import shipped

LONGEST_NOTEBOOK = 20 * 2**20


@dataclass(frozen=True)
class Submission:
    """What one learner has handed in: notebooks, and sentences about files that are none."""

    learner: str
    notebooks: tuple[Path, ...]
    problems: tuple[str, ...] = ()


def submissions_in(folder: Path) -> list[Submission]:
    """List the learners, in the order of their names. Raises ValueError where nobody has handed in anything.

    A notebook in the folder itself is its learner's, whom it names before the name of the lesson, or alone:
    ``ada_03_loss_scaling.ipynb``, ``ada.ipynb``. Links are not followed: they could lead anywhere.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    found: dict[str, list[Path]] = {}
    problems: dict[str, list[str]] = {}
    for learner, path in _files(folder):
        found.setdefault(learner, [])
        if problem := _problem(path):
            problems.setdefault(learner, []).append(f"{path.name}: {problem}")
        else:
            found[learner].append(path)
    if not found:
        raise ValueError(f"there is no notebook in {folder}, nor in its folders")
    return [Submission(each, tuple(found[each]), tuple(problems.get(each, ()))) for each in sorted(found)]


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.suffix == ".ipynb" and (entry.is_symlink() or not entry.is_dir()):
            yield _named(entry.stem), entry
        elif entry.is_dir() and not entry.is_symlink():
            yield from ((entry.name, path) for path in _below(entry))


def _below(folder: Path) -> Iterator[Path]:
    """Yield the notebooks of one learner, but for those in hidden folders, as Jupyter's own copies are."""
    for path in sorted(folder.rglob("*.ipynb")):
        inside = path.relative_to(folder).parts
        if not any(part.startswith(".") for part in inside) and not _through_a_link(folder, path.parent):
            yield path


def _through_a_link(folder: Path, path: Path) -> bool:
    while path != folder:
        if path.is_symlink():
            return True
        path = path.parent
    return False


def _named(stem: str) -> str:
    """Return the learner that a file's name tells of."""
    lessons = "|".join(re.escape(path.stem) for path in shipped.lessons(shipped.originals()))
    return re.sub(rf"[-_. ]*({lessons})$", "", stem) or stem


def _problem(path: Path) -> str:
    if path.is_symlink():
        return "a link, which is not followed"
    if not path.is_file():
        return "not a plain file"
    size = path.stat().st_size
    return f"{size / 2**20:.0f} MiB, more than a notebook has" if size > LONGEST_NOTEBOOK else ""
