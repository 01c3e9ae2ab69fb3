"""A recording as a page in Markdown: what failed, what could not be run, and all that was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from amp_lessons._base.text.prose import as_markdown
from amp_lessons._base.text.tables import Table
from tools.gpu.recording import Part, Recording


def page(recording: Recording, source: Path) -> str:
    """Return the page of a recording, which the file ``source`` beside it holds. Nothing on it is typed."""
    parts = recording.parts
    results = [result for part in parts.values() for result in part.results]
    pieces = [
        f"# {as_markdown(recording.setup.device)}, torch {as_markdown(recording.setup.torch)}",
        f"Made by `make gpu` from [{source.name}]({source.name}); nothing here is edited by hand.",
        _provenance(recording),
        "## What failed",
        _listed(f"`{each.name}`: {each.message}" for each in results if each.outcome == "failed"),
        "## What did not run to its end",
        _listed(f"`{name}`: {p.status}: {p.message}" for name, p in parts.items() if p.status != "done"),
        "## All parts",
        _table(("part", "outcome", "passed", "failed", "skipped", "took"), map(_row, parts, parts.values())),
        "## All results",
        _table(("what", "outcome", ""), [(f"`{each.name}`", each.outcome, each.message) for each in results]),
        *(_lines(name, part) for name, part in parts.items() if part.lines),
    ]
    return "\n\n".join(pieces) + "\n"


def _provenance(recording: Recording) -> str:
    setup, parts = recording.setup, recording.parts.values()
    days = sorted({part.at[:10] for part in parts}) or ["no day yet"]
    date = " to ".join(dict.fromkeys((days[0], days[-1])))
    commits = ", ".join(dict.fromkeys(part.commit or "unknown" for part in parts))
    named = {
        "compute capability": setup.capability,
        "driver": setup.driver,
        "CUDA": setup.cuda,
        "Python": setup.python,
        "transformers": setup.transformers,
        "amp-lessons": setup.course,
        "commit": commits,
        "threads": str(setup.threads),
    }
    words = ", ".join(f"{name} {value}" for name, value in named.items() if value)
    return as_markdown(f"Recorded on {setup.device}, {date}, torch {setup.torch}: {words}.")


def _row(name: str, part: Part) -> tuple[str, ...]:
    outcomes = [result.outcome for result in part.results]
    counts = [str(outcomes.count(each)) for each in ("passed", "failed", "skipped")]
    return (f"`{name}`", part.status, *counts, f"{part.seconds:.0f} s")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    several = list(rows)
    return Table(head, several).as_markdown() if several else "Nothing yet."


def _listed(items: Iterable[str]) -> str:
    return "\n".join(f"- {as_markdown(item)}" for item in items) or "Nothing."


def _lines(name: str, part: Part) -> str:
    text = "\n".join(part.lines).replace("```", "'''")
    return f"### `{name}`, {part.at[:10]}\n\n```text\n{text}\n```"
