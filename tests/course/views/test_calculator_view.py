import importlib.util
import threading

import pytest
import torch
from torch import nn

from amp_lessons import parallel
from amp_lessons._base.text.words import memory
from amp_lessons.course.bench import calculator
from amp_lessons.course.bench.calculator import SUBJECTS, ask, largest_batch, predict, sharing
from amp_lessons.course.views import CalculatorView
from amp_lessons.course.views.base import latest
from amp_lessons.course.views.widgets.calculator import STRATEGIES
from amp_lessons.measure import GPUS, LargestBatch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_loop_runs")]

PERCEPTRON, CONV_NET = "the lessons' perceptron", "the lessons' conv net"


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch):
    monkeypatch.setattr(latest, "_QUIET_S", 0.01)


@pytest.fixture(scope="module")
def shared():
    return CalculatorView(CONV_NET, optimizer="SGD")


@pytest.fixture
def view(shared):
    shared.model = CONV_NET
    shared.ranks = 1
    shared.batch, shared.size = "32", "8"
    shared.wait()
    return shared


def expected(batch, size, precision="fp16", optimizer="SGD"):
    return predict(ask(SUBJECTS[CONV_NET], batch, size, optimizer, precision))


def test_it_says_and_draws_what_is_predicted(view):
    view.batch, view.size, view.precision = 64, 16, "bf16"
    found = view.footprint
    assert found == expected(64, 16, "bf16")
    assert view.caption.startswith(
        f"The lessons' conv net, 64 images of 16 pixels a side, SGD, bf16 autocast: "
        f"{memory(found.peak_bytes)} at the peak, in the {found.peak_phase} pass, computed (no GPU needed): "
    )
    assert f"saved activations {memory(found.at_peak['saved activations'])}" in view.caption
    above, below = view.picture.figure.axes
    assert above.get_xlim() == below.get_xlim()
    assert [bar.get_width() for bar in below.patches] == [
        found.at_peak[text.get_text()] for text in below.texts if text.get_text() in found.at_peak
    ]
    view.precision = "fp16"


def test_the_largest_batch_is_that_of_the_gpu_and_how_tightly_a_step_fits_is_said_and_hatched(view):
    view.gpu, view.size = "T4", 256
    most = view.largest_batch.batch
    assert most == largest_batch(ask(SUBJECTS[CONV_NET], 32, 256, "SGD", "fp16"), "T4").batch
    assert view.caption.endswith(f"The largest batch that fits: {most:,}.")
    usable = GPUS["T4"].usable_bytes
    assert f"the {memory(usable)} that T4 has for tensors" in view.caption
    for batch, fits, tightly in ((most, True, True), (most // 2, True, False), (2**17, False, False)):
        view.batch = batch
        peak = view.footprint.peak_bytes
        assert (peak < usable) == fits
        assert ("It fits into" in view.caption) == fits != ("It does not fit into" in view.caption)
        assert ("so tightly" in view.caption) == tightly
        hatched = [bar for bar in view.picture.figure.axes[0].patches if bar.get_hatch()]
        beyond = [] if fits else [(usable, peak - usable)]
        assert [(bar.get_x(), bar.get_width()) for bar in hatched] == beyond


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "typed"),
    [("batch", "0"), ("batch", "abc"), ("batch", "1e9"), ("size", "-3"), ("ranks", "1.5"), ("ranks", "")],
)
def test_a_number_that_cannot_be_used_is_answered_and_the_view_lives_on(view, name, typed):
    right = {"batch": 4, "size": 8, "ranks": 1}[name]
    setattr(view, name, typed)
    named = {"batch": "batch", "size": "image side", "ranks": "number of ranks"}[name]
    (error,) = filter(None, (field.error for field in (view._batch, view._size, view._ranks)))
    assert error.startswith(f"The {named} is a whole number from 1 to")
    assert view.footprint is view.largest_batch is None
    assert "opacity" in view.page_html()
    setattr(view, name, right)
    assert view.footprint == expected(int(view.batch), 8)
    assert "opacity" not in view.page_html()


