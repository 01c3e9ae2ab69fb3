"""Building the site: every page, and the files beside them."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import anywidget
from pygments.formatters import HtmlFormatter

from amp_lessons._base.drawing.style import DARK_PAPER, scroll_shadow
from amp_lessons._base.text.bars import in_words, watched, with_bar
from amp_lessons._base.text.words import counted
from amp_lessons.course import views
from amp_lessons.course.lessons import shipped
from amp_lessons.course.site.cards import Answers, answers, answers_to_make, cards_page
from amp_lessons.course.site.explain import explain_page, explain_script
from amp_lessons.course.site.float_page import float_page, float_script
from amp_lessons.course.site.frames import put_frames, views_to_make
from amp_lessons.course.site.front import front_page
from amp_lessons.course.site.glossary import glossary_page
from amp_lessons.course.site.lesson import lesson_page, live_page
from amp_lessons.course.site.search import search_page, search_script
from amp_lessons.course.site.shell import Page, html_of
from amp_lessons.course.site.substitutes import Shelf
from amp_lessons.course.site.symptoms import symptoms_page, symptoms_script
from amp_lessons.course.views.base import code
from amp_lessons.course.views.base.shown import Arrival
from amp_lessons.course.views.widgets import quiz

ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = (
    "site.js",
    "questions.js",
    "symptoms.js",
    "explain.js",
    "cards.js",
    "search.js",
    "views.js",
    "numbers.js",
    "float.js",
)
_EXPORT = "export default { render };"  # how the script of a widget ends


def _print(words: str) -> None:
    """Print a line whole: several processes are told of at once."""
    print(f"{words}\n", end="", flush=True)


def build(out: Path, kept: Path | None = None, say: Callable[[str], None] = _print) -> list[Path]:
    """Write the site into the folder ``out``, and return the pages. What was there of an older site goes.

    What takes long is kept in the folder ``kept``: the states of all views, answers with computed numbers.
    For None nothing is computed: views stand as pictures. Raises FileNotFoundError where the lessons did not
    come with the package, ValueError for a folder that holds something else than a site, and RuntimeError
    where a lesson cannot be run.
    """
    _empty(out)
    told, live = _computed(out / "frames", kept, say) if kept else (None, {})
    shelf = Shelf(out, live, has_cards=told is not None)
    pages = list(_pages(shelf, told))
    write_assets(out / "assets", pages)
    for page in pages:
        (out / page.file).write_text(html_of(page, pages), "utf-8")
    return [out / page.file for page in pages]


def _computed(
    frames: Path, kept: Path, say: Callable[[str], None]
) -> tuple[Answers, dict[tuple[str, str], str]]:
    """Put the frames of all lessons into a folder; return the cards' answers, and what stands still of views.

    Each is made in a process of its own, as many at once as there are cores.
    """
    frames.mkdir()
    numbers = [head.number for head in shipped.heads()]
    total = sum(views_to_make(number, kept) for number in numbers) + answers_to_make(kept)
    if total:
        say(f"To be computed, and then kept in {kept}: {counted(total, 'view')}, with the cards as one …")
    step = counted_steps(total, say)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        told = pool.submit(answers, kept, step)
        found = list(pool.map(lambda number: put_frames(number, kept, frames, step), numbers))
    live = {
        (number, cell): still
        for number, views in zip(numbers, found, strict=True)
        for cell, still in views.items()
    }
    return told.result(), live


def counted_steps(total: int, say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function to call, with a name, at each of ``total`` steps: it says what is left.

    Where somebody watches, that is a bar; else it is a line for each.
    """
    began, done, lock = time.monotonic(), itertools.count(1), Lock()
    bar = with_bar(range(total), "Views")
    next(bar, None)  # it begins

    def step(name: str) -> None:
        with lock:
            next(bar, None)
            count = next(done)
            left_s = (time.monotonic() - began) / count * (total - count)
            if not watched():
                say(f"{name}: {count} of {total}, about {in_words(left_s)} left")

    return step


def _pages(shelf: Shelf, told: Answers | None) -> Iterator[Page]:
    """Yield every page; a new one is a line here, and stands in the navigation if it is ``listed``.

    Cards have computed numbers in them: without what was ``told`` there are none.
    """
    lessons = [lesson_page(head, shelf) for head in shipped.heads()]
    yield front_page(shelf)
    yield glossary_page()
    yield symptoms_page()
    yield explain_page()
    yield float_page()
    if told is not None:
        yield cards_page(told)
    yield search_page()
    yield live_page(shelf)
    yield from lessons


def _empty(out: Path) -> None:
    """Remove an older site; never anything else that somebody may keep in a folder."""
    if out.exists() and any(out.iterdir()):
        if not (out / "assets" / "site.js").is_file():
            raise ValueError(f"{out} holds something else than a site: name a folder that is new, or empty")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)


def write_assets(folder: Path, pages: list[Page]) -> None:
    """Write the scripts and the style that ``pages`` load."""
    folder.mkdir()
    for name in _SCRIPTS:
        shutil.copy(ASSETS / name, folder)
    made = {
        "site.css": style(),
        "widgets.js": widget_scripts(),
        "symptoms-data.js": symptoms_script(),
        "explain-data.js": explain_script(),
        "float-data.js": float_script(),
        "search-data.js": search_script(pages),
    }
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")


def style() -> str:
    """Return the one style of all pages: the site's own, those of questions and widgets, colours of code."""
    highlighted = HtmlFormatter(style=code.HouseStyle).get_style_defs(".highlight")
    shared = [quiz.SHEET.read_text("utf-8"), widget_styles(), highlighted]
    # what is wider than the page has a shadow on the side where there is more of it, as in a notebook
    shadow = '.amp-scroll,\n[role="region"],\npre {{\n  background: {};\n}}'.format(
        scroll_shadow("var(--paper)")
    )
    dark = f'@media screen {{ [data-jp-theme-light="false"] :is(.amp-paper, .highlight) {{ {DARK_PAPER} }} }}'
    sheets = [(ASSETS / "site.css").read_text("utf-8"), dark, shadow, *shared]
    return re.sub(r"\n\s+", "\n", "\n".join(sheets))


def widget_scripts() -> str:
    """Return one script with those of all widgets of the views, each in a scope of its own, by its class.

    A page that is opened as a file may load no module: what a module exports is returned instead.
    Raises ValueError for a script that exports something else.
    """
    made = ["window.ampWidgets = {};"]
    for widget in _widgets():
        script, found, exported = str(widget._esm).rpartition(_EXPORT)
        if not found or exported.strip() or re.search(r"^export\b", script, re.MULTILINE):
            raise ValueError(f"{widget.__name__}'s script must end with {_EXPORT!r}, and export nothing else")
        inside = f"{script}return {{ render }};\n"
        made.append(f"window.ampWidgets.{widget.__name__} = (() => {{\n{inside}}})();")
    return "\n".join(made)


def widget_styles() -> str:
    """Return the styles of all widgets of the views, each once."""
    return "\n".join(dict.fromkeys(str(widget._css) for widget in _widgets() if hasattr(widget, "_css")))


def _widgets() -> Iterator[type[anywidget.AnyWidget]]:
    """Yield every class of the views that brings a script for a site's page; all views are loaded for it."""
    for name in dir(views):
        getattr(views, name)
    found = anywidget.AnyWidget.__subclasses__()
    ours = (each for each in found if each.__module__.startswith(views.__name__))
    yield from (each for each in ours if each is not Arrival)  # where no controls arrive
