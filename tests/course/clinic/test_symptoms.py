"""The questions about symptoms: every way ends, and what stands at its end can be run."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import re
import weakref

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from amp_lessons import autocast, clinic, data, models, parallel
from amp_lessons.course.clinic import loss_curves, symptoms
from amp_lessons.course.clinic.causes import ENDS as WRITTEN
from amp_lessons.course.exercises.patients import digits
from amp_lessons.parallel.traffic import fake_group
from tests.stored_lessons import text
from tests.test_packaging import ROOT

pytestmark = pytest.mark.usefixtures("taken_along")

PATHS = tuple(symptoms.paths())
LINE = 100  # characters that JupyterLab shows beside its file browser without breaking them
ENDS = {id(path.end): path.end for path in PATHS}.values()
EACH_END = pytest.mark.parametrize("end", ENDS, ids=lambda end: end.cause[:40])


def somebodys_script(dtype=torch.float16, enabled=True):
    """What an end's cell may speak of, on the digits."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    model = models.digits_classifier(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=enabled)
    batch = torch.rand(8, 64, generator=torch.Generator().manual_seed(0)), torch.arange(8)

    def train(steps=3):
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = F.cross_entropy(model(batch[0]), batch[1])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {**locals(), "loss_fn": F.cross_entropy, "torch": torch}


def without_a_scaler():
    """A script of somebody who trains in bf16, who has no scaler."""
    script = somebodys_script(torch.bfloat16, enabled=False)
    del script["scaler"]
    return script


def test_every_symptom_of_the_lesson_is_there_and_every_way_ends_within_five_questions():
    assert len(symptoms.SYMPTOMS.answers) == 10
    assert len(PATHS) >= 25
    assert max(len(path.answered) for path in PATHS) <= 5


def can_be_said_in_bf16(path, scaled):
    """Whether somebody who trains in bf16, with or without a scaler, could answer all of a path truly."""
    said = [answer.text for _, answer in path.answered]
    of_a_scaler = re.compile("loss scale|loss is scaled|65,536")
    return not any(
        text == "fp32" or ("fp16" in text and "bf16" not in text) or (of_a_scaler.search(text) and not scaled)
        for text in said
    )


# Each was read as somebody who trains in bf16 reads it; what is here is true of that training.
TRUE_IN_BF16 = [
    *(
        WRITTEN["in_fp32_too"],
        WRITTEN["one_batch"],
        WRITTEN["rounded"],
        WRITTEN["unguarded"],
        WRITTEN["half_weights"],
    ),
    *(
        WRITTEN["not_stepped"],
        WRITTEN["stale"],
        WRITTEN["not_amp"],
        WRITTEN["cpu"],
        WRITTEN["small"],
        WRITTEN["fp32_part"],
    ),
    *(
        WRITTEN["graphs"],
        WRITTEN["not_halved"],
        WRITTEN["average"],
        WRITTEN["long"],
        WRITTEN["metric"],
        WRITTEN["restart"],
    ),
    *(
        WRITTEN["audit"],
        WRITTEN["statistics"],
        WRITTEN["too_fast"],
        WRITTEN["too_coarse"],
        WRITTEN["parted"],
        WRITTEN["weighed"],
    ),
    *(
        WRITTEN["reduced"],
        WRITTEN["half_state"],
        WRITTEN["fp8_unscaled"],
        WRITTEN["fp8_outliers"],
        WRITTEN["fp8_small"],
        WRITTEN["fp8_nan"],
    ),
]
TRUE_WITH_A_SCALER = [WRITTEN[name] for name in ("always", "bf16_scaler", "clipped", "anew", "still_scaled")]


@pytest.mark.parametrize(
    ("scaled", "ends"), [(False, TRUE_IN_BF16), (True, TRUE_IN_BF16 + TRUE_WITH_A_SCALER)]
)
def test_whatever_can_be_said_of_a_training_in_bf16_ends_at_what_is_true_of_it(scaled, ends):
    walked = [path for path in PATHS if can_be_said_in_bf16(path, scaled)]
    assert {path.answered[0][1].text for path in walked} >= {
        answer.text for answer in symptoms.SYMPTOMS.answers if scaled or "loss scale" not in answer.text
    }
    for path in walked:
        assert path.end in ends, [answer.text for _, answer in path.answered]
    assert {id(path.end) for path in walked} == {id(end) for end in ends}


@pytest.mark.few
@pytest.mark.parametrize("end", TRUE_IN_BF16, ids=lambda end: end.cause[:40])
def test_without_a_scaler_no_end_sends_one_to_it_and_its_cell_needs_none(end):
    assert not re.search("init_scale|unscale|GradScaler|scaler[.]|fit into fp16", end.cause + end.cure)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(end.code, "<cell>", "exec"), without_a_scaler())


def test_no_way_ends_where_only_fp16_is_wrong_unless_fp16_was_answered():
    only_fp16 = [
        WRITTEN["forward"],
        WRITTEN["hidden"],
        WRITTEN["past_scaler"],
        WRITTEN["underflow"],
        WRITTEN["grows"],
    ]
    only_fp16 += [WRITTEN["too_large"], WRITTEN["fp16_adam"]]
    for path in PATHS:
        said = " ".join(answer.text for _, answer in path.answered)
        assert path.end not in only_fp16 or "fp16" in said, said


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


HIDING = {
    "nan_to_num": (lambda w: w.grad.nan_to_num_(), True),
    "clipping by value": (lambda w: torch.nn.utils.clip_grad_value_([w], 1.0), False),
}


