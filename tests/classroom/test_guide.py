from __future__ import annotations

import re
from pathlib import Path

import pytest

from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Head, cells_in, head_of, heading_of
from amp_lessons.course.routes import minutes
from amp_lessons.course.routes.catalogue import route
from classroom import computed, pages

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "classroom" / "guide.md").read_text("utf-8")
NUMBERS = [head.number for head in shipped.heads()]
MINUTES = {number: pages.minutes_of(number) for number in NUMBERS}
PAGES = {page.name[:2]: page.read_text("utf-8") for page in pages.pages()}
AGAIN = "run `python -m classroom.pages`, and look at what changed"


@pytest.mark.parametrize("number", NUMBERS)
def test_every_section_of_a_lesson_has_its_minutes(number):
    assert min(MINUTES[number].values()) >= 0
    headings = [found[1] for cell in cells_in(number) if (found := heading_of(cell))]
    assert list(MINUTES[number]) == [minutes.OPENING, *headings]
    assert sum(MINUTES[number].values()) == minutes.core(number) + sum(minutes.deeper(number).values())


def test_an_exercise_takes_at_least_what_its_card_says():
    assert MINUTES["03"]["Exercise: write the scaler"] >= 25
    assert MINUTES["10"]["Deeper: A mock interview"] >= 45


@pytest.mark.parametrize("number", NUMBERS)
def test_a_page_has_the_minutes_sections_and_answers_of_its_lesson(number):
    page = PAGES[number]
    assert pages.refreshed(page, head_of(number), MINUTES[number]) == page, AGAIN
    assert pages.STATED.search(page)
    rows = re.findall(r"^\| ([^|]+?) \| \d+ \|", page, re.MULTILINE)
    assert rows == list(MINUTES[number]), "the table has every section of the lesson, in its order"
    assert page.splitlines()[0] == f"# {number} · {head_of(number).title}: for teachers"


@pytest.mark.parametrize("number", NUMBERS)
def test_plans_leave_time_to_talk(number):
    for plan, taken in pages.plans(PAGES[number]).items():
        total = sum(MINUTES[number][each] for each in taken)
        assert 0.5 * plan <= total <= (1 - pages.LEFT_FOR_TALK) * plan, f"{plan}: {total} minutes"
        assert plan < sum(MINUTES[number].values())


def test_a_changed_lesson_is_noticed():
    changed = {**MINUTES["03"], "Recap": MINUTES["03"]["Recap"] + 7}
    page = pages.refreshed(PAGES["03"], Head("03", "", "", 5, 15), changed)
    assert ", 5 minutes for the core and 15 for what is deeper, for one reader alone." in page
    assert f"| Recap | {changed['Recap']} |" in page
    assert f"| **together** | **{sum(MINUTES['03'].values()) + 7}** |" in page
    del changed["Recap"]
    with pytest.raises(ValueError, match="Recap"):
        pages.refreshed(PAGES["03"], head_of("03"), changed)


@pytest.mark.parametrize(("name", "folder"), computed.FILES.items(), ids=computed.FILES)
def test_tables_and_routes_say_what_lessons_say(name, folder):
    text = (ROOT / name).read_text("utf-8")
    assert computed.refreshed(text, folder) == text, AGAIN
    assert text.count("<!-- computed: ") == {"README.md": 2, "classroom/guide.md": 3}[name]


def test_a_block_that_nobody_computes_is_refused():
    with pytest.raises(ValueError, match="nothing called 'weather' is computed; there are lessons, short"):
        computed.refreshed("<!-- computed: weather -->\n<!-- /computed -->", "")


@pytest.mark.parametrize(("id", "minutes_there"), [("hour", 90), ("evening", 240), ("weekend", 2 * 6 * 60)])
def test_plans_made_of_routes_leave_time_to_talk(id, minutes_there):
    assert f"<!-- computed: plan {id} -->" in GUIDE
    assert route(id).minutes <= (1 - pages.LEFT_FOR_TALK) * minutes_there


def test_links_of_guide_policy_and_pages_lead_somewhere():
    folder = ROOT / "classroom"
    for page in (folder / "guide.md", folder / "AI_POLICY.md", *pages.pages()):
        text = page.read_text("utf-8")
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            target = (page.parent / path) if path else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in titles}
