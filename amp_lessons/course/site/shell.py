"""What every page of the site has: a head, ways to the other pages, and what the browser may load."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from amp_lessons._base.text.prose import as_html
from amp_lessons.course.lessons import shipped
from amp_lessons.course.routes.stops import InLesson

REPOSITORY = "https://github.com/amp-lessons/amp-lessons"
INSTALL = f"pip install git+{REPOSITORY}"  # into the environment of a training

# Nothing is loaded from elsewhere: the browser is told to refuse it. ``'self'`` and ``file:`` are the files
# beside the page.
_PAGE = Markup(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self' 'unsafe-inline' file:; style-src 'self' 'unsafe-inline' file:; img-src 'self' data: file:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{description}">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="assets/site.css">
<script>{early}</script>
<script defer src="assets/site.js"></script>
{scripts}
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header>
<nav aria-label="Site"><a class="home" href="index.html">amp-lessons</a> {navigation}</nav>
<button type="button" id="theme">Dark</button>
</header>
<main id="content" class="{kind}">
{body}
</main>
<footer>
<p><span id="kept"></span> <button type="button" id="forget" hidden>Clear what this browser keeps</button></p>
<p>Nothing on these pages is loaded from elsewhere, and nothing is sent anywhere. <a href="live.html">What is live here, and what is a picture</a> · <a href="{repository}">The course, to run it</a></p>
</footer>
</body>
</html>
"""  # noqa: E501 (a policy is one attribute, and a link of the footer one line)
)

# Before the page is painted, else a dark page would flash. What a browser keeps may be anybody's: it is
# compared, and never put into the page.
_EARLY = Markup(
    """(() => {
  let kept = null;
  try { kept = localStorage.getItem("amp-lessons.theme"); } catch {}
  const dark = kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.setAttribute("data-jp-theme-light", String(!dark));
})();"""
)


@dataclass(frozen=True)
class Page:
    """One page: the name of its file, title, what is in it, and the scripts of ``assets`` that it needs.

    ``kind`` is a class for the style. ``listed`` is what the navigation calls it; where that is empty, the
    page ``under`` which it is found is marked.
    """

    file: str
    title: str
    body: Markup
    description: str = ""
    scripts: tuple[str, ...] = ()
    kind: str = ""
    listed: str = ""
    under: str = ""


def html_of(page: Page, pages: Iterable[Page]) -> str:
    """Return the whole HTML of a page, among all ``pages``."""
    loaded = Markup('<script defer src="{}"></script>').format
    return _PAGE.format(
        title=page.title,
        description=page.description or page.title,
        early=_EARLY,
        scripts=Markup("\n").join(map(loaded, map(_path, page.scripts))),
        navigation=_navigation(page, pages),
        kind=page.kind,
        body=page.body,
        repository=REPOSITORY,
    )


def _path(script: str) -> str:
    """Return where a script lies: among the assets, unless its folder is named."""
    return script if "/" in script else f"assets/{script}"


def _navigation(here: Page, pages: Iterable[Page]) -> Markup:
    current = {here.under: Markup(' aria-current="true"'), here.file: Markup(' aria-current="page"')}
    item = Markup('<a href="{}"{}>{}</a>').format
    listed = (each for each in pages if each.listed)
    return Markup(" ").join(item(each.file, current.get(each.file, ""), each.listed) for each in listed)


def link(to: str, words: str | Markup) -> Markup:
    """Return a link."""
    return Markup('<a href="{}">{}</a>').format(to, words)


def address(file: str) -> str:
    """Return the name of a lesson's page by the name of its notebook."""
    return file.replace(".ipynb", ".html")


def lesson_link(number: str, section: str = "") -> Markup:
    """Return a link to the page of a lesson, by its number, or to a section of it, by the id of its heading.

    Raises ValueError where there is no such lesson, or section.
    """
    head = shipped.head_of(number)
    if not section:
        return link(address(head.file), f"Lesson {number}, {head.short_title}")
    heading = as_html(InLesson(number, section).heading.removeprefix("Deeper: "))
    return link(f"{address(head.file)}#cell-{section}", Markup("Lesson {}, “{}”").format(number, heading))


def as_script(name: str, value: object) -> str:
    """Return a script that assigns ``value`` to ``name``; nothing in it can end a script element.

    A page that is opened as a file may fetch no JSON, but may load a script.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"{name} = {text};\n"
