"""The pages of the course: what is on them, where links lead, what they weigh, that they ask nobody."""

from __future__ import annotations

import base64
import gzip
import html
import io
import itertools
import os
import re
from html.parser import HTMLParser
from operator import add
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from PIL import Image

from amp_lessons import quizzes
from amp_lessons._base.drawing.picture import with_caption, without_caption
from amp_lessons._base.text.prose import as_html
from amp_lessons.audit.explaining.message import all_messages
from amp_lessons.audit.rules import ROWS
from amp_lessons.audit.rules.rows import EXPLAINED_AT
from amp_lessons.course.clinic import LOSS_CURVES
from amp_lessons.course.clinic.symptoms import paths
from amp_lessons.course.exercises import shelf
from amp_lessons.course.lessons import shipped
from amp_lessons.course.quizzes import Choice, Question
from amp_lessons.course.routes.catalogue import ROUTES
from amp_lessons.course.site.build import ASSETS, build, style
from amp_lessons.course.site.explain import explain_page, steps, wording
from amp_lessons.course.site.glossary import term_id
from amp_lessons.course.site.lesson import is_columns
from amp_lessons.course.site.questions import behind_questions, question_html
from amp_lessons.course.site.search import search_script
from amp_lessons.course.site.shell import Page, address, html_of, lesson_link
from amp_lessons.course.site.substitutes import ON_PAGES, captions, said_on_pages
from amp_lessons.course.site.symptoms import symptoms_script
from amp_lessons.course.views.base.code import code_html
from amp_lessons.formats import FORMATS
from tests.course.site.sites import COLUMNS, whole_site

FRONT_KB, LESSON_KB = 120, 1500  # what a page may weigh, packed, with all that it loads at once
LONGER = {  # cells with a line that is moved sideways
    "04 clip-run",
    "06 heal-overbearing-penalty-stub",
    "06 heal-standstill-adam-run",
    "08 ddp-step-stub",
    "08 reduce-mean-stub",
}
LOADED = [(tag, "src") for tag in ("img", "script", "iframe", "source", "video")] + [("link", "href")]


class Elements(HTMLParser):
    """The elements of a page, each with its attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def all(self, attribute):
        return [(tag, attrs[attribute]) for tag, attrs in self.found if attribute in attrs]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of this run of tests, or that of AMP_LESSONS_SITE where one was built already."""
    built = os.environ.get("AMP_LESSONS_SITE")
    return Path(built).resolve() if built else whole_site(tmp_path_factory)


@pytest.fixture(scope="module")
def pages(site):
    return {path.name: Elements(path.read_text("utf-8")) for path in sorted(site.glob("*.html"))}


@pytest.mark.thorough
def test_a_lesson_s_contents_lead_to_its_second_headings_and_what_is_deeper(site):
    for head in shipped.heads():
        text = html.unescape(page_of(site, head.number))
        contents = text.partition('<details class="contents">')[2].partition("</details>")[0]
        linked = re.findall('<a href="#([^"]+)"', contents)
        assert len(linked) >= 2, head.file
        assert set(linked) <= set(re.findall('<h2[^>]* id="([^"]+)"', text)), head.file
        assert {*re.findall('<summary><h2 id="([^"]+)"', text)} <= {*linked}, head.file


@pytest.mark.thorough
def test_no_link_is_dead(site, pages):
    dead = []
    for name, page in pages.items():
        for _, to in page.all("href"):
            parts = urlsplit(to)
            if parts.scheme:
                continue
            target = parts.path or name
            ids = {id for _, id in pages[target].all("id")} if target in pages else None
            if not (site / target).is_file() or (parts.fragment and unquote(parts.fragment) not in ids):
                dead.append(f"{name}: {to}")
    assert dead == []


@pytest.mark.thorough
def test_a_finding_is_explained_in_the_same_copy_of_the_site(site):
    said = page_of(site, "06")
    assert 'href="explain.html#code-clip_before_unscale"' in said
    assert EXPLAINED_AT not in said


@pytest.mark.thorough
def test_nothing_is_loaded_from_elsewhere(site, pages):
    outside = [
        f"{name}: {tag} {to}"
        for name, page in pages.items()
        for kind, attribute in LOADED
        for tag, to in page.all(attribute)
        if tag == kind and urlsplit(to).scheme not in ("", "data")
    ]
    assert outside == []
    style = (site / "assets" / "site.css").read_text("utf-8")
    assert style.count("url(") == style.count('url("data:image/svg+xml,')
    assert "@import" not in style


