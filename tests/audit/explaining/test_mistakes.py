"""What PyTorch says of a real mistake is known, and what the cure recommends runs in silence."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import audit
from tests.audit.explaining import mistakes_with_dtypes as dtypes
from tests.audit.explaining import mistakes_with_kernels as kernels
from tests.audit.explaining.mistakes_with_scalers import MISTAKES as WITH_SCALERS
from tests.audit.explaining.provoking import Mistake, Training, heard

MISTAKES = (
    *WITH_SCALERS,
    *dtypes.AUTOCAST,
    *dtypes.DTYPES,
    *dtypes.NUMBERS,
    *kernels.ATTENTION,
    *kernels.COMPLEX,
    *kernels.TWO_DTYPES,
    *kernels.WHOLE_NUMBERS,
    *(dtypes.GROUPED if hasattr(F, "grouped_mm") else ()),  # not in PyTorch 2.9
    *(dtypes.GRADIENTS if hasattr(torch.Tensor, "grad_dtype") else ()),  # not in PyTorch 2.9
    *(dtypes.ADDED if hasattr(F, "scaled_addmm") else ()),  # from 2.15 on
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_explained(mistake: Mistake):
    said = heard(mistake.made)
    assert said, "PyTorch says nothing of it any more"
    assert mistake.name in {audit.explain(each).name for each in said}, said


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_its_cure_runs_and_nothing_is_left_to_explain(mistake: Mistake):
    said = heard(mistake.cured)
    assert not [each for each in said if not isinstance(each, Warning)]
    assert not [each for each in said if audit.explain(each).known]


def test_a_scaler_for_cuda_on_a_machine_without_is_off_and_the_warning_is_explained():
    if torch.cuda.is_available():
        pytest.skip("CUDA is available")
    said = heard(lambda: [torch.amp.GradScaler(), torch.autocast("cuda")])
    assert [audit.explain(each).name for each in said] == ["scaler_off", "autocast_off_without_cuda"]


def test_a_loop_that_dies_in_its_own_words_is_explained_by_what_it_died_of():
    def train():
        try:
            Training(torch.nn.Linear(4, 4).half()).backward(torch.ones(2, 4).half()).unscale()
        except ValueError as error:
            raise RuntimeError("training failed in epoch 3") from error

    [error] = heard(train)
    assert audit.explain(error).name == "fp16_gradients"


def _what_is_said_of_mixed_switches() -> list[str]:
    def mix():
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.get_float32_matmul_precision()

    def mix_in_cudnn():
        torch.backends.cudnn.rnn.fp32_precision = "ieee"
        _ = torch.backends.cudnn.allow_tf32

    return [audit.explain(each).name for make in (mix, mix_in_cudnn) for each in heard(make)]


def test_old_and_new_switches_for_tf32_mixed_are_explained():
    with multiprocessing.get_context("fork").Pool(1) as child:  # the settings stay as they are here
        assert child.apply(_what_is_said_of_mixed_switches) == ["old_and_new_switches"] * 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_what_only_a_gpu_says_is_explained():
    probabilities = torch.full((4,), 0.5, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        [unsafe] = heard(lambda: torch.nn.functional.binary_cross_entropy(probabilities, probabilities))
    assert audit.explain(unsafe).name == "unsafe_to_autocast"
    [full] = heard(lambda: torch.empty(2**45, device="cuda"))
    assert audit.explain(full).name == "out_of_memory"
