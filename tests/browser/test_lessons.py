"""What is asked of every lesson in JupyterLab: its controls answer, and it can be read, today and tomorrow.

A mechanism of the page that only one view has is tested in the file of its lesson.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from amp_lessons.course.lessons import shipped
from tests.browser.controls import silent_controls
from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning, stand_ins
from tools.browser.jupyter_page import LIVE

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=shipped.heads(), ids=lambda head: head.number)
def notebook(request):
    return f"notebooks/{request.param.file}"


def test_each_control_of_each_view_answers_the_keyboard(lesson):
    places = [place for place in lesson.page.locator(LIVE).all() if place.is_visible()]
    assert silent_controls(places, "class", ("keyboard",)) == []
    assert lesson.errors == []


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read_and_a_run_brings_its_controls_back(lesson, open_notebook):
    opened = expect_it_the_next_morning(lesson, open_notebook)
    if lesson.path.endswith("03_loss_scaling.ipynb"):
        first = stand_ins(opened).first
        opened.run_down_to(first)
        expect(first).to_be_hidden()
        expect(opened.page.locator(LIVE).first).to_be_visible()
        expect(stand_ins(opened).last).to_be_visible()