def page_of(site, number):
    """The text of a lesson's page."""
    return (site / address(shipped.head_of(number).file)).read_text("utf-8")


def packed(path):
    return len(gzip.compress(path.read_bytes()))


@pytest.mark.thorough
def test_no_page_is_heavy(site, pages):
    for name, page in pages.items():
        at_once = [to for tag, to in page.all("src") if not to.startswith("data:")] + ["assets/site.css"]
        weight = packed(site / name) + sum(packed(site / to) for to in set(at_once))
        assert weight / 1000 <= (FRONT_KB if name == "index.html" else LESSON_KB), f"{name}: {weight} bytes"


@pytest.mark.thorough
@pytest.mark.parametrize("head", shipped.heads(), ids=lambda head: head.number)
def test_the_core_is_open_and_what_is_deeper_is_folded(site, head):
    text = page_of(site, head.number)
    _, deeper = shipped.parts_of(head.number)
    folds = re.findall(r'<details class="deeper".*?</summary>', text, re.DOTALL)
    assert len(folds) == len(deeper)
    before = text.partition('<details class="deeper"')[0]
    assert "LessonEnd" not in before  # what it says is there, not the call
    for fold, section in zip(folds, deeper, strict=True):
        _, words = shipped.heading_of(section[0])
        assert words.replace("`", "") == html.unescape(re.sub("<.*?>", "", re.search("<h2.*?</h2>", fold)[0]))


@pytest.mark.thorough
@pytest.mark.parametrize("number", quizzes.lessons())
def test_every_question_of_a_lesson_is_on_its_page(pages, number):
    page = pages[address(shipped.head_of(number).file)]
    asked = {id for _, id in page.all("data-question")}
    assert {each.id for each in quizzes.of_lesson(number)} <= asked


@pytest.mark.thorough
def test_a_question_is_right_at_the_right_answer(pages):
    question = quizzes.question("autocast.softmax")
    page = pages["02_autocast.html"]
    at = next(i for i, (_, a) in enumerate(page.found) if a.get("data-question") == question.id)
    buttons = [attrs for tag, attrs in page.found[at:] if tag == "button"][: len(question.choices)]
    assert [each["data-right"] == "1" for each in buttons] == [each.right for each in question.choices]
    said = [each["data-said"] for each in buttons]
    assert all(choice.why in each for each, choice in zip(said, question.choices, strict=True))


def text_of_cell(site, number, cell):
    return page_of(site, number).partition(f'id="cell-{cell}"')[2].partition('<div class="cell')[0]


@pytest.mark.thorough
def test_a_page_does_not_speak_of_keys_and_buttons_that_it_does_not_have(site):
    assert "Shift+Enter" not in text_of_cell(site, "00", "surprise-title")
    assert text_of_cell(site, "00", "how-to").partition(">")[2].strip() == "</div>"
    knobs = text_of_cell(site, "03", "scaler-play")
    assert "(the notebook has buttons, too, which train on" in knobs
    bits = text_of_cell(site, "01", "bits-view")
    assert bits.index('href="float.html"') < bits.index("<figure")


def test_each_question_about_a_symptom_ends_with_what_is_asked_or_with_an_aside():
    asked = {question.text for path in paths() for question, _ in path.answered}
    assert [each for each in asked if "?" not in each] == []


def test_in_lesson_03_no_comment_at_the_end_of_a_line_makes_it_long():
    code = [each for each in shipped.parts_of("03")[0] if each["cell_type"] == "code"]
    lines = "\n".join(shipped.source(each) for each in code[1:]).splitlines()
    assert [line for line in lines if "  # " in line and len(line) > 70] == []


def test_lines_of_code_are_as_long_as_the_column_of_a_page_is_wide():
    longer = {
        f"{head.number} {cell['id']}"
        for head in shipped.heads()
        for cell in shipped.cells_in(head.number)
        if cell["cell_type"] == "code"
        and max(map(len, shipped.source(cell).splitlines()), default=0) > COLUMNS
    }
    assert longer <= LONGER


def test_words_that_a_page_replaces_are_there():
    texts = "\n".join(texts_of_notebooks())
    assert [words for words in ON_PAGES if words not in texts] == []


