"""What a remark says is true on the machine that the learner sits at."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import exercises
from amp_lessons.course.exercises.fp32_island import attempts as fp32_island
from amp_lessons.course.exercises.train_with_amp import attempts as train_with_amp
from amp_lessons.course.exercises.two_optimizers import attempts as two_optimizers

without_a_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="here cuda is the device there is")
CUDA = [
    (fp32_island.TABLE, "torch.autocast(x.device.type,"),
    (train_with_amp.TABLE, "torch.autocast(device_type,"),
    (two_optimizers.TABLE, "torch.autocast(device_type,"),
]


def with_cuda(table, autocast):
    source = exercises.solution(table.exercise_id).source
    return table.defined(source.replace(autocast, "torch.autocast('cuda',"))


@without_a_gpu
@pytest.mark.parametrize(("table", "autocast"), CUDA, ids=lambda value: getattr(value, "exercise_id", ""))
def test_who_asks_for_cuda_is_told_that_the_check_took_another_device(table, autocast):
    report = exercises.check(table.exercise_id, with_cuda(table, autocast))
    (remark,) = [finding for finding in report.findings if finding.kind == "note"]
    assert report.passed
    assert remark.code == "hard_coded_device"
    assert "without a GPU" in remark.message
    assert "here the check used the device there is" in remark.message
    assert remark.hint


@without_a_gpu
@pytest.mark.parametrize(("table", "autocast"), CUDA[1:], ids=lambda value: getattr(value, "exercise_id", ""))
def test_what_held_is_said_of_the_device_that_the_check_took(table, autocast):
    report = exercises.check(table.exercise_id, with_cuda(table, autocast))
    found = {finding.code: finding.message for finding in report.findings}
    assert "under autocast (for cpu instead of cuda) in the dtype asked for" in found["precision"]
    report = exercises.check(table.exercise_id, table.defined(exercises.solution(table.exercise_id).source))
    assert not any("cuda" in finding.message for finding in report.findings)


@without_a_gpu
def test_who_names_no_device_for_the_scaler_is_not_said_to_have_named_cuda():
    table = train_with_amp.TABLE
    source = exercises.solution(table.exercise_id).source
    report = exercises.check(
        table.exercise_id, table.defined(source.replace("Scaler(device_type, ", "Scaler("))
    )
    found = {finding.code: finding.message for finding in report.findings}
    assert "`GradScaler()` without a device means cuda whatever device_type" in found["hard_coded_device"]
    assert "would only warn and switch the scaler off" in found["hard_coded_device"]
    assert "(for cpu instead of cuda)" in found["scaling"]


def energy_dtypes(forward):
    """Return what the matrix product within normalise gives, under autocast outside a check."""
    seen = []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = torch.nn.Linear(8, 32), torch.nn.Linear(32, 4)

        def normalise(self, hidden):
            seen.append((hidden @ hidden.T).dtype)
            return hidden

    Model.forward = forward
    with torch.autocast("cpu", torch.bfloat16):
        Model()(torch.ones(2, 8))
    return seen


@without_a_gpu
def test_an_island_for_cuda_is_none_on_a_cpu_and_the_report_says_so():
    forward = with_cuda(*CUDA[0])
    assert energy_dtypes(forward) == [torch.bfloat16]
    found = {finding.code: finding.message for finding in exercises.check("fp32_island", forward).findings}
    assert "switches nothing off, and normalise would run in 16 bits" in found["hard_coded_device"]


@without_a_gpu
@pytest.mark.parametrize("name", ["the_solution", "switched_off_for_both_devices"])
def test_an_island_for_the_device_of_x_or_for_both_is_one_and_needs_no_remark(name):
    _, forward = fp32_island.TABLE.right[name]
    assert energy_dtypes(forward) == [torch.float32]
    found = {finding.code: finding.message for finding in exercises.check("fp32_island", forward).findings}
    assert "hard_coded_device" not in found