@pytest.mark.parametrize(("hide", "too_large"), HIDING.values(), ids=HIDING)
def test_what_hides_an_overflow_from_the_scaler_and_whether_weights_become_too_large_for_fp16(
    hide, too_large
):
    weight, scaler = torch.nn.Parameter(torch.ones(1)), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale(weight.sum()).backward()
    weight.grad.fill_(torch.inf)
    hide(weight)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 65536, "nothing was noticed"
    assert weight.isfinite()
    assert (weight.abs() > 65504) == too_large


def test_nan_for_ever_in_fp16_is_asked_for_in_fp32_before_fp16_is_blamed():
    for_ever = {}
    for path in PATHS:
        said = [answer.text for _, answer in path.answered]
        if said[1:3] == ["fp16, with fp32 weights", "from some batch on, for ever"]:
            for_ever.setdefault(path.end.cause, []).append(said[-1])
    assert all("about what it was" in last for last in for_ever[WRITTEN["forward"].cause])
    assert sum("far above what it was" in last for last in for_ever[WRITTEN["too_large"].cause]) == 2
    assert {"NaN or inf as well", "NaN or inf in both"} == set(for_ever[WRITTEN["in_fp32_too"].cause])


def ends_after(*said):
    """The ends of all paths on which these were answered, one after the other, from the first question on."""
    return {path.end for path in PATHS if tuple(a.text for _, a in path.answered)[: len(said)] == said}


def test_a_step_past_the_scaler_is_found_where_the_scale_falls_without_end_as_well():
    falls = ends_after(
        "the loss scale keeps falling", "fp16", "down without end, and the loss is NaN or inf, on any rank"
    )
    assert WRITTEN["past_scaler"] in falls


FOR_EVER = ("the loss is NaN or inf", "fp16, with fp32 weights", "from some batch on, for ever")


@pytest.mark.parametrize(("lr", "past"), [(100.0, False), (0.1, True)], ids=["high rate", "scaled gradients"])
def test_a_run_that_diverges_is_nan_in_fp16_only_and_does_not_end_at_what_does_not_fit(lr, past):
    model, batches = models.digits_classifier(64), data.batches(data.digits().train, batch_size=64)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=lr), torch.amp.GradScaler("cpu")
    losses = []
    for inputs, targets in batches[: 2 if past else 20]:
        before = copy.deepcopy(model)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        scaler.scale(loss).backward()
        (optimizer.step if past else lambda: scaler.step(optimizer))()
        scaler.update() if not past else None
    assert math.isnan(losses[-1])
    assert all(p.abs().max() < 65504 for p in before.parameters())
    assert F.cross_entropy(before(inputs), targets) > 10**6 * losses[0]
    assert ends_after(*FOR_EVER, "yes", "a number far above what it was, on earlier batches as well") == {
        WRITTEN["too_large"]
    }
    replayed = "NaN or inf in fp16, in fp32 a number far above what it was"
    assert ends_after(*FOR_EVER, "no, a weight is not", replayed) == {WRITTEN["too_large"]}
    assert "still scaled" in WRITTEN["too_large"].cause


def test_buffers_make_no_nan_in_training_so_only_evaluation_is_blamed_on_them():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
    inputs = 2e6 * torch.rand(8, 64, generator=torch.Generator().manual_seed(0))  # in raw units

    def loss(dtype):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            return F.cross_entropy(model(inputs), torch.arange(8))

    good = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert loss(torch.float16).isnan()
    assert not model[1].running_mean.isfinite().any()
    for name, buffer in model.named_buffers():
        buffer.copy_(good[name])
    assert loss(torch.float16).isnan(), "buffers put back"
    assert loss(None) < 5
    led = {path.answered[1][1].text for path in PATHS if path.end is WRITTEN["statistics"]}
    assert led == {"evaluation is NaN, and training is not"}


def test_gradients_that_are_still_scaled_move_weights_too_far_and_the_end_names_the_line():
    patient, moved = clinic.patient("heal_overbearing_penalty"), {}
    for dtype in (torch.float16, torch.bfloat16):
        run = digits.training(0)

        def train(run=run, dtype=dtype):
            chosen = {"penalty": 0.01, "device_type": "cpu", "dtype": dtype}
            patient.broken(run.model, run.loader, run.optimizer, run.loss_fn, 3, **chosen)

        said = shown(WRITTEN["still_scaled"], {"model": run.model, "train": train})
        assert ("penalty_on_scaled_gradients" in said) == (dtype is torch.float16)
        moved[dtype] = run.moved()
    assert moved[torch.float16] > 10 * moved[torch.bfloat16]
    farther = "many times farther than in fp32; the loss is scaled"
    assert ends_after("the loss is flat", farther) == {WRITTEN["still_scaled"]}


FEW_MOVE_IN_FP16 = (
    "not at all, or only some, and in fp32 they do; fp32 weights, computed in fp16, the scale, if any, stands"
)


class _DeadInFp16(loss_curves._Amp):
    learning_rate = 4.0


def test_dead_units_in_fp16_move_as_little_in_fp32_and_do_not_end_at_vanished_gradients():
    run, share = _DeadInFp16(), []
    run.run()
    for dtype in (torch.float16, None):
        run.model.zero_grad()
        inputs, targets = run.batches[0]
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            F.cross_entropy(run.model(inputs), targets).backward()
        gradients = torch.cat([p.grad.flatten() for p in run.model.parameters()])
        share.append((gradients != 0).float().mean().item())
    assert max(share) < 0.01
    for path in PATHS:
        told = path.answered[1][1].text
        if path.answered[0][1].text == "the loss is flat" and path.end is WRITTEN["underflow"]:
            assert "in fp32 they do" in told or "less far than in fp32" in told
    said = "not at all, or only some, and in fp32 as little"
    assert ends_after("the loss is flat", said) == {WRITTEN["not_stepped"]}
    script = {"model": run.model, "optimizer": run.optimizer, "batch": run.batches[0]}
    script["loss_fn"] = F.cross_entropy
    assert "net.0.weight in the optimizer: True  gradients that are not zero: 0" in shown(
        WRITTEN["not_stepped"], script
    )


