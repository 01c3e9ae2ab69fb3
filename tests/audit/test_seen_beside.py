"""What an audit sees beside autocast and scaler: windows, evaluation mode, weights and sums in 16 bits."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import audit
from tests.audit.plain_loops import mistakes
from tests.audit.trainings import apply, batches, loop


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def codes(report: audit.Report) -> set[str]:
    return {each.code for each in report.findings}


def accumulate(loss_of, every: int = 4, clip: bool = False, between=lambda model: None) -> audit.Report:
    with audit.watch(every=1) as seen:
        model, optimizer = trained()
        for index, (inputs, targets) in enumerate(batches(12)):
            loss_of(model(inputs), targets).backward()
            if index % every == every - 1:
                between(model)
                if clip:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
    return seen.report


# --- windows of micro-batches


@pytest.mark.parametrize("clip", [False, True])
def test_means_that_are_added_up_are_remarked_on_with_the_line_of_the_loss(clip):
    report = accumulate(lambda outputs, targets: F.cross_entropy(outputs, targets), clip=clip)
    (found,) = [each for each in report.findings if each.code == "window_added_up"]
    assert found.kind == "note"
    assert "4 losses went backward" in found.message
    assert "F.cross_entropy(outputs, targets)" in found.place.source
    assert report.passed


def divide_by_four(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad /= 4


ALRIGHT = {
    "divided": (lambda outputs, targets: F.cross_entropy(outputs, targets) / 4, {}),
    "multiplied": (lambda outputs, targets: 0.25 * F.cross_entropy(outputs, targets), {}),
    "a sum": (lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="sum"), {}),
    "divided after": (F.cross_entropy, {"between": divide_by_four}),
    "one batch a step": (F.cross_entropy, {"every": 1}),
}


@pytest.mark.parametrize("name", ALRIGHT)
def test_nothing_is_said_of_windows_that_are_divided_or_no_means(name):
    loss_of, options = ALRIGHT[name]
    assert codes(accumulate(loss_of, **options)) == set()


def test_two_losses_of_two_lines_are_no_window():
    with audit.watch(every=1) as seen:
        model, optimizer = trained()
        for inputs, targets in batches():
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            model(inputs).square().mean().backward()
            optimizer.step()
    assert codes(seen.report) == set()


def test_the_loss_of_a_step_is_the_sum_of_its_backward_passes_and_the_report_says_so():
    losses = []

    def loss_of(outputs, targets):
        losses.append(F.cross_entropy(outputs, targets) / 4)
        return losses[-1]

    report = accumulate(loss_of)
    assert [step.backwards for step in report.steps] == [4, 4, 4]
    sums = [sum(each.item() for each in losses[i : i + 4]) for i in (0, 4, 8)]
    assert [step.loss for step in report.steps] == pytest.approx(sums)
    assert "the sum of the losses of its 4 backward passes" in " ".join(str(report).split())


def test_losses_whose_gradients_are_cleared_do_not_count():
    with audit.watch(every=1) as seen:
        model, optimizer = trained()
        for inputs, targets in batches(3):
            model(inputs).square().sum().backward()
            apply(F.cross_entropy(model(inputs), targets), optimizer)
    assert [step.backwards for step in seen.report.steps] == [1, 1, 1]


def test_a_loss_scaled_by_hand_is_shown_as_it_was_before():
    with audit.watch(every=1) as seen:
        model, optimizer = trained()
        shown = []
        for inputs, targets in batches(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            shown.append(loss.item())
            (loss * 2.0**20).backward()
            for parameter in model.parameters():
                parameter.grad /= 2.0**20
            optimizer.step()
    assert [step.loss for step in seen.report.steps] == pytest.approx(shown)
    assert {step.scale for step in seen.report.steps} == {2.0**20}
    assert "loss scaled by hand" in str(seen.report)
    assert mistakes(seen.report) == set()


# --- evaluation mode


def train_in(mode: str) -> audit.Report:
    with audit.watch(every=1) as seen:
        model, optimizer = trained()
        for inputs, targets in batches(8):
            if mode == "all":
                model.eval()
            elif mode == "the norm":
                model[1].eval()
            elif mode == "between":
                model.eval()
                with torch.no_grad():
                    model(inputs)
                model.train()
            apply(F.cross_entropy(model(inputs), targets), optimizer)
    return seen.report


def test_a_model_left_in_evaluation_mode_is_told_by_its_batch_norm_alone():
    (found,) = train_in("all").findings
    assert (found.code, found.certainty) == ("evaluation_mode", "likely")
    assert "batch norm" in found.likely
    assert found.place.source == "model.eval()"


@pytest.mark.parametrize("mode", ["none", "the norm", "between"])
def test_a_frozen_norm_and_an_evaluation_in_between_are_right(mode):
    assert codes(train_in(mode)) == set()


# --- weights, decay and sums in 16 bits


def bf16_steps(lr: float, decay: float = 0.0, every: int = 1, fused: bool = False) -> audit.Report:
    with audit.watch(every=1) as seen:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64)).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay, fused=fused)
        for index in range(4 * every):
            model(torch.randn(8, 64).bfloat16()).float().square().sum().backward()
            if index % every == every - 1:
                optimizer.step()
                optimizer.zero_grad()
    return seen.report


def test_layers_that_stand_still_are_named_though_most_weights_move():
    report = bf16_steps(lr=1e-3)
    (found,) = [each for each in report.findings if each.code == "updates_rounded_away"]
    assert "half or more of the weights of 1 of 3 layers in bf16 stayed the same" in found.message
    assert "`1` among them" in found.message
    assert ".bfloat16()" in found.place.source


def test_weights_that_all_move_are_only_remarked_on():
    assert codes(bf16_steps(lr=0.1)) == {"pure_bfloat16"}


def test_decay_that_never_acts_is_remarked_on_and_one_that_does_is_not():
    before = torch.rand(1000).bfloat16() + 0.1
    assert torch.equal(before * (1 - 1e-3), before)
    assert not torch.equal(before * (1 - 1e-2), before)
    assert "decay_rounded_away" in codes(bf16_steps(lr=0.1, decay=0.01))
    assert "decay_rounded_away" not in codes(bf16_steps(lr=0.1, decay=0.1))
    assert "decay_rounded_away" not in codes(bf16_steps(lr=0.1, decay=0.01, fused=True))


@pytest.mark.parametrize(("hook", "said"), [("bf16_compress_hook", "bf16"), ("allreduce_hook", "")])
def test_a_hook_by_which_ranks_add_up_in_16_bits_is_remarked_on(hook, said, monkeypatch):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    kind = nn.parallel.DistributedDataParallel
    monkeypatch.setattr(kind, "register_comm_hook", lambda self, state, hook: None)
    with audit.watch() as seen:
        kind.register_comm_hook(SimpleNamespace(), None, getattr(default_hooks, hook))
    assert [each.code for each in seen.report.findings] == (["gradients_summed_in_half"] if said else [])
    assert said in str(seen.report)


# --- scalers, and what was asked for


@pytest.mark.parametrize(("scale", "told"), [(1.0, True), (2.0**16, False), (2.0**10, False)])
def test_a_scaler_that_begins_at_a_small_scale_is_remarked_on_where_it_was_made(scale, told):
    with audit.watch(every=1) as seen:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        loop(*trained(), torch.float16, scaler)
    found = [each.place.source for each in seen.report.findings if each.code == "scale_begins_low"]
    assert found == (['scaler = torch.amp.GradScaler("cpu", init_scale=scale)'] if told else [])


@pytest.mark.parametrize(("times", "told"), [(2.0, {"scale_reset"}), (1.0, set()), (0.5, set())])
def test_only_a_state_with_a_larger_scale_sets_a_scaler_in_use_back(times, told):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with audit.watch(every=1) as seen:
        loop(*trained(), torch.float16, scaler)
        state = scaler.state_dict()
        scaler.load_state_dict(state | {"scale": times * state["scale"]})
    assert codes(seen.report) == told


@pytest.mark.parametrize(("scale", "told"), [(2.0**10, True), (16.0, True), (8.0, False)])
def test_a_second_division_by_the_scale_is_seen_beside_an_embedding_of_which_little_is_used(scale, told):
    """The numbers by which changes are noticed are all zero in the embedding's gradient, and tell nothing.

    A division by as little as 8 may be one by the number of batches.
    """
    model = nn.Sequential(nn.EmbeddingBag(1000, 8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    with audit.watch(model, every=1) as seen:
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.full((6, 3), 999)).float().square().mean()
        scaler.scale(loss).backward()
        for parameter in model.parameters():
            parameter.grad /= scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
    assert ("unscaled_twice" in codes(seen.report)) == told


@pytest.mark.parametrize(("before", "autocast"), [(False, False), (False, True), (True, False)])
def test_amp_that_accelerate_was_asked_for_and_that_is_not_done_is_named(before, autocast, monkeypatch):
    """What it was asked for before the watch began is another training's."""
    told = {"_mixed_precision": "bf16"} if before else {}
    state = SimpleNamespace(AcceleratorState=SimpleNamespace(_shared_state=told))
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    with audit.watch(every=1) as seen:
        told["_mixed_precision"] = "bf16"
        loop(*trained(), torch.bfloat16 if autocast else None)
    assert codes(seen.report) == (set() if before or autocast else {"no_autocast"})


@pytest.mark.parametrize("fused", [False, True])
def test_an_eps_vanishes_in_fp16_weights_unless_the_optimizer_is_fused_and_adds_it_in_fp32(fused):
    with audit.watch(every=1) as seen:
        weight = nn.Parameter(torch.ones(2, dtype=torch.float16))
        optimizer = torch.optim.Adam([weight], fused=fused)
        (weight * torch.tensor([1e-3, 0.0])).sum().backward()
        optimizer.step()
    assert ("eps_vanishes" in codes(seen.report)) != fused
    assert bool(weight.isfinite().all()) == fused
    assert "half_parameters" in codes(seen.report)
