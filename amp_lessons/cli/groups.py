"""``amp-lessons groups``: other variants for every group or learner, with the teacher's answers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from amp_lessons.cli import typed
from amp_lessons.teaching import groups
from amp_lessons.teaching.groups import Handed, Work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons groups``."""
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--groups", type=typed.whole(), default=6, metavar="N", help="how many groups (default: 6)"
    )
    who.add_argument("--learners", nargs="+", metavar="NAME", help="or a variant for each of these")
    parser.add_argument(
        "--seed", type=typed.whole(None), required=True, help="draws everything; the same prints the same"
    )
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these, such as heal_snail drills")
    parser.add_argument(
        "--handouts",
        type=typed.folder_to_write,
        metavar="FOLDER",
        help="write a notebook for each there, without answers",
    )


def run(args: argparse.Namespace) -> int:
    """Print who gets what, with the answers; 1 with a sentence where that cannot be."""
    try:
        chosen = [groups.work(each) for each in args.only] if args.only else groups.all_work()
        names = args.learners or [f"group {number + 1}" for number in range(args.groups)]
        _hand_out(chosen, names, args.seed, args.handouts)
    except (ValueError, OSError) as error:
        return typed.refuse(error)
    return 0


def _hand_out(chosen: Sequence[Work], names: Sequence[str], seed: int, folder: Path | None) -> None:
    files = [re.sub(r"\W+", "_", name.strip().lower()) + ".ipynb" for name in names]
    if twice := sorted({name for name, file in zip(names, files, strict=True) if files.count(file) > 1}):
        alike = ", ".join(twice)
        raise ValueError(f"each name stands for one learner, but these are too much alike: {alike}")
    print(f"{len(names)} variants of each, drawn by seed {seed}: the same command prints the same again.")
    handed = {}
    for work in chosen:
        handed[work] = groups.hand_out(work, len(names), seed)
        _print(work, handed[work], names)
    print("\nWithout variants, the same for everybody:")
    print("\n".join(f"  {each}" for each in groups.WITHOUT_VARIANTS))
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        for place, (name, file) in enumerate(zip(names, files, strict=True)):
            of_one = [(work, handed[work][place]) for work in chosen]
            (folder / file).write_text(_handout(name, of_one), "utf-8")
        print(f"\nHandouts, without answers: {folder}")


def _print(work: Work, handed: Iterable[Handed], names: Sequence[str]) -> None:
    print(f"\n{work.id}: {work.title}, lesson {work.lesson}")
    for each, name in zip(handed, names, strict=True):
        shared = (
            f", the same as {names[each.shared_with - 1]}: there are no others" if each.shared_with else ""
        )
        print(f"  {name}: seed={each.variant.seed}{shared}")
        print("\n".join(f"    {line}" for line in each.variant.answers))


def _handout(name: str, handed: Iterable[tuple[Work, Handed]]) -> str:
    """Write the notebook of one group: each task in cells of its own, as in the lessons."""
    from nbformat import v4, writes  # comes with JupyterLab

    cells = [v4.new_markdown_cell(f"# {name}")]
    for work, each in handed:
        cells.append(v4.new_markdown_cell(f"## {work.title}"))
        cells += [v4.new_code_cell(cell) for cell in each.variant.cells]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # the same handout again is the same file
    return writes(v4.new_notebook(cells=cells))