def test_clipped_while_scaled_at_a_small_rate_hardly_a_weight_moves_and_that_ends_at_clipping():
    run = loss_curves._Amp()
    model, batch = run.model, run.batches[0]
    before = [p.detach().clone() for p in model.parameters()]
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1e-4), torch.amp.GradScaler("cpu")
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        zero = torch.cat([p.grad.flatten() for p in model.parameters()]) == 0
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    changed = torch.cat([(p != b).flatten() for p, b in zip(model.parameters(), before, strict=True)])
    assert changed.float().mean() < 0.1
    assert zero.float().mean() < 0.5
    assert ends_after("the loss is flat", FEW_MOVE_IN_FP16, "no", "yes") == {WRITTEN["clipped"]}


class _ForgetsItsInput(torch.nn.Module):
    """Its large second layer is given a difference of near equals, which fp16 makes zero."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 16), torch.nn.Linear(16, 512, bias=False)

    def forward(self, x):
        return self.second(self.first(x) + 8192 - 8192)


def test_gradients_that_are_zero_though_the_loss_is_scaled_end_where_the_line_is_found():
    script = somebodys_script(torch.float16)
    script["model"] = models.seeded(_ForgetsItsInput, 0)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(WRITTEN["underflow"].code, {**script, "train": lambda: _one_step(script)})
    zero = torch.cat([p.grad.flatten() for p in script["model"].parameters()]) == 0
    assert zero.float().mean() > 0.8
    assert "second.weight" in shown(WRITTEN["too_coarse"], script).split("),")[0]
    del script["scaler"]
    assert "second.weight" in shown(WRITTEN["too_coarse"], script).split("),")[0]
    assert ends_after("the loss is flat", FEW_MOVE_IN_FP16, "yes", "yes") == {WRITTEN["too_coarse"]}


def _one_step(script):
    with torch.autocast("cpu", script["dtype"]):
        loss = F.cross_entropy(script["model"](script["batch"][0]), script["batch"][1])
    script["scaler"].scale(loss).backward()
    script["scaler"].step(torch.optim.SGD(script["model"].parameters(), lr=0.1))
    script["scaler"].update()


def _epochs(normed, once, lr=0.1):
    """The mean losses of four epochs, and how far the weights went, with autocast around all or each."""
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(32) if normed else torch.nn.Identity()
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), norm, torch.nn.ReLU(), torch.nn.Linear(32, 10))
    before = [p.detach().clone() for p in model.parameters()]
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=lr), []
    autocast_ = torch.autocast("cpu", torch.bfloat16)
    with autocast_ if once else contextlib.nullcontext():
        for _ in range(4):
            of_epoch = []
            for inputs, targets in data.batches(data.digits().train, batch_size=64):
                optimizer.zero_grad()
                with contextlib.nullcontext() if once else autocast_:
                    loss = F.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                of_epoch.append(loss.item())
            losses.append(sum(of_epoch) / len(of_epoch))
    moved = sum((p - b).norm() ** 2 for p, b in zip(model.parameters(), before, strict=True)) ** 0.5
    return losses, moved.item()


def test_one_autocast_for_all_steps_is_asked_for_as_a_norm_goes_on_and_the_loss_does_not_stand():
    (plain, _), (normed, far), (_, right) = (_epochs(*each) for each in ((0, 1), (1, 1), (1, 0)))
    assert len(set(plain)) == 1
    assert len(set(normed)) == 4
    assert far < 3 * right
    as_far = "as far as in fp32, or up to three times"
    assert ends_after("the loss is flat", as_far, "yes") == {WRITTEN["stale"]}


def test_a_cast_of_the_model_s_own_and_layers_in_fp8_are_no_fp32_so_both_are_asked_for():
    class CastsItself(torch.nn.Linear):
        def forward(self, x):
            x = super().forward(x).half()
            return x / (x.norm(dim=-1, keepdim=True) + 1e-8)

    script = {**without_a_scaler(), "model": CastsItself(64, 8)}
    torch.nn.init.zeros_(script["model"].bias)
    script["batch"][0][0] = 0.0
    assert shown(WRITTEN["in_fp32_too"], script).split()[-1] == "nan"
    assert "the model itself casts nothing to 16 or 8 bits" in " ".join(WRITTEN["in_fp32_too"].cause.split())
    asked = {
        q.text for path in PATHS for q, _ in path.answered if "deepcopy(model).float(), without" in q.text
    }
    assert all("without casts of its own to 16 or 8 bits" in " ".join(each.split()) for each in asked)
    said = "the loss is NaN or inf", "FP8 in some layers, and in bf16 it is a number"
    assert ends_after(*said) == {WRITTEN["fp8_nan"]}


def test_fsdp2_refuses_to_be_copied_as_whoever_asks_for_fp32_says():
    layer = torch.nn.Linear(8, 8)
    with fake_group(2) as mesh:
        fully_shard(layer, mesh=mesh)
        with pytest.raises(AssertionError, match="FSDP does not support deepcopy"):
            copy.deepcopy(layer)
    asked = {q.text for path in PATHS for q, _ in path.answered if "deepcopy" in q.text}
    assert len(asked) == 2
    assert all("plain model" in " ".join(each.split()) for each in {*asked, WRITTEN["in_fp32_too"].cure})


def test_all_in_fp32_is_so_of_16_bit_weights_too():
    class LogOfOneMinus(torch.nn.Linear):
        def forward(self, x):
            return (1 - super().forward(x.to(self.weight.dtype)).sigmoid()).log()

    model, inputs = LogOfOneMinus(8, 4).bfloat16(), torch.full((2, 8), 9.0)
    torch.nn.init.constant_(model.weight, 0.1)
    assert model(inputs).isinf().all()
    script = {"torch": torch, "model": model, "batch": (inputs, torch.zeros(2, 4))}
    said = shown(WRITTEN["in_fp32_too"], {**script, "loss_fn": lambda found, _: found.mean()})
    assert float(said.split()[-1]) == pytest.approx(-7.2, abs=0.5)
    asked = [q.text for path in PATHS for q, _ in path.answered if "all in fp32" in q.text]
    assert all("copy.deepcopy(model).float()" in each for each in asked)


def test_cells_about_speed_print_what_their_numbers_are_held_against():
    rows = shown(WRITTEN["fp32_part"], without_a_scaler()).splitlines()
    assert max(map(len, rows)) < LINE
    assert sum(row.endswith("aten::linear torch.bfloat16") for row in rows) == 3
    assert [row.split()[0] for row in shown(WRITTEN["small"], without_a_scaler()).splitlines()] == ["1", "4"]


def test_where_no_module_s_output_has_the_nan_the_cell_names_the_parameter():
    run = loss_curves._InfiniteGradient()
    run.batches = run.batches[:3]
    assert (
        shown(WRITTEN["always"], {"torch": torch, "model": run.model, "train": run.run})
        .strip()
        .endswith("None ['net.4.bias']")
    )


NUMBER = "a number at every step that is made"
WORSE = "the loss falls, and the model is worse than it should be"
LESS = "less far than in fp32, several or thousands of times; the loss is scaled"
WALKS = {  # what is seen of each sick patient and loss curve, and where that ends
    "heal_standstill": ("the loss is flat", LESS, "in none, or hardly any", "clipped"),
    "heal_same_epochs": ("the loss is flat", "as far as in fp32, or up to three times", "yes", "stale"),
    "heal_frozen_weights": (WORSE, "all of it, or I cannot say", "bf16 or fp16", "half_weights"),
    "heal_nan_in_tests": (WORSE, "evaluation is NaN, and training is not", "yes", "statistics"),
    "heal_snail": (
        *("the loss is flat", LESS, "in most, and the scale comes back up to 65,536 now and then"),
        "anew",
    ),
    "heal_limping_restart": (
        *(WORSE, "what comes after a restart", "all of it is, and training had ended at another loss scale"),
        "anew",
    ),
    "heal_wasted_batches": ("the loss is flat", LESS, "in none, or hardly any", "clipped"),
    "heal_missed_warm_up": (
        *("the loss scale keeps falling", "fp16", "down to some value, and stays there"),
        "found",
    ),
    "heal_overbearing_penalty": (
        *("the loss rises or jumps, and is a number", NUMBER),
        *("only where the loss is scaled, and in bf16 without a scaler not", "still_scaled"),
    ),
    "heal_left_behind": (WORSE, "the averaged weights (EMA)", "average"),
    "heal_long_test": (WORSE, "the number that evaluation prints", "metric"),
    "heal_fatal_batch": (
        *FOR_EVER,
        *("no, a weight is not", "NaN or inf in fp16, in fp32 about what it was", "forward"),
    ),
    "heal_lost_order": (WORSE, "long inputs, late time steps", "long"),
    "heal_first_batch": (*FOR_EVER[:2], "from the first batch", "a number", "forward"),
    "one_autocast": ("the loss is flat", "as far as in fp32, or up to three times", "yes", "stale"),
    "past_the_scaler": (
        *FOR_EVER,
        *("no, a weight is not", "NaN or inf in fp16, in fp32 about what it was", "forward"),
    ),
    "scaler_made_anew": (
        *("the loss scale keeps falling", "fp16", "back to 65,536 now and then"),
        "anew",
    ),
    "infinite_gradient": (
        *("the loss scale keeps falling", "fp16"),
        *("down without end, and the loss is finite, on every rank", "always"),
    ),
    "high_rate": (
        *("the loss rises or jumps, and is a number", NUMBER, "it rises or jumps as well"),
        "too_fast",
    ),
    "weights_in_bf16": (
        "the loss is flat",
        "not at all, or only some, and in fp32 they do; the weights are bf16 or fp16",
        "half_weights",
    ),
    "average_in_half": (WORSE, "the averaged weights (EMA)", "average"),
    "unscaled": (
        "the loss is flat",
        FEW_MOVE_IN_FP16,
        *("yes", "no", "underflow"),
    ),
    "begins_too_high": (
        *("the loss scale keeps falling", "fp16", "down to some value, and stays there"),
        "found",
    ),
}
HEALTHY = {"fp32", "amp", "logs_scaled"}  # the last has a log that is wrong, and a loss that is not


def test_every_patient_and_every_sick_curve_is_walked():
    there = {patient.id for patient in clinic.patients()} | set(clinic.LOSS_CURVES)
    assert WALKS.keys() == there - HEALTHY


@pytest.mark.parametrize("name", WALKS)
def test_what_is_seen_of_a_patient_or_a_curve_ends_at_its_cause(name):
    *said, end = WALKS[name]
    assert ends_after(*said) == {WRITTEN[end]}


def test_what_is_seen_beside_an_end_that_a_second_cause_has_too_is_named_there():
    assert "unscaled more than once" in WRITTEN["clipped"].cause
    for name in ("found", "still_scaled"):
        assert re.search("schedule", WRITTEN[name].cure)
    replayed = loss_curves._PastTheScaler()
    replayed.batches = replayed.batches[2:3]
    replayed.batches[0][0][0] *= 1e6
    replayed.epochs = 1
    said = shown(WRITTEN["forward"], {"model": replayed.model, "train": replayed.run})
    assert "step_bypasses_scaler" in said
    assert "scaler.step only keeps it from fp32 weights" in WRITTEN["forward"].cure


def test_a_rate_that_is_too_high_in_bf16_rises_before_it_is_nan_and_ends_at_the_rate():
    model, losses = models.seeded(lambda: torch.nn.Linear(64, 8), 0), []
    optimizer, (inputs, _) = torch.optim.SGD(model.parameters(), lr=100.0), somebodys_script()["batch"]
    while all(p.isfinite().all() for p in model.parameters()):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.mse_loss(model(inputs), torch.ones(8, 8))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    finite = list(filter(math.isfinite, losses))
    assert len(finite) > 3
    assert finite == sorted(finite)
    assert not F.mse_loss(model(inputs), torch.ones(8, 8)).isfinite()
    rose = "it had risen for some steps before, or in fp32 it is far above what it was"
    for way in (
        ("the loss is NaN or inf", "bf16", "from some batch on, for ever"),
        ("the loss scale keeps falling", "bf16", "below 65,536, and the loss is NaN or inf, on any rank"),
    ):
        assert ends_after(*way, rose) == {WRITTEN["too_fast"]}


def test_who_trains_by_trainer_is_told_why_a_loss_of_nan_is_not_seen():
    transformers = pytest.importorskip("transformers")
    assert transformers.TrainingArguments("nowhere").logging_nan_inf_filter
    assert "logging_nan_inf_filter=False shows it" in symptoms.SYMPTOMS.text


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_on_fp16_weights_adam_makes_nan_of_finite_gradients_and_no_scaler_helps(kind):
    model = models.digits_classifier(16).half()
    optimizer = kind(model.parameters())
    inputs = torch.rand(8, 64, generator=torch.Generator().manual_seed(0)).half()
    loss = F.cross_entropy(model(inputs).float(), torch.arange(8))
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    optimizer.step()
    assert not all(p.isfinite().all() for p in model.parameters())
    assert WRITTEN["fp16_adam"] in ends_after("the loss is NaN or inf", "fp16, and so are the weights", "no")
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss.detach())
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        scaler.unscale_(optimizer)


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
    assert "too high for noisy ones, whose steps are too short" in WRITTEN["half_state"].cause


def test_the_cell_of_a_bf16_state_shows_that_it_gets_too_large():
    torch.manual_seed(0)
    right, bf16 = (float(each) for each in shown(WRITTEN["half_state"], without_a_scaler()).split()[-2:])
    assert right == pytest.approx(0.0169, rel=0.1)
    assert bf16 > 1.5 * right


def shown(end, script):
    """What an end's cell prints in a script."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(end.code, "<cell>", "exec"), script)
    return said.getvalue()


