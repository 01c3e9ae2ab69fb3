"""What advice says of small models whose troubles are known, and of what cannot be advised on."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from amp_lessons import advise, views
from amp_lessons._base.text.words import memory as in_words
from amp_lessons.advice import CannotAdviseError
from amp_lessons.advice.facts import autocast_dtype
from amp_lessons.autocast import fake_tensors
from amp_lessons.measure import GPUS, measure_memory, predict_bound, recording
from tests.measure.architectures import Made


class Energy(nn.Module):
    def forward(self, hidden):
        return hidden / (hidden * hidden).sum(-1, keepdim=True).sqrt()


def with_island():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 64), Energy(), nn.Linear(64, 4))
    model[2].weight.data.mul_(1000)
    return model


def batch():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(8, 16, generator=draw), torch.randint(0, 4, (8,), generator=draw)


def asked(model, given=None, loss=nn.functional.cross_entropy, **options):
    return advise(model, batch() if given is None else given, loss, **{"seconds": 600, "steps": 3} | options)


def claims(advice, kind):
    return [claim.text for claim in advice.verdict if claim.kind == kind]


@pytest.fixture(scope="module")
def on_t4():
    return asked(with_island(), gpu="T4")


def test_the_island_is_named_with_what_it_rests_on_and_dtype_and_memory_are_right(on_t4):
    (claim,) = [each for each in on_t4.verdict if each.kind == "mend"]
    assert (claim.text, claim.module) == ("`3` needs an island of fp32.", "model.3")
    assert "100 % off; as an island it is 0.0" in claim.because
    assert not on_t4.passed
    assert on_t4.dtype is torch.float16
    assert {name: autocast_dtype(sheet) for name, sheet in GPUS.items()}["L4"] is torch.bfloat16
    weights = sum(parameter.nbytes for parameter in with_island().parameters())
    for footprint in on_t4.memory.values():
        assert footprint.parameter_bytes == footprint.gradient_bytes == weights
        assert footprint.optimizer_bytes == 2 * weights


def test_a_large_product_is_promised_what_the_data_sheet_says():
    """Products so large that memory does not matter: the promise is the ratio of the peaks."""
    with fake_tensors():
        model, x, sheet = nn.Linear(8192, 8192, bias=False), torch.zeros(8192, 8192), GPUS["T4"]
    bounds = {name: predict_bound(model, x, sheet=sheet, precision_name=name) for name in ("fp32", "fp16")}
    flops = 2 * 2 * 8192**3  # forward, and the gradient of the weight; no gradient of the input is asked for
    assert bounds["fp32"].product_flops == {"fp32": flops}
    assert bounds["fp16"].product_flops["fp16"] == flops
    assert bounds["fp32"].product_ms == pytest.approx(flops / sheet.flop_per_s["fp32"] * 1e3)
    assert bounds["fp32"].ms / bounds["fp16"].ms == pytest.approx(65 / 8.1, rel=0.15)


def test_a_sum_is_bound_by_memory_and_a_precision_without_a_rate_is_refused():
    with fake_tensors():
        model, x, sheet = nn.Sequential(nn.LayerNorm(4096)), torch.zeros(4096, 4096), GPUS["T4"]
    bound = predict_bound(model, x, sheet=sheet)
    assert bound.product_ms == 0
    assert bound.ms == pytest.approx(bound.moved_bytes / sheet.bytes_per_s * 1e3)
    assert bound.moved_bytes > 3 * x.nbytes
    with pytest.raises(ValueError, match="T4 has no rate for bf16, only fp32, fp16"):
        predict_bound(nn.Linear(2, 2), torch.ones(2, 2), sheet=GPUS["T4"], precision_name="bf16")


def test_the_audit_is_that_of_a_copy_and_random_numbers_are_left_as_they_were():
    model = nn.Sequential(with_island(), nn.Dropout(0.5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.get_rng_state()
    advice = asked(model)
    assert len(advice.audit.steps) == 3
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), drawn)


def test_it_reads_in_every_markup(on_t4):
    bundle = on_t4._repr_mimebundle_()
    for text in bundle.values():
        for words in ("T4", "needs an island of fp32", "Memory by module", "Largest batch", "roofline"):
            assert words in text, words
    assert "<code>3</code>" in bundle["text/html"]
    page = views.advice_page(on_t4)
    assert page.startswith("<!doctype html>")
    assert page.count("<h1>") == 1
    assert "data:image/png" in page  # of the audit


def test_what_autocast_refuses_and_weights_in_16_bits_are_told_with_the_cure():
    model = nn.Sequential(nn.Linear(16, 1), nn.Sigmoid(), nn.Flatten(0))
    advice = asked(model, (torch.randn(8, 16), torch.rand(8)), nn.BCELoss())
    (claim,) = [each for each in advice.verdict if each.kind == "mend"]
    assert "binary_cross_entropy_with_logits" in claim.text + claim.because
    advice = asked(nn.Sequential(nn.Linear(16, 4)).bfloat16(), (torch.randn(8, 16).bfloat16(), batch()[1]))
    assert any("Load the weights in fp32" in text for text in claims(advice, "mend"))


def losses(output):
    """Return a model that returns two losses, as ``output`` puts them."""

    def forward(self, x):
        out = self.layer(x)
        return output(out.mean(), out.square().mean())

    return Made(forward, layer=nn.Linear(16, 4))


class Once(nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 1:
            raise RuntimeError("the cache is full")
        return super().forward(x)


class NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("not differentiable")


def two_layers(forward, width=16):
    return Made(forward, layer=nn.Linear(16, width), head=nn.Linear(width, 4))


def test_what_no_16_bit_kernel_has_is_said_once():
    def inverse(self, x):  # in no PyTorch does it take 16 bits
        return self.head(torch.linalg.inv(self.layer(x).unflatten(1, (4, 4))).flatten(1))

    advice = asked(two_layers(inverse))
    assert advice.verdict[0].text.endswith("this model does not run in autocast with bf16 as it is.")
    (text,) = claims(advice, "mend")
    assert text.startswith("By CUDA's autocast rules the model raises an error. Compute it in fp32")
    assert advice.memory.keys() == advice.largest_batch.keys() == {"fp32"}
    assert advice.audit is None
    assert len(advice.not_done) == 2


def test_what_the_ledger_cannot_follow_is_not_put_on_autocast():
    def checkpointed(self, x):
        return self.head(checkpoint(self.layer, x.requires_grad_(), use_reentrant=True))

    advice = asked(two_layers(checkpointed))
    assert claims(advice, "mend") == []
    assert any(sentence.startswith("there is no ledger") for sentence in advice.not_done)
    assert advice.audit.passed


def test_a_model_in_evaluation_mode_is_looked_at_in_training_mode_in_which_batch_norm_takes_no_batch_of_one():
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4)).eval()
    advice = asked(model)
    assert advice.passed
    assert "Call `model.train()` before you train." in claims(advice, "watch")
    assert not model.training
    assert advice.largest_batch.keys() == {"fp32", "bf16"}
    assert " or more" in str(advice)
    advice = asked(model.train())
    assert "Call `model.train()` before you train." not in claims(advice, "watch")


def test_frozen_weights_in_16_bits_lose_nothing_and_what_is_written_into_inputs_stays_in_the_copy():
    adapted = two_layers(lambda self, x: self.head(self.layer(x.add_(1).bfloat16()).float()))
    adapted.layer.bfloat16().requires_grad_(False)
    given = batch()
    advice = asked(adapted, given)
    assert advice.passed
    assert "updates are rounded" not in str(advice)
    assert torch.equal(given[0], batch()[0])


def test_weights_in_fp64_are_named_and_mended_first():
    advice = asked(nn.Sequential(nn.Linear(16, 4)).double(), (batch()[0].double(), batch()[1]))
    (text,) = claims(advice, "mend")
    assert text == "Make the model fp32 first, with `model.float()`, and what goes in too."
    assert "in fp64 without autocast" in advice.verdict[0].because


def test_a_compiled_model_is_followed_uncompiled():
    model = torch.compile(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)))
    advice = asked(model)
    assert "Time it compiled, with autocast and without." in claims(advice, "watch")
    assert advice.memory.keys() == {"fp32", "bf16"}
    assert advice.ledger.rows


def test_a_loss_that_becomes_nan_is_no_training_without_mistake():
    class Rotten(nn.Linear):
        steps = 0

        def forward(self, x):
            self.steps += torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
            return super().forward(x) + (float("nan") if self.steps > 12 else 0.0)

    advice = asked(Rotten(16, 4), steps=20)
    assert any(text.startswith("The loss became nan in step") for text in claims(advice, "mend"))


def test_products_of_an_lstm_count_in_every_precision():
    with fake_tensors():
        model = two_layers(lambda self, x: self.head(self.layer(x)[0][:, -1]), width=32)
        model.layer, x = nn.LSTM(16, 32, batch_first=True), torch.zeros(8, 5, 16)
    bounds = [predict_bound(model, x, sheet=GPUS["T4"], precision_name=name) for name in ("fp32", "fp16")]
    in_fp32, in_fp16 = (sum(bound.product_flops.values()) for bound in bounds)
    forward = 2 * 8 * (5 * 4 * 32 * (16 + 32) + 32 * 4)
    assert in_fp32 == in_fp16
    assert 2 * forward < in_fp32 <= 3 * forward  # of x no gradient is asked


@pytest.mark.parametrize("seconds", [1, 4])
def test_the_time_is_kept(seconds):
    """A transformer whose step takes a good part of that; what is not begun is said."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(16, 64, 256)
    start = time.process_time()
    advice = asked(model, (x, x), nn.MSELoss(), seconds=seconds, steps=20)
    took = time.process_time() - start
    assert took < torch.get_num_threads() * (seconds + 8)
    assert seconds > 2 or any("were over" in each or "would take" in each for each in advice.not_done)


