from __future__ import annotations

import re
from pathlib import Path

import pytest

from classroom import minutes, pages

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "classroom" / "guide.md").read_text("utf-8")
NUMBERS = [f"{number:02}" for number in range(11)]
LESSONS = {number: minutes.read(number) for number in NUMBERS}
MINUTES = {number: minutes.minutes(lesson) for number, lesson in LESSONS.items()}
PAGES = {page.name[:2]: page.read_text("utf-8") for page in pages.pages()}
AGAIN = "run `python -m classroom.pages`, and look at what changed"


@pytest.mark.parametrize("number", NUMBERS)
def test_minutes_of_sections_add_up_to_what_the_lesson_states(number):
    assert sum(MINUTES[number].values()) == minutes.stated(LESSONS[number])
    assert min(MINUTES[number].values()) >= 0
    headings = [
        line.lstrip("# ")
        for cell in LESSONS[number].cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()[:1]
        if line.startswith("##")
    ]
    assert list(MINUTES[number]) == [minutes.OPENING, *headings]


@pytest.mark.parametrize(
    ("number", "total", "first", "last"),
    [("04", 140, "Opening", "Stop and resume"), ("02", 25, "What backward does", "If you meet Apex")],
)
def test_sums_that_a_lesson_states_for_a_part_of_it_are_kept(number, total, first, last):
    headings = list(MINUTES[number])
    part = headings[headings.index(first) : headings.index(last) + 1]
    assert sum(MINUTES[number][each] for each in part) == total
    assert (
        str(total if number == "04" else minutes.stated(LESSONS[number]) - total)
        in LESSONS[number].cells[0].source
    )


def test_an_exercise_takes_at_least_what_its_card_says():
    assert MINUTES["03"]["Exercise: write the scaler"] >= 25
    assert MINUTES["10"]["A mock interview"] >= 45


@pytest.mark.parametrize("number", NUMBERS)
def test_a_page_has_the_minutes_sections_and_answers_of_its_lesson(number):
    page = PAGES[number]
    assert pages.refreshed(page, MINUTES[number]) == page, AGAIN
    rows = re.findall(r"^\| ([^|]+?) \| \d+ \|", page, re.MULTILINE)
    assert rows == list(MINUTES[number]), "the table has every section of the lesson, in its order"
    assert page.splitlines()[0] == f"{LESSONS[number].cells[0].source.splitlines()[0]}: for teachers"


@pytest.mark.parametrize("number", NUMBERS)
def test_plans_leave_time_to_talk(number):
    for plan, taken in pages.plans(PAGES[number]).items():
        total = sum(MINUTES[number][each] for each in taken)
        assert 0.5 * plan <= total <= (1 - pages.LEFT_FOR_TALK) * plan, f"{plan}: {total} minutes"
        assert plan < minutes.stated(LESSONS[number])


def test_a_changed_lesson_is_noticed():
    changed = {**MINUTES["03"], "Move the scale": MINUTES["03"]["Move the scale"] + 7}
    page = pages.refreshed(PAGES["03"], changed)
    assert f"| Move the scale | {changed['Move the scale']} |" in page
    assert f"| **together** | **{minutes.stated(LESSONS['03']) + 7}** |" in page
    with pytest.raises(ValueError, match="Move the scale"):
        pages.refreshed(PAGES["03"], {k: v for k, v in changed.items() if k != "Move the scale"})


def minutes_of(number: str, taken: str) -> int:
    if taken == "whole":
        return minutes.stated(LESSONS[number])
    if plan := re.fullmatch(r"its plan of (\d+)", taken):
        return sum(MINUTES[number][each] for each in pages.plans(PAGES[number])[int(plan[1])])
    return sum(MINUTES[number][each] for each in taken.split("; "))


@pytest.mark.parametrize(
    ("heading", "minutes_there"),
    [("In 45 minutes", 45), ("In 90 minutes", 90), ("In 180 minutes", 180), ("In two days", 2 * 6 * 60)],
)
def test_plans_over_several_lessons_add_up(heading, minutes_there):
    plan = GUIDE.split(f"### {heading}\n")[1].split("\n##")[0]
    rows = re.findall(r"^\| (\d\d) \| (.+?) \| (\d+) \|$", plan, re.MULTILINE)
    assert [int(said) for *_, said in rows] == [minutes_of(number, taken) for number, taken, _ in rows]
    (together,) = re.findall(r"\*\*together\*\* \| \*\*(\d+)\*\*", plan)
    assert int(together) == sum(int(said) for *_, said in rows)
    assert int(together) <= (1 - pages.LEFT_FOR_TALK) * minutes_there


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