@pytest.mark.parametrize("kind", ["whole", "chunked", "class weights of zero"])
def test_which_cross_entropies_have_nan_gradients_where_no_label_counts(kind):
    logits, labels = torch.zeros(4, 8, requires_grad=True), torch.full((4,), -100)
    if kind == "chunked":
        if not hasattr(F, "linear_cross_entropy"):
            pytest.skip("this PyTorch has none")
        chunks = torch.nn.LinearCrossEntropyOptions()
        F.linear_cross_entropy(logits, torch.ones(5, 8), labels, options=chunks).backward()
    elif kind == "whole":
        F.cross_entropy(logits, labels).backward()
    else:
        F.cross_entropy(logits, labels + 100, weight=torch.tensor([0.0] + 7 * [1.0])).backward()
    assert (logits.grad == 0 if kind == "whole" else logits.grad.isnan()).all()


def _with_a_scale_of_its_own(scales):
    """One step of this rank under FSDP2: its checksum of the whole weights, its scale, the parting's cell."""
    script, rank = somebodys_script(), dist.get_rank()
    model, batch = script["model"], script["batch"]
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.float16, torch.float32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scales[rank])

    def train():
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(batch[0]).float(), batch[1])).backward()
        scaler.step(optimizer)
        scaler.update()

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(WRITTEN["parted"].code, {**script, "train": train, "scaler": scaler})
    return sum(p.full_tensor().double().sum().item() for p in model.parameters()), said.getvalue()


