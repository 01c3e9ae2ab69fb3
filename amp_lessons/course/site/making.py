"""Make what takes long, here: ``python -m amp_lessons.course.site.making 03 FOLDER``, or ``cards FOLDER``.

For the number of a lesson, the scripts of its views' states are written into the folder, and which views
those are; for ``cards``, the answers to the questions of interviews. A line is printed for each view, or for
the answers, as soon as they are there; the last line lists the files of the package that were loaded.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from amp_lessons.course.site.made import PART, loaded

LIVE = "live.json"  # for each cell with a view that is live, what of it stands still
NARROW = ".narrow.png"  # how the file of a picture for phones ends
RECORDED = ".json"  # and that of what a view showed at first, as a notebook stores it
ANSWERS = "answers.json"  # question and answer by the id of a question, with numbers


def make(name: str, out: Path) -> None:
    """Make the frames of a lesson by its number, or the ``cards``."""
    if name == "cards":
        _make_answers(out)
    else:
        _make_frames(name, out)
    print(json.dumps(loaded()))


def _make_answers(out: Path) -> None:
    from amp_lessons.course.interview.bank import QUESTIONS

    answers = {each.id: [each.question, each.answer] for each in QUESTIONS}
    (out / ANSWERS).write_text(json.dumps(answers), "utf-8")
    print(PART, flush=True)


def _make_frames(number: str, out: Path) -> None:
    """Run the cells of a lesson, and freeze each view as soon as its cell has shown it."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    from amp_lessons.course.lessons import shipped
    from amp_lessons.course.site.frames import cells_to_run

    os.chdir(shipped.originals())
    shell = InteractiveShell.instance()
    live = {}
    for cell in cells_to_run(number):
        with capture_output() as said:
            ran = shell.run_cell(shipped.source(cell))
        if not ran.success:
            raise SystemExit(f"the cell {cell['id']} has failed\n{said.stdout[-2000:]}{said.stderr[-2000:]}")
        still = put_shown(ran.result, f"{number}-{cell['id']}", out)
        if still is not None:
            live[cell["id"]] = still
            print(PART, flush=True)
    (out / LIVE).write_text(json.dumps(live), "utf-8")


def put_shown(result: object, name: str, out: Path) -> str | None:
    """Write the states of a view that a cell has shown, and return what of it stands still.

    Of a picture, or of anything else, that is None; a narrow drawing is written where there is one. Beside
    its states stands what a view showed at first: what is measured differs from what the notebook stores.
    """
    from amp_lessons.course.site.freezing import freeze
    from amp_lessons.course.views.base.view import View

    if not isinstance(result, View):
        return None
    frozen = freeze(result, name)
    if frozen is None:
        if result.picture and result.picture.narrow:
            (out / f"{name}{NARROW}").write_bytes(result.picture.narrow.png())
        return None
    for file, script in frozen.scripts.items():
        (out / file).write_text(script, "utf-8")
    (out / f"{name}{RECORDED}").write_text(json.dumps(result.stored()), "utf-8")
    return frozen.still


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
