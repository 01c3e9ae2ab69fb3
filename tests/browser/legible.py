"""A lesson on a narrow page and on a dark one: what is asked of every lesson."""

from __future__ import annotations

import json
from itertools import product

from tools.browser.jupyter_page import NotebookPage

SMALLEST_PX = 11
# A window of 1280 pixels at a zoom of 200 % has room for 640, in which everything is drawn twice as large.
WIDTHS = (800, 640)
THEMES = ("JupyterLab Light", "JupyterLab Dark")
AS_IT_WAS = {"width": 1280, "height": 1000}

# Exponents are left out of account, in pictures as in prose, where they are small letters of the font itself.
_SMALLEST_TEXT_OF_PICTURES = """
import json
from ipywidgets.widgets.widget import _instances
from matplotlib.text import Text
from amp_lessons.course.views.base.view import View

def smallest(figure):
    return min(text.get_fontsize() for text in figure.findobj(Text) if text.get_visible() and text.get_text())

shown = [view for view in _instances.values() if isinstance(view, View) and view.picture]
figures = {view.alt: view.picture.figure for view in shown}
print(json.dumps({alt: [figure.get_figwidth() * 72, smallest(figure)] for alt, figure in figures.items()}))
"""

_UNREADABLE = """([smallestPx, ofPictures]) => {
    const found = [];
    const cells = [...document.querySelectorAll('.jp-Notebook .jp-Cell')];
    const say = (element, what) => {
        const cell = cells.findIndex((each) => each.contains(element));
        found.push(`${what}, in cell ${cell}: <${element.tagName} class="${element.className}">`);
    };
    const isSeen = (element) => {
        const { width, height } = element.getBoundingClientRect();
        return width > 1 && height > 1 && element.checkVisibility({ visibilityProperty: true });
    };
    // What a page cannot show whole is in a box that the keyboard can scroll. Code is wrapped.
    const shown = '.jp-OutputArea-output, .jp-OutputArea-output *, .jp-CodeCell .cm-scroller';
    for (const element of document.querySelectorAll(`.jp-Notebook :is(${shown})`)) {
        if (!isSeen(element) || element.scrollWidth <= element.clientWidth + 1) continue;
        const isCut = getComputedStyle(element).overflowX !== 'visible' && element.clientWidth > 0;
        if (!isCut || element.tabIndex >= 0) continue;
        say(element, `${element.scrollWidth} px in ${element.clientWidth}`);
    }
    for (const output of document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')) {
        const texts = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
        for (let text = texts.nextNode(); text; text = texts.nextNode()) {
            const element = text.parentElement;
            const px = parseFloat(getComputedStyle(element).fontSize) * (element.getScreenCTM?.().a ?? 1);
            if (text.data.trim() && isSeen(element) && px < smallestPx) {
                say(element, `"${text.data.trim().slice(0, 40)}" is ${px.toFixed(1)} px`);
            }
        }
        for (const picture of output.querySelectorAll('img[alt], svg[role=img]')) {
            const alt = picture.getAttribute('alt') ?? picture.getAttribute('aria-label');
            if (!isSeen(picture) || !(alt in ofPictures)) continue;
            const [width, points] = ofPictures[alt];
            const px = (points * picture.getBoundingClientRect().width) / width;
            if (px < smallestPx - 0.01) say(picture, `text in "${alt.slice(0, 40)}" is ${px.toFixed(1)} px`);
        }
    }
    return found;
}"""


_TALLER_CARDS = """(most) =>
    [...document.querySelectorAll('.jp-Notebook .amp-card')]
        .map((card) => [card.getBoundingClientRect().height, card.innerText.slice(0, 40)])
        .filter(([height]) => height > most)
        .map(([height, text]) => `a card of ${height} px does not fit on a screen: "${text}"`)
"""
TALLEST_CARD_PX = 500  # half of what a browser and JupyterLab leave of a screen of 1,080


def expect_it_readable_narrow_and_dark(lesson: NotebookPage) -> None:
    """Expect no text that is too small, nothing cut off and nothing that axe finds serious, in each theme.

    On a page of usual width each exercise's card fits on a screen.
    """
    pictures = json.loads(lesson.evaluate(_SMALLEST_TEXT_OF_PICTURES))
    found: list[str] = lesson.page.evaluate(_TALLER_CARDS, TALLEST_CARD_PX)
    for theme, width in product(THEMES, WIDTHS):
        lesson.set_theme(theme)
        lesson.page.set_viewport_size({**AS_IT_WAS, "width": width})
        where = f"{theme}, {width} px: "
        found += [where + each for each in unreadable(lesson, pictures)]
        if (theme == THEMES[0]) == (width == WIDTHS[0]):  # each theme once, each width once
            found += [where + each for each in lesson.serious_axe_violations()]
    lesson.set_theme(THEMES[0])
    lesson.page.set_viewport_size(AS_IT_WAS)
    assert not found, "\n".join(found)
    assert lesson.errors == []


def unreadable(notebook: NotebookPage, pictures: dict[str, list[float]]) -> list[str]:
    """Name what is too small to read in the notebook, and what is cut off and no box to scroll.

    ``pictures`` has by their alternative texts how wide pictures are, and how large their smallest text is,
    both in points.
    """
    for _ in range(100):  # JupyterLab fits itself into a new width piece by piece
        notebook.page.wait_for_timeout(300)
        found: list[str] = notebook.page.evaluate(_UNREADABLE, [SMALLEST_PX, pictures])
        if not found:
            break
    return found
