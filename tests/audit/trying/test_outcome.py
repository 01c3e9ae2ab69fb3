"""What is said of runs whose losses are known, and how trials are typed."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys

import pytest

from amp_lessons._base.typed_json import dumps
from amp_lessons.audit.trying import AS_IT_IS, Run, Trial, Tried, trial_of


def run(what, last, start=2.0, steps=8):
    """Make a run that begins at ``start`` and whose last quarter has this mean."""
    return Run(what, (*[start] * (steps - 2), last - 0.01, last + 0.01))


def tried(as_it_is, fp32, again=(), **others):
    repeated = tuple(run(f"equal run {n}", loss) for n, loss in enumerate(again, 2))
    rest = tuple(run(what, loss) for what, loss in others.items())
    return Tried("fp16", run(AS_IT_IS, as_it_is), run("fp32", fp32), repeated, rest)


def said(outcome):
    return " ".join(str(outcome).split())


def test_a_loss_is_the_mean_of_the_last_quarter():
    assert Run("x", (9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 2.0)).loss == 1.5
    assert Run("x", (4.0,)).loss == 4.0
    assert math.isnan(Run("x", (1.0, 1.0, 1.0, math.inf)).loss)
    assert Run("x", (math.nan, 1.0, 1.0, 1.0)).loss == 1.0, "a batch at the beginning may overflow"
    assert math.isnan(Run("x").loss)


def test_noise_is_three_times_the_range_of_equal_runs():
    assert tried(1.0, 0.5, (1.01, 0.98)).noise == pytest.approx(0.09)
    assert math.isnan(tried(1.0, 0.5).noise)
    assert math.isnan(tried(1.0, 0.5, (1.01, math.nan)).noise)


def test_equal_runs_are_rarely_told_apart():
    """Runs from one normal distribution: four in a hundred, as the head of the module says."""
    random.seed(0)
    rounds, apart = 4000, 0
    for _ in range(rounds):
        first, second, third, other = (1.0 + 0.001 * random.gauss(0, 1) for _ in range(4))
        outcome = tried(first, 0.5, (second, third), other=other)
        apart += outcome.explained(outcome.others[0]) is not None
    assert 0.03 < apart / rounds < 0.05


def test_a_change_explains_its_part_of_the_difference():
    outcome = tried(1.0, 0.5, (1.001, 0.999), head=0.6, norm=1.004, tail=1.2)
    assert outcome.something_to_gain
    head, norm, tail = (outcome.explained(other) for other in outcome.others)
    assert head == pytest.approx(0.8)
    assert norm is None
    assert tail == pytest.approx(-0.4)


@pytest.mark.parametrize(
    ("as_it_is", "fp32", "again", "why"),
    [
        (1.0, 0.98, (1.02, 0.99), "runs that are equal but for a rounding error may differ by 0.09"),
        (1.0, 0.995, (1.0, 1.0005), "less than a hundredth of what the training gains"),
        (0.5, 1.0, (0.5, 0.5), "fp16 ends 0.5 below fp32"),
    ],
)
def test_a_healthy_training_has_nothing_to_gain(as_it_is, fp32, again, why):
    outcome = tried(as_it_is, fp32, again, head=0.9)
    assert not outcome.something_to_gain
    assert outcome.explained(outcome.others[0]) is None
    assert "Nothing to gain" in said(outcome)
    assert why in said(outcome)


def test_a_training_that_diverges_is_mended_or_is_not():
    outcome = tried(1.0, 0.5, (math.nan, 1.0), head=0.7, tail=math.nan)
    assert outcome.something_to_gain
    assert "not finite, or the script fails, in 1 of 3 equal runs; in fp32 neither" in said(outcome)
    rows = {row[0]: row[-1] for row in outcome.section().table.rows}
    assert (rows["head"], rows["tail"]) == ("all: it is finite", "none")


def test_a_script_that_fails_on_the_way_is_not_taken_by_its_first_losses():
    """As one does that stops at NaN."""
    stopped = Run(AS_IT_IS, (2.0, 1.0), failed="AssertionError: NaN")
    again = tuple(Run(f"equal run {n}", (2.0, 1.0), failed="AssertionError: NaN") for n in (2, 3))
    mended, not_mended = run("head", 0.5), Run("tail", (2.0,), failed="AssertionError: NaN")
    outcome = Tried("fp16", stopped, run("fp32", 0.5), again, (mended, not_mended))
    assert outcome.something_to_gain
    assert "in 3 of 3 equal runs; in fp32 neither" in said(outcome)
    assert [row[-1] for row in outcome.section().table.rows] == ["–", "–", "all: it is finite", "none"]


def test_what_diverges_in_fp32_too_is_no_matter_of_precision():
    outcome = tried(math.nan, math.nan, (math.nan, math.nan))
    assert not outcome.something_to_gain
    assert "this is not a matter of precision" in said(outcome)


def test_without_a_run_in_fp32_that_is_said_and_why():
    left_out = ("Not tried: `fp32`: 1 minute was over.",)
    outcome = Tried("fp16", run(AS_IT_IS, 1.0), Run("fp32", failed="1 minute was over"), left_out=left_out)
    assert not outcome.something_to_gain
    assert "fp32 was not tried. Not tried: `fp32`: 1 minute was over." in said(outcome)


def test_a_run_in_fp32_that_changed_nothing_is_no_proof_of_health():
    outcome = tried(1.0, 1.0, (1.0, 1.001))
    assert "is the same to the last bit" in said(outcome)
    assert "Nothing to gain" not in said(outcome)


def test_without_equal_runs_nothing_is_said_of_a_difference():
    outcome = tried(1.0, 0.5, (), head=0.5)
    assert not outcome.something_to_gain
    assert "nothing is said of what a difference means" in said(outcome)


def test_the_numbers_are_there_for_programs():
    outcome = tried(1.0, 0.5, (1.001, 0.999), head=0.6)
    told = json.loads(dumps(outcome.as_dict()))
    assert [each["what"] for each in told["runs"]] == [AS_IT_IS, "fp32", "equal run 2", "equal run 3", "head"]
    assert told["runs"][-1]["explained"] == pytest.approx(0.8)
    assert told["noise"] == pytest.approx(outcome.noise)


@pytest.mark.parametrize("text", ["fp32", "bf16", "fp16", "layer.0=fp32", "a,b.c=fp32", "reduce=fp32"])
def test_what_is_typed_is_what_is_shown(text):
    assert str(trial_of(text)) == text


def test_several_modules_are_one_trial():
    assert trial_of("a, b=fp32") == Trial(modules=("a", "b"))


@pytest.mark.parametrize("text", ["", "train.py", "head", "head=bf16", "=fp32", "a,=fp32", "reduce=bf16"])
def test_anything_else_is_refused_with_what_would_be_right(text):
    with pytest.raises(ValueError, match="MODULE=fp32 for one module"):
        trial_of(text)


def test_neither_needs_pytorch():
    code = (
        "import sys; from amp_lessons.audit import trying; from amp_lessons.cli.audit "
        "import trying; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_what_was_tried_in_text(golden):
    golden("tried.txt", f"{tried(1.0, 0.5, (1.001, 0.999), head=0.6, norm=1.004, tail=1.2)}")
