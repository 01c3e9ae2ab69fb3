"""The switch between fp32 and TF32 leaves PyTorch's settings as it found them, whoever set them and how."""

from __future__ import annotations

import contextlib
import multiprocessing

import pytest
import torch

from amp_lessons.devices import fp32_products

matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn


def _attempt(read):
    try:
        return read()
    except RuntimeError:
        return "raises"


def _state():
    newer = (matmul, cudnn.conv, cudnn.rnn, torch.backends.mkldnn.matmul)
    older = (torch.get_float32_matmul_precision, lambda: cudnn.allow_tf32)
    return [*(each.fp32_precision for each in newer), *map(_attempt, older)]


def _in_a_process_of_its_own(check, *args, start="fork"):
    """Run ``check`` where the settings it leaves behind reach no other test; "spawn"ed, it finds defaults."""
    child = multiprocessing.get_context(start).Process(target=check, args=args)
    child.start()
    child.join()
    assert child.exitcode == 0


def _check_restored(earlier):
    exec(earlier)
    before = _state()
    for tf32 in (True, False):
        with contextlib.suppress(KeyError), fp32_products(tf32=tf32):
            inside = _state()
            raise KeyError
        assert [precision == "tf32" for precision in inside[:2]] == [tf32, tf32]
        assert "raises" not in inside
    assert _state() == before


@pytest.mark.parametrize(
    "earlier",
    [
        "",
        "torch.set_float32_matmul_precision('medium')",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "cudnn.allow_tf32 = False",
        "cudnn.conv.fp32_precision = 'ieee'",
        "torch.set_float32_matmul_precision('high'); cudnn.conv.fp32_precision = 'ieee'",
    ],
)
def test_settings_come_back_however_they_were_made(earlier):
    _in_a_process_of_its_own(_check_restored, earlier)


def _check_new_settings_restored():
    matmul.fp32_precision = "tf32"
    assert _attempt(torch.get_float32_matmul_precision) == "raises"
    assert _attempt(lambda: matmul.allow_tf32) == "raises"
    with fp32_products(tf32=False):
        assert matmul.fp32_precision == "ieee"
    assert matmul.fp32_precision == "tf32"


def test_new_settings_come_back_although_the_old_ones_cannot_be_read():
    _in_a_process_of_its_own(_check_new_settings_restored)


def _check_the_switch_for_everything(release):
    torch.backends.fp32_precision = "ieee"
    assert matmul.fp32_precision == "ieee"
    reached = [cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision]
    assert reached == (["tf32"] * 2 if release < (2, 13) else ["ieee"] * 2)


def test_the_switch_for_everything_reaches_cudnns_layers_since_2_13():
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    if release < (2, 10):
        pytest.skip("2.9 keeps its settings in another form")
    _in_a_process_of_its_own(_check_the_switch_for_everything, release, start="spawn")


def _check_cudnns_older_switch():
    assert cudnn.allow_tf32
    cudnn.conv.fp32_precision = "ieee"
    assert _attempt(lambda: cudnn.allow_tf32) == "raises"
    assert _attempt(lambda: cudnn.flags().__enter__()) == "raises"


def test_cudnns_older_switch_raises_after_the_newer_one_and_so_does_flags():
    _in_a_process_of_its_own(_check_cudnns_older_switch, start="spawn")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_tf32_changes_the_product_where_there_are_tensor_cores_for_it():
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs compute capability 8.0")
    a, b = (torch.randn(512, 512, device="cuda") for _ in range(2))
    exact = a.double() @ b.double()
    errors = {}
    for tf32 in (False, True):
        with fp32_products(tf32=tf32):
            errors[tf32] = ((a @ b).double() - exact).abs().max().item()
    assert errors[True] > 20 * errors[False]
