"""What every notebook of the course keeps to: each rule takes a notebook as JSON holds it, and complains."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from statistics import median
from typing import Any

from amp_lessons.course.lessons.shipped import DEEPER, begins_deeper, code_of, joined, parted, source
from amp_lessons.course.routes.minutes import word_count
from tests.browser.seen_cells import names_of

Notebook = dict[str, Any]
Cell = dict[str, Any]

MAX_CODE_LINES = 20
MAX_MEDIAN_CODE_LINES = 6
MAX_MARKDOWN_WORDS = 80
MAX_CELLS_TO_READ = 10
MAX_ROW = 100  # characters: some more fit beside JupyterLab's file browser on a screen of 1280 pixels
MAX_PICTURE_BYTES = 300_000
MAX_NOTEBOOK_BYTES = 2_000_000
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_BASE64 = re.compile(r"base64,[A-Za-z0-9+/=\s]+")
_LOCAL_PATH = re.compile(
    r"(?<![\w.:/-])/(?:home|Users|root|tmp|private|work|mnt|var/folders)/\w+|[A-Z]:\\Users\\"
)
# What draws only is named in lower case; what can be operated is a class.
_SOMETHING_TO_DO = re.compile(r"\bviews\.(?:[A-Z]\w+|check)\(")
FOLDED = "jp-MarkdownHeadingCollapsed"
_FOR_WHOM = re.compile(r"\*\*\d+ minutes\*\*[^.]*\. For .+")
_THERE_ALREADY = {*dir(builtins), "display", "get_ipython"}
_OBJECT_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")


def executed_from_top_to_bottom(notebook: Notebook) -> list[str]:
    """A cell without an execution count is one in which nbval compares nothing."""
    counts = enumerate((cell["execution_count"] for cell in code_cells(notebook)), start=1)
    return [f"code cell {place} has the execution count {count}" for place, count in counts if count != place]


def no_error_outputs(notebook: Notebook) -> list[str]:
    """A stored error is one that the reader on GitHub sees."""
    return [f"stored {out['ename']}" for out in outputs(notebook) if out["output_type"] == "error"]


def no_widget_state(notebook: Notebook) -> list[str]:
    """GitHub shows an error for stored widget state, and a reader without a kernel one for a dead widget."""
    state = ["the metadata holds widget state"] if "widgets" in notebook["metadata"] else []
    return state + [
        f"an output refers to a live widget: {data}" for data in displays(notebook) if WIDGET_VIEW in data
    ]


def runs_on_the_plain_kernel(notebook: Notebook) -> list[str]:
    """A kernel by another name is not there on another machine."""
    name = notebook["metadata"].get("kernelspec", {}).get("name")
    return [] if name == "python3" else [f"the kernelspec is {name}, not python3"]


def short_code_cells(notebook: Notebook) -> list[str]:
    """A cell shows one idea; the capstone, tagged so, and what an exercise asks to write may be longer."""
    cells = [cell for cell in code_cells(notebook) if "capstone" not in tags(cell) and not is_stub(cell)]
    long = [cell for cell in cells if line_count(cell) > MAX_CODE_LINES]
    complaints = [f"{line_count(cell)} lines of code from {first_line(cell)!r} on" for cell in long]
    middle = median(map(line_count, cells)) if cells else 0
    if middle > MAX_MEDIAN_CODE_LINES:
        complaints.append(f"the median code cell has {middle} lines")
    return complaints


def short_markdown_cells(notebook: Notebook) -> list[str]:
    """A cell makes one claim; one tagged ``long`` may take its time."""
    cells = [
        cell for cell in notebook["cells"] if cell["cell_type"] == "markdown" and "long" not in tags(cell)
    ]
    words = [(word_count(source(cell)), first_line(cell)) for cell in cells]
    return [f"{count} words of text from {line!r} on" for count, line in words if count > MAX_MARKDOWN_WORDS]


def something_to_do(notebook: Notebook) -> list[str]:
    """Who only reads on falls asleep: no more than ten cells without a prediction, control or exercise."""
    stretches = groupby(notebook["cells"], key=is_to_do)
    unbroken = [list(cells) for to_do, cells in stretches if not to_do]
    return [
        f"{len(cells)} cells with nothing to do from {first_line(cells[0])!r} to {first_line(cells[-1])!r}"
        for cells in unbroken
        if len(cells) > MAX_CELLS_TO_READ
    ]


def ends_with_text(notebook: Notebook) -> list[str]:
    """Shift+Enter on a last cell makes an empty one below it, and nobody knows what that is for."""
    return ["the last cell is code"] if notebook["cells"][-1]["cell_type"] == "code" else []


def the_core_in_one_piece(notebook: Notebook) -> list[str]:
    """Who stops at the strip has done the core, and all that is deeper can be folded away below it."""
    core, deeper = parted(notebook["cells"])
    ids = [cell.get("id") for cell in core]
    if not deeper:
        return ["the head states more minutes than the core's"] if " more** " in source(core[0]) else []
    headings = [line for section in deeper for cell in section for line in headings_in(cell)]
    others = [line for line in headings if not line.startswith((DEEPER, "### "))]
    complaints = [f"{line!r} stands below {DEEPER!r}" for line in others]
    return complaints + ([] if ids[-2:] == ["lesson-end", "deeper"] else [f"the core ends with {ids[-2:]}"])


def deeper_headings_folded(notebook: Notebook) -> list[str]:
    """A heading that is folded says what is below, for how long and for whom; nothing else is folded."""
    headings = list(filter(begins_deeper, notebook["cells"]))
    wrong = [cell for cell in notebook["cells"] if begins_deeper(cell) != cell["metadata"].get(FOLDED, False)]
    complaints = [f"folded, or open, against the rule: {first_line(cell)!r}" for cell in wrong]
    vague = [cell for cell in headings if not _FOR_WHOM.match(source(cell).partition("\n")[2].strip())]
    return complaints + [f"minutes, or for whom, are missing below {first_line(cell)!r}" for cell in vague]


def deeper_minutes_add_up(notebook: Notebook) -> list[str]:
    """What stands at the head is the sum of what stands below the headings."""
    more = re.search(r"\*\*(\d+) more\*\*", source(notebook["cells"][0]))
    stated, parts = int(more[1]) if more else 0, deeper_minutes(notebook).values()
    return [] if stated == sum(parts) else [f"{stated} more at the head, and {sum(parts)} below the headings"]


def names_from_above(notebook: Notebook) -> list[str]:
    """The core needs nothing that is deeper, and a deeper section nothing of another one.

    That a name is bound before it is read, a run from top to bottom shows.
    """
    cells, sections = parted(notebook["cells"])
    core, *deeper = (names_of(code_of(each)) for each in (cells, *sections))
    pieces = [("the core", core, core.bound)]
    pieces += [(f"deeper section {n}", each, core.bound | each.bound) for n, each in enumerate(deeper, 1)]
    missing = [(piece, sorted(names.read - there - _THERE_ALREADY)) for piece, names, there in pieces]
    return [f"{piece} does not bind {', '.join(names)}" for piece, names in missing if names]


def small_pictures(notebook: Notebook) -> list[str]:
    """A notebook is text under version control: its pictures are downloaded with every clone."""
    heavy = [size for size in map(picture_bytes, displays(notebook)) if size > MAX_PICTURE_BYTES]
    complaints = [f"a picture of {size} bytes" for size in heavy]
    total = len(json.dumps(notebook))
    return complaints + ([f"{total} bytes in all"] if total > MAX_NOTEBOOK_BYTES else [])


def rows_that_fit(notebook: Notebook) -> list[str]:
    """Rows that are too long break on the page, and are no table any more; a sentence may break."""
    complaints = []
    for printed in (joined(output["text"]) for output in outputs(notebook) if "text" in output):
        long = [row for row in printed.splitlines() if len(row) > MAX_ROW and not row.endswith((".", ".)"))]
        if len(long) > 1:
            complaints.append(f"{len(long)} rows like this one of {len(long[0])} characters: {long[0]!r}")
    return complaints


def nothing_of_this_machine(notebook: Notebook) -> list[str]:
    """Paths and addresses differ on every machine and in every run."""
    texts = [_BASE64.sub("", text) for text in output_texts(notebook)]
    return [f"an output says {found!r}" for text in texts for found in _findings(text)]


RULES: tuple[Callable[[Notebook], list[str]], ...] = (
    executed_from_top_to_bottom,
    no_error_outputs,
    no_widget_state,
    runs_on_the_plain_kernel,
    short_code_cells,
    short_markdown_cells,
    something_to_do,
    ends_with_text,
    the_core_in_one_piece,
    deeper_headings_folded,
    deeper_minutes_add_up,
    names_from_above,
    small_pictures,
    rows_that_fit,
    nothing_of_this_machine,
)


def code_cells(notebook: Notebook) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def headings_in(cell: Cell) -> list[str]:
    return re.findall(r"^#+ .+", source(cell), re.MULTILINE) if cell["cell_type"] == "markdown" else []


def deeper_minutes(notebook: Notebook) -> dict[str, int]:
    """What each deeper section states below its heading."""
    headings = list(filter(begins_deeper, notebook["cells"]))
    stated = [re.search(r"\*\*(\d+) minutes\*\*", source(cell)) for cell in headings]
    found = {first_line(cell).removeprefix("## "): each for cell, each in zip(headings, stated, strict=True)}
    return {heading: int(each[1]) for heading, each in found.items() if each}


def outputs(notebook: Notebook) -> Iterator[dict[str, Any]]:
    return (output for cell in code_cells(notebook) for output in cell["outputs"])


def displays(notebook: Notebook) -> Iterator[dict[str, Any]]:
    return (output["data"] for output in outputs(notebook) if "data" in output)


def output_texts(notebook: Notebook) -> Iterator[str]:
    for output in outputs(notebook):
        yield joined(output.get("text", ""))
        yield from (
            joined(value) for mime, value in output.get("data", {}).items() if mime.startswith("text/")
        )


def picture_bytes(data: dict[str, Any]) -> int:
    """The bytes of the pictures in one output, as base64 beside the text or inside its HTML."""
    embedded = _BASE64.findall(joined(data.get("text/html", "")))
    return 3 * sum(map(len, [joined(data.get("image/png", "")), *embedded])) // 4


def is_stub(cell: Cell) -> bool:
    """Whether the cell is an exercise's stub, which is its catalogue's and not the notebook's own."""
    return cell.get("id", "").endswith("-stub")


def is_to_do(cell: Cell) -> bool:
    """Whether the cell asks something of the learner: a prediction, a control, or part of an exercise.

    So do the first lesson's cells that are run, stopped and run again after a restart.
    """
    asks = cell["cell_type"] == "code" and _SOMETHING_TO_DO.search(source(cell))
    return bool(asks) or is_stub(cell) or cell.get("id", "") in ("how-stop", "how-restart")


def line_count(cell: Cell) -> int:
    return len(source(cell).splitlines())


def first_line(cell: Cell) -> str:
    return source(cell).partition("\n")[0]


def tags(cell: Cell) -> list[str]:
    return cell["metadata"].get("tags", [])


def _findings(text: str) -> list[str]:
    return _LOCAL_PATH.findall(text) + _OBJECT_ADDRESS.findall(text)
