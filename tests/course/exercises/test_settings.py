"""Whatever the kernel's settings are, a check comes to the same verdict, and leaves them as they are."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

from amp_lessons import exercises
from amp_lessons.devices import older_setting

pytestmark = pytest.mark.slow

IDS = [exercise.id for exercise in exercises.catalog()]
TOUCHY_IDS = [
    "train_with_amp",
    "resume_training",
    "fp32_island",
    "loss_scaler",
    "round_to_bfloat16",
    "predict_dtypes",
]


@contextlib.contextmanager
def made(setter, value, default):
    setter(value)
    try:
        yield
    finally:
        setter(default)


def set_default_device(device):
    """Set it, and leave nothing where there was nothing: PyTorch 2.9 cannot ask for a default of None."""
    torch.set_default_device(device)
    if device is None:
        del torch._GLOBAL_DEVICE_CONTEXT.device_context


MATMULS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)


@contextlib.contextmanager
def precision(setter, value):
    """Choose how matrix products round; PyTorch's older switch sets the newer ones along."""
    before = [matmul.fp32_precision for matmul in MATMULS]
    setter(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        for matmul, found in zip(MATMULS, before, strict=True):
            matmul.fp32_precision = found


def tf32_by_the_newer_switch(value):
    """Make a setting after which the older one cannot be read."""
    torch.backends.cuda.matmul.fp32_precision = value


@contextlib.contextmanager
def everything():
    """Make many settings at once."""
    with contextlib.ExitStack() as stack:
        for name in SETTINGS:
            if name != "everything":
                stack.enter_context(SETTINGS[name]())
        yield


@contextlib.contextmanager
def inference_mode_with_gradients():
    with torch.inference_mode(), torch.enable_grad():
        yield


@contextlib.contextmanager
def autocast_off_within_on():
    with torch.autocast("cpu", torch.float16), torch.autocast("cpu", enabled=False):
        yield


SETTINGS = {
    "detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "detect_anomaly_without_nan": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "grad_off": lambda: made(torch.set_grad_enabled, False, True),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "gradients_in_inference_mode": inference_mode_with_gradients,
    "float64": lambda: made(torch.set_default_dtype, torch.float64, torch.float32),
    "bfloat16": lambda: made(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "meta": lambda: made(set_default_device, "meta", None),
    "with_meta": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast_without_cache": lambda: torch.autocast("cpu", torch.float16, cache_enabled=False),
    "autocast_off_within_on": autocast_off_within_on,
    "deterministic": lambda: made(torch.use_deterministic_algorithms, True, False),
    "warns_of_chance": lambda: made(torch.set_deterministic_debug_mode, "warn", "default"),
    "medium": lambda: precision(torch.set_float32_matmul_precision, "medium"),
    "tf32": lambda: precision(tf32_by_the_newer_switch, "tf32"),
    "flush_denormal": lambda: made(torch.set_flush_denormal, True, False),
    "everything": everything,
}


def settings():
    """Read every setting that the tests make, and what goes with it."""
    return {
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "forward mode": torch._C._is_fwd_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "contexts": _get_current_function_mode_stack(),
        "default context": getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None),
        "autocast": [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        "cache": torch.is_autocast_cache_enabled(),
        "nesting": (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()),
        "deterministic": torch.get_deterministic_debug_mode(),
        "precision": older_setting(torch.get_float32_matmul_precision),
        "newer precision": [matmul.fp32_precision for matmul in MATMULS],
        "denormal": torch.tensor([1e-40], device="cpu", dtype=torch.float32).mul(0.5).tolist(),
    }


def changed(before):
    """Name the settings that are not what they were."""
    return [name for name, value in settings().items() if value != before[name]]


def check_solutions(ids):
    """Return what the checks found wrong with the course's own solutions."""
    solutions = {id: exercises.solution(id).function for id in ids}
    reports = [exercises.check(id, attempt) for id, attempt in solutions.items()]
    return {report.exercise_id: report.findings[0] for report in reports if not report.passed}


@pytest.mark.few
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each == "everything" else pytest.mark.thorough) for each in SETTINGS],
)
def test_the_solutions_pass_and_the_setting_stays(name):
    outside = settings()
    with SETTINGS[name]():
        before = settings()
        assert before != outside
        found = check_solutions(IDS if name == "everything" else TOUCHY_IDS)
        after = changed(before)
    assert found == {}
    assert after == []
    assert changed(outside) == []


def leaves_inference_mode_on(gradients):
    global _kept
    _kept = torch.inference_mode()  # something must hold it: PyTorch ends it when it is collected
    _kept.__enter__()
    return 1.0


def test_a_mode_that_the_code_leaves_on_is_off_here():
    with SETTINGS["everything"]():
        before = settings()
        report = exercises.check("largest_safe_scale", leaves_inference_mode_on)
        after = changed(before)
    assert not report.passed
    assert after == []


def test_off_the_main_thread_too():
    found = []

    def work():
        with torch.no_grad(), torch.device("meta"):
            found.append(check_solutions(["train_with_amp"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found == [{}]
