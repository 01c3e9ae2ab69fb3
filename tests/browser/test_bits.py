"""The bits of lesson 01: by mouse, by keyboard, and by typing what nobody expected; keys stay in a view."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from amp_lessons.course.views import BitView
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
    for bit, code, pressed in ((0, "0x3801", "true"), (15, "0xb801", "true"), (0, "0xb800", "false")):
        bits.bit(bit).click()
        bits.expect(BitView(code, "fp16").caption)
        expect(bits.bit(bit)).to_have_attribute("aria-pressed", pressed)
    expect(bits.typing).to_have_value("-0.5")


def test_bits_flip_by_keyboard(bits, lesson):
    bits.typing.focus()
    for key, focused, code in (
        ("Tab", None, ""),
        ("Home", 15, ""),
        ("Space", 15, "0xb800"),
        ("ArrowRight", 14, ""),
        ("Enter", 14, "0xf800"),
        ("End", 0, ""),
        ("ArrowLeft", 1, ""),
    ):
        lesson.page.keyboard.press(key)
        if code:
            bits.expect(BitView(code, "fp16").caption)
        if focused is not None:
            expect(bits.bit(focused)).to_be_focused()


def test_a_whole_pattern_is_typed_on_the_bits_and_tab_leaves_them(bits, lesson):
    bits.bit(15).focus()
    lesson.page.keyboard.type("0111101111111111")
    bits.expect(BitView("65504", "fp16").caption)
    lesson.page.keyboard.press("Tab")
    expect(bits.output.locator(".amp-bits button:focus")).to_have_count(0)
    expect(bits.output.locator('.amp-bits button[tabindex="0"]')).to_have_count(1)


def test_what_is_typed_is_understood_and_what_is_not_a_number_answered_in_words(bits):
    for typed in ("1e400", "-0", "nan", "0x7bff"):
        bits.type(typed)
        bits.expect(BitView(typed, "fp16").caption)
    for typed, answer in (("abc", "“abc” is not a number"), ("", "Nothing typed yet")):
        bits.type(typed)
        expect(bits.output.locator(".amp-field")).to_contain_text(answer)
        expect(bits.typing).to_have_attribute("aria-invalid", "true")
        expect(bits.typing).to_have_accessible_description(re.compile(answer))
    bits.bit(14).click()
    bits.expect(BitView("0x3bff", "fp16").caption)
    expect(bits.typing).to_have_attribute("aria-invalid", "false")


def test_a_format_has_its_own_bits(bits):
    bits.choose("fp4_e2m1")
    bits.expect(BitView("0.5", "fp4_e2m1").caption)
    expect(bits.output.locator(".amp-bits button")).to_have_count(4)
    bits.bit(1).click()
    bits.expect(BitView("0b0011", "fp4_e2m1").caption)


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
