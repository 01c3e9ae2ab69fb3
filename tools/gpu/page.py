"""A recording as a page in Markdown: first what did not agree, then what did, with every figure.

Nothing on the page is typed, and each table says on what, when and with which PyTorch it was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amp_lessons.text.prose import as_markdown
from amp_lessons.text.tables import Table
from amp_lessons.text.words import flop_rate, memory
from tools.gpu.found import Agreement, Amount, Figure
from tools.gpu.recording import Part, Recording, Setup, StepRecord

_AGREEMENT_HEAD = ("what", "claimed", "measured", "claimed / measured", "tolerance")


def page(recording: Recording, source: str) -> str:
    """Return the page of a recording, which the file ``source`` beside it holds."""
    steps = tuple(recording.steps.values())
    pieces = [
        f"# {as_markdown(recording.setup.device)}, torch {as_markdown(recording.setup.torch)}",
        f"Made by `make gpu` from [{source}]({source}); nothing here is edited by hand.",
        _in_detail(recording),
        _overview(recording),
        "## What did not agree",
        *(_disagreements(recording) or ["Nothing: whatever was measured agrees with what was claimed."]),
        "## What could not be measured",
        *(_troubles(steps) or ["Nothing: all parts ran to their end."]),
        "## What agreed",
        *(_tables(recording, agrees=True) or ["Nothing yet."]),
        "## Figures",
        *(_figures(recording) or ["None yet."]),
        *_lines(recording),
    ]
    return "\n\n".join(pieces) + "\n"


def provenance(setup: Setup, parts: Iterable[Part]) -> str:
    """Return the label under which something is shown: on what, when, with which PyTorch."""
    days = sorted({part.at[:10] for part in parts})
    date = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no results yet"
    return f"recorded on {setup.device}, {date}, torch {setup.torch}"


def _in_detail(recording: Recording) -> str:
    setup = recording.setup
    commits = ", ".join(dict.fromkeys(part.commit or "unknown" for part in recording.parts)) or "unknown"
    named = {
        "compute capability": setup.capability,
        "driver": setup.driver,
        "CUDA": setup.cuda,
        "cuDNN": setup.cudnn,
        "Python": setup.python,
        "transformers": setup.transformers,
        "amp-lessons": setup.course,
        "commit": commits,
        "CPU": setup.cpu,
        "threads": str(setup.threads),
    }
    words = ", ".join(f"{name} {value}" for name, value in named.items() if value)
    label = provenance(setup, recording.parts)
    return as_markdown(f"{label[0].upper()}{label[1:]}: {words}.")


def _overview(recording: Recording) -> str:
    rows = []
    for step in recording.steps.values():
        done = sum(part.status == "done" for part in step.parts)
        agreed = sum(each.agrees for each in step.agreements)
        counts = f"{done} of {len(step.wanted)}", f"{agreed} of {len(step.agreements)}"
        rows.append((step.name, step.status, *counts, f"{step.seconds:.0f} s"))
    head = ("step", "outcome", "parts done", "agreements that hold", "took")
    return Table(head, rows, provenance(recording.setup, recording.parts)).as_markdown()


def _disagreements(recording: Recording) -> list[str]:
    return _tables(recording, agrees=False)


def _tables(recording: Recording, *, agrees: bool) -> list[str]:
    """Return one table per step that has agreements which hold, or which do not."""
    tables = []
    for step in recording.steps.values():
        found = [each for each in step.agreements if each.agrees is agrees]
        if found:
            rows, notes = [_agreement(each) for each in found], dict.fromkeys(map(_tolerance, found))
            tables.append(_table(recording.setup, step, _AGREEMENT_HEAD, rows, notes))
    return tables


def _figures(recording: Recording) -> list[str]:
    tables = []
    for step in recording.steps.values():
        rows = [(part.name, each.name, _figure(each)) for part in step.parts for each in part.figures]
        if rows:
            tables.append(_table(recording.setup, step, ("part", "what", "measured"), rows))
    return tables


def _table(
    setup: Setup,
    step: StepRecord,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    notes: Iterable[str] = (),
) -> str:
    return Table(head, rows, f"{step.name}: {provenance(setup, step.parts)}", notes).as_markdown()


def _troubles(steps: Iterable[StepRecord]) -> list[str]:
    """Say of each part that was not done why, and of each step what is left."""
    lines = []
    for step in steps:
        lines += [
            f"- {as_markdown(f'{step.name}: {part.name}: {part.status}: {part.message}')}"
            for part in step.parts
            if part.status != "done"
        ]
        if step.untried or not (step.wanted or step.parts):
            left = ", ".join(step.untried) or "all of it"
            lines.append(f"- {as_markdown(f'{step.name}: left for another call: {left}')}")
    return ["\n".join(lines)] if lines else []


def _lines(recording: Recording) -> list[str]:
    """Return the text that parts kept as it is."""
    pieces = []
    for step in recording.steps.values():
        for part in step.parts:
            if part.lines:
                label = as_markdown(f"{step.name}: {part.name}, {provenance(recording.setup, [part])}")
                text = "\n".join(part.lines).replace("```", "'''")
                pieces.append(f"### {label}\n\n```text\n{text}\n```")
    return ["## Text", *pieces] if pieces else []


def _agreement(each: Agreement) -> tuple[str, ...]:
    ratio = "" if each.ratio is None else f"{each.ratio:.3f}"
    amounts = _amount(each.claimed, each.unit), _amount(each.measured, each.unit)
    return (each.about, *amounts, ratio, _within(each))


def _within(each: Agreement) -> str:
    return f"{each.tolerance:.0%}" if each.tolerance else "none"


def _tolerance(each: Agreement) -> str:
    """Say why a tolerance is what it is."""
    return f"Tolerance {_within(each)}: {each.reason}."


def _figure(each: Figure) -> str:
    return _amount(each.value, each.unit)


def _amount(value: Amount, unit: str) -> str:
    """Put an amount into words: bytes and rates in their own units, others in four digits."""
    if isinstance(value, str):
        return " ".join(value.split())
    if unit == "bytes":
        return memory(int(value))
    if unit == "FLOP/s":
        return flop_rate(value)
    number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return f"{number} {unit}".strip()
