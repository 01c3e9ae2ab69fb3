"""The page of bits: typed and flipped numbers, the address, what it says, and who may come with what."""

from __future__ import annotations

import math
import random
from functools import partial
from itertools import product
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import expect

from amp_lessons.course.site import build as building
from amp_lessons.course.site.float_page import float_page
from amp_lessons.course.site.shell import html_of
from amp_lessons.course.views.widgets.bits import describe, describe_error
from amp_lessons.formats import FORMATS, parse, represent, side_by_side
from tests.browser.site_pages import keeps_out, open_pages

pytestmark = pytest.mark.thorough

TAG = "<img src=x onerror=alert(1)>"
VALUES = (
    *("0.1", "-2.5", "65504", "65520", "1e-8", "6e-8", "1e400"),
    *("-1e400", "1/3", "0", "-0", "inf", "nan", "2^-149"),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    page = float_page()
    building.write_assets(folder / "assets", [page])
    path = folder / page.file
    path.write_text(html_of(page, [page]), "utf-8")
    return path


@pytest.fixture
def open_page(browser, file):
    """Open the page with a query; in the end nothing went wrong, and nothing came from elsewhere."""
    with open_pages(browser, file.parent) as open_:
        yield partial(open_, file.stem)


def bits_of(page, name):
    """Return the buttons of a format."""
    return page.locator(f"#format-{name} .bits button")


def shown_bits(page, name):
    return "".join(bits_of(page, name).all_text_contents())


def code_bits(name, value):
    its = FORMATS[name]
    return f"{its.encode(value):0{its.bits}b}"


def test_nobody_is_kept_out(open_page):
    page = open_page("?format=fp16&value=oops")
    page.locator("#value").fill("no number")
    expect(page.locator("#refused")).not_to_be_empty()
    assert keeps_out(page) == []


def test_the_bits_of_all_formats_follow_what_is_typed(open_page):
    page = open_page()
    for text, value in (("65520", 65520), ("-1e-8", -1e-8), ("nan", math.nan)):
        page.locator("#value").fill(text)
        shown = {name: shown_bits(page, name) for name in FORMATS}
        assert shown == {name: code_bits(name, value) for name in FORMATS}


def test_a_bit_is_flipped_by_keyboard_by_mouse_and_by_touch(open_page):
    page = open_page("?format=fp16&value=1", has_touch=True)
    bits_of(page, "fp16").first.focus()
    page.keyboard.press("Space")
    expect(page.locator("#value")).to_have_value("-1")
    page.keyboard.press("End")
    page.keyboard.press("1")
    expect(page.locator("#value")).to_have_value("-1.0009765625")
    bits_of(page, "bf16").nth(9).click()
    expect(page.locator("#format")).to_have_value("bf16")
    expect(page.locator("#value")).to_have_value("-1.5")
    bits_of(page, "fp8_e4m3").first.tap()
    expect(page.locator("#value")).to_have_value("1.5")
    assert shown_bits(page, "fp32") == code_bits("fp32", 1.5)


def test_tab_stops_once_at_each_row_of_bits(open_page):
    page = open_page()
    page.locator("#format").focus()
    for name in FORMATS:
        page.keyboard.press("Tab")
        inside = f"document.activeElement.closest('section')?.id === 'format-{name}'"
        assert page.evaluate(inside), name


def test_the_address_follows_and_leads_back(open_page):
    page = open_page("?format=bf16&value=0.1")
    said = page.locator("#said")
    assert said.text_content().startswith("The bf16 value nearest to 0.1 is off by ")
    page.locator("#value").fill("2^-24")
    page.locator("#format").select_option("fp16")
    page.wait_for_url("**value=2*")
    assert parse_qs(urlsplit(page.url).query) == {"format": ["fp16"], "value": ["2^-24"]}
    words = said.text_content()
    page.reload()
    assert said.text_content() == words


def test_an_address_brings_back_a_nan_that_is_not_the_usual_one_and_a_pattern_is_a_number_elsewhere(
    open_page,
):
    page = open_page("?format=fp16&value=nan")
    bits_of(page, "fp16").last.click()
    bits = shown_bits(page, "fp16")
    page.wait_for_url("**value=0x*")
    page.reload()
    assert shown_bits(page, "fp16") == bits != code_bits("fp16", math.nan)
    page = open_page("?format=fp16&value=0x3c01")
    page.locator("#format").select_option("fp32")
    expect(page.locator("#value")).to_have_value("1.0009765625")
    assert shown_bits(page, "fp16") == code_bits("fp16", 1.0009765625)


def test_what_is_no_number_is_answered_and_changes_nothing(open_page):
    page = open_page("?format=fp16&value=0.1")
    before = page.locator("#formats").inner_text()
    for text in ("", "abc", TAG, "1/0", "0xfffff", "9" * 401):
        page.locator("#value").fill(text)
        expect(page.locator("#refused")).not_to_be_empty()
        expect(page.locator("#value")).to_have_attribute("aria-invalid", "true")
        assert page.locator("#formats").inner_text() == before
    page.locator("#value").fill("1")
    expect(page.locator("#refused")).to_be_empty()


def test_the_page_says_what_the_notebook_says(open_page):
    """The same sentence on each code of a small format, on a draw of a wide one."""
    page = open_page()
    for name, its in FORMATS.items():
        codes = range(2**its.bits) if its.bits <= 8 else random.sample(range(2**its.bits), 300)
        made = [represent(its.decode(code), its) for code in codes]
        usual = [each for each, code in zip(made, codes, strict=True) if each.fields.bits == code]
        said = page.evaluate(
            """([name, codes]) => {
                const { exact, decode, represent } = ampNumbers;
                const format = ampFormats.find((each) => each.name === name);
                return codes.map((code) => {
                    const number = exact(decode(code, format));
                    return ampFloat.describe(represent(number, format), number, format, "x");
                });
            }""",
            [name, [each.fields.bits for each in usual]],
        )
        assert said == [describe(each, each.fields.value, "x") for each in usual], name


def test_it_says_of_what_is_typed_what_the_notebook_says(open_page):
    page = open_page()
    for name, text in product(FORMATS, VALUES):
        page.evaluate("(query) => ampFloat.go(query)", f"?format={name}&value={quote(text)}")
        value = parse(text, FORMATS[name]).value
        assert page.locator("#said").text_content() == describe(represent(value, FORMATS[name]), value, text)
        errors = [describe_error(each) for each in side_by_side(value)]
        told = [each.partition(": ")[2] for each in page.locator(".became").all_text_contents()]
        assert [each.removeprefix("off by ") for each in told] == errors


HOSTILE_PIECES = (
    *(TAG, "</section>", "'\"><b>", "javascript:alert(1)", "\0", "\U0001f600", " ", "9" * 500),
    *("__proto__", "constructor", "toString", "0x", "0b", "0.1", "1e", "^", "**", "/"),
    *(",", "-", "(", "∞", "⁻²⁴", "e99999", "nan", "fp16", "bf16"),
)


def hostile_query(chance):
    """Return what somebody may put behind a page's name."""
    parts = []
    for _ in range(chance.randrange(1, 4)):
        name = chance.choice(("format", "value", "value", *HOSTILE_PIECES))
        value = "".join(chance.choices(HOSTILE_PIECES, k=chance.randrange(4)))
        raw = chance.random() < 0.2
        parts.append(f"{name}={value}" if raw else f"{quote(name)}={quote(value)}")
    return "?" + chance.choice(("&", "&&", ";")).join(parts) + chance.choice(("", "%", "%ff", "&=", "#"))


def test_ten_thousand_hostile_addresses_make_no_error_and_no_markup(open_page):
    page = open_page()
    chance = random.Random(0)
    queries = [hostile_query(chance) for _ in range(10_000)]
    elements = "document.querySelectorAll('*').length"
    before = page.evaluate(elements)
    wrong = page.evaluate(
        """(queries) => queries.filter((query) => {
            try {
                ampFloat.go(query);
                return ampFormats.every((format) => format.name !== document.getElementById("format").value);
            } catch { return true; }
        })""",
        queries,
    )
    assert wrong == []
    assert page.evaluate(elements) == before
    for query in queries[:3]:  # and opened
        page = open_page(query)
        assert page.locator("img, main b").count() == 0
        assert len(shown_bits(page, "fp32")) == FORMATS["fp32"].bits
