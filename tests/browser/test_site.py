"""The site in a browser: from a folder, without a network, on three widths, in the light and in the dark."""

from __future__ import annotations

import gzip
import re
from itertools import pairwise
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from amp_lessons import audit
from amp_lessons._base.drawing.picture import LEGIBLE_PX
from amp_lessons._base.drawing.style import SMALL
from amp_lessons.audit.explaining.message import all_messages
from amp_lessons.course.clinic.symptoms import SYMPTOMS, paths
from amp_lessons.course.interview.bank import QUESTIONS
from amp_lessons.course.lessons import shipped
from amp_lessons.course.site.explain import wording
from tests.audit.explaining.said_by_torch import said_by_torch
from tests.audit.explaining.test_library_messages import IN_FILES, REPORTED
from tests.browser.site_pages import grown, keeps_out, open_pages
from tests.course.site.sites import COLUMNS, loss_scale_view, whole_site

pytestmark = pytest.mark.thorough

OTHERS = ("index", "glossary", "symptoms", "explain", "float", "search", "cards", "live")
TAG = "<img src=x onerror=alert(1)>"
HOSTILE = f"?live-view.loss-scale={TAG}&live-view.dtype=%00&q={TAG}&walk=0.99.-1.a&card=__proto__"


@pytest.fixture(scope="module")
def live_site(tmp_path_factory):
    return whole_site(tmp_path_factory)


@pytest.fixture
def open_page(browser, live_site):
    """Open a page of the site by its name."""
    with open_pages(browser, live_site) as open_:
        yield open_


@pytest.mark.parametrize("name", OTHERS)
def test_nobody_is_kept_out(open_page, name):
    page = open_page(name)
    if name == "index":
        live(page)
    assert keeps_out(page) == []


def live(page):
    """Return slider, dtype and caption of the view that moves."""
    place = page.locator(".amp-live").first
    place.scroll_into_view_if_needed()
    expect(page.locator(".amp-here")).to_have_count(1)
    return place.locator("input[type=range]"), place.locator("select").first, place.locator("figcaption")


@pytest.fixture(scope="module")
def in_notebook():
    return loss_scale_view()


@pytest.mark.parametrize(("dtype", "exponent"), [("fp16", 0), ("fp16", 12), ("bf16", 40), ("fp32", 1)])
def test_a_page_shows_what_a_notebook_shows(open_page, in_notebook, dtype, exponent):
    """The same state of the same view: caption, outlines of all bars, zones."""
    page = open_page("index", f"?live-view.loss-scale={exponent}&live-view.dtype={dtype}")
    slider, chosen, caption = live(page)
    labels = dict(in_notebook._dtype.options)
    in_notebook.exponent, in_notebook.dtype = 0, labels[dtype]
    in_notebook.exponent = exponent
    expect(caption).to_have_text(in_notebook.caption)
    assert (slider.input_value(), chosen.locator("option:checked").text_content()) == (str(exponent), dtype)
    for name, outline in in_notebook.page.outlines.items():
        assert page.locator(f"#{name} path").first.get_attribute("d") == outline
    zones = re.findall(r"<!-- (becomes zero|subnormal|normal|overflow) -->", in_notebook.page.drawing)
    visible = page.locator(".amp-live svg:visible")
    drawn = "".join(visible.evaluate_all("all => all.map((each) => each.outerHTML)"))
    assert zones
    assert re.findall(r"<!-- (becomes zero|subnormal|normal|overflow) -->", drawn) == zones


def test_the_picture_follows_keyboard_mouse_and_touch_and_the_address_follows_it(open_page):
    page = open_page("index", has_touch=True)
    slider, chosen, caption = live(page)
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text("Scale 2¹:")
    page.keyboard.press("End")
    expect(caption).to_contain_text("Scale 2⁴⁰:")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(caption).to_contain_text("Scale 2²⁰:")
    slider.tap(position={"x": 4, "y": box["height"] / 2})
    expect(caption).to_contain_text("Scale 2⁰:")
    chosen.select_option("bf16")
    expect(page.locator(".amp-live svg").first).to_have_attribute("aria-label", re.compile("."))
    expect(page).to_have_url(re.compile(r"\?live-view\.dtype=bf16$"))
    page.reload()
    _, chosen, _ = live(page)
    assert chosen.locator("option:checked").text_content() == "bf16"


