import math
from dataclasses import replace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from amp_lessons import exercises, views
from amp_lessons._base.text import prose
from amp_lessons.audit.findings import failed, passed, todo
from amp_lessons.course import progress
from amp_lessons.course.exercises import SideBySide
from amp_lessons.course.exercises.report.results import Report
from amp_lessons.course.views.widgets.checked import Checked, are_powers_of_two, comparison_picture, describe

LOSS = SideBySide("loss of each epoch", "epoch", (1.0, 0.5, 0.25), (1.0, 0.5, 0.9))


def report(*findings, comparisons=(LOSS,)):
    return Report("train_with_amp", "The loop", findings, comparisons)


def scaler(**changed):
    return type("LossScaler", (exercises.solution("loss_scaler").function,), changed)


def update_that_forgets_to_start_again(self):
    if self._overflow:
        self._scale *= self._backoff_factor
    else:
        self._clean_steps += 1
        if self._clean_steps == self._growth_interval:
            self._scale *= self._growth_factor
            self._clean_steps = 0
    self._unscaled = self._overflow = False


def test_an_unwritten_attempt_is_told_so_and_counts_for_nothing():
    def decode_bits(bits, exponent_bits, mantissa_bits):
        raise NotImplementedError

    shown = views.check("decode_bits", decode_bits)
    assert shown.report.status == "not attempted yet"
    assert "not attempted yet" in repr(shown)
    assert progress.read().of("decode_bits").tries == 0


def test_it_is_the_report_of_the_check():
    shown = views.check("heal_snail", 3)
    assert shown.report == exercises.check("heal_snail", 3)
    bundle = shown._repr_mimebundle_()
    assert bundle["text/plain"] == str(shown.report) == repr(shown)
    assert all("not passed" in text for text in bundle.values())


def test_each_refusal_gives_the_next_hint_and_what_to_try_is_folded_until_there_is_none():
    def wrong(gradients):
        return 65504.0

    hints = next(each.hints for each in exercises.catalog() if each.id == "largest_safe_scale")
    for number, hint in enumerate(hints, start=1):
        shown = views.check("largest_safe_scale", wrong)
        html = shown._repr_mimebundle_()["text/html"]
        verdict, _, folded = html.partition("<details><summary>What to try</summary>")
        assert f"Hint {number} of 3.</strong> {prose.as_html(hint)}" in verdict
        (mistake,) = (each for each in shown.report.findings if not each.ok)
        assert prose.as_html(mistake.hint) in folded
        assert prose.as_html(mistake.hint) not in verdict
        assert progress.read().of("largest_safe_scale").hints == number, "the card knows of it"
    html = views.check("largest_safe_scale", wrong)._repr_mimebundle_()["text/html"]
    assert f"<em>Try:</em> {prose.as_html(mistake.hint)}" in html
    assert "<details" not in html


@pytest.mark.parametrize("wrong", [lambda: 1.0, 1.0])
def test_a_refusal_that_says_nothing_about_the_task_uses_up_no_hint(wrong):
    (mistake,) = views.check("largest_safe_scale", wrong).report.findings
    assert f"<em>Try:</em> {prose.as_html(mistake.hint)}" in views.check("largest_safe_scale", wrong)._html()
    assert progress.read().of("largest_safe_scale").hints == 0
    assert views.check("largest_safe_scale", lambda gradients: 65504.0).hint.number == 1


def test_a_scaler_is_drawn_beside_pytorchs_a_right_one_too():
    shown = views.check("loss_scaler", scaler())
    assert shown.report.passed
    assert shown.caption == "Scale after each update: yours follows the expected one all the way."
    assert "<img alt=" in shown._repr_mimebundle_()["text/html"]
    shown = views.check("loss_scaler", scaler(update=update_that_forgets_to_start_again))
    expected, yours = (line.get_ydata().tolist() for line in shown.picture.figure.axes[0].lines[:2])
    (comparison,) = shown.report.comparisons
    assert (expected, yours) == (list(comparison.expected), list(comparison.yours))
    assert "at iteration 7 yours is 2⁵ instead of 2³; up to there it is the same." in shown.caption
    html = shown._repr_mimebundle_()["text/html"]
    parts = ("not passed", "get_scale() went from", "<img alt=", "<summary>The numbers")
    assert [html.index(part) for part in parts] == sorted(map(html.index, parts))
    assert html.count("<table>") == 1


def test_what_agrees_is_not_drawn_where_the_attempt_is_refused():
    refused = exercises.check("loss_scaler", scaler(update=update_that_forgets_to_start_again))
    (differs,) = refused.comparisons
    agrees = replace(differs, yours=differs.expected)
    both = Checked(replace(refused, comparisons=(agrees, differs)))
    assert len(both.picture.figure.axes) == 1
    assert "all the way" not in both.caption
    alone = Checked(replace(refused, comparisons=(agrees,)))
    assert alone.picture is None
    slightly = replace(differs, yours=tuple(1.001 * value for value in differs.expected))
    html = Checked(replace(refused, comparisons=(slightly,)))._html()
    assert html.index("<summary>The numbers") < html.index("<table>"), "numbers that are not drawn are folded"
    assert len(Checked(replace(refused, comparisons=(replace(differs, yours=()),))).caption) == 0