def test_what_there_is_no_time_for_is_said():
    advice = asked(with_island(), seconds=0.01)
    assert any("the 0.01 s were over" in sentence for sentence in advice.not_done)
    assert "Not found out" in str(advice)
    assert "whether autocast with" in advice.verdict[0].text  # what is not known is no reason to say yes
    assert advice.verdict[0].text.endswith("pays for this model is not known.")


INPUTS, ENTROPY = batch()[0], nn.functional.cross_entropy
REFUSED = [
    (3, batch(), None),
    (nn.ReLU(), batch(), None),
    (nn.Linear(16, 4).requires_grad_(False), batch(), None),
    (nn.Linear(16, 4, device="meta"), batch(), None),
    (nn.LazyLinear(4), batch(), None),
    (nn.Linear(16, 4), "text", None),
    (nn.Linear(16, 4), batch(), 5),
    (nn.Linear(8, 4), batch(), ENTROPY),
    (nn.Linear(16, 4), INPUTS, None),
    (nn.Linear(16, 4), INPUTS, lambda output, target: output.argmax()),
    (nn.Linear(16, 4), INPUTS, lambda output, target: output.mean().detach()),
    (nn.Linear(16, 4), INPUTS, lambda output, target: output.mean().abs() / 0),
    (nn.Linear(16, 4), INPUTS, lambda output, target: 1.0),
    (losses(lambda *each: each), INPUTS, None),
    (losses(lambda *each: dict(zip("ab", each, strict=True))), INPUTS, None),
    (Once(16, 4), batch(), ENTROPY),
    (nn.Linear(16, 4), INPUTS, lambda output, target: NoWayBack.apply(output).mean()),
    (nn.Linear(16, 4), INPUTS, lambda output, target: (output * 0).sum().sqrt()),
    (losses(lambda *each: "nothing"), INPUTS, None),
]
NONSENSE = [{"gpu": "RTX 1"}, {"steps": 0}, {"seconds": -1}, {"optimizer": 3}, {"context": 0}]


