"""Each view is moved as a learner moves it: what it then says stands in ``golden``, one file a view.

What its numbers have to be, the view's own file of tests computes by other ways.
"""

from __future__ import annotations

import base64
import re

import pytest
import torch

from amp_lessons import audit, parallel, views
from amp_lessons.course.interview import DESIGNS
from amp_lessons.course.material import models
from amp_lessons.course.material.decoder import Changes
from amp_lessons.course.quizzes import Choice, Question
from amp_lessons.course.views.base.controls import Field, Slider
from amp_lessons.course.views.base.moving import svg
from amp_lessons.formats import BLOCK_FORMATS, FORMATS, per_tensor
from tests.audit.report.samples import report
from tests.course.views import samples
from tests.course.views.hands import Clock, plotted, press, seen, within

cross_entropy = torch.nn.functional.cross_entropy


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def two_plus_two():
    return Question("t.q", "2 + 2?", (Choice("3", "One short."), Choice("4", "Count them.", right=True)))


def squares(width):
    if width == 7:
        raise ValueError("a width of 7 does not divide")
    return {"cost": {"fp32": width**2, "bf16": width**2 / 2}, "KiB": {"fp32": 4352.0, "bf16": 2698.0}}


CHANGES = {
    "loss": Changes(torch.tensor([0.001, 0.003, 0.04]), 0),
    "all but the router": Changes(torch.tensor([0.001, 0.002, 0.5]), 7),
}
FOUR_BITS = [per_tensor(FORMATS["fp4_e2m1"]), BLOCK_FORMATS["mxfp4"]]


def each(attribute, *values):
    return [{attribute: value} for value in values]


def calls(method, *values):
    return [(method, value) for value in values]


