"""The questions about symptoms: every way ends, and what stands at its end can be run."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import re
import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import yaml
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from amp_lessons import autocast, clinic, data, models, parallel
from amp_lessons.course.clinic import loss_curves, symptoms
from amp_lessons.course.clinic.causes import ENDS
from amp_lessons.course.exercises.patients import digits
from amp_lessons.parallel.traffic import fake_group
from tests.stored_lessons import text
from tests.test_packaging import ROOT

pytestmark = pytest.mark.usefixtures("taken_along")

PATHS = tuple(symptoms.paths())
QUESTIONS = {question.text: question for path in PATHS for question, _ in path.answered}
LINE = 100  # characters that JupyterLab shows beside its file browser without breaking them
FLAT, FALLS, IS_NAN = "the loss is flat", "the loss scale keeps falling", "the loss is NaN or inf"
FOR_EVER = (IS_NAN, "fp16, with fp32 weights", "from some batch on, for ever")
FEW_MOVE_IN_FP16 = (
    "not at all, or only some, and in fp32 they do; fp32 weights, computed in fp16, the scale, if any, stands"
)


def said_on(path):
    return tuple(answer.text for _, answer in path.answered)


def ends_after(*said):
    """The ends of all paths on which these were answered, one after the other, from the first question on."""
    return {path.end.name for path in PATHS if said_on(path)[: len(said)] == said}


def asked(part):
    """The questions with these words, each in one line."""
    return [" ".join(each.split()) for each in QUESTIONS if part in " ".join(each.split())]


def shown(end, script):
    """What an end's cell prints in a script."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(ENDS[end].code, "<cell>", "exec"), script)
    return said.getvalue()