def test_what_cannot_be_advised_on_gets_a_sentence(golden):
    refusals = []
    asked_for = [(each, {}) for each in REFUSED] + [((3, INPUTS, None), each) for each in NONSENSE]
    for given, options in asked_for:
        with pytest.raises((TypeError, ValueError)) as caught:
            advise(*given, **options)
        refusals.append(f"{type(caught.value).__name__}: {caught.value}")
    since_2_15 = "RuntimeError: addmm: "
    golden("refusals.txt", "\n".join(refusals).replace(since_2_15, "RuntimeError: "))
    with pytest.raises(TypeError, match=r"what amp_lessons\.advise returns"):
        views.advice_page("text")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("script", [torch.jit.script, lambda model: torch.jit.trace(model, batch()[0])])
def test_what_is_scripted_gets_a_sentence(script):
    for model in (script(nn.Linear(16, 4)), nn.Sequential(script(nn.Linear(16, 4)))):
        with pytest.raises(CannotAdviseError, match=r"is scripted .* give the module that it was made from"):
            advise(model, batch(), nn.functional.cross_entropy)


def test_the_loss_of_a_single_step_went_nowhere_also_where_the_batch_is_its_own_target():
    said = " ".join(str(asked(nn.Linear(16, 16), INPUTS, nn.MSELoss(), steps=1)).split())
    assert "One step of training" in said
    assert "the loss was " in said
    assert "the loss went from" not in said


def as_given(output, _):
    return output


def of_memory(advice):
    (section,) = [section for section in advice.sections if section.title == "Memory"]
    return section


