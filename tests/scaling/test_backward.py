"""Real backward passes under a loss scale, against plain PyTorch and against brute force."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

from amp_lessons.autocast.running import AlikeDropout
from amp_lessons.scaling import (
    FATES,
    LossScaleProbe,
    backward_at,
    backward_by_layer,
    census,
    gradients,
)


def perceptron(*extra):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *extra, nn.ReLU(), nn.Linear(8, 3))


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 6, generator=generator), torch.tensor([0, 1, 2, 0, 1])


def scaled_by(factor):
    return lambda output, target: factor * cross_entropy(output, target)


def plain_fp32(model, loss_fn=cross_entropy):
    inputs, targets = batch()
    return list(torch.autograd.grad(loss_fn(model(inputs), targets), list(model.parameters())))


def real_scaled(model, loss_fn, scale, dtype):
    inputs, targets = batch()
    with torch.autocast("cpu", dtype):
        loss = loss_fn(model(inputs), targets)
    (loss * scale).backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def compared_by_hand(true, scaled, dtype):
    g, r = (torch.cat([each.flatten() for each in those]) for those in (true, scaled))
    tiny, at_stake = torch.finfo(dtype).smallest_normal, g.isfinite() & (g != 0)
    classes = {
        "zero": g == 0,
        "underflowed": at_stake & (r == 0),
        "subnormal": at_stake & (r.abs() > 0) & (r.abs() < tiny),
        "normal": at_stake & (r.abs() >= tiny) & r.isfinite(),
        "overflowed": at_stake & ~r.isfinite(),
        "nonfinite": ~g.isfinite(),
    }
    return {name: int(those.sum()) for name, those in classes.items()}


def counts_of(found):
    return {name: getattr(found, name) for name in ("zero", *FATES, "nonfinite")}


def test_true_gradients_are_those_of_plain_pytorch():
    model = perceptron()
    found = gradients(model, batch(), cross_entropy)
    assert list(found) == ["0", "2"]
    expected = plain_fp32(model)
    assert torch.equal(found["0"], torch.cat([expected[0].flatten(), expected[1]]))
    assert torch.equal(found["2"], torch.cat([expected[2].flatten(), expected[3]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**14, 2.0**30, 3.0])
def test_every_gradient_is_compared_with_what_a_real_pass_makes_of_it(dtype, scale):
    model, loss_fn = perceptron(), scaled_by(1e-5)
    expected = compared_by_hand(plain_fp32(model, loss_fn), real_scaled(model, loss_fn, scale, dtype), dtype)
    found = backward_at(model, batch(), loss_fn, scale, dtype)
    assert counts_of(found) == expected
    assert (found.dtype, found.scale) == (dtype, scale)
    assert found.total == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("scale", [1.0, 2.0**10])
def test_the_norm_that_vanishes_is_that_of_the_true_gradients_that_came_out_as_zero(scale):
    model, loss_fn = perceptron(), scaled_by(1e-5)
    true = torch.cat([g.flatten() for g in plain_fp32(model, loss_fn)]).double()
    zero = torch.cat([g.flatten() for g in real_scaled(model, loss_fn, scale, torch.float16)]) == 0
    found = backward_at(model, batch(), loss_fn, scale)
    assert found.underflow_norm_fraction == pytest.approx((true[zero].norm() / true.norm()).item())


def test_binades_are_those_of_the_true_gradient_at_every_scale_and_dtype():
    model, loss_fn = perceptron(), scaled_by(1e-6)
    expected = census(plain_fp32(model, loss_fn)).binades
    for scale, dtype in [(1.0, torch.float16), (2.0**20, torch.float16), (2.0**40, torch.bfloat16)]:
        assert backward_at(model, batch(), loss_fn, scale, dtype).binades == expected


def test_fp32_means_no_autocast():
    model = perceptron()
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    found = backward_at(model, batch(), cross_entropy, 2.0**10, torch.float32)
    assert set(seen) == {torch.float32}
    assert found.normal == found.total - found.zero
    backward_at(model, batch(), cross_entropy, 2.0**10, torch.bfloat16)
    assert torch.bfloat16 in seen


def test_layers_come_in_order_and_add_up():
    model = perceptron(nn.BatchNorm1d(8))
    layers = backward_by_layer(model, batch(), cross_entropy, 4.0)
    assert list(layers) == ["0", "1", "3"]
    whole = backward_at(model, batch(), cross_entropy, 4.0)
    assert sum(layer.total for layer in layers.values()) == whole.total
    assert layers["0"] + layers["1"] + layers["3"] == whole


def test_parameters_of_the_model_itself_are_named_after_it():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(6))

        def forward(self, x):
            return x * self.factor

    inputs, _ = batch()
    assert list(gradients(Scale(), (inputs, inputs + 1), mse_loss)) == ["Scale"]


def test_frozen_parameters_do_not_count_and_unused_ones_have_a_zero_gradient():
    model = perceptron()
    model[0].requires_grad_(False)
    model.register_module("unused", nn.Linear(2, 2))
    model.forward = lambda x: model[2](model[1](model[0](x)))
    layers = backward_by_layer(model, batch(), cross_entropy, 1.0)
    assert list(layers) == ["2", "unused"]
    assert (layers["unused"].zero, layers["unused"].total) == (6, 6)


class Bag(nn.Module):
    """Look rows up, one of them twice, and take their mean."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.Embedding(10, 4, sparse=sparse)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.rows(x).mean(1))


