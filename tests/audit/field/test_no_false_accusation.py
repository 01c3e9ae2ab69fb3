"""Right trainings that look like wrong ones, and what is said of what ran."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amp_lessons import audit
from tests.audit.plain_loops import mistakes


def what_ran(report: audit.Report) -> str:
    return next(line for line in str(report).splitlines() if line.startswith("What ran"))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_what_checkpointing_switches_off_was_not_asked_for(reentrant, half):
    block, head = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*block.parameters(), *head.parameters()], 0.1)
    with audit.watch() as seen:
        for _ in range(3):
            inputs = torch.randn(4, 8, requires_grad=True)
            with torch.autocast("cpu", dtype=torch.bfloat16) if half else contextlib.nullcontext():
                loss = head(checkpoint(block, inputs, use_reentrant=reentrant)).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert what_ran(seen.report).startswith("What ran: bf16 autocast" if half else "What ran: no autocast")
    assert not mistakes(seen.report)


@pytest.mark.parametrize("way", ["with", "stack", "decorator"])
def test_what_the_script_switches_off_itself_was_asked_for(way):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss_of(inputs: Tensor) -> Tensor:
        return model(inputs).square().mean()

    with audit.watch() as seen:
        off = torch.autocast("cpu", dtype=torch.bfloat16, enabled=False)
        with contextlib.ExitStack() as stack:
            if way == "with":
                with off:
                    loss = loss_of(torch.randn(4, 8))
            elif way == "stack":
                stack.enter_context(off)
                loss = loss_of(torch.randn(4, 8))
            else:
                loss = off(loss_of)(torch.randn(4, 8))
        loss.backward()
        optimizer.step()
    assert "autocast asked for, and switched off" in what_ran(seen.report)


@pytest.mark.parametrize("what", ["loss", "method", "model"])
def test_compiled_code_may_enter_autocast_itself(what):
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer, scaler = torch.optim.AdamW(net.parameters(), 1e-3), torch.amp.GradScaler("cpu")

    class Task(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                return F.cross_entropy(self.net(inputs), labels)

    with audit.watch(net) as seen:
        task = Task()
        loss_of = {
            "loss": lambda: torch.compile(lambda *batch: task(*batch), backend="aot_eager"),
            "method": lambda: torch.compile(task.forward, backend="aot_eager"),
            "model": lambda: torch.compile(task, backend="aot_eager"),
        }[what]()
        for _ in range(6):
            optimizer.zero_grad()
            scaler.scale(loss_of(torch.randn(8, 8), torch.randint(0, 4, (8,)))).backward()
            scaler.step(optimizer)
            scaler.update()
    assert not mistakes(seen.report)
    assert "scaler on" in what_ran(seen.report)


FRAMEWORK = """
import contextlib, torch

def fit(training_step):
    with half():
        training_step()

@contextlib.contextmanager
def half():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield
"""


@pytest.mark.parametrize("whose", ["the framework's", "the script's"])
def test_a_backward_pass_in_a_context_is_a_mistake_of_who_holds_it_open(whose):
    """Lightning's manual optimization calls a whole training step under its own autocast."""
    framework: dict = {}
    exec(compile(FRAMEWORK, "/lib/python3/site-packages/framework/loop.py", "exec"), framework)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def training_step() -> None:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).float().square().mean().backward()
        optimizer.step()

    with audit.watch() as seen:
        if whose == "the framework's":
            framework["fit"](training_step)
        else:
            with framework["half"]():
                training_step()
    assert what_ran(seen.report) == "What ran: bf16 autocast, weights in fp32."
    assert mistakes(seen.report) == (set() if whose == "the framework's" else {"backward_in_autocast"})
