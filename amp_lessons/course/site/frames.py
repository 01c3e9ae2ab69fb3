"""Frames of the views of a lesson: which cells make them, and where they are kept."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from amp_lessons.course import views
from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Cell
from amp_lessons.course.site.made import is_kept, made
from amp_lessons.course.site.making import LIVE, NARROW, RECORDED
from amp_lessons.course.views.base.view import View

# What asks something of a learner has no frames, and a check would take its time: such cells are not run.
_ASKING = (
    "Quiz|CurveQuiz|ExerciseCard|Patient|check|LessonEnd|Map|SymptomTree|DrillView|FlashCards|MockInterview|"
    "CodingRound|DesignRound"
)
_NOT_RUN = re.compile(rf"views\.({_ASKING})\(")
_VIEW = re.compile(rf"\bviews\.(?!{_ASKING})([A-Z]\w+)\(")


def put_frames(number: str, kept: Path, out: Path, step: Callable[[str], None]) -> dict[str, str]:
    """Put what pages load of a lesson's views into ``out``: made anew, or from ``kept``.

    Return for the cell of each view that is live what of it stands still, in a sentence or "". ``step`` is
    called for each view that was made. Raises RuntimeError where the lesson cannot be run.
    """
    cells = cells_to_run(number)
    if not cells:
        return {}
    folder = made(number, _asked(cells), kept, step)
    for file in (*folder.glob("*.js"), *folder.glob(f"*{NARROW}"), *folder.glob(f"{number}-*{RECORDED}")):
        shutil.copy(file, out)
    live: dict[str, str] = json.loads((folder / LIVE).read_text("utf-8"))
    return live


def views_to_make(number: str, kept: Path) -> int:
    """Count the live views of a lesson whose states are not ``kept``."""
    cells = cells_to_run(number)
    return 0 if is_kept(number, _asked(cells), kept) else sum(map(_is_live, cells))


def _asked(cells: list[Cell]) -> str:
    return "\n".join(f"{each['id']}\n{shipped.source(each)}" for each in cells)


def cells_to_run(number: str) -> list[Cell]:
    """Return the cells that a lesson's live views need: all code before the last of them, without questions.

    What a view needs that stands there as a picture is not run: it may be a training of a minute.
    """
    cells = shipped.cells_in(number)
    code = [each for each in cells if each["cell_type"] == "code"]
    code = [each for each in code if not _NOT_RUN.match(shipped.source(each))]
    live = [place for place, each in enumerate(code) if _is_live(each)]
    return code[: live[-1] + 1] if live else []


def _is_live(cell: Cell) -> bool:
    """Whether a cell makes a view of which something moves on a page."""
    kinds = (getattr(views, name) for name in _VIEW.findall(shipped.source(cell)))
    return any(issubclass(kind, View) and kind.has_controls and kind.on_pages != () for kind in kinds)