# What makes the view, and its moves: attributes that are set, as a control does it; or a button.
STORIES = {
    "accumulator": (
        views.AccumulatorView,
        [{"interval": 7}, {"bits": 9, "length": 8}, {"bits": 24}, {"bits": 23}, {"signs": "all positive"}],
    ),
    "atlas": (
        views.AtlasView,
        [
            *each("search", "softmax", "mul", "upsample", "sofmax"),
            *each("search", "<script>alert(1)</script>", "'\"&", "(.*", "ü"),
            {"search": "softmax", "device_type": "mps"},
            {"search": "", "device_type": "cpu", "rule": "lower precision", "differing": True},
        ],
    ),
    "audit": (
        lambda: views.AuditView(report()),
        [{"number_format": "fp16", "by": "count"}, {"number_format": "bf16"}, {"layer": "body"}],
    ),
    "audit_of_nothing": (lambda: views.AuditView(audit.Report(findings=())), []),
    "bits": (
        lambda: views.BitView("0.1", "fp16"),
        [
            *calls("type", "1e400", "-0", "nan", "0x7bff", "2^-25", "-65504", "3e-6", "0.5", "70000"),
            *calls("type", "abc", "", "0xfffff", "<b>", "0.5"),
            ("flip", 0),
            ("type", "inf"),
            ("flip", 0),
            ("type", "0x3c01"),
            {"format": "bf16"},
            ("type", "1e400"),
            {"format": "fp32"},
            {"format": "e8m0"},
            ("type", "-3"),
        ],
    ),
    "bits_too_large": (lambda: views.BitView("70000", "fp16"), []),
    "bits_of_some": (
        lambda: views.BitView("0.1", formats=["fp32", "fp16", "bf16"]),
        each("format", "bf16"),
    ),
    "curves": (lambda: views.curves(samples.RUNS, "Five runs.", log=True), []),
    "cycle": (
        lambda: views.CycleView(models.digits_classifier(16), samples.batches(), cross_entropy),
        [
            *calls("advance", 2, 3),
            ("inject_overflow",),
            *calls("advance", 7, 1),
            {"overflow": 1},
            {"overflow": 0},
        ],
    ),
    "changes_by_name": (lambda: views.changes_by_name(CHANGES, without=CHANGES), []),
    "image_rows": (
        lambda: views.image_rows({"small": normal(20, 64), "large": normal(3, 1, 16, 16)}, "Two kinds."),
        [],
    ),
    "product_errors": (
        lambda: views.product_errors(
            [16, 4096], {("bf16", "fp32"): [0.0023, 0.0022], ("bf16", "bf16"): [0.005, 0.07]}
        ),
        [],
    ),
    "result_dtypes": (
        lambda: views.result_dtypes(
            {
                "CUDA": {"Linear": torch.float16, "softmax": torch.float32},
                "CPU": {"Linear": torch.float16, "softmax": torch.float16},
            }
        ),
        [],
    ),
    "scaler": (
        lambda: views.ScalerView(
            models.digits_classifier(16), samples.batches(), cross_entropy, steps=12, growth_interval=4
        ),
        ["Inject an overflow", "Train 20 more steps", "Start again"],
    ),
    "scaled_step": (views.scaled_step, []),
    "census": (
        lambda: views.CensusView({"first": normal(500) * 2.0**-24, "second": normal(300) * 2.0**-12}),
        [
            *each("exponent", 12, 40),
            *each("scale", "2^10", 1000, "2^50", "0", "-4", "nan", "2^200", "abc", " "),
            {"exponent": 3},
            {"layer": "first"},
            {"dtype": torch.bfloat16},
        ],
    ),
    "ledger": (
        lambda: views.LedgerView(samples.NETWORKS),
        [
            *each("row", 1, 2, 3, 5, 99),
            {"device_type": "cpu", "row": 1},
            {"dtype": None},
            {"network": "conv net", "dtype": torch.float16, "device_type": "cuda", "row": 2},
            {"row": 3},
            *each("network", "refused", "perceptron"),
        ],
    ),
    "outlier": (
        lambda: views.OutlierView(normal(32, 64), 10, FOUR_BITS),
        each("exponent", 16),
    ),
    "outlier_in_eight_bits": (
        lambda: views.OutlierView(normal(32, 64), 0, [per_tensor(FORMATS["fp8_e4m3"])]),
        each("exponent", 16),
    ),
    "play": (lambda: views.Play(squares, "width", [2, 4, 7], start=4), each("value", 2, 7, 4)),
    "play_measured": (lambda: views.Play(squares, "width", [2], start=2, measured=True), []),
    "reduction": (
        lambda: views.ReductionView(
            {"ours": parallel.rank_gradients(64, 24), "noisy": parallel.rank_gradients(64, 24, noise=10)}
        ),
        [
            *each("exponent", 1, 6),
            {"algorithm": "tree"},
            {"dtype": "fp32", "gradients": "noisy"},
        ],
    ),
    "reduction_that_overflows": (
        lambda: views.ReductionView(torch.full((8, 4), 40000.0), dtype="fp16"),
        each("dtype", "bf16"),
    ),
    "roofline": (
        lambda: views.RooflineView(samples.survey()),
        [
            *each("size", 256, "0511", 8, 1000, 60_000, 64),
            *each("size", "0", "-1", "abc", "1e9", "2.5", "", 64),
            {"precision": "fp16"},
        ],
    ),
    "roofline_of_a_gpu": (lambda: views.roofline_of("A100 SXM 80 GB", product=16), []),
    "ruler": (
        lambda: views.RulerView({"weights": torch.tensor([[1.0, 2.0], [0.0, 2.0**60]])}),
        [
            {"zoom": 5},
            *each("around", "0.1", "2^100", "abc", "", "0", "-3", "1e400", "nan", "1e-60", 2048),
        ],
    ),
    "scale": (
        lambda: views.ScaleView(normal(16, 256) * 2.0**-12),
        [
            *each("exponent", 6, 22),
            *each("way", "tensor", "row", "1 × 128", "1 × 32", "1 × 16"),
            {"way": "tensor", "format": "fp4_e2m1", "outlier": 6},
        ],
    ),
    "scale_beyond_fp32": (
        lambda: views.ScaleView(torch.full((4, 4), 1e36), way="tensor"),
        each("outlier", 20, 1),
    ),
    "memory": (
        lambda: views.MemoryView(samples.MEMORY),
        [{"optimizer": "SGD"}, {"network": "block"}, {"precision": "bf16"}, {"depth": 1}],
    ),
    "memory_of_layers": (lambda: views.activation_stack(samples.FOOTPRINTS), []),
    "memory_of_a_step": (lambda: views.step_memory(samples.FOOTPRINTS), []),
    "updates": (
        lambda: views.UpdateView(steps=50),
        [{"exponent": -6}, {"format": "fp8_e4m3"}],
    ),
}  # fmt: skip
# Views that are pressed: what a number ticks is the box with that place among what a good answer covers.
GO_ON = ["Show what a good answer covers", 0, "Next question"]
PRESSED = {
    "card": (
        lambda: views.ExerciseCard("decode_bits"),
        [
            *("Hint 1", "Hint 1", "Hint 2"),
            *("Show solution", "Keep trying", "Show solution", "Show it anyway"),
        ],
    ),
    "code_round": (
        lambda: views.CodingRound(10, 3, "stable_softmax", clock=Clock()),
        ["Start", "Hint", "End the round", "Yes"],
    ),
    "curve_quiz": (
        lambda: views.CurveQuiz((1, 2)),
        [*calls("choose", "a", "b"), "Next curve", *calls("choose", "a"), "Next curve"],
    ),
    "design": (
        lambda: views.DesignRound(clock=Clock()),
        ["Start", *len(DESIGNS[0].stages) * GO_ON, "Start", "Keep it", "Start", "Begin anew"],
    ),
    "flash_cards": (
        lambda: views.FlashCards(first="loss_scaling.why"),
        ["Turn the card", 0, 1, ("grade",), "Take the last grade back", "Turn the card", "easy: in 8 days"],
    ),
    "mock": (
        lambda: views.MockInterview("senior", 60, 1, clock=Clock()),
        [
            *("Start", *GO_ON, "Take the last answer back", "End it here", "Go on", "End it here", "Yes"),
            *("Start", "Keep it", "Start", "Begin anew"),
        ],
    ),
    "patient": (lambda: views.Patient("heal_snail"), calls("diagnose", "a", "b", "c")),
    "quiz": (lambda: views.Quiz(two_plus_two()), ["a)  3", "b)  4"]),
    "symptom_tree": (
        views.SymptomTree,
        [
            *("the loss is NaN or inf", "bf16", "Back", "bf16", "Start again"),
            *("the memory is full", "in the first or second step", "Back"),
        ],
    ),
}  # fmt: skip
# Views of which a cell that is run again shows a new one that goes on.
GOES_ON = {"card", "patient", "quiz", "symptom_tree"}
NOT_ALWAYS = re.compile(r"\d{4}-\d\d-\d\d|\d+ cards(?=:)|(?<=comes back in )[^.]+|(?<=last )0\.\d+(?=, loss)")
# How many operations PyTorch has is not alike everywhere, nor the last digit of what was trained.
NUMBERS_DIFFER = {"accumulator", "atlas", "cycle", "scaler"}
# What a view has trained or measured is more than its controls say.
HAS_MORE_THAN_CONTROLS = {"roofline", "scaler"}