# Whether each hatch is of the drawing that is shown: a fill by a name is that of the first drawing with it,
# and none where that one is not rendered.
HATCHES = """() => [...document.querySelectorAll(".amp-live svg pattern")].map(({ id }) =>
  document.getElementById(id).closest("svg").checkVisibility())"""


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_front_page_says_between_slider_and_picture_whether_a_scale_is_safe(open_page, width):
    page = open_page("index", width=width)
    slider, _, caption = live(page)
    assert set(page.evaluate(HATCHES)) == {True}
    said, picture = page.locator(".amp-in-short"), page.locator(".amp-live svg:visible")
    places = []
    for key, words in (("Home", "✓ Safe"), ("End", "✗ Too far")):
        slider.press(key)
        expect(said).to_contain_text(words)
        places.append([each.bounding_box()["y"] for each in (slider, said, picture)])
    said.evaluate("each => { each.textContent = '✓ Found: 2¹⁰ to 2²⁶ are safe.'; }")  # the longest
    places.append([each.bounding_box()["y"] for each in (slider, said, picture)])
    assert places[0] == sorted(places[0])
    assert places == 3 * places[:1], "nothing jumps"
    assert picture.bounding_box()["y"] < caption.bounding_box()["y"]
    assert page.get_by_text("More in the notebook").is_hidden()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_first_screen_says_what_this_is_and_stands_still(open_page, width):
    page = open_page("index", width=width, has_touch=width == 390)
    assert all(abs(more) < 2 for more in grown(page))
    page.evaluate("scrollTo(0, 0)")
    head, picture = shipped.heads()[0], page.locator(".amp-live svg:visible").bounding_box()
    assert picture["y"] + picture["height"] / 2 < 844
    said = page.locator(".what")
    expect(said).to_contain_text(f"free interactive course in {len(shipped.heads())} lessons")
    expect(said.get_by_role("link")).to_have_attribute("href", head.file.replace(".ipynb", ".html"))
    if width > 500:
        verdict, after = (page.locator(each).bounding_box() for each in (".amp-in-short", ".next a"))
        assert verdict["y"] <= after["y"] + after["height"] / 2 <= verdict["y"] + verdict["height"]


def test_what_lesson_03_says_of_bf16_its_view_shows_where_the_link_leads(open_page):
    page = open_page("03_loss_scaling")
    said = page.locator("#cell-bf16")
    expect(said).to_contain_text("at a scale of 1 next to none vanish.")
    said.get_by_role("link", name="Move the scale").click()
    _, chosen, caption = live(page)
    chosen.select_option("bf16")
    expect(caption).to_contain_text(re.compile("Scale 2⁰: under 0.1 % of .* vanish"))


@pytest.mark.parametrize("name", ["index", "03_loss_scaling", "symptoms", "search", "cards", "explain"])
def test_hostile_addresses_change_nothing(open_page, name):
    page = open_page(name, HOSTILE)
    page.wait_for_timeout(500)
    assert page.locator("img[src=x], main b b").count() == 0
    if name == "index":
        slider, _, _ = live(page)
        assert slider.input_value() == "0"


def test_the_list_of_lessons_says_how_far_each_is_answered(open_page):
    page = open_page("01_number_formats")
    core = page.locator("[data-question]:not(.deeper *)")
    said = page.locator(".lessons li:has(a[href^='01_']) .begun")
    all_of_them = core.count()
    for done in (1, all_of_them):
        for question in core.all()[:done]:
            question.locator("button").first.click()
        of = f"{done} of the {all_of_them} questions"
        expect(page.locator("#answered")).to_contain_text(of)
        page.locator("header a").first.click()
        expect(said).to_have_text(
            "✓ all questions answered" if done > 1 else f"1 of {all_of_them} questions answered"
        )
        page.go_back()
    page.locator("#forget").click()
    page.locator("header a").first.click()
    expect(said).to_have_count(0)