def test_images_in_a_list_are_counted_by_the_list():
    """As torchvision's detectors take them, of several sizes."""

    def forward(self, images):
        return torch.stack([self.layer(image[None]).mean() for image in images]).mean()

    images = [torch.randn(3, 16, 16), torch.randn(3, 20, 16)]
    advice = asked(Made(forward, layer=nn.Conv2d(3, 4, 3)), ((images,), None), as_given, steps=1)
    assert "A training step on 2 samples" in of_memory(advice).sentences[0]
    assert not advice.largest_batch
    assert "the largest batch was not looked for: its samples come in a list" in advice.not_done


def test_two_tensors_are_no_list_of_samples():
    model = Made(lambda self, one, other: self.layer(one, other).mean(), layer=nn.Bilinear(4, 4, 1))
    advice = asked(model, ((torch.randn(3, 4), torch.randn(3, 4)), None), as_given, steps=1)
    assert not [each for each in advice.not_done if "its samples come in a list" in each]


def test_what_a_step_takes_on_the_cpu_is_said_where_it_is_not_what_a_gpu_takes():
    def attend(self, x):
        query, key, value = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1).mean()

    model, x = Made(attend, qkv=nn.Linear(16, 48)), torch.randn(2, 256, 16)
    advice = asked(model, ((x,), None), as_given, steps=1)
    here = measure_memory(model, x, optimizer=torch.optim.AdamW).peak_bytes
    assert here > 1.1 * advice.memory["fp32"].peak_bytes
    assert f"On this CPU the same step takes {in_words(here)} in fp32" in of_memory(advice).sentences[0]
    plain = asked(nn.Linear(16, 4), steps=1, optimizer=lambda each: torch.optim.SGD(each, lr=0.1))
    assert "On this CPU" not in of_memory(plain).sentences[0]
    assert "What kernels allocate inside themselves is not counted." in of_memory(plain).sentences[0]


def test_what_each_precision_takes_at_its_peak_adds_up():
    """Also where one peak lies in the optimizer's step, and the other in the backward pass."""
    layers = [nn.Linear(512, 512, bias=False) for _ in range(2)]
    for rows in (4, 4000):
        x = torch.randn(rows, 512)
        advice = asked(nn.Sequential(*layers), (x, x), nn.MSELoss(), steps=1)
        *kinds, whole = of_memory(advice).table.records
        for name, footprint in advice.memory.items():
            listed = [in_words(nbytes) for nbytes in footprint.at_peak.values() if nbytes]
            assert sorted(listed) == sorted(each[name] for each in kinds if each[name] != "0 bytes")
            assert whole[name] == in_words(footprint.peak_bytes)


def test_a_step_is_followed_once_in_each_precision_and_once_on_a_batch_that_fits(monkeypatch):
    followed, follow_step = [], recording.follow_step

    def follow(prepared, *args, **options):
        followed.append((prepared.dtype, len(prepared.args[0][0])))
        return follow_step(prepared, *args, **options)

    monkeypatch.setattr(recording, "follow_step", follow)
    advice = asked(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), steps=1)
    for dtype, found in zip((None, torch.bfloat16), advice.largest_batch.values(), strict=True):
        given, far = (rows for of, rows in followed if of is dtype)
        assert given == 8
        assert found.batch <= far * 9 // 8
        assert len(found.tried) > 2


def test_a_decoder_that_tells_nothing_of_itself_is_told_what_serving_takes():
    def write(self, input_ids, labels=None, use_cache=False):
        hidden = self.embedding(input_ids)
        scores = self.head(hidden)
        if labels is not None:
            return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())}
        return SimpleNamespace(logits=scores, past_key_values=[hidden])

    model = Made(write, embedding=nn.Embedding(20, 8), head=nn.Linear(8, 20))
    ids = torch.randint(0, 20, (2, 6))
    advice = asked(model, {"input_ids": ids, "labels": ids}, None, steps=1, context=50)
    assert advice.decoding.cached == 50 * 8
    titles = [section.title for section in advice.sections]
    assert titles[-2:] == ["Decoding on the A100 SXM 40 GB", "Decoding in 16 bits, by GPU"]
    assert "For a token after 50 others" in str(advice).replace("\n  ", " ")


def test_of_decoding_nothing_is_said_unless_it_is_asked():
    assert asked(with_island(), steps=1).decoding is None
    assert "ecoding" not in str(asked(with_island(), seconds=0.01))
    asked_for = asked(with_island(), steps=1, context=50)
    assert any(each.startswith("what decoding takes is not known") for each in asked_for.not_done)