@pytest.fixture(autouse=True)
def quick_products(monkeypatch):
    monkeypatch.setattr("amp_lessons.measure.operations.product_rate", samples.product_rate)


@pytest.mark.parametrize("name", STORIES)
def test_what_a_view_says_when_it_is_moved(name, golden):
    make, moves = STORIES[name]
    view = make()
    bundle = view._repr_mimebundle_()
    told = [bundle["text/plain"]]
    if view.picture is not None:
        assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
        told += [
            f"[picture] {view.alt.removesuffix(view.caption)}",
            *(f"[{name}] {said}" for name, said in drawn(view.picture)),
        ]
    before = state(view)
    for move in moves:
        make_move(view, move)
        after = state(view)
        told += [f"\n> {said_of(move)}", *changes(before, after)]
        before = after
    text = "\n".join(told)
    golden(f"{name}.txt", re.sub(r"\d[\d,.]*\d|\d", "#", text) if name in NUMBERS_DIFFER else text)
    if name not in HAS_MORE_THAN_CONTROLS:
        again = make()
        again.take_over(view)
        assert state(again) == before, "a cell that is run again goes on where its view was left"


@pytest.mark.parametrize("name", PRESSED)
def test_what_is_seen_of_a_view_when_it_is_pressed(name, golden):
    make, moves = PRESSED[name]
    view = make()
    told, before = [view._repr_mimebundle_()["text/plain"], "\n> at first"], dict(seen(view))
    told += changes({}, before)
    for move in moves:
        make_move(view, move)
        after = dict(seen(view))
        told += [f"\n> {said_of(move)}", *changes(before, after)]
        before = after
    golden(f"{name}.txt", NOT_ALWAYS.sub("#", "\n".join(told)))
    if name in GOES_ON:
        again = make()
        again.take_over(view)
        assert dict(seen(again)) == before, "a cell that is run again goes on where its view was left"