def one_step(model, batch, optimizer, scaler=None, dtype=torch.float16, loss_fn=F.cross_entropy, clip=None):
    """Make a step as PyTorch's documentation does, but for ``clip``, while gradients are scaled."""
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = loss_fn(model(batch[0]), batch[1])
    scaler.scale(loss).backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def gradients_of(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def somebodys_script(dtype=torch.float16, enabled=True):
    """What an end's cell may speak of, on the digits."""
    device = torch.device("cpu")
    model = models.digits_classifier(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=enabled)
    batch = torch.rand(8, 64, generator=torch.Generator().manual_seed(0)), torch.arange(8)

    def train(steps=3):
        for _ in range(steps):
            one_step(model, batch, optimizer, scaler, dtype)

    return {**locals(), "loss_fn": F.cross_entropy, "torch": torch}


def without_a_scaler(model=None):
    """A script of somebody who trains in bf16, who has no scaler."""
    script = somebodys_script(torch.bfloat16, enabled=False)
    del script["scaler"]
    return script if model is None else {**script, "model": model}


# --- the ways


def test_every_symptom_of_the_lesson_is_there_and_every_way_ends_within_five_questions():
    assert len(symptoms.SYMPTOMS.answers) == 10
    assert len(PATHS) >= 25
    assert max(len(path.answered) for path in PATHS) <= 5
    assert {path.end.name for path in PATHS} == ENDS.keys(), "every end that is written is reached"


def test_no_question_repeats_an_answer_or_leaves_no_choice():
    for question in QUESTIONS.values():
        texts = [answer.text for answer in question.answers]
        assert len(texts) == len(set(texts)) >= 2, question.text
        assert question.text.endswith(("?", "."))


def test_lines_to_run_fit_the_page():
    longest = {end.name: max(map(len, end.code.splitlines())) for end in ENDS.values()}
    assert {name: length for name, length in longest.items() if length > 96} == {}


def test_nan_asks_for_the_dtype_first():
    after_nan = symptoms.SYMPTOMS.answers[0]
    assert after_nan.text == IS_NAN
    assert [answer.text for answer in after_nan.then.answers] == [
        *("fp16, with fp32 weights", "fp16, and so are the weights", "bf16", "fp32"),
        "FP8 in some layers, and in bf16 it is a number",
    ]


def can_be_said_in_bf16(path, scaled):
    """Whether somebody who trains in bf16, with or without a scaler, could answer all of a path truly."""
    of_a_scaler = re.compile("loss scale|loss is scaled|65,536")
    return not any(
        text == "fp32" or ("fp16" in text and "bf16" not in text) or (of_a_scaler.search(text) and not scaled)
        for text in said_on(path)
    )


# Each was read as somebody who trains in bf16 reads it: what is left out here is not true of that training.
ONLY_FP16 = {"forward", "hidden", "past_scaler", "underflow", "grows", "too_large", "fp16_adam"}
OF_A_SCALER = {"always", "bf16_scaler", "clipped", "anew", "still_scaled"}
TRUE_WITH_A_SCALER = ENDS.keys() - ONLY_FP16 - {"found", "everyday"}
TRUE_IN_BF16 = TRUE_WITH_A_SCALER - OF_A_SCALER
EACH_IN_BF16 = pytest.mark.parametrize("end", sorted(TRUE_IN_BF16))


@pytest.mark.parametrize(("scaled", "ends"), [(False, TRUE_IN_BF16), (True, TRUE_WITH_A_SCALER)])
def test_whatever_can_be_said_of_a_training_in_bf16_ends_at_what_is_true_of_it(scaled, ends):
    walked = [path for path in PATHS if can_be_said_in_bf16(path, scaled)]
    assert {said_on(path)[0] for path in walked} >= {
        answer.text for answer in symptoms.SYMPTOMS.answers if scaled or "loss scale" not in answer.text
    }
    assert {path.end.name for path in walked} == ends


def test_no_way_ends_where_only_fp16_is_wrong_unless_fp16_was_answered():
    for path in PATHS:
        assert path.end.name not in ONLY_FP16 or "fp16" in " ".join(said_on(path)), said_on(path)


WALKS = yaml.safe_load((ROOT / "tests/course/clinic/walks.yaml").read_text("utf-8"))
HEALTHY = {"fp32", "amp", "logs_scaled"}  # the last has a log that is wrong, and a loss that is not


def test_every_patient_and_every_sick_curve_is_walked():
    there = {patient.id for patient in clinic.patients()} | set(clinic.LOSS_CURVES)
    assert WALKS.keys() == there - HEALTHY


@pytest.mark.parametrize("name", WALKS)
def test_what_is_seen_of_a_patient_or_a_curve_ends_at_its_cause(name):
    *said, end = WALKS[name]
    assert ends_after(*said) == {end}


# --- what stands at their ends


@pytest.mark.parametrize("end", ENDS)
def test_an_end_prints_cause_cure_and_a_cell_that_runs_and_shows_something_in_lines_that_fit(end):
    said = ENDS[end]
    assert len(said.cause.split()) >= 8
    assert len(said.cure.split()) >= 5
    assert list((ROOT / "notebooks").glob(f"{said.lesson}_*.ipynb")), f"there is no lesson {said.lesson}"
    words, _, cell = str(said).partition("\n\n")
    assert " ".join(words.split()) == f"{said.cause} Cure: {said.cure}"
    assert max(map(len, words.splitlines())) <= LINE
    assert cell == said.code
    assert len(cell.splitlines()) <= 8
    assert shown(end, somebodys_script()).strip()


@pytest.mark.few
@EACH_IN_BF16
def test_without_a_scaler_no_end_sends_one_to_it_and_its_cell_needs_none(end):
    said = ENDS[end].cause + ENDS[end].cure
    assert not re.search("init_scale|unscale|GradScaler|scaler[.]|fit into fp16", said)
    shown(end, without_a_scaler())


class _HasADeadLayer(torch.nn.Module):
    """Its second layer has gradients of zero, its third has none, and its first is frozen."""

    def __init__(self):
        super().__init__()
        self.frozen, self.zero, self.unused, self.head = (torch.nn.Linear(64, n) for n in (64, 8, 2, 8))
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.head(self.frozen(x)) + 0 * self.zero(x)


class _InTwoDtypes(torch.nn.Module):
    """Its first layer is frozen, and in bf16."""

    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(64, 16).bfloat16().requires_grad_(False)
        self.head = torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.head(self.frozen(x.bfloat16()).float())


@pytest.mark.parametrize("kind", [_HasADeadLayer, _InTwoDtypes])
@EACH_IN_BF16
def test_the_cell_at_an_end_bears_layers_that_are_frozen_dead_or_in_another_dtype(end, kind):
    script = without_a_scaler(model := models.seeded(kind, 0))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    script["train"] = lambda: one_step(model, script["batch"], optimizer, dtype=torch.bfloat16)
    assert not re.search(r"\bnan\b", shown(end, {**script, "optimizer": optimizer}))


# --- NaN and inf


def test_rounding_and_twice_the_range_make_nan_in_bf16_of_what_fp32_can_tell():
    p = torch.tensor(0.999)
    assert (1 - p.bfloat16()).log() == -torch.inf
    assert (1 - p.bfloat16()).reciprocal() == torch.inf
    spread = torch.tensor([1.0, 1.001]).bfloat16()
    assert (spread.square().mean() - spread.mean().square()) == 0, "or less, and its root NaN"
    assert all(line.isfinite() for line in ((1 - p).log(), (1 - p).reciprocal()))
    lowest = torch.tensor(torch.finfo(torch.float32).min)
    assert torch.full((3,), lowest.bfloat16()).softmax(0).isnan().all()
    assert torch.full((3,), lowest).softmax(0).isfinite().all()
    with autocast.region("cuda", torch.bfloat16):
        assert torch.nn.LSTM(4, 4)(torch.randn(2, 1, 4))[0].dtype == torch.float16


@pytest.mark.parametrize(
    ("gradient", "hide", "then"),
    [
        (math.inf, lambda w: w.grad.nan_to_num_(), "beyond fp16"),
        (math.inf, lambda w: torch.nn.utils.clip_grad_value_([w], 1.0), "a number"),
        (math.nan, lambda w: torch.nn.utils.clip_grad_value_([w], 1.0), "skipped"),
    ],
    ids=["nan_to_num", "inf clipped by value", "nan clipped by value"],
)
def test_what_hides_an_overflow_from_the_scaler_and_what_becomes_of_weights(gradient, hide, then):
    weight, scaler = torch.nn.Parameter(torch.ones(1)), torch.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    weight.grad.fill_(gradient)
    hide(weight)
    scaler.step(torch.optim.SGD([weight], lr=0.1))
    scaler.update()
    assert (scaler.get_scale() == 65536) == (then != "skipped"), "whether nothing was noticed"
    assert weight.isfinite()
    assert (weight.abs() > 65504) == (then == "beyond fp16")
    assert "inf was clipped to a number" in ENDS["unguarded"].cure


def test_a_root_at_zero_brings_nan_to_weights_that_no_scaler_guards_at_a_loss_that_is_a_number():
    weight = torch.nn.Parameter(torch.zeros(1))
    loss = weight.square().sum().sqrt()
    loss.backward()
    torch.optim.SGD([weight], lr=0.1).step()
    assert (loss.isfinite(), weight.isnan()) == (True, True)


def test_nan_for_ever_in_fp16_is_asked_for_in_fp32_before_fp16_is_blamed():
    last = {}
    for said, end in ((said_on(path), path.end.name) for path in PATHS):
        if said[1:3] == FOR_EVER[1:]:
            last.setdefault(end, []).append(said[-1])
    assert all("about what it was" in each for each in last["forward"])
    assert sum("far above what it was" in each for each in last["too_large"]) == 2
    assert {"NaN or inf as well", "NaN or inf in both"} == set(last["in_fp32_too"])


def test_a_step_past_the_scaler_is_found_where_the_scale_falls_without_end_as_well():
    without_end = "down without end, and the loss is NaN or inf, on any rank"
    assert "past_scaler" in ends_after(FALLS, "fp16", without_end)


@pytest.mark.parametrize(("lr", "past"), [(100.0, False), (0.1, True)], ids=["high rate", "scaled gradients"])
def test_a_run_that_diverges_is_nan_in_fp16_only_and_does_not_end_at_what_does_not_fit(lr, past):
    model, batches = models.digits_classifier(64), data.batches(data.digits().train, batch_size=64)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=lr), torch.amp.GradScaler("cpu")
    if past:  # the scaler's step is the optimizer's, whose gradients stay as they are
        scaler.step = lambda optimizer: optimizer.step()
        scaler.update = lambda: None
    losses = []
    for batch in batches[: 2 if past else 20]:
        before = copy.deepcopy(model)
        losses.append(one_step(model, batch, optimizer, scaler))
    assert math.isnan(losses[-1])
    assert all(p.abs().max() < 65504 for p in before.parameters())
    assert F.cross_entropy(before(batch[0]), batch[1]) > 10**6 * losses[0]
    replayed = "NaN or inf in fp16, in fp32 a number far above what it was"
    for way in (
        ("yes", "a number far above what it was, on earlier batches as well"),
        ("no, a weight is not", replayed),
    ):
        assert ends_after(*FOR_EVER, *way) == {"too_large"}
    assert "still scaled" in ENDS["too_large"].cause


