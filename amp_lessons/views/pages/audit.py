"""The report of an audit as one HTML file: findings first, with pictures, readable in the dark and aloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from amp_lessons.audit.report.document import Document
from amp_lessons.audit.report.losses import AS_TRAINED, LossMap, formats_of, loss_map, used_format
from amp_lessons.audit.report.rendering import section_html
from amp_lessons.audit.report.sections import LAYERS, STEPS, Section, headline, sections_of
from amp_lessons.text.page import whole_page
from amp_lessons.text.words import fraction
from amp_lessons.views.base.picture import Picture, picture_html
from amp_lessons.views.figures.audit_layers import map_picture
from amp_lessons.views.figures.audit_timeline import timeline_picture

if TYPE_CHECKING:
    from amp_lessons.audit import Report, Seen

_MOST_LAYERS = _MOST_ROWS = 40
_TO_SPEAK_OF = 0.001  # less is told in words
_STYLE = Path(__file__).with_name("audit.css")


def audit_page(audit: Seen | Report) -> str:
    """Return a whole HTML page of what an audit has seen, so far or at the end. Raises TypeError otherwise.

    ``Path("audit.html").write_text(views.audit_page(seen), "utf-8")`` writes it; it needs no network.
    """
    return page(document_of(audit))


def document_of(audit: Seen | Report) -> Document:
    """Return the document of a report, or of what was seen so far. Raises TypeError for anything else."""
    report = getattr(audit, "report", audit)
    if not hasattr(report, "to_dict"):
        raise TypeError(f"what audit.watch gives, or its report, can be shown, not {type(audit).__name__}")
    return report.to_dict()


def page(document: Document) -> str:
    """Return a whole HTML page of a report's document."""
    return page_of(headline(document), Markup("\n").join(sections_with_pictures(document)))


def page_of(title: str, sections: Markup) -> str:
    """Return a whole HTML page in the style of an audit's report."""
    return whole_page(title, sections, _STYLE)


def sections_with_pictures(document: Document) -> Iterator[Markup]:
    """Yield the sections of a report, each with what is to be seen of it."""
    for section in sections_of(document, _MOST_LAYERS):
        pictures = Markup("\n").join(_pictures(section, document))
        yield Markup("<section>{}</section>").format(section_html(section, "h2", pictures))


def _pictures(section: Section, document: Document) -> Iterator[Markup]:
    if section.title == STEPS:
        caption = "The loss and the loss scale at every step; crosses mark the steps that were skipped."
        yield _figure(timeline_picture(document), caption, " ".join([caption, *section.sentences]))
    elif section.title == LAYERS:
        yield from _loss_maps(document)


def _loss_maps(document: Document) -> Iterator[Markup]:
    """Yield a map of the first format in which something is lost to speak of, and the others folded."""
    maps = {name: loss_map(document, name, "norm", _MOST_ROWS) for name in formats_of(document)}
    telling = next((name for name, losses in maps.items() if losses.most >= _TO_SPEAK_OF), None)
    for name, losses in maps.items():
        if name == telling:
            yield _figure_of(losses, say_format(document, name))
        elif name == AS_TRAINED:
            yield Markup("<p>In {}: {}</p>").format(say_format(document, name), say_worst(losses))
    folded = [name for name in maps if name not in (telling, AS_TRAINED)]
    if folded:
        yield Markup("<details><summary>The same in {}</summary>{}</details>").format(
            ", ".join(folded), Markup("\n").join(_figure_of(maps[name], name) for name in folded)
        )


def say_format(document: Document, name: str) -> str:
    """Name a format for people."""
    return f"{used_format(document)}, as trained" if name == AS_TRAINED else name


def _figure_of(losses: LossMap, number_format: str) -> Markup:
    caption = f"In {number_format}: the share of each layer's gradient, by norm, that becomes zero."
    return _figure(map_picture(losses), caption, f"{caption} {say_worst(losses)}")


def say_worst(losses: LossMap) -> str:
    """Say which layer loses most, and how much at most."""
    if losses.most == 0:
        return "no layer loses anything."
    known = [share for share in losses.shares[0] if share is not None]
    return f"{losses.layers[0]} loses most, {fraction(max(known))} at its worst step."


def _figure(picture: Picture, caption: str, alt: str) -> Markup:
    """Let a picture keep a size at which it can be read; where the page is narrower, it scrolls."""
    html = picture_html(picture.png(), caption, alt, picture.size, announced=False)
    return Markup('<div class="picture" tabindex="0" role="region" aria-label="{}">{}</div>').format(
        caption, html
    )