def changes(before, after):
    """Return what is other than before, or that nothing is."""
    other = [what for what in before | after if before.get(what) != after.get(what)]
    return [f"{what}: {after.get(what, 'no more')}" for what in other] or ["nothing changes"]


@pytest.mark.parametrize("name", STORIES)
def test_a_drawing_has_each_id_once_and_words_for_those_who_cannot_see_it(name):
    view = STORIES[name][0]()
    if view.picture is not None:
        for one in svg(view.picture).split("<svg")[1:]:  # a phone's stands behind it
            ids = re.findall(r'\bid="([^"]+)"', one)
            assert len(ids) == len(set(ids))
        assert view.alt.endswith(f" {view.caption}")
        assert len(view.alt) > len(view.caption) + 5
        assert getattr(view.page, "alt", view.alt) == view.alt


def drawn(picture):
    """Yield the words of a picture, but for the ticks of its axes, and what is plotted there in numbers."""
    words = []
    for part in (picture.figure, *picture.figure.axes):
        titles = (
            [] if part is picture.figure else [part.get_title("left"), part.get_xlabel(), part.get_ylabel()]
        )
        legend = part.get_legend() if part is not picture.figure else None
        texts = [*part.texts, *(legend.get_texts() if legend else [])]
        words += filter(None, [*titles, *(" ".join(each.get_text().split()) for each in texts)])
    yield "drawn", " | ".join(words)
    yield from plotted(picture)


def said_of(move):
    if isinstance(move, dict):
        return ", ".join(f"{name} = {value!r}" for name, value in move.items())
    return f"{move[0]} {', '.join(map(repr, move[1:]))}" if isinstance(move, tuple) else str(move)


def make_move(view, move):
    """Set attributes as controls do, press a button, tick a box, or call what takes arguments."""
    if isinstance(move, dict):
        for name, value in move.items():
            setattr(view, name, value)
    elif isinstance(move, str):
        press(view, move)
    elif isinstance(move, int):
        view._rubric._points.children[move].value = True
    else:
        getattr(view, move[0])(*move[1:])


def state(view):
    """Return what can be read off a view: caption, where its controls stand, their complaints, which rest."""
    said = {"caption": view.caption, **(dict(drawn(view.picture)) if view.picture else {})}
    for control in within(view):
        typed_or_moved = isinstance(control, Slider | Field)
        label = control.label if typed_or_moved else getattr(control, "description", "")
        if isinstance(control, Slider):
            said[label] = f"{control.readout} {control.beyond}".strip()
        elif hasattr(control, "value") and label:
            said[label] = control.value
        if complaint := getattr(control, "error", ""):
            said[f"{label}, complaint"] = complaint
        if label and getattr(control, "disabled", False):
            said[label] = "rests"
    return said


# Views whose picture stays, and moves; and there and back again.
RETURNS = {
    "accumulator": ({"length": 6, "bits": 8}, {"length": 12, "bits": 14}),
    "census": ({"exponent": 12}, {"exponent": 0}),
    "reduction": (
        {"exponent": 5, "algorithm": "tree", "dtype": "fp16", "gradients": "noisy"},
        {"exponent": 3, "algorithm": "ring", "dtype": "bf16", "gradients": "ours"},
    ),
    "scale": ({"exponent": 12}, {"exponent": 0}),
}


@pytest.mark.parametrize(("name", "away", "back"), [(name, *moves) for name, moves in RETURNS.items()])
def test_a_move_draws_nothing_anew_and_the_way_back_leads_to_the_same_picture(name, away, back):
    view = STORIES[name][0]()
    picture, before = view.picture, view.picture.pixels().tobytes()
    make_move(view, away)
    assert view.picture is picture
    assert picture.pixels().tobytes() != before
    make_move(view, back)
    assert picture.pixels().tobytes() == before