def test_under_fsdp2_scales_tell_that_ranks_have_parted_and_a_checksum_of_full_tensors_cannot():
    (one, first), (other, second) = parallel.run(_with_a_scale_of_its_own, 2, (1024.0, 2048.0))
    assert one == other
    assert "has moved: True scale: 1024.0" in first
    assert "has moved: True scale: 2048.0" in second


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
        self.frozen, self.head = (
            torch.nn.Linear(64, 16).bfloat16().requires_grad_(False),
            torch.nn.Linear(16, 8),
        )

    def forward(self, x):
        return self.head(self.frozen(x.bfloat16()).float())


@pytest.mark.parametrize("kind", [_HasADeadLayer, _InTwoDtypes])
@pytest.mark.parametrize("end", TRUE_IN_BF16, ids=lambda end: end.cause[:40])
def test_the_cell_at_an_end_bears_layers_that_are_frozen_dead_or_in_another_dtype(end, kind):
    script, model, said = without_a_scaler(), models.seeded(kind, 0), io.StringIO()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def train():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            script["loss_fn"](model(script["batch"][0]), script["batch"][1]).backward()
        optimizer.step()

    with contextlib.redirect_stdout(said):
        exec(end.code, {**script, "model": model, "optimizer": optimizer, "train": train})
    assert not re.search(r"\bnan\b", said.getvalue())


