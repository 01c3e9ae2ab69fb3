"""The precisions by name, and the names of what autocast casts to."""

from __future__ import annotations

import pytest
import torch

from amp_lessons.precisions import HALVES, PRECISIONS, precision, precision_name


def test_only_fp16_needs_a_scaler() -> None:
    assert [name for name, p in PRECISIONS.items() if p.needs_scaler] == ["fp16"]


def test_an_unknown_precision_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="unknown precision 'half'; there are fp32, tf32, fp16, bf16"):
        precision("half")


def test_the_halves_are_what_autocast_casts_to() -> None:
    for dtype in HALVES.values():
        with torch.autocast("cpu", dtype=dtype):
            assert torch.nn.functional.linear(torch.ones(1, 2), torch.ones(3, 2)).dtype is dtype
    assert {"fp16": torch.float16, "bf16": torch.bfloat16} == HALVES


def test_a_dtype_of_autocast_has_the_name_of_its_precision() -> None:
    names = [precision_name(dtype) for dtype in (None, torch.float16, torch.bfloat16)]
    assert names == ["fp32", "fp16", "bf16"]
    with pytest.raises(ValueError, match=r"casts to torch.float16 or torch.bfloat16, not to torch.int8"):
        precision_name(torch.int8)