def texts_of_notebooks():
    """Yield the texts of all lessons."""
    for head in shipped.heads():
        for cell in shipped.cells_in(head.number):
            if cell["cell_type"] == "markdown":
                yield shipped.source(cell)


def test_on_a_page_nothing_is_run_but_where_it_says_so():
    """Beside them lesson 00 teaches how cells are run, and lesson 10 how code is handed in."""
    said = "\n".join(map(said_on_pages, texts_of_notebooks()))
    runs = re.findall(r"[^.*]*\b[Rr]un the (?:next )?cell\b|In JupyterLab|cells hidden|Shift\+Enter", said)
    teaching = [each for each in runs if "n the notebook, " not in each]
    assert [each.strip() for each in teaching] == ["Run the next cell", "Mend it, run the cell"]


def stored_pictures():
    """Yield lesson, view, text and picture of each output that a notebook stores with a picture."""
    for head in shipped.heads():
        for cell in nbformat.read(shipped.originals() / head.file, 4).cells:
            for output in cell.get("outputs", ()):
                if "image/png" in output.get("data", {}):
                    view = re.findall(r"\bviews\.(\w+)\(", cell.source)[-1]
                    picture = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
                    yield f"{head.number}-{cell.id}", view, output.data["text/plain"], picture


def test_a_stored_picture_says_what_stands_beside_it_and_on_a_page_it_says_so_once():
    found = list(stored_pictures())
    assert len(found) > 50
    for name, view, text, picture in found:
        caption, drawn = captions(text, view)
        assert caption, name
        again = with_caption(without_caption(picture, drawn), drawn)
        assert np.array_equal(np.asarray(again), np.asarray(picture)), name


def a_quiz(id="formats.count"):
    return new_code_cell(f'views.Quiz("{id}")', metadata={"unseen": True}, outputs=[printed("asked")])


def printed(text):
    return new_output("stream", text=text)


def running(name):
    return new_code_cell(name, outputs=[printed(name)])


def waiting(*cells):
    """The questions that each code cell waits for, by its source."""
    cells = list(behind_questions(cells))
    return {each.source: each.metadata["answers"].split() for each in cells if "answers" in each.metadata}


def test_what_is_shown_after_a_question_waits_behind_it_up_to_the_next_text():
    define, text = new_code_cell("define"), new_markdown_cell("Look at the next one.")
    found = waiting(a_quiz(), text, define, running("run"), running("more"), text, running("later"))
    assert found == {"run": ["formats.count"], "more": ["formats.count"]}


def test_questions_in_a_row_wait_together_and_a_heading_or_a_new_question_begins_anew():
    assert waiting(a_quiz("a"), a_quiz("b"), running("run")) == {"run": ["a", "b"]}
    assert waiting(a_quiz("a"), new_markdown_cell("## Another"), running("run")) == {}
    found = waiting(a_quiz("a"), running("run"), a_quiz("b"), running("other"))
    assert found == {"run": ["a"], "other": ["b"]}


def test_a_view_that_a_text_leads_to_is_there_to_be_played_with_and_so_is_a_lessons_end():
    view, text = running("views.ScalerView(model)"), new_markdown_cell("Make it skip a step.")
    assert waiting(a_quiz(), text, view, text, running("later")) == {}
    assert waiting(a_quiz(), text, running("views.Ruler()"), running("run")) == {"run": ["formats.count"]}
    assert list(waiting(a_quiz(), view)) == [view.source], "with the question alone above it, it answers it"
    assert waiting(a_quiz(), running('views.LessonEnd("03")')) == {}


def test_printed_sentences_may_be_wrapped_and_columns_may_not():
    row = "[measured] after  200 steps fp16 loses 9.5%"
    assert not is_columns(f"{row}\n{row}")
    assert is_columns("mean   becomes 1   gloo\nfsdp   becomes 0   NCCL")


def test_the_reason_waits_with_what_it_explains():
    run, why = running("run"), new_markdown_cell("Because.", id="count-why")
    assert waiting(a_quiz(), run, why) == {"run": ["formats.count"]}
    assert run.outputs[-1]["data"] == {"text/markdown": "Because."}
    assert why.source == ""


