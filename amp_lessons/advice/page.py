"""Advice on mixed precision as one HTML file: the verdict, what it rests on, the audit with its pictures."""

from __future__ import annotations

from markupsafe import Markup

from amp_lessons._base.arguments import require
from amp_lessons._base.render import sections_html
from amp_lessons.advice import Advice
from amp_lessons.audit.page import page_of, sections_with_pictures


def advice_page(advice: Advice) -> str:
    """Return a whole HTML page of what ``advise`` returns. Raises TypeError for anything else.

    ``Path("advice.html").write_text(views.advice_page(advice), "utf-8")`` writes it; it needs no network.
    """
    require(advice, Advice, "advice", "what amp_lessons.advise returns")
    sections = [sections_html(advice.all_sections())]
    if advice.audit is not None:
        sections.append(sections_with_pictures(advice.audit))
    return page_of(advice.headline, Markup("\n").join(sections))
