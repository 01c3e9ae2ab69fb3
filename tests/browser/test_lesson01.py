"""Lesson 01 as a learner drives it: by mouse, by keyboard, and by typing what nobody expected."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from amp_lessons.formats import FORMATS
from tests.browser.jupyter_page import OUTPUTS, NotebookPage


@pytest.fixture(scope="module")
def lesson(browser, lab_server):
    """The lesson, run from top to bottom once for all tests of this file."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = NotebookPage(context.new_page(), lab_server)
    yield page.open("notebooks/01_number_formats.ipynb").run_all()
    context.close()


class Shown:
    """One view on the page: its controls by name, its caption, and whether its picture is another one."""

    def __init__(self, lesson: NotebookPage, mark: str) -> None:
        """Find the first output with an element that matches ``mark``."""
        outputs = lesson.page.locator(".jp-OutputArea-output")
        self.output = outputs.filter(has=lesson.page.locator(mark)).first
        self.output.scroll_into_view_if_needed()
        self.caption = self.output.locator("figcaption")
        self._image = self.output.locator("img")
        self._before = self.picture

    @property
    def picture(self) -> str:
        return self._image.get_attribute("src") or ""

    def bit(self, number: int) -> Locator:
        return self.output.locator(f'button[aria-label^="bit {number},"]')

    def expect(self, *words: str) -> None:
        """Wait until the caption says all of ``words``; the picture must be another than last time."""
        for each in words:
            expect(self.caption).to_contain_text(each)
        assert self.picture != self._before
        self._before = self.picture

    def choose_format(self, name: str) -> None:
        self.output.locator("select").select_option(name)

    def type(self, text: str) -> None:
        self.output.locator("input[type=text]").fill(text)
        self.output.locator("input[type=text]").press("Enter")


@pytest.fixture
def bits(lesson):
    """The bit view, on 0.5 in fp16."""
    shown = Shown(lesson, ".amp-bits")
    shown.choose_format("fp16")
    shown.type("0.25")
    shown.type("0.5")
    expect(shown.caption).to_contain_text("fp16 0 01110 0000000000 is normal")
    shown._before = shown.picture
    return shown


def test_nothing_on_the_page_complains(lesson):
    assert lesson.page.locator(f"{OUTPUTS} .amp-picture").count() >= 7
    assert lesson.serious_axe_violations() == []
    assert lesson.errors == []


def test_bits_flip_by_mouse(bits):
    bits.bit(0).click()
    bits.expect("0 01110 0000000001 is normal: 2^-1 × (1 + 1/1024) = 0.50048828125", "spacing 2^-11")
    expect(bits.bit(0)).to_have_attribute("aria-pressed", "true")
    bits.bit(15).click()
    bits.expect("fp16 1 01110 0000000001 is normal: −2^-1")
    bits.bit(15).click()
    bits.bit(0).click()
    bits.expect("= 0.5.")
    expect(bits.bit(0)).to_have_attribute("aria-pressed", "false")


def test_bits_flip_by_keyboard(bits, lesson):
    keyboard = lesson.page.keyboard
    bits.output.locator("input[type=text]").focus()
    keyboard.press("Tab")
    expect(bits.bit(15)).to_be_focused()
    keyboard.press("Space")
    bits.expect("fp16 1 01110 0000000000 is normal")
    keyboard.press("ArrowRight")
    keyboard.press("Enter")
    bits.expect("fp16 1 11110 0000000000 is normal")
    expect(bits.bit(14)).to_be_focused()
    keyboard.press("End")
    expect(bits.bit(0)).to_be_focused()
    keyboard.press("ArrowLeft")
    expect(bits.bit(1)).to_be_focused()
    keyboard.press("Home")
    keyboard.type("0111101111111111")
    bits.expect("fp16 0 11110 1111111111 is normal: 2^15 × (1 + 1023/1024) = 65504.", "65472 and inf")
    keyboard.press("Tab")
    assert bits.output.locator(".amp-bits button:focus").count() == 0


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("1e400", "1e400 is beyond fp16, which makes it inf"),
        ("-0", "is minus zero"),
        ("nan", "is NaN"),
        ("0x7bff", "= 65504."),
        ("2^-25", "too small for fp16"),
    ],
)
def test_what_is_typed_is_understood(bits, typed, answer):
    bits.type(typed)
    bits.expect(answer)


@pytest.mark.parametrize(("typed", "answer"), [("abc", "“abc” is not a number"), ("", "Nothing typed yet")])
def test_what_is_not_a_number_is_answered_in_words(bits, typed, answer):
    bits.type(typed)
    expect(bits.caption).to_contain_text(answer)
    bits.bit(14).click()
    bits.expect("fp16 0 11110 0000000000 is normal")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_its_bits(bits, name):
    bits.choose_format(name)
    expect(bits.output.locator(".amp-bits button")).to_have_count(FORMATS[name].bits)
    bits.bit(1).click()
    expect(bits.caption).to_contain_text(f"{name} ")


def test_the_ruler_zooms_travels_and_answers(lesson):
    ruler = Shown(lesson, '.amp-slider label:text-is("Zoom")')
    zoom, around = (ruler.output.get_by_label(name, exact=True) for name in ("Zoom", "Around"))
    zoom.press("ArrowRight")
    ruler.expect("values in view")
    around.press("ArrowRight")
    ruler.expect("values in view")
    ruler.type("2048")
    ruler.expect("values in view")
    expect(around).to_have_attribute("aria-valuetext", "2^11")
    ruler.type("-3")
    expect(ruler.caption).to_contain_text("no place on this ruler")


def test_the_update_view_changes_size_and_format(lesson):
    update = Shown(lesson, '.amp-slider label:text-is("Update")')
    update.output.get_by_label("Update", exact=True).press("ArrowLeft")
    update.expect("1 plus 300 times 2^-11", "plain 1,")
    update.choose_format("fp8_e4m3")
    update.expect("kept in fp8_e4m3")


def test_the_outlier_moves(lesson):
    outlier = Shown(lesson, '.amp-slider label:text-is("Outlier")')
    outlier.output.get_by_label("Outlier", exact=True).press("End")
    outlier.expect("One element of 4,096 is 2^16")


def test_a_quiz_says_why(lesson):
    lesson.button("b)  1.0").click()
    expect(lesson.page.get_by_text("Yes. bf16's next value after 1 is 1.0078.")).to_be_visible()
