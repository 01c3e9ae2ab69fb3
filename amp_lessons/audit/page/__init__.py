"""An audit's report, or a comparison of two runs, as one HTML file, readable in the dark and aloud.

matplotlib draws the pictures. Where that is not installed a page is made without them, and says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from amp_lessons._base.render import Section, paragraphs_html, sections_html
from amp_lessons._base.text.page import whole_page
from amp_lessons._base.text.words import fraction
from amp_lessons.audit.comparing import report as comparing
from amp_lessons.audit.report.losses import LossMap, formats_of, loss_map, used_format
from amp_lessons.audit.report.rendering import CASTS, LAYERS, STEPS, sections_of
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.seen import AS_TRAINED

if TYPE_CHECKING:
    from amp_lessons.audit import Comparison, Seen

_MOST_LAYERS = _MOST_ROWS = 40
_MOST_MODULES = 60  # rows of the table; the picture has all
_TO_SPEAK_OF = 0.001  # less is told in words
_NO_PICTURES = "Pictures of the steps and the layers are drawn by matplotlib: pip install matplotlib"
_BY_MODULE = (
    "Relative differences, module by module in the order of the forward pass: the line is the difference of "
    "the two runs, the band what inputs and format explain, and dashes show what nudging makes of the first."
)
_BY_STEP = "How the differences grow from step to step; dashed, what nudging the first run makes of it."
_STYLE = Path(__file__).with_name("page.css")


def audit_page(audit: Seen | Report) -> str:
    """Return a whole HTML page of what an audit has seen, so far or at the end. Raises TypeError otherwise.

    ``Path("audit.html").write_text(views.audit_page(seen), "utf-8")`` writes it; it needs no network.
    """
    return page(report_of(audit))


def report_of(audit: Seen | Report) -> Report:
    """Return a report, or that of what was seen so far. Raises TypeError for anything else."""
    report = getattr(audit, "report", audit)
    if not isinstance(report, Report):
        raise TypeError(f"what audit.watch gives, or its report, can be shown, not {type(audit).__name__}")
    return report


def page(report: Report, *more: Section) -> str:
    """Return a whole HTML page of a report, with ``more`` sections below its own."""
    title, *others = report.opening()
    sections = [sections_with_pictures(report), *([sections_html(more)] if more else [])]
    return page_of(title, paragraphs_html(others) + Markup("\n").join(sections))


def comparison_page(comparison: Comparison) -> str:
    """Return a whole HTML page of a comparison; it needs no network."""
    sections = comparing.sections_of(comparison, _MOST_MODULES)
    shown = sections_html(sections, lambda section: _pictures_of_comparison(section, comparison))
    return page_of(comparing.headline(comparison), shown)


def page_of(title: str, sections: Markup) -> str:
    """Return a whole HTML page in the style of an audit's report."""
    return whole_page(title, sections, _STYLE)


def sections_with_pictures(report: Report) -> Markup:
    """Render the sections of a report, each with what is to be seen of it."""
    draws = can_draw()
    return sections_html(sections_of(report, _MOST_LAYERS), lambda section: _shown(section, report, draws))


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        return False
    return True


def _pictures_of_comparison(section: Section, comparison: Comparison) -> Iterator[Markup]:
    caption = {comparing.MODULES: _BY_MODULE, comparing.STEPS: _BY_STEP}.get(section.title)
    if caption is None:
        return
    if not can_draw():
        yield Markup("<p>Pictures are drawn by matplotlib: pip install matplotlib</p>")
        return
    from amp_lessons._base.drawing.picture import picture_html
    from amp_lessons.audit.page.drawings import modules_picture, steps_picture

    draw = modules_picture if section.title == comparing.MODULES else steps_picture
    yield picture_html(draw(comparison), caption, f"{caption} The table has its numbers.", announced=False)


def _shown(section: Section, report: Report, draws: bool) -> Iterator[Markup]:
    """Yield pictures of a section, or words where there is nothing to draw, or nobody who draws."""
    if section.title == STEPS:
        yield _timeline(section, report) if draws else Markup("<p>{}</p>").format(_NO_PICTURES)
    if section.title not in (LAYERS, CASTS):
        return
    as_trained = section.title == LAYERS
    names = [name for name in formats_of(report) if (name == AS_TRAINED) is as_trained]
    maps = {name: loss_map(report, name, "norm", _MOST_ROWS) for name in names}
    shown = []
    for name, losses in maps.items():
        said = say_format(report, name)
        if draws and (losses.most >= _TO_SPEAK_OF if as_trained else losses.steps):
            shown.append(_figure_of(losses, said))
        else:
            shown.append(Markup("<p>In {}: {}</p>").format(said, say_worst(losses)))
    if draws and not as_trained:
        summary = Markup("<details><summary>Step by step, in {}</summary>{}</details>")
        yield summary.format(" or ".join(maps), Markup("\n").join(shown))
    else:
        yield from shown


def _timeline(section: Section, report: Report) -> Markup:
    from amp_lessons._base.drawing.picture import picture_html
    from amp_lessons.audit.page.drawings import timeline_picture

    caption = "The loss and the loss scale at every step; crosses mark the steps that were skipped."
    said = " ".join([caption, *section.sentences])
    return picture_html(timeline_picture(report), caption, said, announced=False)


def say_format(report: Report, name: str) -> str:
    """Name a format for people."""
    return f"{used_format(report)}, as trained" if name == AS_TRAINED else name


def _figure_of(losses: LossMap, number_format: str) -> Markup:
    from amp_lessons._base.drawing.picture import picture_html
    from amp_lessons.audit.page.drawings import map_picture

    caption = f"In {number_format}: the fraction of each layer's gradient, by norm, that becomes zero."
    return picture_html(map_picture(losses), caption, f"{caption} {say_worst(losses)}", announced=False)


def say_worst(losses: LossMap) -> str:
    """Say which layer loses most, and how much at most."""
    if all(share is None for row in losses.shares for share in row):
        return "nothing is known, for every gradient was 0, inf or NaN already."
    if losses.most == 0:
        return "none of any layer's gradient becomes zero."
    known = [share for share in losses.shares[0] if share is not None]
    return f"{losses.layers[0]} loses most, {fraction(max(known))} at its worst step."