# What is refused in words, and which: an error and a part of its message.
REFUSED = [
    (lambda: views.AuditView("train.py"), TypeError, "what audit.watch gives, or its report"),
    (lambda: views.audit_page(5), TypeError, "not int"),
    (lambda: views.AuditFindings("train.py"), TypeError, "report"),
    (lambda: views.BitView("0.1", "fp16").flip(16), ValueError, "bits 0 to 15; there is no bit 16"),
    (lambda: views.CodingRound(20), ValueError, "10, 30, 45 minutes"),
    (lambda: views.CodingRound(10, 0, "reviews"), ValueError, "did you mean review"),
    (lambda: views.CodingRound(10).hand_in(None), ValueError, "press Start"),
    (lambda: views.CodingRound(10).report, ValueError, "press Start"),
    (lambda: setattr(views.CurveQuiz(), "number", 13), ValueError, "from 1 to 12"),
    (lambda: setattr(views.CurveQuiz(range(7, 13)), "number", 6), ValueError, "from 7 to 12"),
    (lambda: views.curves({str(i): [0.0] for i in range(99)}, ""), ValueError, "99 curves, and there are"),
    (lambda: views.DesignRound("serv"), KeyError, "did you mean serve"),
    (lambda: views.ExerciseCard("decode_bit"), ValueError, "did you mean decode_bits"),
    (lambda: views.ExerciseCard("zzz"), ValueError, "there are: decode_bits, .*resume_training"),
    (lambda: views.ExerciseCard("decode_bits").hint(2), ValueError, "hint 2 is not available now; choose"),
    (lambda: views.LessonEnd("42"), ValueError, "there is no lesson '42'; choose one of 00, 01"),
    (lambda: views.Map().choose("hour"), ValueError, "no route is called 'hour'; there are: The"),
    (lambda: views.MockInterview("junior"), ValueError, "no level 'junior'"),
    (lambda: views.MockInterview("senior", 60, 1).report, ValueError, "press Start"),
    (lambda: views.MockInterview("senior", 60, 1).hand_in(None), ValueError, "no code is asked for"),
    (lambda: views.DrillView().choose("a"), ValueError, "press Start"),
    (lambda: views.report_page("report"), TypeError, "not str"),
    (lambda: views.OutlierView(torch.zeros(4)), ValueError, "Give a matrix"),
    (lambda: views.OutlierView(torch.zeros(0, 3)), ValueError, "Give a matrix"),
    (lambda: views.PartsView(None, None, None, ("mlp",)), ValueError, "there is no part mlp"),
    (lambda: views.Patient("heal_snial"), ValueError, "heal_snail"),
    (lambda: setattr(views.Play(squares, "width", [2, 4], start=4), "value", 3), ValueError, "one of 2, 4"),
    (lambda: views.Quiz(two_plus_two()).choose("c"), ValueError, "choose one of a, b"),
    (lambda: views.Quiz(two_plus_two()).choose("ab"), ValueError, "choose one of a, b"),
    (lambda: views.RaceView(task="chess", device="cpu"), ValueError, "chess"),
    (lambda: views.RaceView(dtype="fp8", device="cpu"), ValueError, "fp8"),
    (lambda: views.ReductionView(torch.ones(1, 4)), ValueError, "tensor"),
    (lambda: views.ReductionView({}), ValueError, "tensor"),
    (lambda: views.ReductionView(torch.zeros(4, 4)), ValueError, "tensor"),
    (lambda: views.ReductionView(torch.ones(4, 4, dtype=torch.int64)), TypeError, "tensor"),
    (lambda: views.ReductionView("ring"), TypeError, "tensor"),
    (lambda: views.roofline_of("RTX 9999"), ValueError, "no data sheet of 'RTX 9999' here; there are T4"),
    (lambda: views.RulerView(around=-1), ValueError, "no place on this ruler"),
    (lambda: views.ScaleView(torch.tensor(1.0)), ValueError, "tensor"),
    (lambda: views.ScaleView(torch.zeros(3)), ValueError, "tensor"),
    (lambda: views.ScaleView(torch.tensor([1.0, float("nan")])), ValueError, "tensor"),
    (lambda: views.ScaleView(torch.zeros(0)), ValueError, "tensor"),
    (lambda: views.ScaleView([1.0, 2.0]), TypeError, "tensor"),
    (lambda: views.SymptomTree().answer("the loss is fat"), ValueError, "the loss is flat"),
    (lambda: views.check("loss_scalar", None), ValueError, "did you mean loss_scaler"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "error", "words"), REFUSED, ids=[f"{i}: {words}" for i, (*_, words) in enumerate(REFUSED)]
)
def test_what_cannot_be_shown_is_refused_in_words(attempt, error, words):
    with pytest.raises(error, match=words):
        attempt()
