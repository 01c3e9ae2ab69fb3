"""What is seen beside compiled code, and that TorchScript's compiler finds what it finds without a watch."""

from __future__ import annotations

import io

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from amp_lessons import audit
from tests.audit.plain_loops import as_script, mistakes


def train() -> None:
    """Train one step, average in bf16, and write a checkpoint without the scaler's state."""
    model = nn.Linear(8, 4)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    average = AveragedModel(model.to(torch.float32)).to(torch.bfloat16)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(compiled(torch.randn(6, 8)), torch.randint(0, 4, (6,)))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    average.update_parameters(model)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())


@pytest.fixture
def report():
    def of_training() -> audit.Report:
        torch.manual_seed(0)
        with audit.watch() as seen:
            as_script(train)()
        return seen.report

    return of_training


def test_checkpoints_and_averages_are_seen_beside_a_compiled_model(report):
    seen = report()
    assert any("compiled code" in each for each in seen.not_seen)
    assert {"scaler_not_saved", "average_stuck"} <= mistakes(seen)


def test_a_compiler_that_is_switched_off_compiles_nothing(report, monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    assert report().not_seen == ()


# --- scripted while an audit watches


def doubled(x: Tensor) -> Tensor:
    return x * 2.0


def helped(x: Tensor) -> Tensor:
    return F.softmax(torch.nan_to_num(doubled(x)), dim=-1)


class Kept:
    """Holds what a function of this module makes of a tensor."""

    def __init__(self, x: Tensor) -> None:
        self.x = doubled(x)


def with_helper(x: Tensor) -> Tensor:
    return torch.jit.script(helped)(x)


def with_class(x: Tensor) -> Tensor:
    return torch.jit.script(Kept)(x).x


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is")
@pytest.mark.parametrize("scripted", [with_helper, with_class])
def test_scripting_finds_helpers_and_functions_of_pytorch_as_without_a_watch(scripted):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    with audit.watch() as seen:
        result = scripted(x)
        spied = torch.nan_to_num
    assert torch.equal(result, scripted(x))
    assert seen.report.ended == ""
    assert spied is not torch.nan_to_num  # and afterwards the watch goes on