def test_of_a_sparse_gradient_the_rows_that_were_looked_up_count_once():
    looked_up = torch.tensor([[1, 7], [7, 2]])
    examples = looked_up, torch.tensor([0, 2])
    dense, sparse = (gradients(Bag(kind), examples, cross_entropy) for kind in (False, True))
    assert torch.equal(sparse["rows"], dense["rows"].view(10, 4)[[1, 2, 7]].flatten())
    assert torch.equal(sparse["head"], dense["head"])
    for scale in (1.0, 2.0**30):
        of_dense, of_sparse = (
            backward_at(Bag(kind), examples, scaled_by(1e-5), scale) for kind in (False, True)
        )
        assert counts_of(of_sparse) == counts_of(of_dense) | {"zero": of_dense.zero - 7 * 4}
        assert of_sparse.total == 3 * 4 + 4 * 3 + 3


def test_what_dropout_drops_is_drawn_in_fp32_whatever_the_dtype():
    x = torch.randn(1000)
    for drop in (F.dropout, torch.dropout, F.alpha_dropout):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            torch.manual_seed(3)
            expected = drop(x.to(dtype).float(), 0.3, True).to(dtype)
            torch.manual_seed(3)
            with AlikeDropout():
                assert torch.equal(drop(x.to(dtype), 0.3, True), expected)
    with AlikeDropout(none=True):
        assert torch.equal(F.dropout(input=x, p=0.3), x)


def test_attention_drops_nothing_for_its_kernels_draw_by_themselves():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 8, 16)
    expected = F.scaled_dot_product_attention(q, q, q)
    with AlikeDropout():
        assert torch.equal(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), expected)
        assert torch.equal(F.scaled_dot_product_attention(q, q, q, None, 0.5), expected)


def state_of(model):
    return {
        "gradients": [None if p.grad is None else p.grad.clone().tolist() for p in model.parameters()],
        "weights": [p.tolist() for p in model.parameters()],
        "buffers": {name: buffer.tolist() for name, buffer in model.named_buffers()},
        "buffer identities": [id(buffer) for buffer in model.buffers()],
        "training": [module.training for module in model.modules()],
        "random state": torch.get_rng_state().tolist(),
        "grad mode": torch.is_grad_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
    }


def boom(output, target):
    raise ArithmeticError("boom")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("loss_fn", [cross_entropy, boom])
def test_nothing_is_left_behind(training, loss_fn):
    model = perceptron(nn.BatchNorm1d(8), nn.Dropout(0.5)).train(training)
    cross_entropy(model(batch()[0]), batch()[1]).backward()
    before = state_of(model)
    try:
        backward_at(model, batch(), loss_fn, 2.0**16)
    except ArithmeticError:
        assert loss_fn is boom
    assert state_of(model) == before


def test_the_batch_survives_a_model_that_works_in_place():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))
    inputs, targets = batch()
    backward_at(model, (inputs, targets), cross_entropy, 1.0)
    assert torch.equal(inputs, batch()[0])


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)],
    ids=lambda m: type(m),
)
def test_the_mode_of_the_caller_makes_no_difference(mode):
    model, expected = perceptron(), backward_at(perceptron(), batch(), cross_entropy, 8.0)
    true = gradients(model, batch(), cross_entropy)
    with mode:
        assert backward_at(model, batch(), cross_entropy, 8.0) == expected
        again = gradients(model, batch(), cross_entropy)
    assert all(torch.equal(again[layer], true[layer]) for layer in true)