def test_choosing_a_model_fills_in_what_it_is_trained_with(view):
    view.batch = 5
    view.model = PERCEPTRON
    assert (view.batch, view.size) == (str(SUBJECTS[PERCEPTRON].batch), "")
    assert view._size.disabled
    assert "The lessons' perceptron, 32 images, SGD" in view.caption
    view.model = CONV_NET
    assert (view.batch, view.size) == ("32", "8")
    assert view._size.label == "image side"


def test_choices_in_a_row_answer_at_once_and_only_the_last_is_computed(monkeypatch):
    asked, all_chosen = [], threading.Event()

    def counted(question):
        if question.batch < 10:  # a view of another test may still be at work
            asked.append(question.batch)
        all_chosen.wait()  # whatever was begun first is still at work when the last choice comes
        return predict(question)

    monkeypatch.setattr("amp_lessons.course.views.widgets.calculator.predict", counted)
    view = CalculatorView(CONV_NET)
    for view.batch in range(1, 9):
        assert view.caption.endswith("working …")
    all_chosen.set()
    assert view.footprint == expected(8, 8, optimizer="AdamW")
    assert asked[-1] == 8
    assert len(asked) <= 2


def test_a_search_for_the_largest_batch_is_given_up_for_a_newer_choice(monkeypatch):
    begun, searches = [], []

    def search(question, gpu, before_each):
        begun.append(question.batch)
        if question.batch == 1:
            view.batch = 2
            before_each()
        searches.append(question.batch)
        return LargestBatch(7, {}, {}, "")

    monkeypatch.setattr("amp_lessons.course.views.widgets.calculator.largest_batch", search)
    view = CalculatorView(CONV_NET, batch=1)
    assert view.largest_batch.batch == 7
    assert (begun, searches) == ([1, 2], [2])


def test_a_model_of_ones_own_comes_first_in_the_list():
    view = CalculatorView(nn.Sequential(nn.Linear(16, 4)), torch.rand(3, 16), precision="fp32", batch=1)
    assert view.model == "your model"
    assert view.footprint.parameter_bytes == (16 * 4 + 4) * 4
    assert view.caption.startswith("Your model, 1 item, AdamW, fp32: ")
    view.model = PERCEPTRON
    view.model = "your model"
    assert view.batch == "3"
    assert view.footprint is not None


class Peeking(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


BATCH_NORM = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (nn.Linear(16, 4), torch.rand(3, 5), "your model fails on these inputs: RuntimeError: a and b must"),
        (nn.Linear(16, 4), lambda batch: 1 / 0, "your model fails on these inputs: ZeroDivisionError"),
        (Peeking(4, 4), torch.rand(3, 4), "your model looks at the value of a tensor"),
        (nn.ReLU(), torch.rand(3, 4), "there is nothing to train"),
        (BATCH_NORM, torch.rand(3, 4), "No largest batch: your model fails on these inputs: ValueError: Exp"),
        (nn.LSTM(4, 4, batch_first=True), torch.rand(2, 3, 4), ". Beware of the recurrent layer: "),
    ],
)
def test_a_model_that_fails_is_answered_in_words_without_a_traceback(model, inputs, said, caplog, capfd):
    view = CalculatorView(model, inputs)
    view.wait()
    assert said in view.caption
    assert (view.footprint is None) == (model is not BATCH_NORM and "Beware" not in said)
    assert caplog.records == []
    assert capfd.readouterr().err == ""
    view.model = PERCEPTRON
    assert view.footprint is not None


