"""Two runs whose weights go different ways are told apart, and so is what was otherwise before any number."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_lessons import audit
from amp_lessons.audit.comparing.recording import Recording


def run(
    dtype: torch.dtype = torch.float32,
    lr: float = 1e-5,
    seed: int = 0,
    backwards: bool = False,
    scale: float | None = None,
    steps: int = 6,
) -> Recording:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
    torch.manual_seed(7)
    batches = [torch.randn(32, 16) for _ in range(steps)]
    model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    with audit.recording(model, steps=steps) as recorded:
        for x in reversed(batches) if backwards else batches:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=scale is not None):
                outputs = model(x.to(dtype)).float()
            scaler.scale((outputs - x[:, :4]).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    return recorded.recording


def test_masters_in_bf16_that_stand_still_are_told_from_masters_in_fp32():
    comparison = audit.compare(run(torch.bfloat16), run())
    assert (comparison.first, comparison.as_explained) == (None, False)
    assert comparison.moved.a < 0.5 * comparison.moved.b
    assert str(comparison).startswith("The two runs part in how far their weights move.")
    assert "the weights of the first run moved by" in " ".join(str(comparison).split())


def test_which_weights_stand_still_is_said_of_the_run_of_which_it_is_so():
    moved = audit.compare(run(lr=1e-3), run(torch.bfloat16, lr=1e-7)).moved
    assert moved.still_in_a == ()
    assert "2.weight" in moved.still_in_b


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_updates_that_arrive_go_as_far_in_either_format(dtype):
    assert not audit.compare(run(dtype, lr=3e-3), run(lr=3e-3)).moved.apart


def test_steps_that_a_scaler_skips_are_no_weights_that_stand_still():
    comparison = audit.compare(run(scale=2.0**24, lr=1e-3), run(lr=1e-3))
    assert comparison.a.skipped
    assert comparison.moved is None


def test_seeds_settings_environment_and_order_are_said_before_any_number(monkeypatch):
    one = run()
    same = audit.compare(one, run())
    assert (same.before, same.as_explained) == ((), True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        other = run(seed=1, backwards=True)
    finally:
        torch.use_deterministic_algorithms(False)
    said = audit.compare(one, other).before
    assert "CUBLAS_WORKSPACE_CONFIG: not set in the first run, :4096:8 in the second." in said
    assert "deterministic algorithms: False in the first run, True in the second." in said
    assert any("other numbers before the first step, drawn or loaded otherwise" in each for each in said)
    assert "What the model is given: the same batches, in another order, from step 1 on." in said


def test_a_cast_is_no_other_draw_and_recordings_without_settings_are_read():
    one, other = run(torch.bfloat16), run()
    before = " ".join(audit.compare(one, other).before)
    assert "as a cast may leave them" in before
    assert "given" not in before
    one.how.settings.clear()
    assert "seed" not in " ".join(audit.compare(one, other).before)
