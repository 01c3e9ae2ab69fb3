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


NAN = math.nan
STOPPED = {"failed": "AssertionError: NaN"}  # as a script does that stops at NaN
NOT_TRIED = ("Not tried: `fp32`: 1 minute was over.",)

OUTCOMES = {
    "something to gain": tried(1.0, 0.5, (1.001, 0.999), head=0.6, norm=1.004, tail=1.2),
    "a difference within the noise": tried(1.0, 0.98, (1.02, 0.99), head=0.9),
    "a difference of no account": tried(1.0, 0.995, (1.0, 1.0005), head=0.9),
    "better than fp32": tried(0.5, 1.0, (0.5, 0.5), head=0.9),
    "one that diverges": tried(1.0, 0.5, (NAN, 1.0), head=0.7, tail=NAN),
    "a script that fails on the way, not taken by its first losses": Tried(
        "fp16",
        Run(AS_IT_IS, (2.0, 1.0), **STOPPED),
        run("fp32", 0.5),
        tuple(Run(f"equal run {n}", (2.0, 1.0), **STOPPED) for n in (2, 3)),
        (run("head", 0.5), Run("tail", (2.0,), **STOPPED)),
    ),
    "one that diverges in fp32, too": tried(NAN, NAN, (NAN, NAN)),
    "without fp32": Tried("fp16", run(AS_IT_IS, 1.0), Run("fp32", failed="over"), left_out=NOT_TRIED),
    "a run in fp32 that changed nothing, which is no proof of health": tried(1.0, 1.0, (1.0, 1.001)),
    "without equal runs": tried(1.0, 0.5, (), head=0.5),
}
GAIN = {"something to gain", "one that diverges"} | {each for each in OUTCOMES if each.startswith("a script")}


def test_what_is_said(golden):
    golden("tried.txt", "\n\n".join(f"{name}\n{outcome}" for name, outcome in OUTCOMES.items()))


@pytest.mark.parametrize("name", OUTCOMES)
def test_whether_there_is_something_to_gain(name):
    assert OUTCOMES[name].something_to_gain == (name in GAIN)
    explained = [OUTCOMES[name].explained(other) for other in OUTCOMES[name].others]
    if name == "something to gain":
        assert explained == [pytest.approx(0.8), None, pytest.approx(-0.4)]
    else:
        assert explained == [None] * len(explained)


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