def test_without_transformers_the_command_is_said_and_the_small_models_remain(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    calculator._built.cache_clear()
    predict.cache_clear()
    view = CalculatorView("GPT-2 XL")
    view.wait()
    assert "python -m pip install 'amp-lessons[models]'" in view.caption
    view.model = PERCEPTRON
    assert view.footprint is not None


def footprint_of(ranks, stage, precision="fp16", optimizer="AdamW", name=CONV_NET):
    subject = SUBJECTS[name]
    return predict(ask(subject, 32, subject.size, optimizer, precision, ranks, stage))


@pytest.mark.parametrize("stage", parallel.STAGES)
def test_each_of_several_ranks_holds_what_the_bookkeeping_says(stage):
    alone, each = footprint_of(1, stage), footprint_of(8, stage)
    parameters = alone.parameter_bytes // 4
    told = parallel.memory_per_rank(parameters, 8, stage, "fp32").held
    assert each.parameter_bytes == told["weights"]
    assert each.gradient_bytes == told["gradients"]
    # Adam's counts of steps, a few bytes, are shared as its moments are
    assert each.optimizer_bytes == pytest.approx(told["Adam's moments"], rel=0.01)
    for moment, alone_then in zip(each.history, alone.history, strict=True):
        for own in ("saved activations", "inputs"):
            assert moment.live_bytes.get(own) == alone_then.live_bytes.get(own)
    assert each.peak_bytes == max(moment.total_bytes for moment in each.history)
    assert (each.peak_bytes == alone.peak_bytes) == (stage == "ddp")


def test_zero3_gathers_in_the_dtype_of_autocast_what_is_computed_with():
    gathered = {
        precision: max(m.live_bytes["parameters"] for m in footprint_of(8, "fsdp2", precision).history)
        - footprint_of(8, "fsdp2", precision).parameter_bytes
        for precision in ("fp16", "fp32")
    }
    count = footprint_of(1, "ddp").parameter_bytes // 4  # it has no blocks, so all of it is gathered at once
    assert gathered == {"fp16": 2 * count, "fp32": 4 * count}
    assert all(
        "weight copies" not in m.live_bytes for m in footprint_of(8, "fsdp2").history if m.phase == "forward"
    )


def test_blocks_are_gathered_two_at_a_time_beside_what_is_in_none():
    model = nn.ModuleDict({"blocks": nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(5))})
    model["head"] = nn.Linear(8, 3, bias=False)
    assert sharing(model, 4, "fsdp2", 2).gathered == 2 * (2 * 64 + 24)
    assert sharing(model, 4, "zero2", 2).gathered == 0
    assert sharing(model, 1, "fsdp2", 2).gathered == 0


def test_ranks_and_strategy_are_said_and_drawn_and_make_room_for_larger_batches(view):
    view.optimizer, view.size, view.gpu = "AdamW", 256, "T4"
    alone = view.largest_batch.batch
    caption = view.caption
    view.strategy = "zero3"
    view.wait()
    assert view.caption == caption  # one rank shares with nobody
    view.ranks = "16"
    assert view.footprint == predict(ask(SUBJECTS[CONV_NET], 32, 256, "AdamW", "fp16", 16, "zero3"))
    assert "fp16 autocast, on each of 16 ranks that share by ZeRO-3 (FSDP2): " in view.caption
    assert "Communication buffers come on top." in view.caption
    assert "peak, each of 16" in [text.get_text() for text in view.picture.figure.axes[0].texts]
    bundle = view._repr_mimebundle_()  # waits
    assert "16 ranks" in bundle["text/plain"]
    assert bundle["image/png"]
    assert view.largest_batch.batch >= alone
    view.strategy = "ddp"
    view.wait()
    assert "as large as the gradients" in view.caption
    view.ranks, view.optimizer = 1, "SGD"
    for strategy, stage in parallel.STAGES.items():
        view.strategy = strategy
        assert parallel.STAGES[view.strategy] == view._strategy.value == stage
    assert len(STRATEGIES) == len(set(parallel.STAGES.values()))
    with pytest.raises(ValueError, match="no strategy 'zero4'; did you mean"):
        view.strategy = "zero4"
    view.strategy = "ddp"


@pytest.mark.thorough
def test_gpt2_xl_is_answered_without_a_gpu():
    pytest.importorskip("transformers")
    found = predict(ask(SUBJECTS["GPT-2 XL"], 8, 1024, "AdamW", "fp16"))
    assert found.parameter_bytes == 4 * 1_557_611_200
    assert found.peak_bytes > GPUS["A100 SXM 40 GB"].usable_bytes
