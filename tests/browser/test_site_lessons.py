"""The lessons' pages with all their frames: each control of each view answers, and nobody is kept out."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import expect

from amp_lessons.course.lessons import shipped
from tests.browser.controls import silent_controls
from tests.browser.site_pages import grown, keeps_out, open_pages
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


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_moves_when_a_view_comes(browser, lesson, width):
    with open_pages(browser, lesson.parent) as open_:
        page = open_(lesson.stem, width=width, has_touch=width == 390)
        assert all(abs(more) < 2 for more in grown(page))


def test_a_lesson_is_light_with_all_that_it_shows_at_first(open_lesson, lesson):
    loaded = open_lesson().evaluate(
        "[location.href, ...performance.getEntriesByType('resource').map(each => each.name)]"
    )
    files = {unquote(urlsplit(url).path) for url in loaded if url.startswith("file:")}
    assert sum(len(gzip.compress(Path(file).read_bytes())) for file in files) <= LESSON_BYTES


def test_each_control_of_each_view_answers_keyboard_mouse_and_touch(open_lesson, lesson):
    places = open_lesson(has_touch=True).locator(".amp-live").all()
    made = {file.name.split(".")[0] for file in lesson.parent.glob(f"frames/{lesson.name[:2]}-*.js")}
    assert {place.get_attribute("data-frames") for place in places} == made
    assert silent_controls(places, "data-frames", ("keyboard", "mouse", "touch")) == []