def test_buffers_make_no_nan_in_training_so_only_evaluation_is_blamed_on_them():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
    inputs = 2e6 * torch.rand(8, 64, generator=torch.Generator().manual_seed(0))  # in raw units

    def loss(dtype):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            return F.cross_entropy(model(inputs), torch.arange(8))

    good = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert loss(torch.float16).isnan()
    assert not model[1].running_mean.isfinite().any()
    model.load_state_dict(good, strict=False)
    assert loss(torch.float16).isnan(), "buffers put back"
    assert loss(None) < 5
    led = {said_on(path)[1] for path in PATHS if path.end.name == "statistics"}
    assert led == {"evaluation is NaN, and training is not"}


def test_all_in_fp32_casts_nothing_of_the_models_own_and_16_bit_weights_and_is_so_asked_for():
    class CastsItself(torch.nn.Linear):
        def forward(self, x):
            x = super().forward(x).half()
            return x / (x.norm(dim=-1, keepdim=True) + 1e-8)

    class LogOfOneMinus(torch.nn.Linear):
        def forward(self, x):
            return (1 - super().forward(x.to(self.weight.dtype)).sigmoid()).log()

    script = without_a_scaler(CastsItself(64, 8))
    torch.nn.init.zeros_(script["model"].bias)
    script["batch"][0][0] = 0.0
    assert shown("in_fp32_too", script).split()[-1] == "nan"
    model, inputs = LogOfOneMinus(8, 4).bfloat16(), torch.full((2, 8), 9.0)
    torch.nn.init.constant_(model.weight, 0.1)
    assert model(inputs).isinf().all()
    script = {"torch": torch, "model": model, "batch": (inputs, torch.zeros(2, 4))}
    said = shown("in_fp32_too", {**script, "loss_fn": lambda found, _: found.mean()})
    assert float(said.split()[-1]) == pytest.approx(-7.2, abs=0.5)
    assert "the model itself casts nothing to 16 or 8 bits" in ENDS["in_fp32_too"].cause
    for each in asked("deepcopy(model).float(), without"):
        assert "without casts of its own to 16 or 8 bits" in each
    assert all("copy.deepcopy(model).float()" in each for each in asked("all in fp32"))