def test_who_stops_a_check_reads_one_sentence_and_no_cell_after_it_runs(monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(exercises, "check", stopped)
    shell = InteractiveShell()
    shown = []
    monkeypatch.setattr(shell, "_showtraceback", lambda kind, error, lines: shown.append(lines))
    result = shell.run_cell("from amp_lessons import views; views.check('loss_scaler', None)")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    (lines,) = shown
    assert lines == ["You stopped the check. Nothing was counted; run the cell again when you like."]


def test_what_an_attempt_printed_stands_below_the_verdict():
    printed = Checked(replace(report(failed("x", "y", "z")), printed="a line of yours")).report
    html = Checked(printed)._repr_mimebundle_()["text/html"]
    assert html.index("not passed") < html.index("<pre>a line of yours</pre>") < html.index("<img alt=")
    assert html.count("a line of yours") == 1


def test_who_has_passed_is_told_of_other_ways_in_the_card_above():
    for exercise in exercises.catalog():
        solved = Report(exercise.id, exercise.title, (passed("fine", "good"),))
        refused = Report(exercise.id, exercise.title, (failed("x", "y", "z"),))
        assert ("in the card above" in Checked(solved)._html()) == bool(exercise.other_ways), exercise.id
        assert "in the card above" not in Checked(refused)._html(), exercise.id


def test_where_nothing_can_be_drawn_the_report_stands_alone():
    alone = Checked(report(todo("write it"), comparisons=()))
    assert alone.picture is None
    bundle = alone._repr_mimebundle_()
    assert alone.report._repr_mimebundle_()["text/html"] in bundle["text/html"]
    assert "<img" not in bundle["text/html"]
    nothing_done = SideBySide("loss", "epoch", (1.0,), ())
    assert Checked(report(failed("x", "y", "z"), comparisons=(nothing_done,))).picture is None


@pytest.mark.parametrize(
    ("yours", "words"),
    [
        ((1.001, 0.499, 0.2501), "yours follows the expected one all the way"),
        ((1.0, 0.5, 0.9), "at epoch 3 yours is 0.9 instead of 2⁻²; up to there it is the same."),
        ((3.0, 0.5, 0.25), "Loss: at epoch 1 yours is 3 instead of 2⁰."),
        ((1.0, math.nan, 0.25), "at epoch 2 yours is nan"),
        ((1.0, 0.5), "yours ends at epoch 2, not 3; up to there it is the same"),
    ],
)
def test_a_drawing_is_said_in_words(yours, words):
    assert words in describe(SideBySide("loss", "epoch", LOSS.expected, yours))


@pytest.mark.few(8)
@pytest.mark.parametrize(
    "yours",
    [(math.nan,) * 3, (1e30, -1.0, 0.0), (0.1,), (math.inf, 0.5), (1e-30, 1e30, 1.0), (0.0, 0.0, 0.0)],
)
@pytest.mark.parametrize("expected", [(1.0, 0.5, 0.25), (0.3, 0.2, 0.1), (0.0, 0.0, 0.0), (math.nan, 1.0)])
def test_whatever_the_numbers_there_is_a_picture(expected, yours):
    picture = comparison_picture([SideBySide("loss", "epoch", expected, yours)])
    assert picture.png("caption").startswith(b"\x89PNG")


def test_inf_and_nan_are_marked_where_they_are_and_the_picture_and_the_table_count_alike():
    broken = SideBySide("loss", "epoch", (1.0, 1.0, 1.0), (1.0, math.nan, math.inf))
    _, yours, marked = comparison_picture([broken]).figure.axes[0].lines
    assert yours.get_xdata().tolist() == [1, 2, 3]
    assert marked.get_xdata().tolist() == [2, 3]
    assert "inf or nan" in marked.get_label()
    text = str(report(failed("x", "y", "z"), comparisons=(broken,)))
    assert [line.split()[0] for line in text.splitlines()[-3:]] == ["1", "2", "3"]


def test_a_loss_scale_is_drawn_on_powers_of_two_and_a_loss_is_not():
    assert are_powers_of_two((0.25, 4.0, 65536.0))
    assert not are_powers_of_two((1.0, 3.0))
    assert not are_powers_of_two((0.0, 1.0))
    scales = SideBySide("scale", "step", (4.0, 64.0), (4.0, 4.0))
    losses = SideBySide("loss", "step", (0.9, 0.4), (0.9, 0.5))
    scale, loss = comparison_picture([scales, losses]).figure.axes
    assert (scale.get_yscale(), loss.get_yscale()) == ("log", "linear")


def test_the_time_limit_is_passed_on():
    def endless(gradients):
        while True:
            pass

    shown = views.check("largest_safe_scale", endless, time_limit_s=0.5)
    assert "0.5 seconds" in str(shown.report)


def test_text_in_html_is_escaped():
    shown = Checked(
        Report("decode_bits", "A <b>", (passed("p", "a < b"),), (SideBySide("<i>", "e", (1.0,), (2.0,)),))
    )
    html = shown._repr_mimebundle_()["text/html"]
    assert "<b>" not in html
    assert "<i>" not in html
