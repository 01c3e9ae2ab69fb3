"""Reviews: each runs, the check names each of its bugs, none hides another, and the mended one passes."""

from __future__ import annotations

import ast
import itertools

import pytest
import torch
from torch import nn

from amp_lessons import exercises
from amp_lessons.course.exercises.clipped_windows.bugs import BUGS, LOOP, broken
from amp_lessons.course.interview.code_tasks import LOOP_ID, Pointed, Review, review

ALL = [(seed, 3 + seed % 5) for seed in range(200)]


def defined(source):
    namespace = {"__name__": "__main__"}
    exec(compile(source, "<review>", "exec"), namespace)
    return namespace["train"]


def run_plainly(source, dtype=torch.float16):
    """Train by a loop as anybody would, without a check; return the losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 5))
    batches = [(torch.randn(8, 6), torch.randint(5, (8,))) for _ in range(7)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"accumulation_steps": 3, "max_norm": 1.0, "device_type": "cpu", "dtype": dtype}
    return defined(source)(model, batches, optimizer, nn.CrossEntropyLoss(), 3, **settings)


def checked(source):
    return exercises.check(LOOP_ID, defined(source), time_limit_s=60.0)  # a busy machine hides no bug


def assert_all_are_seen(drawn):
    """Mend one bug after another as the check names them: it leads through all, and passes at the end."""
    left = list(drawn.bugs)
    while left:
        report = checked(drawn.without(*(bug for bug in drawn.bugs if bug not in left)))
        assert not report.passed, f"hidden: {[bug.id for bug in left]}"
        named = [bug for bug in left if report.findings[0].code in bug.codes]
        assert named, f"{[bug.id for bug in left]} are called {report.findings[0]}"
        left.remove(named[0])
    assert checked(drawn.mended_source).passed


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_two_hundred_reviews_run_and_each_bug_has_changed_a_line():
    for seed, number in ALL:
        drawn = review(seed, number)
        assert len(drawn.bugs) == len({bug.cause for bug in drawn.bugs}) == number
        for dtype in (torch.float16, torch.bfloat16):
            assert len(run_plainly(drawn.source, dtype)) == 3
        for bug in drawn.bugs:
            assert drawn.lines(bug), f"{bug.id} has changed nothing in {seed}"


@pytest.mark.few
@pytest.mark.parametrize(("seed", "number"), ALL)
def test_every_bug_of_a_review_is_seen_and_none_hides_another(seed, number):
    assert_all_are_seen(review(seed, number))


def assert_each_shows(drawn):
    """Check that each bug has changed a line, that the loop runs, and that the check names all."""
    assert all(map(drawn.lines, drawn.bugs))
    run_plainly(drawn.source)
    assert_all_are_seen(drawn)


PAIRS = [(one, other) for one, other in itertools.combinations(BUGS, 2) if broken((one, other))]


@pytest.mark.thorough
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda bug: bug.id)
def test_no_two_bugs_hide_each_other_and_those_kept_apart_would(one, other):
    drawn = Review((one, other))
    if one.cause != other.cause and (one.id in other.hides or other.id in one.hides):
        with pytest.raises((AssertionError, RuntimeError)):
            assert_each_shows(drawn)
    elif one.cause != other.cause:
        assert_all_are_seen(drawn)


def test_a_seed_draws_the_same_review_and_another_seed_another():
    assert review(7, 5).source == review(7, 5).source
    assert len({review(seed, 5).source for seed in range(20)}) == 20
    drawn = {bug.id for seed in range(60) for bug in review(seed, 5).bugs}
    assert drawn == {bug.id for bug in BUGS}, "a bug that nobody draws is there for nobody"
    for number in (2, 8):
        with pytest.raises(ValueError, match="3 to 7 bugs"):
            review(0, number)


def test_a_bug_is_found_by_its_line_and_its_cause():
    drawn = review(4, 4)
    for bug in drawn.bugs:
        (pointed,) = drawn.read(drawn.typed(bug))
        assert drawn.judged(pointed) == "found"
        assert all(drawn.found([Pointed(line, bug.cause)]) == (bug,) for line in drawn.lines(bug))
        elsewhere = set(range(1, len(drawn.source.splitlines()) + 1)) - drawn.mended_at(bug)
        assert drawn.found(Pointed(line, bug.cause) for line in elsewhere) == ()
    line = min(drawn.lines(drawn.bugs[0]))
    assert "not its cause" in drawn.judged(Pointed(line, drawn.bugs[1].cause))
    assert drawn.judged(Pointed(1, drawn.bugs[0].cause)) == "no bug is there"


@pytest.mark.parametrize(
    ("id", "piece"),
    [
        ("not_divided", "loss = loss_fn(outputs, targets)"),
        ("sum_logged", "total += loss.item()"),
        ("rest_left", "history.append(total / len(loader))"),
        ("counted_from_zero", "in enumerate(loader)"),
    ],
)
def test_a_line_at_which_some_would_mend_it_is_right_too_and_so_in_any_clothes(id, piece):
    (bug,) = (each for each in BUGS if each.id == id)
    (line,) = (i for i, each in enumerate(LOOP.splitlines(), 1) if piece in each)
    for seed in range(8):
        drawn = Review((bug,), seed)
        assert line not in drawn.lines(bug)
        assert drawn.found([Pointed(line, bug.cause)]) == (bug,)
        other = next(cause for cause in drawn.causes.values() if cause != bug.cause)
        assert drawn.judged(Pointed(line, other)) == "no bug is there"


def test_every_piece_at_which_some_would_mend_a_bug_is_one_line_of_the_loop():
    for piece in (piece for bug in BUGS for piece in bug.also_at):
        assert sum(piece in line for line in LOOP.splitlines()) == 1, piece


def test_a_missing_line_is_between_two_and_a_changed_one_is_where_it_stands():
    drawn = review(21, 3)
    places = {bug.id: (drawn.place(bug), drawn.lines(bug)) for bug in drawn.bugs}
    assert places == {
        "scaler_off": ("line 7", {7}),
        "rest_left": ("line 17", {17}),
        "not_unscaled": ("between lines 17 and 18", {17, 18}),  # both neighbours are right
    }


def test_what_is_pointed_at_is_read_in_any_order_and_case():
    drawn = review(4, 4)
    read = [
        (each.line, list(drawn.causes.values()).index(each.cause)) for each in drawn.read(" 12c, 7 A;3 b\n")
    ]
    assert read == [(12, 2), (7, 0), (3, 1)]
    assert drawn.read("") == ()


@pytest.mark.parametrize("answer", ["12", "c", "0 c", "400 c", "12 z", "12 c 13", "twelve c"])
def test_what_cannot_be_read_says_what_could(answer):
    with pytest.raises(ValueError, match="such as 12 c"):
        review(4, 4).read(answer)


def test_mended_and_broken_differ_by_the_bugs_alone():
    for seed in range(20):
        drawn = review(seed, 5)
        mended, ill = (ast.parse(source) for source in (drawn.mended_source, drawn.source))
        assert ast.dump(mended.body[-1].args) == ast.dump(ill.body[-1].args)
        assert drawn.without(*drawn.bugs) == drawn.mended_source