def test_fsdp2_refuses_to_be_copied_and_has_collectives_as_the_questions_say():
    layer = torch.nn.Linear(8, 8, bias=False)
    with fake_group(2) as mesh:
        fully_shard(layer, mesh=mesh)
        with pytest.raises(AssertionError, match="FSDP does not support deepcopy"):
            copy.deepcopy(layer)
        with CommDebugMode() as counted:
            layer.weight.full_tensor()
    assert counted.get_total_counts() == 1
    copied = asked("deepcopy")
    assert len(copied) == 2
    assert all("plain model" in each for each in (*copied, ENDS["in_fp32_too"].cure))
    assert "(on every rank: both are collectives)" in asked("How far do the weights")[0]


def test_where_no_module_s_output_has_the_nan_the_cell_names_the_parameter():
    run = loss_curves._InfiniteGradient()
    run.batches = run.batches[:3]
    said = shown("always", {"torch": torch, "model": run.model, "train": run.run})
    assert said.strip().endswith("None ['net.4.bias']")


def test_what_is_seen_beside_an_end_that_a_second_cause_has_too_is_named_there():
    assert "unscaled more than once" in ENDS["clipped"].cause
    assert all("schedule" in ENDS[name].cure for name in ("found", "still_scaled"))
    assert "found" in ends_after(FLAT, "not at all, and the loss scale falls")
    replayed = loss_curves._PastTheScaler()
    replayed.batches, replayed.epochs = replayed.batches[2:3], 1
    replayed.batches[0][0][0] *= 1e6
    assert "step_bypasses_scaler" in shown("forward", {"model": replayed.model, "train": replayed.run})
    assert "scaler.step only keeps it from fp32 weights" in ENDS["forward"].cure


def test_a_rate_that_is_too_high_in_bf16_rises_before_it_is_nan_and_ends_at_the_rate():
    model, losses = models.seeded(lambda: torch.nn.Linear(64, 8), 0), []
    optimizer = torch.optim.SGD(model.parameters(), lr=100.0)
    batch = somebodys_script()["batch"][0], torch.ones(8, 8)
    while all(p.isfinite().all() for p in model.parameters()):
        losses.append(one_step(model, batch, optimizer, dtype=torch.bfloat16, loss_fn=F.mse_loss))
    finite = list(filter(math.isfinite, losses))
    assert len(finite) > 3
    assert finite == sorted(finite)
    assert not F.mse_loss(model(batch[0]), batch[1]).isfinite()
    rose = "it had risen for some steps before, or in fp32 it is far above what it was"
    assert ends_after(IS_NAN, "bf16", FOR_EVER[2], rose) == {"too_fast"}
    falls = "below 65,536, and the loss is NaN or inf, on any rank"
    assert ends_after(FALLS, "bf16", falls, rose) == {"too_fast"}


def test_who_trains_by_trainer_is_told_why_a_loss_of_nan_is_not_seen():
    transformers = pytest.importorskip("transformers")
    assert transformers.TrainingArguments("nowhere").logging_nan_inf_filter
    assert "logging_nan_inf_filter=False shows it" in symptoms.SYMPTOMS.text


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_on_fp16_weights_adam_makes_nan_of_finite_gradients(kind):
    model, inputs = models.digits_classifier(16).half(), somebodys_script()["batch"][0].half()
    loss = F.cross_entropy(model(inputs).float(), torch.arange(8))
    loss.backward()
    assert loss.isfinite()
    assert gradients_of(model).isfinite().all()
    kind(model.parameters()).step()
    assert not all(p.isfinite().all() for p in model.parameters())
    assert "fp16_adam" in ends_after(IS_NAN, "fp16, and so are the weights", "no")