class Float8Linear(torch.nn.Linear):
    """Named as torchao's, which is a subclass as well."""


def test_linear_layers_are_found_that_were_converted_to_fp8():
    for end in (WRITTEN["fp8_outliers"], WRITTEN["fp8_small"]):
        said, script = io.StringIO(), without_a_scaler()
        script["model"] = torch.nn.Sequential(Float8Linear(64, 10))
        with contextlib.redirect_stdout(said):
            exec(end.code, script)
        assert re.search("Float8Linear.*times the median|no multiple of 16$", said.getvalue().strip())


def test_a_scale_that_begins_too_high_keeps_weights_where_they_are_until_it_has_fallen():
    def steps_until_it_moves(init_scale):
        script = somebodys_script()
        model, inputs = script["model"], script["batch"][0]
        scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
        before = model.net[0].weight.detach().clone()
        for step in range(20):
            script["optimizer"].zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = 512 * F.cross_entropy(model(inputs), script["batch"][1])
            scaler.scale(loss).backward()
            scaler.step(script["optimizer"])
            scaler.update()
            if not torch.equal(model.net[0].weight, before):
                return step
        raise AssertionError("it never moves")

    assert steps_until_it_moves(65536.0) > steps_until_it_moves(256.0) == 0
    assert WRITTEN["found"] in ends_after("the loss is flat", "not at all, and the loss scale falls")


def test_clipping_hides_from_sgd_that_a_sum_over_ranks_was_not_divided():
    def update(ranks, clip):
        weight = torch.nn.Parameter(torch.ones(4))
        weight.grad = ranks * torch.tensor([3.0, 4.0, 0.0, 12.0])
        if clip:
            torch.nn.utils.clip_grad_norm_([weight], 1.0)
        torch.optim.SGD([weight], lr=0.1).step()
        return weight.detach() - 1

    torch.testing.assert_close(update(2, clip=True), update(1, clip=True))
    torch.testing.assert_close(update(2, clip=False), 2 * update(1, clip=False))


def test_a_root_at_zero_brings_nan_to_weights_that_no_scaler_guards_at_a_loss_that_is_a_number():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    loss = weight.square().sum().sqrt()
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert weight.isnan()


def test_in_bf16_gradients_far_below_fp16s_do_not_vanish_and_move_fp32_weights():
    layer = torch.nn.Linear(4, 4)
    before = layer.bias.detach().clone()
    with torch.autocast("cpu", torch.bfloat16):
        loss = 1e-30 * layer(torch.ones(2, 4)).sum()
    loss.backward()
    assert all(p.grad.count_nonzero() == p.numel() for p in layer.parameters())
    torch.optim.SGD(layer.parameters(), lr=1e24).step()  # a step of two millionths
    assert (layer.bias != before).all()


@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 1 / 1000), (torch.float16, 1 / 5000)])
def test_what_an_average_in_16_bits_does_not_feel(dtype, share):
    weights = torch.linspace(1, 2, 3000).to(dtype)
    for sign in (1, -1):
        assert torch.equal((weights.double() * (1 + sign * share)).to(dtype), weights)
    in_fp16 = torch.linspace(1, 2, 3000).half()
    assert not torch.equal((in_fp16.double() * 1.001).half(), in_fp16)


@pytest.mark.parametrize("forgotten", [None, "the optimizer", "the schedule", "32 bits"])
def test_a_training_goes_on_as_it_was_only_if_all_of_it_was_saved(forgotten):
    def parts():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)

    def train(model, optimizer, schedule):
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()

    inputs, first, second = torch.randn(8, 4), parts(), parts()
    train(*first)
    weights, moments, rate = (part.state_dict() for part in first)
    if forgotten == "32 bits":
        weights = {name: value.bfloat16() for name, value in weights.items()}
    second[0].load_state_dict(weights)
    if forgotten != "the optimizer":
        second[1].load_state_dict(copy.deepcopy(moments))
    if forgotten != "the schedule":
        second[2].load_state_dict(rate)
    else:
        second[1].param_groups[0]["lr"] = 0.1
    train(*first)
    train(*second)
    assert torch.equal(first[0].weight, second[0].weight) == (forgotten is None)


def measured_as_the_tree_says(p, before):
    """What the two expressions in the question about movement say of a parameter."""
    (asked,) = {
        q.text for path in PATHS for q, _ in path.answered if q.text.startswith("How far do the weights")
    }
    found = re.findall(r"\(p\.float\(\) - before\)\.norm\(\)|\(p != before\)\S+mean\(\)", asked)
    assert len(found) == 2
    return [eval(each, {"p": p, "before": before}).item() for each in found]


