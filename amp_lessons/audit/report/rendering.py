"""A report as text, markdown and HTML. Nothing here decides anything."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from amp_lessons.audit.findings import Place, Sighting
from amp_lessons.audit.report import finding, steps
from amp_lessons.audit.report.document import Document, PrecisionEntry, finding_of
from amp_lessons.audit.report.losses import AS_TRAINED, LayerRow, Loss, formats_of, layer_rows, used_format
from amp_lessons.audit.report.steps import ranks_table
from amp_lessons.text import prose
from amp_lessons.text.tables import Table
from amp_lessons.text.words import fraction, listed, number

_WIDTH = 100
_NOTHING = Markup("")


def as_text(document: Document) -> str:
    """Render a report for a terminal."""
    lines = [headline(document), *what_ran(document)]
    for section in sections_of(document):
        lines += ["", section.title, *section_lines(section)]
    return "\n".join(lines)


def section_lines(section: Section) -> Iterator[str]:
    """Yield what stands below the title of a section, line by line, for a terminal."""
    for sentence in section.sentences:
        yield from textwrap.wrap(sentence, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    for each in section.findings:
        yield from finding.text_lines(each)
    for heading, said in section.items:
        yield from textwrap.wrap(
            f"{heading}: {said}", _WIDTH, initial_indent="    ", subsequent_indent="    "
        )
    if section.table is not None:
        yield from textwrap.indent(str(section.table), "  ").splitlines()


def as_markdown(document: Document) -> str:
    """Render a report for GitHub, and for notebooks without HTML."""
    parts = [f"**{prose.as_markdown(headline(document))}**", *map(prose.as_markdown, what_ran(document))]
    for section in sections_of(document):
        parts += section_markdown(section)
    return "\n\n".join(parts)


def section_markdown(section: Section) -> Iterator[str]:
    """Yield the paragraphs of a section."""
    yield f"**{section.title}**"
    yield from map(prose.as_markdown, section.sentences)
    if section.findings:
        yield "\n".join(map(finding.as_markdown, section.findings))
    if section.items:
        yield "\n".join(
            f"- *{prose.as_markdown(name)}:* {prose.as_markdown(said)}" for name, said in section.items
        )
    if section.table is not None:
        yield section.table.as_markdown()


def as_html(document: Document) -> Markup:
    """Render a report for a notebook, without pictures."""
    sections = Markup("\n").join(section_html(section, "h4") for section in sections_of(document))
    section = '<section class="amp-audit" aria-label="{0}"><p><strong>{0}</strong></p>{1}{2}</section>'
    return Markup(section).format(headline(document), ran_html(document), sections)


def ran_html(document: Document) -> Markup:
    """Render what ran as paragraphs, none where nothing did."""
    return Markup("").join(map(Markup("<p>{}</p>").format, what_ran(document)))


def section_html(section: Section, heading: str, pictures: Markup = _NOTHING) -> Markup:
    """Render one section; ``pictures`` stand above its table."""
    return Markup("\n").join(_pieces(section, Markup(heading), pictures))


def _pieces(section: Section, heading: Markup, pictures: Markup) -> Iterator[Markup]:
    yield Markup("<{0}>{1}</{0}>").format(heading, section.title)
    for sentence in section.sentences:
        yield Markup("<p>{}</p>").format(prose.as_html(sentence))
    if section.findings:
        items = Markup("").join(map(finding.as_html, section.findings))
        yield Markup('<ul style="list-style:none;padding-left:0">{}</ul>').format(items)
    if section.items:
        item = Markup("<dt><em>{}</em></dt><dd>{}</dd>")
        said = (item.format(prose.as_html(name), prose.as_html(sentence)) for name, sentence in section.items)
        yield Markup("<dl>{}</dl>").format(Markup("").join(said))
    yield pictures
    if section.table is not None:
        yield section.table.as_html()


STEPS, LAYERS = "Steps", "Layers, the worst first"
MOST_LAYERS = 12
MOST_FRAMES = 8


@dataclass(frozen=True)
class Section:
    """A title, and below it sentences, findings, sentences with a heading each (``items``), and a table."""

    title: str
    sentences: tuple[str, ...] = ()
    findings: tuple[Sighting, ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    table: Table | None = None


def headline(document: Document) -> str:
    """Say the verdict in a line."""
    of = f"Audit of {document['of']}" if document["of"] else "Audit"
    count = len(document["steps"])
    looked_at = f"{count:,} optimizer {'step' if count == 1 else 'steps'}"
    if document["ranks"]:
        looked_at += f" of {len(document['ranks'])} ranks"
    mistakes = sum(finding["kind"] == "failed" for finding in document["findings"])
    if mistakes:
        return f"{of}: {mistakes} {'mistake' if mistakes == 1 else 'mistakes'} in {looked_at}"
    return f"{of}: no mistake seen in {looked_at}" if count else f"{of}: no optimizer step was seen"


def what_ran(document: Document) -> Iterator[str]:
    """Say in one line in which precision the training ran, and how much of it was skipped."""
    ran, steps_seen = document["precision"], document["steps"]
    if ran is None or not steps_seen:
        return
    parts = [_say_autocast(ran), *_say_weights(document), *_say_scaler(ran)]
    if not ran["scaler"] and any(step["scale"] != 1.0 for step in steps_seen):
        parts.append("loss scaled by hand")
    if skipped := sum(not step["happened"] for step in steps_seen):
        parts.append(f"{skipped:,} of {len(steps_seen):,} steps skipped")
    yield f"What ran: {', '.join(parts)}."


def _say_autocast(ran: PrecisionEntry) -> str:
    if ran["autocast"]:
        return f"{listed(ran['autocast'])} autocast"
    return "autocast asked for, and switched off" if ran["autocast_off"] else "no autocast"


def _say_weights(document: Document) -> Iterator[str]:
    named = [layer["dtypes"].items() for layer in document["layers"]]
    dtypes = {dtype: None for each in named for name, dtype in each if "." not in name and name != "output"}
    if dtypes:
        yield f"weights in {listed(list(dtypes))}"


def _say_scaler(ran: PrecisionEntry) -> Iterator[str]:
    if ran["scaler"]:
        yield "scaler on"
    elif ran["scaler_off"]:
        yield "scaler switched off"
    elif "fp16" in ran["autocast"]:
        yield "no scaler"


def sections_of(document: Document, most_layers: int = MOST_LAYERS) -> Iterator[Section]:
    """Yield all that there is to say: findings first, then what they rest on; never an empty section."""
    if document["findings"]:
        yield Section("Findings", findings=tuple(map(finding_of, document["findings"])))
    yield from _ended(document)
    if document["steps"]:
        yield Section(STEPS, tuple(steps.remarks(document)), table=steps.steps_table(document))
    if document["ranks"]:
        yield Section("Ranks", table=ranks_table(document))
    yield from _layers(document, most_layers)
    yield from _first_nonfinite(document)
    if document["not_seen"]:
        yield Section("Not seen", tuple(f"{each}." for each in document["not_seen"]))
    if document["steps"] or document["how"]:
        yield Section("How this was found", tuple(_how(document)))


def _ended(document: Document) -> Iterator[Section]:
    if not document["ended"]:
        return
    explanation = document["explanation"]
    items: list[tuple[str, str]] = []
    if explanation is not None:
        items = [("means", explanation["meaning"])]
        items.append(("cure" if explanation["known"] else "look", explanation["cure"]))
        if explanation["lesson"]:
            items.append(("lesson", f"{explanation['lesson']} explains it"))
    yield Section("How it ended", (document["ended"],), items=tuple(items))


def _first_nonfinite(document: Document) -> Iterator[Section]:
    found = document["first_nonfinite"]
    if found is None:
        return
    at = f" ({found['operation']})" if found["operation"] else ""
    on = f" on rank {found['rank']}" if found["rank"] is not None else ""
    said = f"In `{found['module']}`{at}{on}, in the {found['phase']} pass before step {found['step'] + 1}."
    place = found["place"]
    items = [("at", f"{Place(**place)}  `{place['source']}`")] if place is not None else []
    if found["recovered"]:
        items.append(("recovered", "the scaler skipped that step, as it is there for, and training went on"))
    rows = [
        (frame["module"], frame["kind"], number(frame["largest"], 3), frame["dtype"])
        for frame in found["before"][-MOST_FRAMES:]
    ]
    head = ("module", "kind", "largest magnitude", "dtype")
    table = Table(head, rows, "How it grew, from one module to the next") if rows else None
    yield Section("The first inf or NaN", (said,), items=tuple(items), table=table)


def _layers(document: Document, most: int) -> Iterator[Section]:
    rows = layer_rows(document)
    if not rows:
        return
    formats = formats_of(document)
    unusual = any(row.unusual for row in rows)
    names = [f"{name} ({used_format(document)})" if name == AS_TRAINED else name for name in formats]
    head = (
        "layer",
        "parameters",
        "already 0",
        *names,
        "lost updates",
        *(["unusual dtypes"] if unusual else []),
    )
    cells = [_layer_cells(row, formats, unusual) for row in rows[:most]]
    said = (
        "Over all steps that were looked at. In formats that were not used: what a cast would lose. "
        "Gradients that are already 0 are not counted there; some may have underflowed in the backward pass."
    )
    caption = "Gradients that become zero: fraction of their number / fraction of their norm"
    notes = [f"{len(rows) - most} more layers lose less."] if len(rows) > most else []
    yield Section(LAYERS, (said,), table=Table(head, cells, caption, notes))


def _layer_cells(row: LayerRow, formats: tuple[str, ...], unusual: bool) -> tuple[str, ...]:
    return (
        row.name,
        f"{row.parameters:,}",
        fraction(row.zeros),
        *(_say_loss(row.losses.get(name)) for name in formats),
        "–" if row.lost_updates is None else fraction(row.lost_updates),
        *([", ".join(f"{what} {dtype}" for what, dtype in row.unusual.items())] if unusual else []),
    )


def _say_loss(loss: Loss | None) -> str:
    return "–" if loss is None else f"{fraction(loss.count)} / {fraction(loss.norm)}"


def _how(document: Document) -> Iterator[str]:
    sampled = sum(step["sampled"] for step in document["steps"])
    yield (
        f"Every step was listened to; {sampled:,} of {len(document['steps']):,} were looked at closely, "
        f"every {_ordinal(document['every'])} of each optimizer."
    )
    how = document["how"]
    if how is None:
        return
    yield (
        f"amp-lessons {how['amp_lessons']}, PyTorch {how['torch']}, Python {how['python']} "
        f"on {how['device']}, {how['began']}."
    )
    yield (
        f"[measured] The training took {how['seconds']:.1f} s with the audit, which spent "
        f"{how['looking_seconds']:.1f} s of them around the optimizers' steps."
    )


def _ordinal(number: int) -> str:
    if number == 1:
        return "single one"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
