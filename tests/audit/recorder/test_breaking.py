"""What is listened to while steps are skipped is given back as it was, and changes no number."""

from __future__ import annotations

import warnings
from collections.abc import Collection

import pytest
import torch
from torch import nn

from amp_lessons import audit
from amp_lessons.audit.recorder.breaking import _SKIPPED, _listened_to

ORIGINAL = {(owner, name): getattr(owner, name) for owner, name in _listened_to()}


def is_as_it_was() -> list[str]:
    return [name for (owner, name), original in ORIGINAL.items() if getattr(owner, name) is not original]


def train(broken: Collection[int], steps: int, at_step=lambda step: None) -> list[torch.Tensor]:
    """Train in fp16, and overflow in the forward pass of some ``broken`` steps."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            outputs = model(torch.ones(3, 4)) * (1e8 if step in broken else 1.0)
            loss = outputs.float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        at_step(step)
        losses.append(loss.detach())
    return [*losses, *(each.detach() for each in model.parameters())]


def test_nothing_is_replaced_before_several_steps_were_skipped_nor_after_one_that_happened():
    heard = []
    with audit.watch():
        before = is_as_it_was()  # what the watch itself replaces, for as long as it lasts
        train(range(_SKIPPED + 2), _SKIPPED + 4, lambda step: heard.append(is_as_it_was() != before))
    skipped = [step >= _SKIPPED - 1 for step in range(_SKIPPED + 2)]
    assert heard == [*skipped, False, False]
    assert is_as_it_was() == []


@pytest.mark.parametrize(
    ("broken", "steps", "code"),
    [
        (range(12), 12, "always_overflows"),
        (range(12), 15, "always_overflows"),
        (range(1, 20, 2), 20, "skipped_too_often"),
    ],
)
def test_the_training_is_the_same_bit_for_bit(broken, steps, code):
    alone = train(broken, steps)
    with audit.watch() as seen:
        watched = train(broken, steps)
    assert all(
        torch.equal(one, other) or one.isnan().all() for one, other in zip(alone, watched, strict=True)
    )
    assert [each.code for each in seen.report.findings if not each.ok] == [code]
    assert not seen.report.not_seen
    assert is_as_it_was() == []


@pytest.mark.parametrize("use", ["script", "compile"])
def test_what_compilers_must_not_meet_is_given_back_to_them(use):
    def double(x: torch.Tensor) -> torch.Tensor:
        return torch.sub(torch.mul(x, 3.0), x)

    def at_step(step: int) -> None:
        if step == _SKIPPED:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = torch.jit.script(double) if use == "script" else torch.compile(double, backend="eager")
            assert float(made(torch.tensor(3.0))) == 6.0

    with audit.watch() as seen:
        train(range(12), 12, at_step)
    assert not [said for said in seen.report.not_seen if "trouble" in said]
    assert is_as_it_was() == []
