"""The lessons' pages with all their frames: each control of each view answers, and nobody is kept out."""

from __future__ import annotations

import gzip
import os
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Locator, expect

from amp_lessons.course.lessons import shipped
from tests.browser.site_pages import keeps_out, open_pages
from tests.course.site.sites import build_lesson

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]  # frames are computed, beside other tests

WITHOUT_A_SITE = "03"  # the one lesson whose frames are computed where no site is there

LESSON_BYTES = 1_500_000  # packed, with the frames of all views as they stand at first


@pytest.fixture(scope="module", params=shipped.heads(), ids=lambda head: head.number)
def lesson(request, tmp_path_factory):
    """A lesson's page, with all of its frames."""
    if request.param.number != WITHOUT_A_SITE and "AMP_LESSONS_SITE" not in os.environ:
        pytest.skip("needs a site: run `make site`, and set AMP_LESSONS_SITE to its folder")
    return build_lesson(tmp_path_factory.mktemp("site"), request.param)


@pytest.fixture
def open_lesson(browser, lesson):
    """Open the lesson with everything unfolded, and live whatever can be."""
    with open_pages(browser, lesson.parent) as open_:

        def unfolded(**options):
            page = open_(lesson.stem, **options)
            page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            for place in page.locator(".amp-live").all():
                place.scroll_into_view_if_needed()
            expect(page.locator(".amp-live:not(.amp-here)")).to_have_count(0)
            return page

        yield unfolded


def test_nobody_is_kept_out_of_a_lesson(open_lesson):
    assert keeps_out(open_lesson()) == []


def test_a_lesson_is_light_with_all_that_it_shows_at_first(open_lesson, lesson):
    loaded = open_lesson().evaluate(
        "[location.href, ...performance.getEntriesByType('resource').map(each => each.name)]"
    )
    files = {unquote(urlsplit(url).path) for url in loaded if url.startswith("file:")}
    assert sum(len(gzip.compress(Path(file).read_bytes())) for file in files) <= LESSON_BYTES


# What a view shows beside its controls; a promise of whether that becomes something else.
WATCH = """place => {
  const shown = () => {
    const copy = place.cloneNode(true);
    copy.querySelectorAll(".amp-slider, .amp-dropdown-widget").forEach((each) => each.remove());
    return copy.innerHTML;
  };
  const before = shown();
  window.ampAnswered = new Promise((done) => {
    const observer = new MutationObserver(() => shown() !== before && done(true));
    observer.observe(place, { subtree: true, childList: true, characterData: true, attributes: true });
    setTimeout(() => done(false), 60_000);
  });
}"""


WHOLE = "each => each.outerHTML"


def answers(place, control, act):
    """Whether picture or caption change once a control is moved, and what a slider says of itself."""
    place.evaluate(WATCH)
    before = control.get_attribute("aria-valuetext")
    act()
    answered = place.page.evaluate("window.ampAnswered")
    return answered and (before is None or control.get_attribute("aria-valuetext") != before)


def slide(slider, how):
    """Move a slider by keyboard, or by mouse or touch to the half of it where it is not."""
    low, high, value = (int(each) for each in slider.evaluate("each => [each.min, each.max, each.value]"))
    is_right = value > (low + high) / 2
    if how == "keyboard":
        slider.press("ArrowLeft" if is_right else "ArrowRight")
        return
    box = slider.bounding_box()
    there = {"x": box["width"] * (0.1 if is_right else 0.9), "y": box["height"] / 2}
    slider.click(position=there) if how == "mouse" else slider.tap(position=there)


def choose(chosen, how):
    """Choose the next of a list, or the first: by mouse and touch it is opened before."""
    if how == "mouse":
        chosen.click()
    if how == "touch":
        chosen.tap()
    is_last = chosen.evaluate("each => each.selectedIndex === each.options.length - 1")
    chosen.press("Home" if is_last else "ArrowDown")
    if how != "keyboard":
        chosen.press("Enter")


def test_each_control_of_each_view_answers_keyboard_mouse_and_touch(open_lesson, lesson):
    places = open_lesson(has_touch=True).locator(".amp-live").all()
    made = {file.name.split(".")[0] for file in lesson.parent.glob(f"frames/{lesson.name[:2]}-*.js")}
    assert {place.get_attribute("data-frames") for place in places} == made
    silent = []
    for place in places:
        for control in filter(Locator.is_visible, place.locator("input, select, button, textarea").all()):
            move = choose if control.evaluate("each => each.matches('select')") else slide
            for how in ("keyboard", "mouse", "touch"):
                if not answers(place, control, partial(move, control, how)):
                    silent.append((place.get_attribute("data-frames"), how, control.evaluate(WHOLE)))
    assert silent == []