def after_steps(dtype, lr, steps=5):
    draws = torch.Generator().manual_seed(0)
    p = torch.nn.Parameter((0.04 * torch.randn(384, 1536, generator=draws)).to(dtype))
    before, norm = p.detach().float().clone(), p.norm().item()
    adam = torch.optim.AdamW([p], lr=lr)
    for _ in range(steps):
        p.grad = torch.randn(p.shape, generator=draws).to(dtype)
        adam.step()
    return p.norm().item() - norm, *measured_as_the_tree_says(p, before)


def test_movement_is_measured_by_what_tells_a_matrix_that_learns_from_one_that_stands():
    by_norm, moved, changed = after_steps(torch.bfloat16, 3e-4)
    assert by_norm == 0, "the norm of a bf16 matrix is bf16, and this one learns"
    assert moved > 0.005 * 31, "its norm is 31"
    assert changed > 0.8
    assert after_steps(torch.bfloat16, 2e-5)[2] < 0.4, "here most updates are rounded away"
    by_norm, moved, changed = after_steps(torch.float32, 2e-5)
    assert abs(by_norm) < moved / 10, "and the norm of an fp32 matrix hardly changes as it turns"
    assert changed > 0.99


def test_after_a_quiet_time_adam_makes_up_to_three_steps_in_one_and_with_its_momentum_up_to_32():
    for quiet, in_all_of_them in ((1000, 25.3), (10_000, 31.8)):
        code, said = WRITTEN["too_fast"].code, io.StringIO()
        for old, new in ((1101, quiet + 101), (1100, quiet + 100), (1000, quiet)):
            code = re.sub(rf"\b{old}\b", str(new), code)
        with contextlib.redirect_stdout(said):
            exec(code, {"torch": torch})
        at_once, in_all = (float(each) for each in re.findall(r": ([\d.]+) times", said.getvalue()))
        assert 2 < at_once < 3.25
        assert in_all == pytest.approx(in_all_of_them, abs=0.2)
    assert "two or three times the learning rate" in WRITTEN["too_fast"].cause


def _with_a_nan_on_rank_1():
    """The loss that this rank sees, its scale after eight steps, and the dtypes of what DDP sends."""
    script, sent = somebodys_script(), set()
    model = torch.nn.parallel.DistributedDataParallel(script["model"])
    model.register_comm_hook(sent, _tells_the_dtype)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    inputs, targets = script["batch"]
    if dist.get_rank() == 1:
        inputs[0, 0] = math.nan
    for _ in range(8):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.item(), scaler.get_scale(), sorted(map(str, sent))


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
    assert "sending gradients, which autocast does not shorten under DDP" in WRITTEN["fp32_part"].cause
    falls = [path for path in PATHS if path.end is WRITTEN["always"]]
    assert len(falls) == 3
    assert all(path.answered[-1][1].text.endswith("the loss is finite, on every rank") for path in falls)
    elsewhere = "in fp16, down without end, and a rank's loss is NaN or inf"
    assert WRITTEN["in_fp32_too"] in ends_after(
        "the loss is flat", "not at all, and the loss scale falls", elsewhere
    )


def test_printing_a_full_tensor_needs_every_rank_as_the_question_says():
    layer = torch.nn.Linear(8, 8, bias=False)
    with fake_group(2) as mesh:
        fully_shard(layer, mesh=mesh)
        with CommDebugMode() as counted:
            layer.weight.full_tensor()
        assert counted.get_total_counts() == 1
    (asked,) = {
        q.text for path in PATHS for q, _ in path.answered if q.text.startswith("How far do the weights")
    }
    assert "(on every rank: both are collectives)" in asked


def test_what_makes_nan_in_fp8_that_bf16_does_not():
    assert torch.tensor(1e5).to(torch.float8_e5m2).float().isinf()
    assert torch.tensor(1e5).bfloat16().isfinite()
    zeros = torch.zeros(4)
    assert (zeros / (zeros.abs().max() / 448)).to(torch.float8_e4m3fn).float().isnan().all()
    in_fp8 = "it computes in FP8, and is worse, slower or NaN"
    assert ends_after(in_fp8, "it is NaN, and not in bf16") == {WRITTEN["fp8_nan"]}
    assert "last layers" in WRITTEN["fp8_unscaled"].cause
    assert "mostly the last ones" in text("09", "stochastic-why")


def test_the_cell_of_an_end_in_fp8_tells_a_loud_token_from_a_loud_channel_of_compiled_models_too():
    script, inputs = without_a_scaler(), torch.rand(8, 16, 64) + 1
    script["model"] = torch.compile(torch.nn.Sequential(Float8Linear(64, 16)), backend="eager")
    for loud in ((slice(None), slice(None), 5), (3, 2)):
        batch = inputs.clone()
        batch[loud] *= 1000
        script["model"](batch)
        found = shown(WRITTEN["fp8_outliers"], {**script, "batch": (batch, None)})
        channel, token = (int(each) for each in re.findall(r"'(\d+)'", found))
        assert (channel > 500) == (loud[-1] == 5)
        assert token > 500 or loud[-1] == 5


@pytest.mark.parametrize(("sides", "name"), [((1024, 4096), "small"), ((512, 8192), ""), ((4096, 512), "")])
def test_small_is_what_torchaos_filter_leaves_out(sides, name):
    found = {"torch": torch}
    exec(text("09", "choose-run").partition("\n\n\n")[0], found)
    layer = torch.nn.Linear(*reversed(sides), bias=False, device="meta")
    script = {"model": torch.nn.Sequential(layer), "batch": (torch.zeros(16), None)}
    assert shown(WRITTEN["fp8_small"], script).strip().endswith(name or str(sides))
    assert found["large"](layer, "0") == (name == "")


