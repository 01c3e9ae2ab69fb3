"""The tables of ``README.md``, made of all recordings: ``python -m classroom.load.page`` makes them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from amp_lessons.keeping import files
from classroom.load.klass import ClassFound, LessonFound, Waits
from classroom.load.recording import FOLDER, Part, Recording, all_in

PAGE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- made of recordings/ by `python -m classroom.load.page` -->", "<!-- end of what is made -->"
_BUSY = 0.1  # from here on a machine was not quiet

_CLASS = (
    "learners",
    "kernel ready",
    "lesson run",
    "check",
    "slider",
    "each kernel",
    "processor",
    "server",
    "taken in all",
)
_ALONE = ("lesson", "kernel ready", "run", "idle", "at its end", "at its peak", "processor")


def write(recordings: Sequence[Recording], page: Path = PAGE) -> None:
    """Make the tables of the page again, and leave the rest of it."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "".join(f"{_tables(each)}\n\n" for each in recordings)
    files.replace(page, f"{before}{BEGIN}\n\n{tables}{END}{after}")


def in_words(found: ClassFound | LessonFound) -> str:
    """Say what was found in one line."""
    if isinstance(found, LessonFound):
        errors = f", {len(found.errors)} errors" if found.errors else ""
        return f"{found.end_mib:.0f} MiB, {found.peak_mib:.0f} at its peak{errors}"
    told = [
        f"{found.kernel_mib:.0f} MiB per kernel, check {_waits(found.check)}, slider {_waits(found.move)}"
    ]
    return "; ".join([*told, *found.broke, *found.errors])


def _tables(recording: Recording) -> str:
    here = recording.setup
    machine = f"{here.cpu}, {here.cores} cores, {here.memory_gib} GiB, {here.system}"
    versions = f"Python {here.python}, torch {here.torch}, jupyter_server {here.jupyter_server}"
    lines = [
        f"### {here.kernels.capitalize()} kernels, {here.target}, {here.cores} cores",
        f"{machine}; {versions}.",
    ]
    lines += _table("", _CLASS, recording, ClassFound, _class_row)
    lines += _table(
        "Each lesson alone, its last exercise solved and checked:", _ALONE, recording, LessonFound, _alone
    )
    return "\n\n".join(lines)


def _table(
    title: str,
    heads: Sequence[str],
    recording: Recording,
    kind: type[ClassFound] | type[LessonFound],
    row: Callable[..., Sequence[str]],
) -> list[str]:
    parts = [part for part in recording.parts.values() if isinstance(part.found, kind)]
    if not parts:
        return []
    rows = [[*row(part.found), _when(part)] for part in sorted(parts, key=_order)]
    head = [*heads, "measured"]
    table = [head, ["---", *["---:"] * (len(head) - 2), "---"], *rows]
    return [
        *filter(None, [title]),
        "\n".join(f"| {' | '.join(cells)} |" for cells in table),
        *_troubles(parts),
    ]


def _order(part: Part) -> tuple[str, int]:
    found = part.found
    return (found.lesson, found.learners if isinstance(found, ClassFound) else 0)


def _class_row(found: ClassFound) -> list[str]:
    count = f"{found.learners} with lesson {found.lesson}"
    at_once = f" ({found.check.count} at once)" if found.check else ""
    each = (f"{found.kernel_mib:.0f} MiB", f"{found.kernel_processor_s:.0f} s")
    server = f"{found.server_mib + found.parent_mib:.0f} MiB"
    waits = (_waits(found.start), _waits(found.run), _waits(found.check) + at_once, _waits(found.move))
    return [count, *waits, *each, server, f"{found.taken_mib / 1024:.1f} GiB"]


def _alone(found: LessonFound) -> list[str]:
    sizes = [f"{mib:.0f} MiB" for mib in (found.idle_mib, found.end_mib, found.peak_mib)]
    return [
        found.lesson,
        f"{found.start_s:.1f} s",
        f"{found.run_s:.0f} s",
        *sizes,
        f"{found.processor_s:.0f} s",
    ]


def _waits(waits: Waits | None) -> str:
    return f"{waits.median_s:.1f} to {waits.longest_s:.1f} s" if waits else "–"


def _when(part: Part) -> str:
    others = f"; others took {part.others:.0%} of the processors" if part.others >= _BUSY else ""
    return f"{part.at[:10]}{others}"


def _troubles(parts: Iterable[Part]) -> list[str]:
    told = []
    for part in parts:
        broke = part.found.broke if isinstance(part.found, ClassFound) else ()
        told += [f"- {part.name}: {words}" for words in (*broke, *part.found.errors)]
    return ["\n".join(told)] if told else []


if __name__ == "__main__":
    write(list(all_in(FOLDER)))