def test_weights_cast_by_the_callers_autocast_are_neither_used_nor_replaced():
    model = perceptron()
    inputs, _ = batch()
    with torch.autocast("cpu", torch.bfloat16):
        model(inputs)
        backward_at(model, batch(), cross_entropy, 8.0, torch.float16)
        assert model(inputs).dtype == torch.bfloat16


def test_a_loss_in_fp16_is_scaled_as_grad_scaler_does():
    def half_loss(output, target):
        return output.square().mean() if output.dtype == torch.float16 else mse_loss(output, 0 * output)

    found = backward_at(perceptron(), batch(), half_loss, 2.0**17)
    assert found.overflowed > 0  # the seed of the backward pass is the scale, cast to fp16


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (nn.ReLU(), ValueError, "no parameter that requires a gradient"),
        (perceptron().requires_grad_(False), ValueError, "no parameter that requires a gradient"),
        (perceptron().half(), ValueError, r"0\.weight is torch\.float16"),
        (lambda x: x, TypeError, r"torch\.nn\.Module, not function"),
        (nn.DataParallel(perceptron()), ValueError, r"nn\.DataParallel.* give .*model\.module"),
    ],
)
def test_a_model_that_cannot_be_trained_is_explained(model, error, message):
    with pytest.raises(error, match=message):
        backward_at(model, batch(), cross_entropy, 1.0)
    with pytest.raises(error, match=message):
        LossScaleProbe(model, batch(), cross_entropy)  # before it runs anything


class Checkpointed(nn.Module):
    """Compute the second layer's activations again in the backward pass."""

    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.reentrant = nn.Linear(6, 8), nn.Linear(8, 3), reentrant

    def forward(self, x):
        return checkpoint(self.second, self.first(x), use_reentrant=self.reentrant)


def test_a_reentrant_checkpoint_is_named_and_the_other_kind_counts():
    model = Checkpointed(reentrant=True)
    before = state_of(model)
    with pytest.raises(ValueError, match="use_reentrant=False"):
        backward_at(model, batch(), cross_entropy, 1.0)
    assert state_of(model) == before
    model.reentrant = False
    found = gradients(model, batch(), cross_entropy)
    assert torch.equal(torch.cat(list(found.values())), torch.cat([g.flatten() for g in plain_fp32(model)]))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ((torch.ones(2, 6),), TypeError, "a pair"),
        ((torch.empty(0, 6), torch.empty(0, dtype=torch.long)), ValueError, "empty"),
    ],
)
def test_a_batch_that_is_none_is_explained(wrong, error, message):
    with pytest.raises(error, match=message):
        backward_at(perceptron(), wrong, cross_entropy, 1.0)
    with pytest.raises(error, match=message):
        LossScaleProbe(perceptron(), wrong, cross_entropy)


@pytest.mark.parametrize(
    ("loss_fn", "error", "message"),
    [
        (lambda output, target: output, ValueError, "one number"),
        (lambda output, target: 3.0, TypeError, "returns a tensor, not float"),
        (lambda output, target: output.detach().sum(), ValueError, "does not depend"),
    ],
)
def test_a_loss_that_is_none_is_explained(loss_fn, error, message):
    with pytest.raises(error, match=message):
        backward_at(perceptron(), batch(), loss_fn, 1.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_named():
    with pytest.raises(RuntimeError, match="needs a GPU"):
        backward_at(perceptron(), batch(), cross_entropy, 1.0, device_type="cuda")


def test_a_torch_device_names_its_type():
    expected = backward_at(perceptron(), batch(), cross_entropy, 1.0, device_type="cpu")
    assert backward_at(perceptron(), batch(), cross_entropy, 1.0, device_type=torch.device("cpu")) == expected
    with pytest.raises(ValueError, match='the model is on "cpu", not on "mps"'):
        backward_at(perceptron(), batch(), cross_entropy, 1.0, device_type=torch.device("mps:0"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_the_scale_cures_underflow_and_nothing_is_left_behind():
    model, loss_fn = perceptron(nn.Dropout(0.5)).cuda(), scaled_by(1e-7)
    on_gpu = tuple(part.cuda() for part in batch())
    random_state = torch.cuda.get_rng_state()
    unscaled, scaled = (backward_at(model, on_gpu, loss_fn, 2.0**k) for k in (0, 20))
    assert unscaled.underflow_fraction > 0.5
    assert scaled.underflowed == 0
    assert torch.equal(torch.cuda.get_rng_state(), random_state)
    assert all(p.grad is None for p in model.parameters())
