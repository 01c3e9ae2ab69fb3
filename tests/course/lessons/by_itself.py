"""Run a lesson's core, and each deeper section as if it alone followed: ``python by_itself.py LESSON.ipynb``.

Each section is run in a fork of the process in which the core was run, so that it meets exactly what the
core leaves, and nothing of another section. Printed is, as JSON, what raised: the section's heading, the
first line of the cell, the error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from IPython.terminal.interactiveshell import TerminalInteractiveShell

from amp_lessons.course.lessons.shipped import Cell, cells_of, parted, source


def failures(lesson: Path) -> Iterator[tuple[str, str, str]]:
    """Run the core, then each section; yield what raised, at most once for each of them."""
    core, sections = parted(cells_of(lesson))
    os.chdir(lesson.parent)
    if failed := run(core):
        yield ("core", *failed)
        return
    for section in sections:
        if failed := in_a_fork(section):
            yield (source(section[0]).splitlines()[0], *failed)


def run(cells: list[Cell]) -> tuple[str, str] | None:
    """Run code cells as a kernel does; return the first line and the error of the first that raises."""
    shell = TerminalInteractiveShell.instance(simple_prompt=True, history_load_length=0)
    shell.history_manager.enabled = False
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        done = shell.run_cell(source(cell))
        if error := done.error_before_exec or done.error_in_exec:
            return source(cell).splitlines()[0], repr(error)
    return None


def in_a_fork(cells: list[Cell]) -> tuple[str, str] | None:
    """Run cells in a child of this process, and return what ``run`` does."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        os.write(send, json.dumps(run(cells)).encode()[:4096])
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as said:
        answer = said.read()
    os.waitpid(child, 0)
    return json.loads(answer or '["the process", "ended"]')


if __name__ == "__main__":
    print(json.dumps(list(failures(Path(sys.argv[1]).resolve()))))