class _AddsALargeNumber(torch.nn.Module):
    """Its second layer is given what is left of a small number after a large one came and went."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.second(self.first(x) + 256 - 256)


def test_what_is_too_coarse_in_16_bits_is_named_first():
    said, script = io.StringIO(), without_a_scaler()
    script["model"] = models.seeded(_AddsALargeNumber, 0)
    with contextlib.redirect_stdout(said):
        exec(WRITTEN["too_coarse"].code, script)
    assert said.getvalue().split("'")[1] == "second.weight"


def _what_is_too_coarse(fsdp2):
    """How far the cell says that gradients are off, on this rank."""
    said, script = io.StringIO(), without_a_scaler()
    script["model"] = models.seeded(_AddsALargeNumber, 0)
    if fsdp2:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(script["model"], mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    with contextlib.redirect_stdout(said):
        exec(WRITTEN["too_coarse"].code, script)
    return float(said.getvalue().split("(")[1].split(",")[0])


def test_under_fsdp2_the_comparison_with_fp32_has_none_so_the_cure_says_where_to_make_it():
    whole, sharded = (parallel.run(_what_is_too_coarse, 2, fsdp2)[0] for fsdp2 in (False, True))
    assert sharded < 0.05 < 0.3 < whole, "the policy casts on both sides"
    assert "without fully_shard" in WRITTEN["too_coarse"].cure


def test_nan_asks_for_the_dtype_first():
    after_nan = symptoms.SYMPTOMS.answers[0]
    assert "NaN" in after_nan.text
    assert [answer.text for answer in after_nan.then.answers] == [
        *("fp16, with fp32 weights", "fp16, and so are the weights", "bf16", "fp32"),
        "FP8 in some layers, and in bf16 it is a number",
    ]


def test_no_question_repeats_an_answer_or_leaves_no_choice():
    for question in {id(q): q for path in PATHS for q, _ in path.answered}.values():
        texts = [answer.text for answer in question.answers]
        assert len(texts) == len(set(texts)) >= 2, question.text
        assert question.text.endswith(("?", "."))


def test_every_end_that_is_written_is_reached():
    assert {id(end) for end in WRITTEN.values()} == {id(end) for end in ENDS}


@EACH_END
def test_an_end_says_cause_cure_and_a_lesson_that_there_is(end):
    assert len(end.cause.split()) >= 8
    assert len(end.cure.split()) >= 5
    assert list((ROOT / "notebooks").glob(f"{end.lesson}_*.ipynb")), f"there is no lesson {end.lesson}"


@EACH_END
def test_the_cell_at_an_end_runs_and_shows_something(end):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(end.code, "<cell>", "exec"), somebodys_script())
    assert said.getvalue().strip()
    assert len(end.code.splitlines()) <= 8


def test_an_end_prints_its_cause_its_cure_and_its_cell_in_lines_that_fit():
    for end in ENDS:
        words, _, cell = str(end).partition("\n\n")
        assert " ".join(words.split()) == f"{end.cause} Cure: {end.cure}"
        assert cell == end.code
        assert max(map(len, words.splitlines())) <= LINE


class _Saved:
    """What stands for an activation that a graph has saved, for as long as the graph keeps it."""

    def __init__(self, tensor):
        self.tensor = tensor


def losses_that(way, model, batch, optimizer, kept):
    """Make three steps that keep their losses in one way or another."""
    for _ in range(3):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward(retain_graph=way == "keep their graphs")
        kept.append(loss)
        if way == "are of a validation with gradients":
            kept.append(F.cross_entropy(model(batch[0]), batch[1]))
        optimizer.step()


@pytest.mark.parametrize(
    ("way", "grows"),
    [("went backward", False), ("keep their graphs", True), ("are of a validation with gradients", True)],
)
def test_the_cell_at_a_full_memory_shows_what_grows_and_losses_that_went_backward_do_not(
    way, grows, monkeypatch
):
    alive, script = weakref.WeakSet(), without_a_scaler()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: len(alive))

    def saved(tensor):
        alive.add(it := _Saved(tensor))
        return it

    kept = []
    script["train"] = lambda: losses_that(way, script["model"], script["batch"], script["optimizer"], kept)
    with torch.autograd.graph.saved_tensors_hooks(saved, lambda it: it.tensor):
        exec(WRITTEN["graphs"].code, script)
    first, second, third = script["used"]
    assert (first < second < third) is grows
    assert grows or first == third
    assert re.search("without no_grad .*retain_graph", WRITTEN["graphs"].cause)


def test_adam_s_state_is_there_from_the_second_step_on_so_memory_is_full_in_the_first_or_second():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight])
    states = [len(optimizer.state)]
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
        states.append(sum(each.numel() == 4 for each in optimizer.state[weight].values()))
    assert states == [0, 2, 2]
    (asked,) = (each.then for each in symptoms.SYMPTOMS.answers if each.text == "the memory is full")
    assert {each.text: each.then for each in asked.answers}["in the first or second step"] is WRITTEN[
        "not_halved"
    ]


def test_an_inf_that_is_clipped_by_value_leaves_weights_finite_as_the_end_says_and_a_nan_does_not():
    finite = []
    for gradient in (math.inf, math.nan):
        weight = torch.nn.Parameter(torch.ones(1))
        weight.grad = torch.full((1,), gradient)
        torch.nn.utils.clip_grad_value_([weight], 1.0)
        torch.optim.SGD([weight], lr=0.1).step()
        finite.append(weight.isfinite().item())
    assert finite == [True, False]
    assert "inf was clipped to a number" in WRITTEN["unguarded"].cure