@pytest.mark.parametrize("chunked", [True, False])
def test_cross_entropy_has_nan_gradients_where_no_label_counts_if_chunked_or_of_class_weights_of_zero(
    chunked,
):
    logits, labels = torch.zeros(4, 8, requires_grad=True), torch.full((4,), -100)
    if not chunked:
        F.cross_entropy(logits, labels + 100, weight=torch.tensor([0.0] + 7 * [1.0])).backward()
    elif hasattr(F, "linear_cross_entropy"):
        options = torch.nn.LinearCrossEntropyOptions()
        F.linear_cross_entropy(logits, torch.ones(5, 8), labels, options=options).backward()
    else:
        pytest.skip("this PyTorch has none")
    assert logits.grad.isnan().all()


# --- weights that hardly move, or too far


def test_gradients_that_are_still_scaled_move_weights_too_far_and_the_end_names_the_line():
    patient, moved = clinic.patient("heal_overbearing_penalty"), {}
    for dtype in (torch.float16, torch.bfloat16):
        run = digits.training(0)
        train = partial(patient.broken, run.model, run.loader, run.optimizer, run.loss_fn, 3)
        train = partial(train, penalty=0.01, device_type="cpu", dtype=dtype)
        said = shown("still_scaled", {"model": run.model, "train": train})
        assert ("penalty_on_scaled_gradients" in said) == (dtype is torch.float16)
        moved[dtype] = run.moved()
    assert moved[torch.float16] > 10 * moved[torch.bfloat16]
    assert ends_after(FLAT, "many times farther than in fp32; the loss is scaled") == {"still_scaled"}


class _DeadInFp16(loss_curves._Amp):
    learning_rate = 4.0


def test_dead_units_in_fp16_move_as_little_in_fp32_and_do_not_end_at_vanished_gradients():
    run = _DeadInFp16()
    run.run()
    for dtype in (torch.float16, None):
        one_step(run.model, run.batches[0], torch.optim.SGD(run.model.parameters(), lr=0.0), dtype=dtype)
        assert (gradients_of(run.model) != 0).float().mean() < 0.01
    for said in (said_on(path) for path in PATHS if path.end.name == "underflow"):
        assert said[0] != FLAT or "in fp32 they do" in said[1] or "less far than in fp32" in said[1]
    assert ends_after(FLAT, "not at all, or only some, and in fp32 as little") == {"not_stepped"}
    script = {"model": run.model, "optimizer": run.optimizer, "batch": run.batches[0]}
    said = shown("not_stepped", {**script, "loss_fn": F.cross_entropy})
    assert "net.0.weight in the optimizer: True  gradients that are not zero: 0" in said


def test_clipped_while_scaled_at_a_small_rate_hardly_a_weight_moves_and_that_ends_at_clipping():
    run = loss_curves._Amp()
    before = [p.detach().clone() for p in run.model.parameters()]
    optimizer, scaler = torch.optim.SGD(run.model.parameters(), lr=1e-4), torch.amp.GradScaler("cpu")
    for _ in range(3):
        one_step(run.model, run.batches[0], optimizer, scaler, clip=1.0)
    changed = torch.cat([(p != b).flatten() for p, b in zip(run.model.parameters(), before, strict=True)])
    assert changed.float().mean() < 0.1
    assert (gradients_of(run.model) == 0).float().mean() < 0.5
    assert ends_after(FLAT, FEW_MOVE_IN_FP16, "no", "yes") == {"clipped"}


class _ComesAndGoes(torch.nn.Module):
    """Its second layer is given what is left of a small number after a large one came and went."""

    def __init__(self, large, outputs):
        super().__init__()
        self.large = large
        self.first, self.second = torch.nn.Linear(64, 16), torch.nn.Linear(16, outputs, bias=False)

    def forward(self, x):
        return self.second(self.first(x) + self.large - self.large)


def test_gradients_that_are_zero_though_the_loss_is_scaled_end_where_the_line_is_found():
    script = somebodys_script()
    script["model"] = models.seeded(lambda: _ComesAndGoes(8192, 512), 0)
    optimizer = torch.optim.SGD(script["model"].parameters(), lr=0.1)
    step = partial(one_step, script["model"], script["batch"], optimizer, script["scaler"])
    shown("underflow", {**script, "train": step})
    assert (gradients_of(script["model"]) == 0).float().mean() > 0.8
    for each in (script, {name: each for name, each in script.items() if name != "scaler"}):
        assert "second.weight" in shown("too_coarse", each).split("),")[0]
    assert ends_after(FLAT, FEW_MOVE_IN_FP16, "yes", "yes") == {"too_coarse"}


def _what_is_too_coarse(fsdp2):
    """How far the cell says that gradients are off, on this rank, and of which it says so first."""
    script = without_a_scaler(model := models.seeded(lambda: _ComesAndGoes(256, 8), 0))
    if fsdp2:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    off, name = re.search(r"\(([\d.e-]+), '([\w.]+)'", shown("too_coarse", script)).groups()
    return float(off), name