def test_an_answer_to_several_questions_waits_for_all_of_them(open_page):
    page = open_page("02_autocast")
    fold = page.locator('[data-answers="autocast.softmax autocast.batch_norm autocast.relu"]')
    for name in ("relu", "softmax", "batch_norm"):
        expect(fold.locator("figure")).to_be_hidden()
        page.locator(f'[data-question="autocast.{name}"] button').first.click()
    expect(fold.locator("figure")).to_be_visible()


def test_without_scripts_everything_can_be_unfolded(open_page):
    page = open_page("01_number_formats", java_script_enabled=False)
    fold = page.locator('[data-answers="formats.count"]')
    expect(fold.locator("pre")).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("pre")).to_be_visible()
    page = open_page("index", java_script_enabled=False)
    for dead in ("input", "select", "#theme"):
        expect(page.locator(dead).first).to_be_hidden()


# Of each block of code in sight, and of printed tables: how many lines it has, and how high it is in lines.
LINES = """() => [...document.querySelectorAll("pre:not(.printed), .columns")].flatMap((code) => {
  if (!code.checkVisibility()) return [];
  const style = getComputedStyle(code);
  const inside = code.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  return [[code.innerText.trimEnd().split("\\n").length, Math.round(inside / parseFloat(style.lineHeight))]];
})"""


def test_code_on_a_phone_keeps_its_lines_and_scrolls(open_page):
    page = open_page("03_loss_scaling", width=390)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    lines = page.evaluate(LINES)
    assert len(lines) >= 30
    assert [(there, high) for there, high in lines if there != high] == []
    code = page.locator("#cell-fails-loop pre")
    code.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("each => each.scrollLeft > 0", arg=code.element_handle())
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    solution = page.locator("#cell-largest-safe-scale-card pre[aria-label='Source of the solution']")
    shadow = "each => getComputedStyle(each).backgroundImage"
    assert "gradient" in solution.evaluate(shadow), "there is more of it"


