"""A plan for a date: what fits, what takes turns, what is done, and what a missed day changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta

import pytest

from amp_lessons.course.interview.bank import DESIGNS
from amp_lessons.course.interview.code_rounds import CodeRound
from amp_lessons.course.interview.plan import LEAST_MINUTES, plan
from amp_lessons.course.routes.catalogue import route
from amp_lessons.course.routes.stops import Core
from tests.course.keep import keep

TODAY = date(2026, 12, 2)
FRIDAY = TODAY + timedelta(days=9)


def names(made):
    return [item.name for day in made.days for item in day.items]


def starting(made, what):
    return [name for name in names(made) if name.startswith(what)]


@pytest.mark.parametrize("minutes", [20, 40, 60, 120])
@pytest.mark.parametrize("days", [0, 1, 3, 9, 30])
def test_every_day_fits_its_minutes_and_the_last_has_cards_and_the_sheet(days, minutes):
    made = plan(TODAY + timedelta(days=days), minutes, TODAY)
    assert [day.on for day in made.days] == [TODAY + timedelta(days=i) for i in range(days + 1)]
    for day in made.days:
        alone = len(day.items) == 2  # cards, and a section that is longer than a whole day
        assert day.minutes <= minutes or alone, day
        assert sum(item.name.startswith("cards") for item in day.items) == 1
    day = f"{made.until:%m-%d}"
    assert [item.name for item in made.days[-1].items] == [f"cards-{day}", f"sheet-{day}"]


def test_all_that_is_to_be_read_is_planned_in_order_or_left_out():
    by_command = ("mock", "coding", "interview")
    stops = [each for each in route("interview").stops if getattr(each, "section", "") not in by_command]
    wanted = [f"{s.lesson}-{'core' if isinstance(s, Core) else s.section}" for s in stops]
    long, short = plan(FRIDAY, 60, TODAY), plan(TODAY + timedelta(days=1), LEAST_MINUTES, TODAY)
    for made in (long, short):
        planned = [name for name in names(made) if name in wanted]
        assert planned + [each.name for each in made.left_out] == wanted
    assert long.left_out == () != short.left_out
    assert plan(FRIDAY, 60, TODAY) == long


def test_code_and_mocks_take_turns_and_the_last_mock_is_the_day_before():
    made = plan(FRIDAY, 60, TODAY)
    assert len(starting(made, "code")) >= 5
    mocks = starting(made, "mock")
    assert len(mocks) == 3
    assert mocks[-1] == f"mock-{FRIDAY - timedelta(days=1):%m-%d}"
    assert made.named(mocks[0]).minutes == 45
    seeds = [made.named(name).how for name in (*mocks, *starting(made, "code"))]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("minutes", [40, 60])
def test_in_nine_days_there_are_all_designs_and_the_sheet_twice(minutes):
    made = plan(FRIDAY, minutes, TODAY)
    assert starting(made, "design") == [f"design-{each.id}" for each in DESIGNS]
    assert len(starting(made, "sheet")) == 2
    for day in made.days:
        kinds = {item.name.split("-")[0] for item in day.items}
        assert not {"mock", "design"} <= kinds, "one long thing a day"


def test_a_design_that_was_done_is_not_asked_for_again_nor_another_on_its_day():
    keep("mark", ["design-pretrain"], TODAY)
    made = plan(TODAY + timedelta(days=5), 60, TODAY)
    assert starting(made, "design") == ["design-pretrain", "design-serve"]
    assert made.today.items[0] == replace(made.named("design-pretrain"), done=True)
    assert "design-serve" not in [item.name for item in made.today.items]


def test_what_was_marked_today_is_shown_and_has_taken_its_minutes():
    keep("plan_for", FRIDAY, 40, TODAY)
    before = plan(FRIDAY, 40, TODAY)
    keep("mark", ["10-core"], TODAY)
    after = plan(FRIDAY, 40, TODAY)
    assert after.named("10-core").done
    assert after.today.minutes <= 40
    assert {item.name for item in before.today.items[:2]} <= {item.name for item in after.today.items}
    tomorrow = plan(FRIDAY, 40, TODAY + timedelta(days=1))
    assert "10-core" not in names(tomorrow)


def test_a_missed_day_is_named_and_its_work_moves_on():
    keep("plan_for", FRIDAY, 40, TODAY)
    first = plan(FRIDAY, 40, TODAY)
    later = plan(FRIDAY, 40, TODAY + timedelta(days=2))
    assert later.missed == (TODAY, TODAY + timedelta(days=1))
    assert starting(first, "10-")[0] == first.today.items[1].name == "10-core"
    assert starting(later, "10-") == starting(first, "10-"), "all that was to be read still is"
    keep("mark", ["10-core"], TODAY + timedelta(days=1))
    assert plan(FRIDAY, 40, TODAY + timedelta(days=2)).missed == (TODAY,)


def test_what_leaves_a_trace_is_seen():
    now = datetime.now().astimezone()
    today, until = now.date(), now.date() + timedelta(days=9)

    def done():
        return {item.name.split("-")[0] for item in plan(until, 60, today).today.items if item.done}

    for number in range(5):
        keep("review", f"asked.{number}", "good", now, in_mock=True)
    assert done() == set(), "a mock turns no card"
    (code,) = (each for each in plan(until, 60, today).today.items if each.name.startswith("code"))
    for number in range(5):
        keep("review", f"question.{number}", "good", now)
    keep("end_core", "10")
    CodeRound(10, 1 + int(code.how.split()[-1])).end()  # of whatever seed
    assert done() == {"cards", "code"}
    assert "10-core" not in names(plan(until, 60, today))
    keep("plan_for", until, 60, today)
    assert plan(until, 60, today + timedelta(days=1)).missed == ()


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ValueError, match="is over"):
        plan(TODAY - timedelta(days=1), 40, TODAY)
    with pytest.raises(ValueError, match="minutes is a whole number of at least 20"):
        plan(FRIDAY, 19, TODAY)
    with pytest.raises(TypeError, match=r"until is a datetime\.date"):
        plan("2026-12-04", 40, TODAY)
    with pytest.raises(ValueError, match="nothing in the plan is called 'x'; today there are cards-"):
        plan(FRIDAY, 40, TODAY).named("x")
