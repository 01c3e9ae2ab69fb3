"""What flags mean in the installed frameworks; a version in which one means something else fails here."""

from __future__ import annotations

from contextlib import nullcontext
from operator import attrgetter

import pytest
import torch
from torch import nn

from amp_lessons.autocast import fake_tensors
from amp_lessons.frameworks import FLAGS, accelerate_estimate, meaning_of

pytestmark = pytest.mark.slow

fp32, fp16, bf16 = torch.float32, torch.float16, torch.bfloat16
MODULES = {"transformers": "transformers", "accelerate": "accelerate", "lightning": "pytorch_lightning"}

# In the order of SEEN
IN_FP32 = (fp32, fp32, fp32, fp32, False, fp32, fp32)
MIXED_BF16 = (fp32, bf16, fp32, fp32, False, bf16, fp32)
MIXED_FP16 = (fp32, fp16, fp32, fp32, True, fp16, fp32)
EVERYWHERE = {
    ("transformers", "(none)"): IN_FP32,
    ("transformers", "bf16"): MIXED_BF16,
    ("transformers", "fp16_full_eval"): (*IN_FP32[:5], fp16, fp16),
    ("transformers", "bf16_full_eval"): (*IN_FP32[:5], bf16, bf16),
    ("accelerate", "no"): IN_FP32,
    ("accelerate", "bf16"): MIXED_BF16,
    ("lightning", "32-true"): IN_FP32,
    ("lightning", "bf16-mixed"): MIXED_BF16,
    ("lightning", "16-true"): (fp16, fp16, fp16, fp16, False, fp16, fp16),
    ("lightning", "bf16-true"): (bf16, bf16, bf16, bf16, False, bf16, bf16),
}
# Three flags that ask for fp16, and on a CPU get something else without an error
ON_A_CPU = {
    ("transformers", "fp16"): IN_FP32,
    ("accelerate", "fp16"): IN_FP32,
    ("lightning", "16-mixed"): MIXED_BF16,
}


SEEN = "weights compute gradients optimizer_state scaler evaluation evaluation_weights"


def meaning(framework, flag):
    pytest.importorskip(MODULES[framework])
    seen = meaning_of(framework, flag)
    assert seen.refused == ""
    return attrgetter(*SEEN.split())(seen)


@pytest.mark.few
@pytest.mark.parametrize(("framework", "flag"), EVERYWHERE)
def test_what_a_flag_means(framework, flag):
    assert meaning(framework, flag) == EVERYWHERE[framework, flag]


@pytest.mark.few
@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without a GPU")
@pytest.mark.parametrize(("framework", "flag"), ON_A_CPU)
def test_what_fp16_means_on_a_cpu(framework, flag):
    assert meaning(framework, flag) == ON_A_CPU[framework, flag]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(("framework", "flag"), ON_A_CPU)
def test_what_fp16_means_on_a_gpu(framework, flag):
    assert meaning(framework, flag) == MIXED_FP16


def other_version(framework):
    """Yield pretended new versions of a framework: a flag, and what replaces what of it."""
    if framework == "transformers":
        from transformers import Trainer

        evaluate, train = Trainer.evaluate, Trainer.train

        def without_flag(self):
            self.args.bf16_full_eval = False
            return evaluate(self)

        def converted(self):
            self.model.bfloat16()
            return train(self)

        yield "bf16_full_eval", Trainer, "evaluate", without_flag
        yield "bf16", Trainer, "train", converted
    elif framework == "accelerate":
        from accelerate import Accelerator

        yield "bf16", Accelerator, "prepare_model", lambda self, model, *args, **options: model.bfloat16()
    else:
        from pytorch_lightning.plugins import HalfPrecision, MixedPrecision

        yield "bf16-mixed", MixedPrecision, "forward_context", lambda self: nullcontext()
        yield "bf16-mixed", MixedPrecision, "val_step_context", lambda self: nullcontext()
        yield "bf16-true", HalfPrecision, "convert_module", lambda self, module: module


@pytest.mark.few
@pytest.mark.parametrize("framework", MODULES)
def test_a_version_in_which_a_flag_means_something_else_is_seen(framework, monkeypatch):
    pytest.importorskip(MODULES[framework])
    for flag, owner, name, other in other_version(framework):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, other, raising=False)
            assert meaning(framework, flag) != EVERYWHERE[framework, flag], (flag, name)


@pytest.mark.few
@pytest.mark.parametrize("framework", MODULES)
def test_weights_that_loaded_in_bf16_stay_so_under_a_mixed_flag(framework):
    pytest.importorskip(MODULES[framework])
    seen = meaning_of(framework, "bf16-mixed" if framework == "lightning" else "bf16", bf16)
    assert (seen.weights, seen.gradients, seen.optimizer_state) == (bf16, bf16, bf16)


def test_every_flag_is_tested():
    assert set(FLAGS) == {*EVERYWHERE, *ON_A_CPU}


def test_nothing_is_shown_and_random_numbers_go_on_and_an_unknown_flag_is_named(capfd):
    pytest.importorskip("accelerate")
    drawn = torch.get_rng_state()
    meaning_of("accelerate", "bf16")
    assert torch.equal(drawn, torch.get_rng_state())
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ValueError, match="unknown flag 'fp8' of 'accelerate'; there are transformers"):
        meaning_of("accelerate", "fp8")


@pytest.mark.parametrize(("precision", "said_per_weight"), [("fp32", 16), ("fp16", 8), ("bf16", 8)])
def test_accelerates_estimate_beside_ours(precision, said_per_weight):
    """Weights, gradients and two moments in fp32 are 16 bytes a weight, in mixed precision too."""
    pytest.importorskip("accelerate")
    with fake_tensors():
        model, x = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512)), torch.zeros(4, 512)
    weights = sum(each.numel() for each in model.parameters())
    estimate = accelerate_estimate(model, x, precision_name=precision)
    assert estimate.said_bytes == pytest.approx(said_per_weight * weights, rel=0.01)
    assert estimate.predicted_state_bytes == 16 * weights
    assert estimate.predicted_peak_bytes > estimate.predicted_state_bytes
    with pytest.raises(ValueError, match="one of fp32, fp16, bf16, not 'int8'"):
        accelerate_estimate(model, x, precision_name="int8")