def test_what_is_too_coarse_is_named_first_but_not_under_fsdp2_so_the_cure_says_where_to_compare():
    assert _what_is_too_coarse(fsdp2=False)[1] == "second.weight"
    (whole, _), (sharded, _) = (parallel.run(_what_is_too_coarse, 2, fsdp2)[0] for fsdp2 in (False, True))
    assert sharded < 0.05 < 0.3 < whole, "the policy casts on both sides"
    assert "without fully_shard" in ENDS["too_coarse"].cure


def _epochs(normed, once, lr=0.1):
    """The mean losses of four epochs, and how far the weights went, perhaps with one autocast around all."""
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(32) if normed else torch.nn.Identity()
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), norm, torch.nn.ReLU(), torch.nn.Linear(32, 10))
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer, batches = torch.optim.SGD(model.parameters(), lr=lr), data.batches(data.digits().train, 64)
    with torch.autocast("cpu", torch.bfloat16, enabled=once):
        losses = [
            sum(one_step(model, batch, optimizer, dtype=torch.bfloat16) for batch in batches)
            for _ in range(4)
        ]
    return losses, (torch.nn.utils.parameters_to_vector(model.parameters()) - before).norm().item()


def test_one_autocast_for_all_steps_is_asked_for_as_a_norm_goes_on_and_the_loss_does_not_stand():
    (plain, _), (normed, far), (_, right) = (
        _epochs(*each) for each in ((False, True), (True, True), (True, False))
    )
    assert len(set(plain)) == 1
    assert len(set(normed)) == 4
    assert far < 3 * right
    assert ends_after(FLAT, "as far as in fp32, or up to three times", "yes") == {"stale"}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("mean", "beta2", "shortest", "longest"),
    [(0.0, 0.999, 0.4, 0.9), (0.13, 0.999, 1.3, 2.05), (0.0, 0.95, 0.95, 1.05), (0.13, 0.95, 0.95, 1.06)],
    ids=["noisy", "steady", "noisy, follows", "steady, follows"],
)
def test_a_mean_square_in_bf16_sticks_too_high_for_noisy_gradients_and_too_low_for_steady_ones(
    fused, mean, beta2, shortest, longest
):
    """The same gradients go into bf16 moments and into fp32 ones."""
    pair = [torch.nn.Parameter(torch.ones(400, dtype=dtype)) for dtype in (torch.bfloat16, torch.float32)]
    adams = [torch.optim.Adam([p], lr=0.0, betas=(0.9, beta2), fused=fused) for p in pair]
    draw = torch.Generator().manual_seed(0)
    for _ in range(3000):
        gradient = (mean + (0.01 if mean else 0.13) * torch.randn(400, generator=draw)).bfloat16()
        for p, adam in zip(pair, adams, strict=True):
            p.grad = gradient.to(p.dtype)
            adam.step()
    root = [adam.state[p]["exp_avg_sq"].float().sqrt().mean() for p, adam in zip(pair, adams, strict=True)]
    length = (root[1] / root[0]).item()  # of a step, as a multiple of the right one
    assert shortest < length < longest
    assert "too high for noisy ones, whose steps are too short" in ENDS["half_state"].cause


def test_the_cell_of_a_bf16_state_shows_that_it_gets_too_large():
    torch.manual_seed(0)
    right, bf16 = (float(each) for each in shown("half_state", without_a_scaler()).split()[-2:])
    assert right == pytest.approx(0.0169, rel=0.1)
    assert bf16 > 1.5 * right


@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 1 / 1000), (torch.float16, 1 / 5000)])
def test_what_an_average_in_16_bits_does_not_feel(dtype, share):
    weights = torch.linspace(1, 2, 3000).to(dtype)
    for sign in (1, -1):
        assert torch.equal((weights.double() * (1 + sign * share)).to(dtype), weights)
    assert dtype == torch.bfloat16 or not torch.equal((weights.double() * 1.001).to(dtype), weights)


@pytest.mark.parametrize("forgotten", [None, "the optimizer", "the schedule", "32 bits"])
def test_a_training_goes_on_as_it_was_only_if_all_of_it_was_saved(forgotten):
    def parts():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)

    def train(model, optimizer, schedule):
        for _ in range(3):
            one_step(model, batch, optimizer, dtype=torch.bfloat16, loss_fn=F.mse_loss)
            schedule.step()

    batch, first, second = (torch.randn(8, 4), torch.zeros(8, 1)), parts(), parts()
    train(*first)
    saved = [copy.deepcopy(part.state_dict()) for part in first]
    if forgotten == "32 bits":
        saved[0] = {name: value.bfloat16() for name, value in saved[0].items()}
    for part, state, name in zip(second, saved, ("", "the optimizer", "the schedule"), strict=True):
        if name != forgotten:
            part.load_state_dict(state)
    if forgotten == "the schedule":
        second[1].param_groups[0]["lr"] = 0.1
    train(*first)
    train(*second)
    assert torch.equal(first[0].weight, second[0].weight) == (forgotten is None)


