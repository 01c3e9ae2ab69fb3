"""What the server of ``amp-lessons lab`` tells JupyterLab's page when it is loaded: where one stopped.

And which questions were answered, and the code of what the course does around cells before any of them was
run: it is the views' own, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amp_lessons.course import progress
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.routes import following
from amp_lessons.course.routes.stops import Command

# It is read where it lies, for importing the views would load PyTorch.
_PAGE = Path(progress.__file__).parent / "views" / "base" / "page.js"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(serverapp: Any) -> None:
    serverapp.web_app.settings["page_config_hook"] = with_the_place


def with_the_place(handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
    """Return what the page gets: ``page.js``, the questions that were answered, and where somebody stopped.

    ``returning.js`` begins the first, which covers no answer to the second, and goes to the last.
    """
    page_config = {**page_config, "ampPage": _PAGE.read_text("utf-8")}
    try:
        kept = progress.read()
        return {**page_config, "ampAnswered": list(kept.answers), "ampStopped": _place(kept)}
    except (progress.ProgressError, FileNotFoundError):  # said where an answer is to be kept
        return page_config


def _place(kept: progress.Learner) -> dict[str, Any] | None:
    """Return the lesson where somebody stopped, the cell to go to there, a line to say, and what is next.

    That cell is the one below what was worked on last: cells before the next task may not have been run.
    Whoever was here a moment ago is brought there, too, and told nothing.
    """
    found, said = tasks.stopped_at(kept), following.where_stopped(kept)
    if found is None:
        return None
    last, step = found[0], following.next_step(kept)
    place = {"file": shipped.head_of(last.lesson).file, "cell": last.cell, "said": said}
    if step is None or isinstance(step.stop, Command):
        return place
    lesson, cell = step.place
    there = {"label": f"Next: lesson {lesson}", "file": shipped.head_of(lesson).file, "cell": cell}
    return {**place, "cell": _below(last, cell) if lesson == last.lesson else last.cell, "next": there}


def _below(last: tasks.Task, following: str) -> str:
    """Return the id of the cell below a task, or of what follows where that does not stand below."""
    cells = [cell["id"] for cell in shipped.cells_in(last.lesson)]
    place = cells.index(last.cell)
    return cells[place + 1] if following in cells[place + 1 :] else following
