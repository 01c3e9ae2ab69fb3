"""The front page: what the course is, a picture that moves, the ways through the lessons, and all of them."""

from __future__ import annotations

from markupsafe import Markup
from nbconvert.filters import markdown2html_mistune

from amp_lessons._base.text.prose import as_html
from amp_lessons._base.text.words import counted
from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Head
from amp_lessons.course.routes import overview
from amp_lessons.course.routes.catalogue import ABLE_TO, ROUTES
from amp_lessons.course.site.lesson import linked
from amp_lessons.course.site.shell import Page, address, link
from amp_lessons.course.site.substitutes import Shelf
from amp_lessons.course.views.widgets.loss_scale import MOST_VANISH

# What stands for a route's commands here.
_ON_THIS_SITE = {
    "nan": Markup(
        '<p>Here: <a href="symptoms.html">walk from the symptom to its cause</a>, or '
        '<a href="explain.html">paste the error or the warning</a>.</p>'
    )
}
FIRST_PICTURE = ("03", "live-view")  # the loss scale, and what becomes of real gradients

_FRONT = Markup(
    """<h1>Mixed precision training with PyTorch</h1>
<section class="first">
<p class="what">A free interactive course in {count} on AMP, <code>autocast</code> and
<code>GradScaler</code>: train in 16 bits where they suffice, to save time and memory. Read it and play with
it here, no GPU needed. <a href="{begin}">Begin with lesson {first}</a> ({minutes} minutes)</p>
<p>The bars are gradients of a small network. In fp16, a 16-bit format, small ones lose digits
(<i>subnormal</i>) or vanish; the <i>loss scale</i> of a <code>GradScaler</code> multiplies them all.
<b>Move the slider until fewer than {most}&nbsp;% vanish, and none overflow.</b></p>
<div class="played">{picture}<p class="next"><a href="{lesson}">Lesson {number} says why</a></p></div>
</section>
<nav class="beside" aria-label="Where to begin">
<p><b>Short of time?</b> <a href="#ways">Choose a way</a> through the lessons.</p>
<p><b>Something fails?</b> <a href="explain.html">Paste the error</a>, or
<a href="symptoms.html">go from the symptom to its cause</a>.</p></nav>
<section><h2 id="ways">What brought you here?</h2>{routes}</section>
<section><h2>All lessons</h2><p>{hours}. Each says what you can do after it.</p>{lessons}</section>"""
)
_ROUTE = Markup(
    """<details><summary><strong>{}</strong>, {}<span class="takes">{}</span></summary>{}{}</details>"""
)


def front_page(shelf: Shelf) -> Page:
    """Return the front page; the picture on it is that of lesson 03, whose page was made before."""
    heads = shipped.heads()
    head, first = shipped.head_of(FIRST_PICTURE[0]), heads[0]
    body = _FRONT.format(
        count=counted(len(heads), "lesson"),
        begin=address(first.file),
        first=first.number,
        minutes=first.minutes,
        most=f"{100 * MOST_VANISH:.0f}",
        picture=shelf.pictures[FIRST_PICTURE],
        lesson=address(head.file),
        number=head.number,
        routes=_routes(),
        hours=overview.hours(heads).capitalize(),
        lessons=_lessons(heads),
    )
    return Page(
        "index.html",
        "Mixed precision training with PyTorch",
        body,
        description="A course on mixed precision training with PyTorch, to be read and played with",
        scripts=("widgets.js", *_frames(shelf), "views.js"),
        kind="front",
        listed="Lessons",
    )


def _frames(shelf: Shelf) -> list[str]:
    """Return the frames to load before ``views.js``, which then shows the picture with the first paint."""
    return [f"frames/{'-'.join(FIRST_PICTURE)}.js"] if FIRST_PICTURE in shelf.live else []


def _routes() -> Markup:
    return Markup("").join(
        _ROUTE.format(
            each.title,
            each.to,
            each.takes.strip(" ()"),
            _ON_THIS_SITE.get(each.id, ""),
            Markup(linked(markdown2html_mistune(each.steps()))),
        )
        for each in ROUTES
    )


def _lessons(heads: list[Head]) -> Markup:
    made = (_lesson(head, "" if number else "Begin here: ") for number, head in enumerate(heads))
    return Markup('<ol class="lessons">{}</ol>').format(Markup("").join(made))


def _lesson(head: Head, before: str) -> Markup:
    minutes = f"{before}{head.minutes} minutes"
    minutes += f", {head.deeper} more to go deeper" if head.deeper else ""
    able = ABLE_TO[head.number]
    return Markup("<li><b>{}</b> {} <span>{}</span><span>{}.</span></li>").format(
        head.number, link(address(head.file), head.title), minutes, as_html(able[0].upper() + able[1:])
    )
