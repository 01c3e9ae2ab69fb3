"""Code that is scripted while an audit watches: TorchScript's compiler finds what it finds without one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons import audit


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