def after_steps(dtype, lr, steps=5):
    """How far a matrix went by its norm, and by the two expressions in the question about movement."""
    draws = torch.Generator().manual_seed(0)
    p = torch.nn.Parameter((0.04 * torch.randn(384, 1536, generator=draws)).to(dtype))
    before, norm = p.detach().float().clone(), p.norm().item()
    adam = torch.optim.AdamW([p], lr=lr)
    for _ in range(steps):
        p.grad = torch.randn(p.shape, generator=draws).to(dtype)
        adam.step()
    (said,) = asked("How far do the weights")
    told = re.findall(r"\(p\.float\(\) - before\)\.norm\(\)|\(p != before\)\S+mean\(\)", said)
    moved, changed = (eval(each, {"p": p, "before": before}).item() for each in told)
    return p.norm().item() - norm, moved, changed


def test_movement_is_measured_by_what_tells_a_matrix_that_learns_from_one_that_stands():
    by_norm, moved, changed = after_steps(torch.bfloat16, 3e-4)
    assert by_norm == 0, "the norm of a bf16 matrix is bf16, and this one learns"
    assert moved > 0.005 * 31, "its norm is 31"
    assert changed > 0.8
    assert after_steps(torch.bfloat16, 2e-5)[2] < 0.4, "here most updates are rounded away"
    by_norm, moved, changed = after_steps(torch.float32, 2e-5)
    assert abs(by_norm) < moved / 10, "and the norm of an fp32 matrix hardly changes as it turns"
    assert changed > 0.99


@pytest.mark.parametrize(("quiet", "in_all_of_them"), [(1000, 25.3), (10_000, 31.8)])
def test_after_a_quiet_time_adam_makes_up_to_three_steps_in_one_and_with_its_momentum_up_to_32(
    quiet, in_all_of_them, monkeypatch
):
    longer = re.sub(r"\b1(?=\d{3}\b)", f"{quiet // 1000}", ENDS["too_fast"].code)  # for its thousand steps
    monkeypatch.setitem(ENDS, "too_fast", replace(ENDS["too_fast"], code=longer))
    at_once, in_all = map(float, re.findall(r": ([\d.]+) times", shown("too_fast", {"torch": torch})))
    assert 2 < at_once < 3.25
    assert in_all == pytest.approx(in_all_of_them, abs=0.2)
    assert "two or three times the learning rate" in ENDS["too_fast"].cause


# --- ranks


def _with_a_nan_on_rank_1():
    """The loss that this rank sees, its scale after eight steps, and the dtypes of what DDP sends."""
    script, sent = somebodys_script(), set()
    model = torch.nn.parallel.DistributedDataParallel(script["model"])
    model.register_comm_hook(sent, _tells_the_dtype)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    if dist.get_rank() == 1:
        script["batch"][0][0, 0] = math.nan
    losses = [one_step(model, script["batch"], optimizer, scaler) for _ in range(8)]
    return losses[-1], scaler.get_scale(), sorted(map(str, sent))


def _tells_the_dtype(sent, bucket):
    sent.add(bucket.buffer().dtype)
    reduced = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return reduced.then(lambda done: done.value()[0] / dist.get_world_size())


def test_under_ddp_a_nan_of_another_rank_lowers_the_scale_beside_a_finite_loss_so_the_tree_says_every_rank():
    (fine, scale, sent), (bad, other_scale, _) = parallel.run(_with_a_nan_on_rank_1, 2)
    assert math.isfinite(fine)
    assert math.isnan(bad)
    assert scale == other_scale == 65536 / 2**8
    assert sent == ["torch.float32"], "autocast changes nothing of what is sent"
    assert "sending gradients, which autocast does not shorten under DDP" in ENDS["fp32_part"].cause
    falls = [said_on(path)[-1] for path in PATHS if path.end.name == "always"]
    assert [each.endswith("the loss is finite, on every rank") for each in falls] == [True] * 3
    elsewhere = "in fp16, down without end, and a rank's loss is NaN or inf"
    assert "in_fp32_too" in ends_after(FLAT, "not at all, and the loss scale falls", elsewhere)


def _with_a_scale_of_its_own(scales):
    """One step of this rank under FSDP2: its checksum of the whole weights, its scale, the parting's cell."""
    script = somebodys_script()
    model, mesh = script["model"], init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.float16, torch.float32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scales[dist.get_rank()])
    step = partial(one_step, model, script["batch"], optimizer, scaler, dtype=None)
    step = partial(step, loss_fn=lambda outputs, targets: F.cross_entropy(outputs.float(), targets))
    said = shown("parted", {**script, "train": step, "scaler": scaler})
    return sum(p.full_tensor().double().sum().item() for p in model.parameters()), said