@pytest.mark.thorough
def test_each_fold_of_a_lesson_stands_below_all_questions_that_it_answers(site):
    folds = 0
    for head in shipped.heads():
        text = page_of(site, head.number)
        for fold in re.finditer(r'<details class="outcome" data-answers="(.*?)">', text):
            assert all(f'data-question="{id}"' in text[: fold.start()] for id in fold[1].split()), fold[0]
            folds += 1
    assert folds > len(shipped.heads()) * 10


@pytest.mark.thorough
def test_a_count_is_not_to_be_read_before_it_was_guessed(site):
    text = page_of(site, "01")
    open_, _, rest = text.partition('<details class="outcome" data-answers="formats.count">')
    fold = rest.partition("</details>")[0]
    for told in ("torch.float16  stops at 2048", "mantissa bits</strong>. The first"):
        assert told in fold
        assert told not in open_


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.name)
def test_a_message_is_known_by_its_wording(message):
    """Once something stands where the dots are, its own patterns know it again."""
    for words in map(wording, message.patterns):
        between = words.split("…")
        dots = ("1", "x", "1x", "a b", " ", ". ", "Half", "float16", "f16", "int8", "1000000")
        said = [each.join(between) for each in dots]
        for two in (("fp16", "fp32"), ("x ", " ")):  # not twice the same
            turns = [*itertools.islice(itertools.cycle(two), len(between) - 1), ""]
            said.append("".join(map(add, between, turns)))
        assert any(message.matches(each) or message.matches(f"{each} x") for each in said), words


def test_a_cure_of_several_sentences_is_a_list_and_no_code_is_torn():
    points = [steps(each.cure).splitlines() for each in all_messages()]
    assert {len(each) > 1 for each in points} == {True, False}
    assert [each for some in points for each in some if each.count("`") % 2] == []


@pytest.mark.thorough
@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.name)
def test_a_message_is_headed_by_what_it_says(site, message):
    text = (site / "explain.html").read_text("utf-8")
    section = text.partition(f'<section id="message-{message.name}">')[2].partition("</section>")[0]
    heading = html.unescape(re.sub("<.*?>", "", section.partition("</h2>")[0]))
    assert heading == f"{wording(message.patterns[0])} {message.name}"


@pytest.mark.thorough
def test_each_loss_curve_stands_above_its_question(site):
    text = page_of(site, "06")
    for number, curve in enumerate(LOSS_CURVES, start=1):
        (drawn,) = re.findall(rf'<img alt="Curve {number}: [^>]*src="(pictures/06-[^"]*\.png)"', text)
        assert (site / drawn).is_file()
        between = text.partition(drawn)[2].partition(f'data-question="curves.{curve}"')[0]
        assert "data-question" not in between


@pytest.mark.thorough
def test_each_code_has_its_meaning_and_its_cure(site):
    text = html.unescape((site / "explain.html").read_text("utf-8"))
    told = {code: text.partition(f'id="code-{code}"')[2].partition("</section>")[0] for code in ROWS}
    assert not [code for code, row in ROWS.items() if html.unescape(as_html(row.says[0])) not in told[code]]
    without = {code for code in told if "Cure:" not in told[code]}
    assert all(ROWS[code].seen_by == "check" for code in without), without
    assert "call scaler.unscale_(optimizer) before you clip" in told["clip_before_unscale"]


@pytest.mark.thorough
def test_every_exercise_has_its_task_hints_and_solution(site):
    for exercise in shelf.exercises():
        text = page_of(site, exercise.lesson)
        words = " ".join(html.unescape(re.sub("<.*?>", "", text)).split())
        assert exercise.title in words
        last_line = exercise.solution_source.strip().splitlines()[-1]
        assert " ".join(last_line.split()) in words, exercise.id


@pytest.mark.thorough
def test_the_front_page_shows_every_route(site):
    text = (site / "index.html").read_text("utf-8")
    shown = [f"<strong>{html.escape(route.title)}</strong>" in text for route in ROUTES]
    assert all(shown)
    assert "← next" not in text, "the page knows nothing of a learner"


class Words(HTMLParser):
    """The words of a page, without code and what nobody reads."""

    def __init__(self, text):
        super().__init__()
        self.within, self.text = 0, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.within += tag in NO_WORDS

    def handle_endtag(self, tag):
        self.within -= tag in NO_WORDS

    def handle_data(self, data):
        self.text += "" if self.within else data


