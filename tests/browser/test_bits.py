"""The bits of lesson 01: by mouse, by keyboard, and by typing what nobody expected; keys stay in a view."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from amp_lessons.course.views import BitView
from amp_lessons.formats import FORMATS
from tools.browser.jupyter_page import LIVE, NotebookPage

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/01_number_formats.ipynb"


class Shown:
    """One view on the page; whoever expects a caption of it also expects a new picture."""

    def __init__(self, lesson: NotebookPage, control: Locator) -> None:
        self.output = lesson.view_with(control)
        self.caption = self.output.locator("figcaption")
        self.typing = self.output.get_by_role("textbox")
        self._drawn = self._picture()

    def bit(self, number: int) -> Locator:
        return self.output.locator(f'button[aria-label^="bit {number},"]')

    def slider(self, name: str) -> Locator:
        return self.output.get_by_role("slider", name=name, exact=True)

    def choose(self, name: str) -> None:
        self.output.get_by_role("combobox").select_option(name)

    def type(self, text: str) -> None:
        self.typing.fill(text)
        self.typing.press("Enter")

    def expect(self, caption: str) -> None:
        expect(self.caption).to_have_text(caption)
        assert self._picture() != self._drawn
        self._drawn = self._picture()

    def _picture(self) -> str | None:
        return self.output.locator("img").get_attribute("src")


@pytest.fixture
def bits(lesson):
    """The bit view that knows every format, on 0.5 in fp16."""
    shown = Shown(lesson, lesson.page.get_by_label("type a number or its bits").last)
    shown.choose("fp16")
    for number in ("0.25", "0.5"):
        shown.type(number)
        shown.expect(BitView(number, "fp16").caption)
    return shown


def test_bits_flip_by_mouse(bits):
    bits.bit(0).click()
    bits.expect(BitView("0x3801", "fp16").caption)
    expect(bits.caption).to_contain_text("is normal: 2⁻¹ × (1 + 1/1024) = 0.50048828125")
    expect(bits.bit(0)).to_have_attribute("aria-pressed", "true")
    expect(bits.typing).to_have_value("0.50048828125")
    bits.bit(15).click()
    bits.expect(BitView("0xb801", "fp16").caption)
    bits.bit(0).click()
    bits.expect(BitView("-0.5", "fp16").caption)
    expect(bits.bit(0)).to_have_attribute("aria-pressed", "false")


def test_bits_flip_by_keyboard(bits, lesson):
    keyboard = lesson.page.keyboard
    bits.typing.focus()
    keyboard.press("Tab")
    keyboard.press("Home")
    expect(bits.bit(15)).to_be_focused()
    keyboard.press("Space")
    bits.expect(BitView("-0.5", "fp16").caption)
    keyboard.press("ArrowRight")
    keyboard.press("Enter")
    bits.expect(BitView("0xf800", "fp16").caption)
    expect(bits.bit(14)).to_be_focused()
    keyboard.press("End")
    expect(bits.bit(0)).to_be_focused()
    keyboard.press("ArrowLeft")
    expect(bits.bit(1)).to_be_focused()


def test_a_whole_pattern_is_typed_on_the_bits_and_tab_leaves_them(bits, lesson):
    bits.bit(15).focus()
    lesson.page.keyboard.type("0111101111111111")
    bits.expect(BitView("65504", "fp16").caption)
    lesson.page.keyboard.press("Tab")
    expect(bits.output.locator(".amp-bits button:focus")).to_have_count(0)
    expect(bits.output.locator('.amp-bits button[tabindex="0"]')).to_have_count(1)


def test_what_is_typed_is_understood(bits):
    for typed in ("1e400", "-0", "nan", "0x7bff", "2^-25", "-inf"):
        bits.type(typed)
        bits.expect(BitView(typed, "fp16").caption)


@pytest.mark.parametrize(("typed", "answer"), [("abc", "“abc” is not a number"), ("", "Nothing typed yet")])
def test_what_is_not_a_number_is_answered_in_words(bits, typed, answer):
    bits.type(typed)
    expect(bits.output.locator(".amp-field")).to_contain_text(answer)
    expect(bits.typing).to_have_attribute("aria-invalid", "true")
    expect(bits.typing).to_have_accessible_description(re.compile(answer))
    bits.bit(14).click()
    bits.expect(BitView("0x7800", "fp16").caption)
    expect(bits.typing).to_have_attribute("aria-invalid", "false")


@pytest.mark.parametrize("name", ["fp32", "fp4_e2m1"])
def test_a_format_has_its_own_bits(bits, name):
    bits.choose(name)
    bits.expect(BitView("0.5", name).caption)
    expect(bits.output.locator(".amp-bits button")).to_have_count(FORMATS[name].bits)
    bits.bit(1).click()
    bits.expect(BitView(hex(FORMATS[name].encode(0.5) ^ 2), name).caption)


def test_keys_in_a_view_are_the_views_and_not_jupyterlabs(lesson):
    def cells():
        return lesson.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length")

    before = cells()
    answer = lesson.page.get_by_role("button", name="b) 1.0")
    answer.press("b")  # outside a view: a cell more, in which the keyboard is then
    expect(answer).to_be_focused()
    assert cells() == before
    formats = lesson.page.locator(f"{LIVE} select:visible").first
    formats.focus()
    formats.press("ArrowDown")  # outside a view: the next cell
    expect(formats).to_be_focused()
