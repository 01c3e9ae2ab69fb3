"""A report as text, markdown and HTML. Nothing here decides anything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_lessons._base.render import Section
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import counted, fraction, listed, number
from amp_lessons.audit.report import steps
from amp_lessons.audit.report.finding import entry_of
from amp_lessons.audit.report.losses import LayerRow, formats_of, layer_rows, used_format
from amp_lessons.audit.report.steps import LOST_UPDATES, ranks_table
from amp_lessons.audit.rules import ROWS
from amp_lessons.audit.rules.rows import COSTS
from amp_lessons.audit.seen import AS_TRAINED

if TYPE_CHECKING:
    from amp_lessons.audit.findings import Place
    from amp_lessons.audit.report.report import Report
    from amp_lessons.audit.seen import PrecisionSeen

STEPS, LAYERS = "Steps", "Layers, the worst first"
CASTS = "What a cast to another format would lose"
MOST_LAYERS = 12
MOST_FRAMES = 8


def headline(report: Report) -> str:
    """Say the verdict in a line."""
    of = f"Audit of {report.of}" if report.of else "Audit"
    count = len(report.steps)
    looked_at = f"{count:,} optimizer {'step' if count == 1 else 'steps'}"
    if report.ranks:
        looked_at += f" of {len(report.ranks)} ranks"
    if count and not any(step.happened for step in report.steps):
        looked_at += ", every one of which was skipped"
    if report.ended_at is not None:
        looked_at += f", {report.ended.split(': ')[bool(report.ranks)]} at {report.ended_at}"
    mistakes = sum(finding.kind == "failed" for finding in report.findings)
    if not mistakes and not count:
        return f"{of}: no optimizer step was seen{looked_at.removeprefix('0 optimizer steps')}"
    return f"{of}: {counted(mistakes, 'mistake') if mistakes else 'no mistake seen'} in {looked_at}"


def opening(report: Report) -> Iterator[str]:
    """Yield the answer: the verdict, what it costs, and what ran."""
    yield headline(report)
    yield from costs(report)
    yield from what_ran(report)


def costs(report: Report) -> Iterator[str]:
    """Say in a sentence what the mistakes cost the training, the most first; nothing where there is none."""
    by_cost: dict[str, dict[str, bool]] = {}
    for each in report.findings:
        if each.kind == "failed" and each.code in ROWS:
            sure = by_cost.setdefault(COSTS[ROWS[each.code].costs], {})
            sure[each.code] = sure.get(each.code, False) or not each.likely
    said = [
        f"{cost if any(sure.values()) else f'perhaps {cost}'} ({listed([f'`{code}`' for code in sure])})"
        for cost, sure in by_cost.items()
    ]
    if said:
        yield f"What it costs: {'; '.join(said)}."


def what_ran(report: Report) -> Iterator[str]:
    """Say in one line in which precision the training ran, and how much of it was skipped."""
    ran, steps_seen = report.precision, report.steps
    if ran is None or not steps_seen:
        return
    in_shards = any(layer.part or (report.ranks and not layer.replicated) for layer in report.layers.values())
    parts = [_say_autocast(ran, "by FSDP or by hand" if in_shards else "by hand")]
    named = [item for layer in report.layers.values() for item in layer.dtype_names.items()]
    if weights := {dtype: None for name, dtype in named if "." not in name and name != "output"}:
        parts.append(f"weights in {listed(list(weights))}")
    if ran.scaler:
        parts.append("scaler on")
    elif ran.scaler_off:
        parts.append("scaler switched off")
    elif "fp16" in (*ran.autocast_names, *ran.by_hand_names):
        parts.append("no scaler")
    if not ran.scaler and any(step.scale != 1.0 for step in steps_seen):
        parts.append("loss scaled by hand")
    if skipped := sum(not step.happened for step in steps_seen):
        parts.append(f"{skipped:,} of {len(steps_seen):,} steps skipped")
    yield f"What ran: {', '.join(parts)}."


def _say_autocast(ran: PrecisionSeen, by_hand: str) -> str:
    if ran.autocast_names:
        return f"{listed(ran.autocast_names)} autocast"
    off = "autocast asked for, and switched off" if ran.autocast_off else "no autocast"
    return f"{listed(ran.by_hand_names)} {by_hand}, {off}" if ran.by_hand_names else off


def sections_of(report: Report, most_layers: int = MOST_LAYERS) -> Iterator[Section]:
    """Yield all that there is to say: findings first, then what they rest on; never an empty section."""
    if report.findings:
        yield Section("Findings", entries=tuple(map(entry_of, report.findings)))
    yield from _ended(report)
    yield from _first_nonfinite(report)
    if report.steps:
        yield Section(STEPS, tuple(steps.remarks(report)), table=steps.steps_table(report))
    if report.ranks:
        yield Section("Ranks", table=ranks_table(report))
    yield from _layers(report, most_layers)
    yield from _casts(report, most_layers)
    if report.not_seen:
        yield Section("Not seen", tuple(f"{each}." for each in report.not_seen))
    if report.steps or report.how:
        yield Section("How this was found", tuple(_how(report)))


def _ended(report: Report) -> Iterator[Section]:
    if not report.ended:
        return
    items, explanation = _at(report.ended_at), report.explanation
    if explanation is not None and (explanation.known or report.steps):
        items += explanation.items()
    yield Section("How it ended", (report.ended,), items=tuple(items))


def _at(place: Place | None) -> list[tuple[str, str]]:
    return [] if place is None else [("at", place.shown)]


def _first_nonfinite(report: Report) -> Iterator[Section]:
    found = report.first_nonfinite
    if found is None:
        return
    said = f"{found}"
    unseen = [
        at
        for at, step in enumerate(report.steps)
        if step.index < found.step and not (step.happened and math.isfinite(step.loss or 0.0))
    ]
    if unseen:
        before = report.steps[unseen[0]]
        what = "had a loss that was inf or NaN" if before.happened else "was skipped"
        said += f" That is the first among the steps that were looked at; step {unseen[0] + 1} {what} before."
    lost = [s for s in report.steps if s.index == found.step and not math.isfinite(s.loss or 0.0)]
    if found.phase == "backward" and lost:
        said += " The loss was inf or NaN before that, outside the modules."
    items = _at(found.place)
    if found.recovered:
        items.append(("recovered", "the scaler skipped that step, as it is there for, and training went on"))
    rows = [
        (frame.module, frame.kind, number(frame.largest, 3), frame.dtype_name)
        for frame in found.before[-MOST_FRAMES:]
    ]
    head = ("module", "kind", "largest magnitude", "dtype")
    table = Table(head, rows, "How it grew, from one module to the next") if rows else None
    title = f"The first inf or NaN{' of the steps that were looked at' if unseen else ''}"
    yield Section(title, (said,), items=tuple(items), table=table)


def _layers(report: Report, most: int) -> Iterator[Section]:
    rows = layer_rows(report)
    if not rows:
        return
    trained = AS_TRAINED in formats_of(report)
    said = ["Over all steps that were looked at.", LOST_UPDATES]
    used = [f"{used_format(report)}, as trained"] if trained else []
    caption = "What each layer's gradients and updates lost"
    if trained:
        caption = "As trained: the fraction of the gradients, and of their norm, that became zero"
    if trained and used_format(report) == "fp16":  # bf16 reaches as far down as fp32
        said.append("Some of those that are already 0 may have underflowed in the backward pass.")
    cells = [
        (
            row.name,
            fraction(row.zeros),
            *([f"{row.losses.get(AS_TRAINED) or '–'}"] if trained else []),
            "–" if row.lost_updates is None else fraction(row.lost_updates),
        )
        for row in rows[:most]
    ]
    head = ("layer", "already 0", *used, "lost updates")
    table = Table(head, cells, caption, _left_out(rows, most))
    yield Section(LAYERS, tuple(said), items=tuple(_unusual(rows)), table=table)


def _casts(report: Report, most: int) -> Iterator[Section]:
    """Say what formats that were not used would lose."""
    rows, names = layer_rows(report), [name for name in formats_of(report) if name != AS_TRAINED]
    if not rows or not names:
        return
    losses = ((row.name, [row.losses.get(name) for name in names]) for row in rows[:most])
    cells = [(name, *("–" if each is None else fraction(each.norm) for each in of)) for name, of in losses]
    caption = "Fraction of each layer's gradient, by norm, that a cast would make zero"
    yield Section(CASTS, table=Table(("layer", *names), cells, caption, _left_out(rows, most)))


def _left_out(rows: list[LayerRow], most: int) -> list[str]:
    return [f"{len(rows) - most} more layers lose no more."] if len(rows) > most else []


def _unusual(rows: list[LayerRow]) -> Iterator[tuple[str, str]]:
    """Say what is kept in fewer bits than mixed precision keeps it in, and in which layers."""
    by_what: dict[str, list[str]] = {}
    for row in rows:
        if row.unusual:
            said = ", ".join(f"{what} {dtype}" for what, dtype in row.unusual.items())
            by_what.setdefault(said, []).append(row.name)
    for said, (first, *others) in by_what.items():
        yield "unusual dtypes", f"{said}, in `{first}`" + (f" and {len(others)} more" if others else "")


def _how(report: Report) -> Iterator[str]:
    sampled = sum(step.sampled for step in report.steps)
    yield (
        f"Every step was listened to; {sampled:,} of {len(report.steps):,} were looked at closely, "
        f"every {_ordinal(report.every)} of each optimizer."
    )
    how = report.how
    if how is None:
        return
    yield (
        f"amp-lessons {how.amp_lessons}, PyTorch {how.torch}, Python {how.python} "
        f"on {how.device}, {how.began}."
    )
    yield (
        f"[measured] The training took {how.seconds:.1f} s with the audit, which spent "
        f"{how.looking_seconds:.1f} s of them around the optimizers' steps."
    )


def _ordinal(number: int) -> str:
    if number == 1:
        return "single one"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