def test_code_is_copied_by_keyboard_and_what_it_printed_has_no_button(open_page):
    page = open_page("03_loss_scaling", permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("#cell-surprise").get_by_role("button")
    button.press("Enter")
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("import torch\n\ngradient = ")


def test_navigation_and_text_begin_at_one_left_edge(open_page):
    pages = [open_page(name, width=1440) for name in ("index", "03_loss_scaling", "symptoms", "search")]
    places = [page.locator(where).first for page in pages for where in ("header a", "h1")]
    assert len({each.bounding_box()["x"] for each in places}) == 1


def test_the_column_is_as_wide_as_a_line_of_a_notebook(open_page):
    code = open_page("03_loss_scaling").locator("#cell-fails-loop pre")
    more = "(each, line) => { each.textContent = line; return each.scrollWidth - each.clientWidth; }"
    assert code.evaluate(more, COLUMNS * "x") == 0
    assert code.evaluate(more, (COLUMNS + 1) * "x") > 0


def test_the_contents_at_the_side_mark_where_one_reads(open_page):
    page = open_page("04_fp32_vs_amp")
    for link in (page.locator(".contents ol a").nth(2), page.locator(".contents ul a").first):
        link.click()
        expect(link).to_have_attribute("aria-current", "true")
        expect(page.locator(".contents [aria-current]")).to_have_count(1)


def test_code_keeps_its_lines_on_a_wide_page_and_a_table_its_columns_on_a_phone(open_page):
    lines = open_page("04_fp32_vs_amp").evaluate(LINES)
    assert [(there, high) for there, high in lines if there != high] == []
    page = open_page("08_many_gpus", width=390)
    cells = "[...document.querySelectorAll('#cell-map td')].map((each) => each.clientWidth)"
    assert min(page.evaluate(cells)) > 90
    page = open_page("01_number_formats", width=390)
    assert page.locator("#cell-table-view caption").evaluate("each => each.clientWidth") < 390
    for name in ("glossary", "live"):
        box = open_page(name, width=390).locator(".amp-scroll:has(table)")
        assert box.evaluate("each => each.scrollWidth - each.clientWidth") == 0, name


def test_printed_sentences_are_wrapped_on_a_phone_and_printed_tables_are_not(open_page):
    page = open_page("08_many_gpus", width=390)
    widths = page.evaluate(
        """[...document.querySelectorAll("pre.printed")].map((each) => {
          for (let at = each; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
          return [each.classList.contains("columns"), each.scrollWidth > each.clientWidth];
        })"""
    )
    assert {scrolls for columns, scrolls in widths if not columns} == {False}
    assert True in {scrolls for columns, scrolls in widths if columns}


def test_a_picture_moves_sideways_on_a_phone_with_type_to_be_read_and_says_what_it_shows(open_page):
    page = open_page("03_loss_scaling", "#cell-fails-norm", width=390)
    page.locator("[data-answers='scaling.unscaled_training'] > summary").click()
    picture = page.locator("#cell-fails-run .picture")
    picture.scroll_into_view_if_needed()
    shown = picture.locator("img")
    assert SMALL * shown.bounding_box()["width"] / (9 * 72) >= LEGIBLE_PX
    assert picture.bounding_box()["width"] <= 390
    box = picture.locator(".amp-scroll")
    box.focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("each => each.scrollLeft > 300", arg=box.element_handle())
    expect(picture.locator("figcaption")).to_have_text(shown.get_attribute("alt"))
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(picture.locator("figcaption")).to_be_visible()
    shown.click()
    expect(page).to_have_url(re.compile(r"/pictures/03-fails-run\.png$"))


def test_the_tree_of_symptoms_asks_in_bold_and_leads_to_a_cause(open_page):
    path = max(paths(), key=lambda each: len(each.answered))
    page = open_page("symptoms")
    for _, answer in path.answered:
        asked = page.locator("#tree .asked")
        expect(asked).to_have_text(re.compile(r"\?$"))
        expect(asked).to_have_css("font-weight", "600")
        for aside in page.locator("#tree .asked + p.how").all():
            expect(aside).to_have_css("font-weight", "400")
        page.locator("#tree").get_by_role("button", name=answer.text, exact=True).click()
    expect(page.locator("#tree .end")).to_be_focused()
    said = page.locator("#tree .end").inner_text()
    assert path.end.code.splitlines()[0] in said
    page.reload()  # the address says where one stands
    assert page.locator("#tree .end").inner_text() == said
    page.locator("#tree").get_by_role("button", name="Back").click()
    expect(page.locator("#tree .end")).to_have_count(0)


# The top of what stands first in its line beside the top of a text of several lines.
BESIDE = """(box) => [box.querySelector("input"), box].map((each) => each.getBoundingClientRect().top)"""


def test_what_stands_before_a_text_of_several_lines_stands_at_the_first(open_page):
    page = open_page("cards", width=390, has_touch=True)
    page.get_by_role("button", name="Turn the card").click()
    tick = page.locator("#card .answer li label").first
    tick.evaluate("each => each.append(' and much more '.repeat(20))")
    of_box, of_text = tick.evaluate(BESIDE)
    assert of_box - of_text < 10
    assert tick.locator("xpath=..").evaluate("each => getComputedStyle(each).listStyleType") == "none"
    page = open_page("index", width=390, has_touch=True)
    link = page.locator(".front details li > a").first
    assert link.evaluate("each => getComputedStyle(each).display") == "inline"


def test_an_error_is_explained_as_python_explains_it_and_the_code_of_a_finding_with_its_cure(open_page):
    page = open_page("explain")
    error = 'File "x.py"\nValueError: Attempting to unscale FP16 gradients.'
    for text, said in (
        (error, audit.explain(error).meaning.replace("`", "")),
        (TAG, "not among the messages"),
        ("clip_before_unscale", "call scaler.unscale_(optimizer) before you clip"),
    ):
        page.locator("#said").fill(text)
        page.locator("#explain").click()
        expect(page.locator("#meaning")).to_contain_text(said)


def test_javascript_knows_a_message_by_the_patterns_as_python_does(open_page):
    texts = [said.text for said in said_by_torch()]
    texts += [*(whole.format(piece) for _, _, piece, whole in IN_FILES), *(text for _, text in REPORTED)]
    page = open_page("explain")
    texts += ["\n".join(pair) for pair in pairwise(texts)]  # as in a log: the last error counts
    by_python = [audit.explain(text).name or None for text in texts]
    assert page.evaluate("texts => texts.map((text) => ampExplain(text))", texts) == by_python
    assert len(set(by_python)) > len(all_messages()) / 2


def test_the_search_finds_words_of_a_section_and_what_a_whole_error_means(open_page):
    page = open_page("search")
    page.keyboard.type("clipping unscale")
    expect(page.locator("#found li").first).to_be_visible()
    of_04 = page.locator("#found li", has_text="04 · ").first
    expect(of_04.locator("p")).to_have_text(re.compile(r"^[A-Z][^.]* .* …$"))  # from a sentence on
    page.locator("#found a").first.click()
    expect(page.locator("h1, h2").first).to_be_visible()
    page = open_page("search")
    page.locator("#words").fill("RuntimeError: expected scalar type Half but found Float")
    first = page.locator("#found li").first
    expect(first.locator("a + span")).to_have_text("Message")
    expect(first.locator("code")).to_have_text("product_of_two_dtypes")
    expect(first.locator("p")).to_contain_text(re.compile("^What it means: "))
    page.locator("#found a").first.click()
    expect(page).to_have_url(re.compile(r"explain\.html#message-product_of_two_dtypes$"))
    expect(page.locator("#message-product_of_two_dtypes")).to_be_in_viewport()
    page = open_page("search")
    expect(page.get_by_role("link", name="Symptoms").last).to_be_visible()
    page.get_by_role("link", name="no speedup").click()
    expect(page.locator("#examples")).to_be_hidden()
    expect(page.locator("#found b", has_text="speedup").first).to_be_visible()
    page.locator("#words").fill("my loss is NaN")
    expect(page.locator('#found a[href*="symptoms"]').first).to_be_visible()
    page.locator("#words").fill("clipping unscale unicorn")
    expect(page.locator("#count")).to_contain_text("2 of these 3 words")


# Search for each text; return those whose section is not among the first ``most`` that are found.
NOT_FOUND = """([texts, most]) => texts.filter(([text, to]) => {
  const field = document.getElementById("words");
  field.value = text;
  field.dispatchEvent(new Event("input"));
  const found = [...document.querySelectorAll("#found a")].slice(0, most);
  return !found.some((link) => link.getAttribute("href") === to);
})"""
IN_PLAIN_WORDS = [
    ("nan loss", "the loss is NaN or inf"),
    ("why is my loss NaN?", "the loss is NaN or inf"),
    ("loss scale keeps dropping", "the loss scale keeps falling"),
    ("stuck", "the loss is flat"),
    ("my model doesn't learn", "the loss is flat"),
    ("vanishing gradients in fp16", "the loss is flat"),
    ("loss explodes", "the loss rises or jumps, and is a number"),
    ("the loss diverges after an hour", "the loss rises or jumps, and is a number"),
    ("loss goes up", "the loss rises or jumps, and is a number"),
    ("fp8 is slow", "it computes in FP8, and is worse, slower or NaN"),
    ("AMP is not faster", "training is no faster than in fp32, or slower"),
    ("no speed-up", "training is no faster than in fp32, or slower"),
    ("slow", "training is no faster than in fp32, or slower"),
    ("CUDA out of memory", "the memory is full"),
    ("OOM", "the memory is full"),
    ("accuracy drops with amp", "the loss falls, and the model is worse than it should be"),
]


def test_the_search_finds_a_symptom_by_what_people_call_it_and_a_term_by_its_name(open_page):
    places = {each.text: f"symptoms.html?walk={place}" for place, each in enumerate(SYMPTOMS.answers)}
    texts = [(query, places[symptom]) for query, symptom in IN_PLAIN_WORDS]
    texts += [(said, places[each.text]) for each in SYMPTOMS.answers for said in each.said]
    terms = [("overflow", "overflow"), ("subnormal", "normal-subnormal"), ("Loss scale", "loss-scale")]
    terms += [("overfow", "overflow"), ("overfllow", "overflow"), ("ovarflow", "overflow")]  # a letter away
    texts += [(query, f"glossary.html#term-{term}") for query, term in terms]
    page = open_page("search")
    assert page.evaluate(NOT_FOUND, [texts, 3]) == []
    nan = [("loss is NaN after 200 steps", places["the loss is NaN or inf"])]
    assert page.evaluate(NOT_FOUND, [nan, 1]) == [], "before what many libraries say"
    slow = [("no speedup", "05_speed_and_memory.html#The-hardware-is-not-fast-in-the-dtype")]
    assert page.evaluate(NOT_FOUND, [slow, 10]) == []


def test_the_search_finds_each_message_by_the_words_of_its_heading(open_page):
    texts = [
        (wording(each.patterns[0]).replace("…", " "), f"explain.html#message-{each.name}")
        for each in all_messages()
    ]
    assert open_page("search").evaluate(NOT_FOUND, [texts, 40]) == []


def test_a_card_has_an_address_to_be_sent_is_turned_graded_and_comes_back(open_page):
    card = QUESTIONS[20]
    page = open_page("cards", f"#card-{card.id}")
    expect(page.locator(f"[id='card-{card.id}']")).to_be_in_viewport()
    assert page.url.endswith(f"cards.html#card-{card.id}")
    asked = page.locator("#card h3").text_content()
    assert asked == page.locator(f"[id='card-{card.id}']").text_content()
    expect(page.locator("#card .answer")).to_be_hidden()
    page.get_by_role("button", name="Turn the card").click()
    expect(page.locator("#card .answer")).to_be_visible()
    page.get_by_role("button", name="good").click()
    expect(page).to_have_url(re.compile(r"cards\.html\?card=[\w.]+$"))
    shown = page.locator("#card h3").text_content()
    assert shown != asked
    expect(page.locator("#status")).to_contain_text("1 practised")
    page.reload()
    assert page.locator("#card h3").text_content() == shown
    expect(page.locator("#status")).to_contain_text("1 practised")


def test_a_lesson_leads_to_its_own_cards_and_they_stay_so(open_page):
    page = open_page("03_loss_scaling", "#cell-interview-cards")
    page.locator("#cell-interview-cards a").click()
    own = {each.id for each in QUESTIONS if each.lesson == "03"}
    expect(page.locator("#status")).to_contain_text(f"{len(own)} cards")
    for _ in range(3):
        assert parse_qs(urlsplit(page.url).query)["card"][0] in own
        page.get_by_role("button", name="Turn the card").click()
        page.get_by_role("button", name="good").click()
    page.reload()
    expect(page.locator("#status")).to_contain_text(f"{len(own)} cards, 3 practised")


def test_a_card_that_is_turned_on_a_phone_stays_where_it_is_and_its_answer_is_read_next(open_page):
    card = max(QUESTIONS, key=lambda each: len(each.answer_template))
    page = open_page("cards", f"?card={card.id}", width=390)
    question = page.locator("#card h3")
    question.evaluate("each => each.scrollIntoView()")
    before = question.bounding_box()
    page.get_by_role("button", name="Turn the card").click()
    expect(page.locator("#card .answer")).to_be_focused()
    assert question.bounding_box() == before
    assert page.get_by_role("button", name="good").bounding_box()["y"] > 900


def test_the_front_page_is_light_with_its_frames(open_page, live_site):
    page = open_page("index")
    loaded = page.evaluate(
        "[...document.querySelectorAll('[src], link[rel=stylesheet]')].map(e => e.src || e.href)"
    )
    files = {live_site / url.partition(live_site.name + "/")[2] for url in loaded} | {
        live_site / "index.html"
    }
    assert any(file.parent.name == "frames" for file in files)
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= 120_000


def test_the_dark_and_the_printed_page(open_page):
    page = open_page("03_loss_scaling", scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(background) == "rgb(255, 255, 255)" != dark
    page.reload()
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.locator("#theme").click()
    page.emulate_media(media="print")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    expect(page.locator("header")).to_be_hidden()