def test_under_fsdp2_scales_tell_that_ranks_have_parted_and_a_checksum_of_full_tensors_cannot():
    (one, first), (other, second) = parallel.run(_with_a_scale_of_its_own, 2, (1024.0, 2048.0))
    assert one == other
    assert "has moved: True scale: 1024.0" in first
    assert "has moved: True scale: 2048.0" in second


# --- FP8


class Float8Linear(torch.nn.Linear):
    """Named as torchao's, which is a subclass as well."""


def test_linear_layers_are_found_that_were_converted_to_fp8():
    for end in ("fp8_outliers", "fp8_small"):
        said = shown(end, without_a_scaler(torch.nn.Sequential(Float8Linear(64, 10))))
        assert re.search("Float8Linear.*times the median|no multiple of 16$", said.strip())


def test_what_makes_nan_in_fp8_that_bf16_does_not():
    assert torch.tensor(1e5).to(torch.float8_e5m2).float().isinf()
    assert torch.tensor(1e5).bfloat16().isfinite()
    zeros = torch.zeros(4)
    assert (zeros / (zeros.abs().max() / 448)).to(torch.float8_e4m3fn).float().isnan().all()
    for said in (
        ("it computes in FP8, and is worse, slower or NaN", "it is NaN, and not in bf16"),
        (IS_NAN, "FP8 in some layers, and in bf16 it is a number"),
    ):
        assert ends_after(*said) == {"fp8_nan"}
    assert "last layers" in ENDS["fp8_unscaled"].cause
    assert "mostly the last ones" in text("09", "stochastic-why")


def test_the_cell_of_an_end_in_fp8_tells_a_loud_token_from_a_loud_channel_of_compiled_models_too():
    script, inputs = without_a_scaler(), torch.rand(8, 16, 64) + 1
    script["model"] = torch.compile(torch.nn.Sequential(Float8Linear(64, 16)), backend="eager")
    for loud in ((slice(None), slice(None), 5), (3, 2)):
        batch = inputs.clone()
        batch[loud] *= 1000
        script["model"](batch)
        found = shown("fp8_outliers", {**script, "batch": (batch, None)})
        channel, token = (int(each) for each in re.findall(r"'(\d+)'", found))
        assert (channel > 500) == (loud[-1] == 5)
        assert token > 500 or loud[-1] == 5


@pytest.mark.parametrize(("sides", "name"), [((1024, 4096), "small"), ((512, 8192), ""), ((4096, 512), "")])
def test_small_is_what_torchaos_filter_leaves_out(sides, name):
    found = {"torch": torch}
    exec(text("09", "choose-run").partition("\n\n\n")[0], found)
    layer = torch.nn.Linear(*reversed(sides), bias=False, device="meta")
    script = {"model": torch.nn.Sequential(layer), "batch": (torch.zeros(16), None)}
    assert shown("fp8_small", script).strip().endswith(name or str(sides))
    assert found["large"](layer, "0") == (name == "")


# --- speed and memory


def test_cells_about_speed_print_what_their_numbers_are_held_against():
    rows = shown("fp32_part", without_a_scaler()).splitlines()
    assert max(map(len, rows)) < LINE
    assert sum(row.endswith("aten::linear torch.bfloat16") for row in rows) == 3
    assert [row.split()[0] for row in shown("small", without_a_scaler()).splitlines()] == ["1", "4"]


class _Saved:
    """What stands for an activation that a graph has saved, for as long as the graph keeps it."""

    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize(
    ("way", "grows"),
    [("went backward", False), ("keep their graphs", True), ("are of a validation with gradients", True)],
)
def test_the_cell_at_a_full_memory_shows_what_grows_and_losses_that_went_backward_do_not(
    way, grows, monkeypatch
):
    alive, kept, script = weakref.WeakSet(), [], without_a_scaler()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: len(alive))

    def saved(tensor):
        alive.add(it := _Saved(tensor))
        return it

    def loss():
        kept.append(F.cross_entropy(script["model"](script["batch"][0]), script["batch"][1]))
        return kept[-1]

    def train():
        for _ in range(3):
            loss().backward(retain_graph=way == "keep their graphs")
            if way == "are of a validation with gradients":
                loss()
            script["optimizer"].step()

    script["train"] = train
    with torch.autograd.graph.saved_tensors_hooks(saved, lambda it: it.tensor):
        shown("graphs", script)
    first, second, third = script["used"]
    assert (first < second < third) is grows
    assert grows or first == third
    assert re.search("without no_grad .*retain_graph", ENDS["graphs"].cause)


def test_adam_s_state_is_there_from_the_second_step_on_so_memory_is_full_in_the_first_or_second():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight])
    states = [len(optimizer.state)]
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
        states.append(sum(each.numel() == 4 for each in optimizer.state[weight].values()))
    assert states == [0, 2, 2]
    assert ends_after("the memory is full", "in the first or second step") == {"not_halved"}
