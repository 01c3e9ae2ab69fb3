"""The standing check: each threshold in a run that crosses it, silence in healthy ones, nothing changed."""

from __future__ import annotations

import pickle
import warnings
from itertools import count, pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import audit
from amp_lessons.audit import PrecisionWarning
from amp_lessons.audit.rules import ROWS
from tests.audit.test_watch_changes_nothing import assert_same
from tests.audit.trainings import apply, loop, outcome, perceptron


def train(model, optimizer, scaler=None, steps=8, poison=lambda step: False, dtype=torch.float16):
    """Train under autocast; poisoned batches overflow."""
    for step in range(steps):
        inputs = torch.randn(6, 8) * (1e6 if poison(step) else 1.0)
        with torch.autocast("cpu", dtype=dtype, enabled=scaler is not None):
            loss = F.cross_entropy(model(inputs.to(model[0].weight.dtype)).float(), torch.arange(6) % 4)
        apply(loss, optimizer, scaler)


def trained(lr=0.1, dtype=torch.float32, **scale):
    """Return a model, its optimizer and a scaler."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)
    scaler = torch.amp.GradScaler("cpu", **{"init_scale": 2.0**10} | scale)
    return model, torch.optim.SGD(model.parameters(), lr=lr), scaler


def codes_of(monitor):
    return [finding.code for finding in monitor.findings]


def test_a_healthy_run_is_silent_and_looked_at_as_often_as_asked():
    model, optimizer, scaler = trained()
    with warnings.catch_warnings(), audit.monitor(model, optimizer, scaler, every=50, raises=True) as monitor:
        warnings.simplefilter("error")
        train(model, optimizer, scaler, steps=201)
    assert [look.step for look in monitor.looks] == [0, 50, 100, 150, 200]
    assert monitor.findings == ()
    assert monitor.dtypes == {torch.float32: sum(p.numel() for p in model.parameters())}
    assert {look.scale for look in monitor.looks} == {2.0**10}
    assert [look.skip_rate for look in monitor.looks] == [None, None, 0.0, 0.0, 0.0]
    assert all(look.finite and look.lost_updates < 0.05 for look in monitor.looks)


def test_weights_in_fp16_are_told_before_the_first_step():
    with pytest.warns(PrecisionWarning, match="16-bit") as told:
        monitor = audit.monitor(*trained(dtype=torch.float16))
    assert codes_of(monitor) == ["half_parameters"]
    assert told[0].message.finding.hint
    assert told[0].filename == __file__


def test_updates_that_bf16_rounds_away_are_told_and_those_of_a_larger_rate_are_not():
    for rate, wanted in ((1e-5, ["updates_rounded_away"]), (1.0, [])):
        model, optimizer, _ = trained(lr=rate, dtype=torch.bfloat16)
        with warnings.catch_warnings(), audit.monitor(model, optimizer, every=1) as monitor:
            warnings.simplefilter("ignore")
            train(model, optimizer)
        assert codes_of(monitor) == wanted
        assert (monitor.looks[-1].lost_updates > 0.5) == bool(wanted)


def test_the_threshold_of_lost_updates_is_the_given_one():
    model, optimizer, _ = trained(lr=1.0, dtype=torch.bfloat16)
    audit.monitor(model, optimizer, every=1, lost_updates=1e-6)
    with pytest.warns(PrecisionWarning, match="with a gradient as they were"):
        train(model, optimizer, steps=20)


def test_weights_in_fp32_may_stand_still():
    model, optimizer, _ = trained(lr=1e-12)
    with audit.monitor(model, optimizer, every=1, raises=True) as monitor:
        train(model, optimizer)
    assert monitor.looks[-1].lost_updates > 0.9


def test_a_third_of_all_steps_skipped_is_told_and_a_tenth_is_not():
    for nth, wanted in ((3, ["skipped_too_often"]), (10, [])):
        model, optimizer, scaler = trained(growth_interval=nth - 1)
        with warnings.catch_warnings(), audit.monitor(model, optimizer, scaler, every=10) as monitor:
            warnings.simplefilter("ignore")
            train(model, optimizer, scaler, steps=121, poison=lambda step, nth=nth: step % nth == 0)
        assert codes_of(monitor) == wanted
        assert monitor.looks[-1].skip_rate == pytest.approx(1 / nth, abs=0.01)


def test_a_run_that_skips_every_step_is_told_although_its_optimizer_hears_of_none():
    model, optimizer, scaler = trained(init_scale=2.0**16)
    with pytest.warns(PrecisionWarning) as told, audit.monitor(model, optimizer, scaler, every=1) as monitor:
        train(model, optimizer, scaler, steps=101, poison=lambda step: True)
    assert codes_of(monitor) == ["scale_fell", "always_overflows"]
    assert len(told) == 2, "each is told once"
    assert monitor.findings[0].first_step == 17, "2**16 is 1/2 after 17 halvings"
    assert not monitor._log.troubles
    assert monitor.looks[-1].lost_updates is None


def test_a_fused_step_that_skips_by_itself_counts_as_skipped():
    """PyTorch's own fused optimizers are given inf's flag, and called whatever it says."""
    model, _, scaler = trained(growth_interval=1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    assert optimizer._step_supports_amp_scaling
    with pytest.warns(PrecisionWarning), audit.monitor(model, optimizer, scaler, every=1) as monitor:
        train(model, optimizer, scaler, steps=101, poison=lambda step: step % 2 == 0)
    assert codes_of(monitor) == ["skipped_too_often"]
    assert monitor.looks[-1].skip_rate == 0.5
    assert [look.lost_updates is None for look in monitor.looks][:4] == [True, False, True, False]


def test_weights_that_are_not_finite_are_named():
    model, optimizer, _ = trained()
    monitor = audit.monitor(model, optimizer, every=1)
    train(model, optimizer, steps=2)
    with torch.no_grad():
        model[2].bias[1] = torch.inf
    with pytest.warns(PrecisionWarning, match="weights of `0` and `2` are inf or NaN"):
        train(model, optimizer, steps=1)
    assert [look.finite for look in monitor.looks] == [True, True, False]
    assert monitor.findings[0].first_step == 2


def test_statistics_that_a_skipped_step_has_left_broken_are_named():
    torch.manual_seed(0)
    model, scaler = perceptron(), torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = audit.monitor(model, optimizer, scaler, every=1)
    with pytest.warns(PrecisionWarning, match=r"1\.running_mean"):
        train(model, optimizer, scaler, steps=5, poison=lambda step: step == 2)
    assert codes_of(monitor) == ["buffers_not_finite"]
    assert monitor.findings[0].first_step == 3, "a loop might have put them back after the skipped step"


def test_it_raises_where_that_is_asked_for_and_names_the_step():
    model, optimizer, scaler = trained(init_scale=1.0)
    audit.monitor(model, optimizer, scaler, every=1, raises=True)
    with pytest.raises(PrecisionWarning, match=r"step 2: the loss scale has fallen to 0\.5") as raised:
        train(model, optimizer, scaler, poison=lambda step: step == 0)
    assert raised.value.finding.code == "scale_fell"
    assert "overflows in fp16 only above 131,008" in str(raised.value), "twice 65504"
    assert raised.value.finding.place.file.endswith("trainings.py")


def test_what_it_says_has_a_row_and_survives_a_pickle():
    with pytest.raises(PrecisionWarning) as raised:
        audit.monitor(*trained(dtype=torch.float16), raises=True)
    assert raised.value.finding.code in ROWS
    assert pickle.loads(pickle.dumps(raised.value)).finding == raised.value.finding


def test_closed_it_leaves_optimizer_and_scaler_as_they_were():
    model, optimizer, scaler = trained()
    before = dict(vars(scaler))
    monitor = audit.monitor(model, optimizer, scaler, every=1)
    train(model, optimizer, scaler, steps=2)
    monitor.close()
    monitor.close()
    train(model, optimizer, scaler, steps=2)
    assert len(monitor.looks) == 2
    assert vars(scaler).keys() == before.keys() | {"_found_inf_per_device"} & vars(scaler).keys()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_of_two_optimizers_with_one_scaler_each_has_its_own_monitor_closed_in_any_order():
    model, _, scaler = trained()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=0.1)
    monitors = [audit.monitor(model, each, scaler, every=1) for each in (first, second)]

    def step():
        scaler.scale(model(torch.randn(6, 8)).square().mean()).backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()

    step()
    assert [len(each.looks) for each in monitors] == [1, 1]
    monitors[0].close()
    step()
    assert [len(each.looks) for each in monitors] == [1, 2]
    monitors[1].close()
    step()
    assert [len(each.looks) for each in monitors] == [1, 2]


def test_without_every_it_looks_as_often_as_a_hundredth_of_the_time_allows(monkeypatch):
    """By a clock of which each reading takes a second: looking takes two, and then two hundred pass."""
    ticks = count()
    monkeypatch.setattr("amp_lessons.audit.monitoring.time.monotonic", lambda: float(next(ticks)))
    model, optimizer, _ = trained()
    with audit.monitor(model, optimizer) as monitor:
        train(model, optimizer, steps=1000)
    pauses = {later.step - look.step for look, later in pairwise(monitor.looks)}
    assert pauses == {200}, "looking took two seconds, and the clock is read once in a step"


def test_its_own_trouble_is_said_and_ends_nothing(monkeypatch):
    model, optimizer, _ = trained()
    monitor = audit.monitor(model, optimizer, every=1)
    monkeypatch.setattr(monitor, "_updates_lost", lambda lost: 1 / 0)
    with pytest.warns(RuntimeWarning, match="own trouble.*ZeroDivisionError"):
        train(model, optimizer, steps=1)


@pytest.mark.parametrize("option", [{}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_no_training_is_changed_bit_for_bit(dtype, option):
    """Weights, optimizer, scaler, losses and random numbers, of a run with dropout and an overflow."""

    def run(monitored):
        torch.manual_seed(0)
        model = perceptron()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, **option)
        scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
        if monitored:
            audit.monitor(model, optimizer, scaler, every=1)
        return outcome(loop(model, optimizer, dtype, scaler, poisoned=True), model, optimizer, scaler)

    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        assert_same(run(monitored=False), run(monitored=True))


def test_wrong_arguments_are_refused():
    model, optimizer, _ = trained()
    with pytest.raises(TypeError, match=r"model is an nn\.Module"):
        audit.monitor(optimizer, model)
    with pytest.raises(TypeError, match=r"scaler is a torch\.amp\.GradScaler, or None"):
        audit.monitor(model, optimizer, "fp16")
    with pytest.raises(ValueError, match="skip_rate is a number above 0"):
        audit.monitor(model, optimizer, skip_rate=0)
    with pytest.raises(ValueError, match="every"):
        audit.monitor(model, optimizer, every=0)


def test_accelerates_wrapped_optimizer_is_seen_through():
    accelerate = pytest.importorskip("accelerate")
    model, optimizer = accelerate.Accelerator(cpu=True).prepare(*trained()[:2])
    with audit.monitor(model, optimizer, every=1, raises=True) as monitor:
        train(model, optimizer, steps=3)
    assert len(monitor.looks) == 3