NO_WORDS = {"code", "pre", "script", "style", "textarea", "title"}
MARKUP = re.compile(r"`[^`\n]+`|(?<![\w*])\*\*?[A-Za-z][^*\n]*\*|\]\(\S+\)|^#+ \w", re.MULTILINE)


@pytest.mark.parametrize("raw", ["a `GradScaler`", "a *row*, at once", "**now**", "[03](03.html)", "## Why"])
def test_markup_left_in_words_is_seen(raw):
    assert MARKUP.search(Words(f"<p>{raw}</p>").text)
    assert not MARKUP.search(Words(f"<p>2*3*4, a[i](x y)</p><pre><code>{raw}</code></pre>").text)


@pytest.mark.thorough
def test_no_page_shows_its_markup(site):
    texts = {path.name: Words(path.read_text("utf-8")).text for path in site.glob("*.html")}
    del texts["explain.html"]  # it quotes PyTorch, whose words have marks of their own
    assert {name: found[0] for name, text in texts.items() if (found := MARKUP.search(text))} == {}


def test_no_card_has_markup_that_cards_do_not_render():
    """Cards know code, paragraphs and lists, in JupyterLab and on the site alike."""
    both = (*shelf.exercises(), *shelf.interview_tasks())
    cards = {each.id: "\n".join((each.task, each.asks, each.explanation, *each.hints)) for each in both}
    left = {id: MARKUP.search(re.sub("`[^`]*`", "", text)) for id, text in cards.items()}
    assert {id: found[0] for id, found in left.items() if found} == {}


@pytest.mark.thorough
def test_every_term_of_the_glossary_can_be_linked_to_and_no_file_of_the_tests_is_named(site, pages):
    ids = {id for _, id in pages["glossary.html"].all("id")}
    assert term_id("fp32 island") == "term-fp32-island"
    assert {"term-autocast", "term-loss-scale", "term-fp32-island"} < ids
    assert "tests/" not in (site / "glossary.html").read_text("utf-8")


def test_answers_lead_to_the_section_that_explains_them():
    assert re.search("html#cell-clip.{,3}>Lesson 04, “Clipping”", symptoms_script())
    assert 'html#cell-model-half">Lesson 04, “Why not <code>model.half()</code>?”</a>' in explain_page().body
    assert lesson_link("03", "deeper-breaks").endswith("Lesson 03, “What breaks a run at every scale?”</a>")


def test_a_section_that_a_lesson_does_not_have_is_refused():
    with pytest.raises(ValueError, match="no heading whose cell is called 'unicorn'"):
        lesson_link("03", "unicorn")


def test_a_page_is_marked_where_it_is_listed_or_found():
    here, other = Page("a.html", "A", "", listed="A"), Page("b.html", "B", "", listed="B")
    below = Page("c.html", "C", "", under="b.html")
    marked = [
        re.findall('<a href="([^"]+)" aria-current="(.*?)">', html_of(each, [here, other, below]))
        for each in (here, below)
    ]
    assert marked == [[("a.html", "page")], [("b.html", "true")]]


def test_what_others_wrote_is_never_markup():
    hostile = '"><script>alert(1)</script>'
    made = question_html(Question(hostile, hostile, (Choice(hostile, hostile, True), Choice("b", "b"))))
    whole = html_of(Page("x.html", hostile, made), [])
    assert "<script>alert" not in whole
    buttons = [attrs for tag, attrs in Elements(whole).found if tag == "button"]
    assert buttons[1]["data-said"].endswith(hostile)  # the first is that of the theme


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="something else than a site"):
        build(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_code_is_searched_and_excerpted_as_it_is_written():
    code = code_html("grads.append(weight.grad.to_local())", "x")
    assert "grads.append(weight.grad.to_local())" in search_script([Page("x.html", "T", code)])


def test_what_scrolls_sideways_has_a_shadow():
    shadowed = re.search(r"([^{}]*)\{\s*background:\s*linear-gradient", style())[1]
    assert shadowed.endswith('.amp-scroll,\n[role="region"],\npre ')


def test_the_page_of_bits_types_no_format_in():
    script = "".join((ASSETS / name).read_text("utf-8") for name in ("numbers.js", "float.js"))
    assert [name for name in FORMATS if f'"{name}"' in script] == []
