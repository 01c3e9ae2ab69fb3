"""What lessons and quizzes say in words, where no cell computes it: a test fails if the words are false."""

from __future__ import annotations

import dataclasses
import re
import warnings
from datetime import datetime, timedelta, timezone
from itertools import cycle, islice

import pytest
import torch
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import autocast, bench, clinic, data, encoder, formats, measure, models, parallel, scaling
from amp_lessons.autocast import fake_tensors
from amp_lessons.measure import operations
from tests.test_packaging import ROOT


@pytest.fixture(scope="module")
def first_batch():
    return data.batches(data.digits().train, batch_size=64)[0]


def gradient(model, batch, dtype=None):
    inputs, targets = batch
    model.zero_grad()
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = cross_entropy(model(inputs), targets)
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def relus(model):
    return [layer for layer in model.net if isinstance(layer, torch.nn.ReLU)]


def test_in_fp16_a_gradient_is_a_per_cent_or_two_off_and_a_switched_relu_is_why(first_batch):
    model, through = model_again(), {}
    for n, relu in enumerate(relus(model)):
        relu.register_forward_hook(lambda _, given, __, n=n: through.__setitem__(n, given[0] > 0))
    true = gradient(model, first_batch)
    half = gradient(model_again(), first_batch, torch.float16)
    assert 0.005 < (half - true).norm() / true.norm() < 0.03
    held = model_again()
    for n, relu in enumerate(relus(held)):
        relu.register_forward_hook(lambda _, given, __, n=n: given[0] * through[n])
    alike = gradient(held, first_batch, torch.float16)
    assert (alike - true).norm() / true.norm() < 0.001


def model_again():
    return models.digits_classifier(64, seed=0)


class _TwoHeads(torch.nn.Module):
    """The classifier of digits, and beside it a head that tells odd ones from even ones."""

    def __init__(self):
        super().__init__()
        *body, self.digit = models.digits_classifier(64, seed=0).net
        self.body, self.parity = torch.nn.Sequential(*body), torch.nn.Linear(64, 2)

    def forward(self, x):
        hidden = self.body(x)
        return self.digit(hidden), self.parity(hidden)


def _mostly_digits(outputs, labels):
    digit, parity = outputs
    return cross_entropy(digit, labels) + 1e-6 * cross_entropy(parity, labels % 2)


def test_a_head_can_lose_all_its_gradient_while_the_norm_of_the_network_shows_nothing(first_batch):
    lost = scaling.backward_by_layer(_TwoHeads(), first_batch, _mostly_digits, scale=1.0)
    assert lost["parity"].underflow_norm_fraction == 1
    whole = scaling.backward_at(_TwoHeads(), first_batch, _mostly_digits, scale=1.0)
    assert 0 < whole.underflow_norm_fraction < 1e-4
    saved = scaling.backward_by_layer(_TwoHeads(), first_batch, _mostly_digits, scale=2.0**16)
    assert saved["parity"].underflow_norm_fraction < 0.01


@pytest.mark.parametrize(
    ("number", "name", "twice", "once"),
    [(2049.00000001, "fp16", 2048, 2050), (257.0000001, "bf16", 256, 258)],
)
def test_pytorch_rounds_a_typed_number_twice_and_the_course_once(number, name, twice, once):
    number_format = formats.FORMATS[name]
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[name]
    assert torch.tensor(number, dtype=dtype) == torch.tensor(number).to(dtype) == twice
    assert number_format.decode(number_format.encode(number)) == once


def test_e8m0_rounds_ties_up_whatever_is_even():
    e8m0, numbers = formats.FORMATS["e8m0"], torch.tensor([1.5, 3.0, 6.0])
    assert [e8m0.decode(e8m0.encode(number)) for number in numbers.tolist()] == [2, 4, 8]
    assert numbers.to(torch.float8_e8m0fnu).float().tolist() == [2, 4, 8]


@pytest.mark.parametrize(
    ("weight", "share", "moves"), [(1.99, 1 / 4097, False), (1e-6, 0.02, False), (1e-6, 0.04, True)]
)
def test_an_update_vanishes_beside_an_fp16_weight_and_far_larger_ones_beside_a_subnormal(
    weight, share, moves
):
    before = torch.tensor(weight).half()
    assert (before != (before.float() * (1 + share)).half()) == moves


def test_of_the_two_16_bit_formats_only_bf16_keeps_large_small_and_odd_numbers_to_one_per_cent():
    numbers = torch.tensor([65_520.0, 2.0**-25, 257.0])
    assert numbers.half().tolist() == [torch.inf, 0.0, 257.0]
    assert numbers.bfloat16().tolist() == [65_536.0, 2.0**-25, 256.0]


@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_storing_a_product_in_16_bits_adds_about_as_much_error_as_one_more_operand(name, dtype):
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 1024, generator=generator), torch.randn(1024, 64, generator=generator)
    exact = a.double() @ b.double()
    two_operands = formats.relative_error(formats.product(a, b, formats.FORMATS[name]), exact)
    stored = formats.relative_error(a.to(dtype) @ b.to(dtype), exact)
    assert 1.3 < stored**2 / two_operands**2 < 1.8, "1.5, if each of the three adds as much"


def test_autocast_makes_no_master_of_a_network_built_in_16_bits_and_does_not_warn(recwarn):
    layer = torch.nn.Linear(8, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer(torch.randn(4, 8)).sum()
    loss.backward()
    assert {tensor.dtype for p in layer.parameters() for tensor in (p, p.grad)} == {torch.bfloat16}
    assert not recwarn.list


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_small_loss_of_16_bit_logits_is_further_off_on_a_cpu_than_rounded_once(dtype):
    logits, target = torch.tensor([[8.0, 0.01, 0.3]], dtype=dtype), torch.tensor([0])
    exact = cross_entropy(logits.double(), target)
    with autocast.region("cuda", dtype):
        found = cross_entropy(logits, target)
    rounded_once = -logits.double().log_softmax(-1)[0, 0].to(dtype)
    assert abs(found - exact) > 10 * abs(rounded_once - exact)


def test_the_widest_rule_takes_no_16_bit_dtype_but_autocasts_own():
    one, other = torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.float16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.cat([one, one]).dtype == torch.bfloat16
        assert torch.cat([one.float(), other]).dtype == torch.float32
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
            torch.cat([other, other])


def test_a_loss_of_fp16_logits_outside_the_block_is_fp16_and_its_scaled_gradient_is_not_finite():
    logits = torch.tensor([[1.0, 2.0]]).half().requires_grad_()
    loss = cross_entropy(logits, torch.tensor([0]))
    assert loss.dtype == torch.float16
    torch.amp.GradScaler("cpu").scale(loss).backward()
    assert not logits.grad.isfinite().any()


def test_the_dtype_of_a_cast_of_ones_own_is_not_kept():
    layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    with autocast.region("cuda", torch.float16):
        assert layer(x.float()).dtype == torch.float16
        assert x.half().softmax(-1).dtype == torch.float32


@pytest.mark.parametrize(("assign", "stale"), [(False, True), (True, False)])
def test_weights_loaded_within_the_block_are_stale_unless_assigned(assign, stale, first_batch):
    model, better = model_again(), models.digits_classifier(64, seed=1).state_dict()
    with torch.no_grad(), autocast.region("cuda", torch.float16):
        before = model(first_batch[0])
        model.load_state_dict(better, assign=assign)
        assert torch.equal(model(first_batch[0]), before) == stale


def test_a_transposed_weight_is_cast_at_each_use():
    def used_twice(module, x):
        return x @ module.weight.T @ module.weight.T

    layer = torch.nn.Linear(8, 8, bias=False)
    layer.forward = used_twice.__get__(layer)
    products = [row for row in autocast.record(layer, torch.randn(4, 8)).rows if "matmul" in row.op]
    assert [len(row.casts) for row in products] == [2, 1]


def test_without_its_cache_one_autocast_block_around_the_loop_does_not_go_stale(first_batch):
    inputs, targets = first_batch
    losses = {True: set(), False: set()}
    for cached, seen in losses.items():
        model = model_again()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
            for _ in range(3):
                optimizer.zero_grad()
                loss = cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                seen.add(loss.item())
    assert (len(losses[True]), len(losses[False])) == (1, 3)


def test_adamw_holds_12_bytes_per_parameter_and_16_between_backward_and_zero_grad(first_batch):
    model = models.digits_classifier(64)
    optimizer = torch.optim.AdamW(model.parameters())
    count = sum(parameter.numel() for parameter in model.parameters())

    def held():
        states = [s for state in optimizer.state.values() for s in state.values() if s.dim()]
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return sum(tensor.nbytes for tensor in (*model.parameters(), *grads, *states)) / count

    gradient(model, first_batch, torch.bfloat16)
    optimizer.step()
    assert held() == 16
    optimizer.zero_grad()
    assert held() == 12


def test_of_the_small_transformers_the_peak_holds_no_activations():
    pytest.importorskip("transformers")
    for name in ("BERT-Large", "GPT-2"):
        workload = bench.WORKLOADS[name]
        with fake_tensors():
            model = workload.build("small")
            inputs = workload.batch(model, workload.size("small").batch, "small")
        for precision_name in ("fp32", "bf16"):
            step = measure.predict_memory(model, precision_name=precision_name, device_type="cpu", **inputs)
            assert "saved activations" not in step.at_peak
            assert step.at_peak["optimizer state"] >= 2 * step.parameter_bytes


class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        *inputs, targets = inputs
        return cross_entropy(self.model(*inputs), targets)


def test_the_loss_keeps_some_3_kb_beside_what_the_model_keeps(first_batch):
    inputs, targets = first_batch

    for dtype in (None, torch.float16):
        model = model_again()
        kept = measure.saved_activation_bytes(model, inputs, dtype=dtype)
        with_loss = measure.saved_activation_bytes(WithLoss(model), inputs, targets, dtype=dtype)
        extra = with_loss[torch.float32] - kept.get(torch.float32, 0) + with_loss.get(torch.int64, 0)
        assert 3000 < extra < 3200, "the log of the softmax in fp32, the labels and a weight"


def test_by_pytorchs_switches_products_of_fp16_add_up_in_fp32_and_the_parts_of_a_split_one_in_16_bits():
    products = torch.backends.cuda.matmul
    assert not getattr(products, "allow_fp16_accumulation", False), "which came with PyTorch 2.7"
    assert products.allow_fp16_reduced_precision_reduction is True
    assert products.allow_bf16_reduced_precision_reduction is True


def test_only_data_centre_gpus_multiply_tf32_faster_and_an_a100s_convolutions_do_by_default():
    rates = {name: gpu.flop_per_s for name, gpu in measure.GPUS.items() if "tf32" in gpu.flop_per_s}
    alike = {name for name, each in rates.items() if each["tf32"] <= each["fp32"]}
    assert alike == {name for name in rates if name.startswith("RTX")} < set(rates)
    a100 = rates["A100 SXM 80 GB"]
    assert [a100[name] / 1e12 for name in ("fp32", "tf32", "bf16")] == [19.5, 156, 312]
    assert torch.backends.cudnn.allow_tf32


def test_operations_are_timed_forward_only_and_on_tensors_of_their_dtype(monkeypatch):
    seen = set()

    def watched(*inputs):
        seen.add((torch.is_grad_enabled(), *(tensor.dtype for tensor in inputs)))
        return torch.add(*inputs)

    addition = dataclasses.replace(measure.OPERATIONS["addition"], run=watched)
    monkeypatch.setitem(operations.OPERATIONS, "addition", addition)
    chosen = {"tokens": 8, "width": 8, "operations": ("addition",), "seconds": 0.001}
    operations.operation_rates("bf16", device="cpu", **chosen)
    assert seen == {(False, torch.bfloat16, torch.bfloat16)}


def moments_and_whether_they_moved(dtype, beta2=0.999):
    """AdamW's moments once gradients became a tenth as large, and the share that the last step moved."""
    weight, draw = torch.nn.Parameter(torch.zeros(1000, dtype=dtype)), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW([weight], betas=(0.9, beta2))
    for step in range(2000):
        before = {name: moment.clone() for name, moment in optimizer.state[weight].items()}
        size = 1.0 if step < 1000 else 0.1
        weight.grad = (size * torch.randn(1000, generator=draw)).to(dtype)
        optimizer.step()
    after = {name: optimizer.state[weight][name] for name in ("exp_avg", "exp_avg_sq")}
    return after, {name: (moment != before[name]).float().mean() for name, moment in after.items()}


def test_in_plain_bf16_adamws_second_moment_cannot_fall_and_its_first_one_moves():
    full, _ = moments_and_whether_they_moved(torch.float32)
    half, moved = moments_and_whether_they_moved(torch.bfloat16)
    assert half["exp_avg_sq"].float().mean() > 2 * full["exp_avg_sq"].mean()
    assert moved["exp_avg_sq"] == 0
    assert moved["exp_avg"] > 0.98
    assert torch.corrcoef(torch.stack([half["exp_avg"].float(), full["exp_avg"]]))[0, 1] > 0.999
    shorter = [
        moments_and_whether_they_moved(dtype, beta2=0.95)[0] for dtype in (torch.float32, torch.bfloat16)
    ]
    full, half = (each["exp_avg_sq"].float().mean() for each in shorter)
    assert half < 1.5 * full, "with a beta2 of 0.95 it falls in bf16 as well"


@pytest.mark.parametrize(("length", "grows"), [(16, "perceptron.0"), (64, "perceptron.0"), (256, "")])
def test_with_few_tokens_the_linear_layers_keep_more_in_fp16_and_with_many_the_attention(length, grows):
    block, x = models.transformer_block(256, 8), torch.randn(8, length, 256)
    steps = [
        measure.predict_memory(block, x, precision_name=name).saved_by_module() for name in ("fp32", "fp16")
    ]
    for module in ("", "perceptron.0"):
        fp32, fp16 = (sum(step[module].values()) for step in steps)
        assert (fp16 > fp32) == (module == grows)


def test_what_vanishes_in_lesson_03_is_less_than_what_is_rounded():
    batches = data.batches(data.digits().train, batch_size=32)
    model = models.digits_classifier(seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in islice(cycle(batches), 1000):
        gradient(model, batch)
        optimizer.step()
    for batch in batches[:8]:
        true = gradient(model, batch)
        half = true.half().float()
        vanished = half == 0
        assert true[vanished].norm() < (half - true)[~vanished].norm()
        assert true[vanished].norm() < 0.01 * true.norm()


def scaled_steps(optimizer, weight, factors, **scaler_options):
    """Step once for each factor on a gradient of that size, through a scaler; return the scaler."""
    scaler = torch.amp.GradScaler("cpu", **scaler_options)
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return scaler


@pytest.mark.parametrize(("fused", "warnings_seen"), [(False, 1), (True, 0)])
def test_adams_own_count_leaves_out_skipped_steps_and_a_fused_one_gets_no_warning(fused, warnings_seen):
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([weight], fused=fused)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        scaled_steps(optimizer, weight, [float("inf")])
        schedule.step()
    assert [warning.category for warning in seen] == warnings_seen * [UserWarning]
    scaled_steps(optimizer, weight, [1.0, float("inf"), 1.0])
    assert optimizer.state[weight]["step"] == 2


@pytest.mark.parametrize(
    ("make", "decay", "hidden"),
    [(torch.optim.Adam, 0.0, True), (torch.optim.Adam, 0.1, False), (torch.optim.AdamW, 0.1, True)],
)
def test_adam_hides_a_factor_unless_weight_decay_is_added_to_the_gradient(make, decay, hidden):
    ends = []
    for factor in (1.0, 65536.0):
        weight = torch.nn.Parameter(torch.ones(1))
        optimizer = make([weight], lr=0.1, weight_decay=decay)
        for _ in range(20):
            optimizer.zero_grad()
            (0.05 * factor * (weight - 0.3) ** 2).sum().backward()
            optimizer.step()
        ends.append(weight.item())
    assert (abs(ends[0] - ends[1]) < 1e-4) == hidden


def test_a_window_is_skipped_for_one_overflow_and_unscaled_once():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), torch.amp.GradScaler("cpu")
    for factor in (1.0, float("inf"), 1.0, 1.0):
        scaler.scale((weight * factor).sum() / 4).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (weight.item(), scaler.get_scale()) == (1.0, 2.0**15)
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.scale(weight.sum()).backward()
    assert weight.grad.item() == 1 + 2**15
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert weight.item() == -(2.0**15)


@pytest.mark.parametrize(("enabled", "finite"), [(True, True), (False, False)])
def test_a_scaler_that_is_switched_off_steps_on_nan(enabled, finite):
    weight = torch.nn.Parameter(torch.ones(1))
    scaled_steps(torch.optim.SGD([weight], lr=1.0), weight, [float("nan")], enabled=enabled)
    assert weight.isfinite().all() == finite


def _clipped_run(optimizer_class, lr, unscaled, epochs=3):
    """How far the weights of the digits' model moved, and the share it names, clipped before or after."""
    batches, test = data.batches(data.digits().train, batch_size=64), data.digits().test
    model, scaler = models.digits_classifier(64), torch.amp.GradScaler("cpu")
    optimizer = optimizer_class(model.parameters(), lr=lr)
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    for inputs, targets in batches * epochs:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    moved = (torch.nn.utils.parameters_to_vector(model.parameters()) - start).norm().item()
    return moved, (model(test.images).argmax(1) == test.labels).float().mean().item()


@pytest.mark.parametrize(
    ("make", "lr", "hidden"), [(torch.optim.SGD, 0.1, False), (torch.optim.Adam, 1e-3, True)]
)
def test_clipping_before_unscaling_stops_sgd_and_adam_hides_it(make, lr, hidden):
    (right, right_share), (wrong, wrong_share) = (
        _clipped_run(make, lr, unscaled) for unscaled in (True, False)
    )
    assert (wrong > right / 2) == hidden
    assert hidden or wrong < right / 10_000
    assert (abs(wrong_share - right_share) < 0.05) == hidden


def test_a_silent_patients_gradients_may_be_infinite_while_its_losses_are_not():
    snail = clinic.patient("heal_snail")
    assert snail.silent
    space = {}
    exec(snail.source, space)
    batches = data.batches(data.digits().train, batch_size=64)
    model, infinite = models.digits_classifier(64), []
    model.net[0].weight.register_post_accumulate_grad_hook(
        lambda weight: infinite.append(not weight.grad.isfinite().all())
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loud(outputs, targets):
        return 512 * cross_entropy(outputs, targets)

    where = {"device_type": "cpu", "dtype": torch.float16}
    history = space["train_snail"](model, batches[:8], optimizer, loud, 4, **where)
    assert torch.tensor(history).isfinite().all()
    assert sum(infinite) > len(infinite) / 2


@pytest.mark.parametrize(("fused", "hooks_ran"), [(False, 0), (True, 1)])
def test_the_hook_after_a_step_runs_after_a_skipped_one_where_the_optimizer_is_fused(fused, hooks_ran):
    weight, ran = torch.nn.Parameter(torch.ones(4)), []
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=fused)
    optimizer.register_step_post_hook(lambda *_: ran.append(True))
    scaled_steps(optimizer, weight, [float("inf")])
    assert torch.equal(weight, torch.ones(4))
    assert len(ran) == hooks_ran


@pytest.mark.parametrize(("masked_by_hand", "zero"), [(False, True), (True, False)])
def test_a_batch_of_ignored_labels_has_gradients_of_zero_unless_the_mean_is_by_hand(masked_by_hand, zero):
    logits, labels = torch.zeros(4, 3, requires_grad=True), torch.full((4,), -100)
    loss = cross_entropy(logits, labels)
    if masked_by_hand:
        each = cross_entropy(logits, labels.clamp(min=0), reduction="none")
        loss = (each * (labels != -100)).sum() / (labels != -100).sum()
    loss.backward()
    assert loss.isnan()
    assert bool((logits.grad == 0).all()) == zero
    assert bool(logits.grad.isnan().all()) != zero


def test_at_2e_5_most_steps_of_a_bf16_weight_are_rounded_away_and_at_1e_3_hardly_any():
    weights = 0.05 * torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    moved = {}
    for lr in (2e-5, 1e-3):
        weight = torch.nn.Parameter(weights.bfloat16())
        weight.grad = torch.ones_like(weight)
        torch.optim.AdamW([weight], lr=lr).step()
        moved[lr] = (weight != weights.bfloat16()).float().mean()
    assert moved[2e-5] < 0.3 < 0.8 < moved[1e-3]


@pytest.mark.parametrize("fused", [False, True])
def test_a_scalers_flag_is_of_fp32_and_can_be_reduced_by_hand(fused):
    """What lesson 08's cure for two meshes rests on: a private method, looked at in this PyTorch."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0, fused=fused), torch.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    for found in scaler._found_inf_per_device(optimizer).values():
        found.fill_(1.0)
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight, torch.ones(2))
    assert scaler.get_scale() == 2.0**15


def test_in_fp16_the_loss_of_a_probability_of_zero_is_100_and_its_gradient_infinite():
    probability = torch.zeros(1, dtype=torch.float16, requires_grad=True)
    loss = torch.nn.functional.binary_cross_entropy(probability, torch.ones(1, dtype=torch.float16))
    loss.backward()
    assert loss == 100
    assert probability.grad.isinf()
    with torch.autocast("cpu", torch.float16):  # which refuses none, unlike CUDA's
        loss = torch.nn.functional.binary_cross_entropy(torch.tensor([0.3]), torch.ones(1))
    assert loss.isfinite()


@pytest.mark.parametrize(("momentum", "left"), [(0.1, 0.04), (0.01, 0.74), (0.0, 1.0)])
def test_what_thirty_steps_leave_of_old_statistics(momentum, left):
    norm = torch.nn.BatchNorm1d(1, momentum=momentum)
    for _ in range(30):  # of numbers whose mean is zero: what the running mean holds is left of the old one
        norm.running_mean += 1.0 * (norm.num_batches_tracked == 0)
        norm(torch.tensor([[-1.0], [1.0]]))
    assert norm.running_mean.item() == pytest.approx(left, abs=0.005)
    assert norm.num_batches_tracked == 30


def test_a_scaler_does_not_look_again_at_gradients_that_were_mended_after_unscale():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), torch.amp.GradScaler("cpu")
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.unscale_(optimizer)
    weight.grad.fill_(1.0)
    scaler.step(optimizer)
    assert weight == 1


def test_a_second_step_after_the_scalers_uses_the_same_unscaled_gradients_and_asks_nobody():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = scaled_steps(optimizer, weight, [0.5])
    optimizer.step()
    assert weight == -1
    optimizer.zero_grad()
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    assert weight == -1
    optimizer.step()
    assert not weight.isfinite()


def test_bf16_has_numbers_above_09_and_they_lie_0004_apart():
    numbers = torch.linspace(0.9, 1, 10_000).bfloat16().unique().float()
    assert numbers[numbers < 1].max().item() == pytest.approx(0.996, abs=5e-4)
    assert {gap.item() for gap in numbers.diff()} == {2.0**-8}


def test_lora_keeps_most_activations_and_freezing_from_the_bottom_keeps_none_of_them():
    peft = pytest.importorskip("peft")

    def kept(model):
        return sum(measure.saved_activation_bytes(model, torch.randn(256, 64)).values())

    def stack():
        layers = [(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(3)]
        return torch.nn.Sequential(*(each for pair in layers for each in pair))

    whole, frozen = stack(), stack()
    frozen[:4].requires_grad_(False)
    lora = peft.get_peft_model(stack(), peft.LoraConfig(r=2, target_modules=["0", "2", "4"]))
    assert kept(lora) > 0.7 * kept(whole)
    assert kept(frozen) < 0.4 * kept(whole)


class _Dtypes(TorchDispatchMode):
    """The operations that run, with the dtype of what each returns."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple) else result
        self.seen.append((str(operation).split(".")[1], first.dtype))
        return result


def test_by_cudas_rules_the_loss_casts_16_bit_log_probabilities_and_not_logits():
    logits, labels = torch.randn(4, 10).bfloat16(), torch.arange(4)
    with autocast.region("cuda", torch.bfloat16), _Dtypes() as ran:
        assert cross_entropy(logits, labels).dtype == torch.float32
    names = [name for name, _ in ran.seen]
    softmax, cast, loss = (names.index(name) for name in ("_log_softmax", "_to_copy", "nll_loss_forward"))
    assert softmax < cast < loss
    assert [ran.seen[at][1] for at in (softmax, cast)] == [torch.bfloat16, torch.float32]


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyOptions"), reason="not in this PyTorch")
@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
def test_no_autocast_casts_a_loss_in_pieces_and_of_16_bit_inputs_it_has_16_bits(device_type):
    hidden, weight, labels = torch.randn(64, 8), torch.randn(200, 8), torch.arange(64)

    def loss(dtype):
        pieces = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=16)
        return functional.linear_cross_entropy(hidden.to(dtype), weight.to(dtype), labels, options=pieces)

    with autocast.region(device_type, torch.bfloat16):
        assert loss(torch.bfloat16).dtype == torch.bfloat16
        assert functional.linear_cross_entropy(hidden, weight, labels).dtype == torch.float32
        left_alone = loss(torch.float32)
    assert torch.equal(left_alone, loss(torch.float32))


@pytest.mark.skipif(not hasattr(functional, "grouped_mm"), reason="not in this PyTorch")
@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
def test_no_autocast_casts_grouped_products(device_type):
    rows, experts, ends = torch.randn(4, 16), torch.randn(2, 16, 16), torch.tensor([1, 4], dtype=torch.int32)
    with autocast.region(device_type, torch.bfloat16):
        assert functional.linear(rows, experts[0]).dtype == torch.bfloat16
        grouped = functional.grouped_mm(rows, experts, offs=ends)
    assert torch.equal(grouped, functional.grouped_mm(rows, experts, offs=ends))
    assert grouped.dtype == torch.float32


def test_a_checkpoint_in_bf16_loads_in_bf16_and_trainer_leaves_weights_and_moments_so(tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5")
    pytest.importorskip("accelerate")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertForSequenceClassification(config).bfloat16().save_pretrained(tmp_path / "file")
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "file")
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    options = transformers.TrainingArguments(
        str(tmp_path / "run"), bf16=True, learning_rate=2e-5, max_steps=3, use_cpu=True, report_to=[],
        disable_tqdm=True, logging_strategy="no", save_strategy="no",
    )  # fmt: skip
    rows = [{"input_ids": torch.full((8,), n), "labels": torch.tensor(n % 2)} for n in range(24)]
    trainer = transformers.Trainer(model, options, train_dataset=rows)
    trainer.train()
    states = trainer.optimizer.state.values()
    moments = {value.dtype for state in states for value in state.values() if value.dim()}
    assert moments == {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    end = torch.nn.utils.parameters_to_vector(model.parameters())
    assert (start != end).float().mean() < 0.3
    gains = [gain for name, gain in model.named_parameters() if name.endswith("LayerNorm.weight")]
    assert len(gains) == 3
    assert all((gain == 1).all() for gain in gains)


def test_one_block_of_a_transformer_multiplies_in_16_bits_and_takes_softmax_and_sums_in_32():
    results = {}
    for row in autocast.record(models.transformer_block(), torch.randn(2, 8, 32)).rows:
        results.setdefault(row.op.removeprefix("aten::"), set()).add(str(row).partition("-> ")[2].split()[0])
    assert results["matmul"] == results["linear"] == {"fp16"}
    assert results["softmax"] == results["add"] == {"fp32"}


def test_by_data_sheets_products_gain_at_least_what_memory_can_and_far_more_in_data_centres():
    for name, gpu in measure.GPUS.items():
        gain = gpu.flop_per_s["fp16"] / gpu.flop_per_s["fp32"]
        assert gain > (1.9 if name.startswith("RTX") else 3.9), name
        assert gpu.flop_per_s.get("bf16", gpu.flop_per_s["fp16"]) == gpu.flop_per_s["fp16"], name


def test_an_fp16_sum_stays_right_up_to_2048_though_half_of_its_additions_do_not_move_it():
    total, exact, moved = torch.tensor(0.0, dtype=torch.float16), 0.0, []
    for number in torch.rand(10_000, generator=torch.Generator().manual_seed(0)).half():
        before, total = total, total + number
        exact += number.item()
        moved += [bool(total != before)] if total > 1024 else []
        if total == 2048:
            break
    assert abs(total.item() / exact - 1) < 0.01
    assert 0.4 < sum(moved) / len(moved) < 0.6


def test_fp16s_exponent_of_two_is_one_more_than_that_of_one_and_its_binades_hold_1024():
    fp16 = formats.FORMATS["fp16"]
    assert [fp16.pattern(fp16.encode(number)).split()[1] for number in (1.0, 2.0)] == ["01111", "10000"]
    held = [len(fp16.codes_between(2.0**e, 2.0 ** (e + 1))) - 1 for e in range(-14, 15)]
    assert set(held) == {1024}
    assert len(range(-14, 0)) == 14, "binades of normal numbers below 1, and 16 above"
    assert 2.0**15 < fp16.max < 2.0**16
    assert len(fp16.codes_between(0.0, 2.0**-14)) - 2 == 1023


def test_an_e4m3_with_ieees_infinity_ends_at_240_and_fn_gives_up_one_pattern_a_sign():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert ml_dtypes.finfo(ml_dtypes.float8_e4m3).max == 240
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    assert every[:128].isnan().sum() == every[128:].isnan().sum() == 1
    assert every[:127].max() == every[126] == 448 == 1.75 * 2**8


def test_sum_and_error_of_a_product_grow_alike_with_its_length_and_both_like_its_root():
    generator, bf16 = torch.Generator().manual_seed(0), formats.FORMATS["bf16"]
    a, b = torch.randn(16, 4096, generator=generator), torch.randn(4096, 16, generator=generator)
    exact = {length: a[:, :length].double() @ b[:length].double() for length in (16, 4096)}
    errors = {n: formats.product(a[:, :n], b[:n], bf16) - exact[n] for n in exact}
    for grown in (exact, errors):
        assert 14 < grown[4096].norm() / grown[16].norm() < 18
    products = (300 * a)[:, :, None] * (300 * b)
    assert 80_000 < products.std() < 100_000
    assert 5e6 < ((300 * a) @ (300 * b)).std() < 6.5e6


def test_beside_an_outlier_of_1000_fp4_keeps_numbers_from_about_42_on():
    matrix = torch.zeros(64, 64)
    matrix[0, :3] = torch.tensor([1000.0, 41.6, 41.7])
    kept = formats.per_tensor(formats.FORMATS["fp4_e2m1"]).quantize(matrix).dequantize()
    assert (kept[0, :3] != 0).tolist() == [True, False, True]


def test_beside_a_bf16_weight_updates_below_a_512th_always_vanish_and_from_a_256th_on_never():
    weights = torch.arange(0.5, 4, 2.0**-8).bfloat16().unique().double()
    kept = {share: [] for share in (0.99 / 512, 0.99 / 256, 1.01 / 256)}
    for share, moved in kept.items():
        for sign in (1, -1):
            moved.append((weights * (1 + sign * share)).bfloat16() != weights)
    below, between, above = (torch.cat(moved) for moved in kept.values())
    assert not below.any()
    assert between.any()
    assert not between.all()
    assert above.all()


def test_tf32_has_the_exponent_of_bf16_and_the_mantissa_of_fp16_and_fits_into_neither():
    tf32, fp16, bf16 = (formats.FORMATS[name] for name in ("tf32", "fp16", "bf16"))
    assert (tf32.exponent_bits, tf32.mantissa_bits) == (bf16.exponent_bits, fp16.mantissa_bits)
    assert tf32.bits == 19 > fp16.bits == bf16.bits == 16


def test_products_are_in_the_lower_precision_list_of_every_device_and_mul_in_none():
    for name, rule in (("matmul", "lower precision"), ("mul", "in no list")):
        (found,) = (each for each in autocast.operations(name) if each.name == name)
        assert {each.split(" (")[0] for each in dict(found.rules).values()} == {rule}


@pytest.mark.parametrize(
    ("device_type", "weights"), [("cuda", torch.float32), ("cpu", torch.float16)], ids=["cuda", "cpu"]
)
def test_written_out_attention_goes_down_up_and_down_on_cuda_and_stays_down_on_a_cpu(device_type, weights):
    q = torch.randn(4, 8)
    with autocast.region(device_type, torch.float16):
        scores = q @ q.T
        shares = scores.softmax(-1)
        assert [scores.dtype, shares.dtype, (shares @ q).dtype] == [torch.float16, weights, torch.float16]


@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
def test_no_eps_and_no_grad_cures_a_square_that_overflows_and_fp32_does(device_type):
    def norm(x, eps=1e-6):
        return x * ((x * x).mean(-1, keepdim=True) + eps).rsqrt()

    x = torch.tensor([300.0, -300.0, 10.0, 20.0]).half()
    with autocast.region(device_type, torch.float16):
        for eps in (1e-6, 1e4):
            assert (norm(x, eps) == 0).all()
        with torch.no_grad():
            assert (norm(x) == 0).all()
        assert (x.float() * x.float()).dtype == torch.float32
        assert (norm(x.float()) != 0).all()
    ends = torch.tensor([torch.finfo(torch.float16).max, 2.0**-24])
    assert ends.square().isfinite().all()
    assert (ends.square() > 0).all()


def test_weights_loaded_between_two_evaluations_under_inference_mode_are_stale_only_where_copies_are_kept(
    first_batch,
):
    model, better = model_again(), models.digits_classifier(64, seed=1)
    with autocast.region("cuda", torch.float16):
        expected = better(first_batch[0]).detach()
    with torch.inference_mode(), autocast.region("cuda", torch.float16):
        before = model(first_batch[0])
        model.load_state_dict(better.state_dict())
        after = model(first_batch[0])
    copies_are_kept = torch.equal(after, before)
    assert copies_are_kept != torch.equal(after, expected)


def test_tf32_leaves_activations_as_large_as_fp32_has_them_and_bf16_does_not(first_batch):
    fp32, tf32, bf16 = (
        measure.predict_memory(model_again(), first_batch[0], precision_name=name).saved_by_module()
        for name in ("fp32", "tf32", "bf16")
    )
    assert fp32 == tf32 != bf16


def test_o1s_successor_leaves_parameters_fp32_and_o3_and_a_default_dtype_do_not():
    layer = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", torch.float16):
        layer(torch.randn(2, 4)).sum().backward()
    assert {tensor.dtype for p in layer.parameters() for tensor in (p, p.grad)} == {torch.float32}
    assert {p.dtype for p in torch.nn.Linear(4, 4).half().parameters()} == {torch.float16}
    torch.set_default_dtype(torch.float16)
    try:
        assert {p.dtype for p in torch.nn.Linear(4, 4).parameters()} == {torch.float16}
    finally:
        torch.set_default_dtype(torch.float32)


TEN_MINUTES = 10 / 60 / 24  # in days


def known(days):
    """A card of FSRS that was known on these days, and for each review by how much forgetting slowed down."""
    fsrs = pytest.importorskip("fsrs")
    scheduler, card, slower = fsrs.Scheduler(enable_fuzzing=False), fsrs.Card(card_id=0), []
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for day in days:
        before = card.stability
        card, _ = scheduler.review_card(card, fsrs.Rating.Good, begin + timedelta(days=day))
        slower += [card.stability / before] if before else []
    return slower, lambda day: scheduler.get_card_retrievability(card, begin + timedelta(days=day))


def test_a_card_that_was_known_yesterday_gains_little_and_one_that_is_due_becomes_several_times_as_lasting():
    due, _ = known([0, *(TEN_MINUTES + day for day in (0, 2, 13, 59))])
    daily, _ = known([0, *(TEN_MINUTES + day for day in (0, 2, 3, 4))])
    assert due[0] == 1, "a success after minutes slows nothing"
    assert all(gain > 3 for gain in due[1:])
    assert daily[-1] < 2 < due[-1]


def test_seven_of_ten_cards_known_three_times_are_known_after_90_days_and_nine_when_they_are_asked():
    _, share_known = known([0, TEN_MINUTES, TEN_MINUTES + 2])
    assert 0.65 < share_known(90) < 0.75
    assert share_known(TEN_MINUTES + 13) == pytest.approx(0.9, abs=0.01)


def test_among_fp16s_normal_numbers_bf16_rounds_eight_times_as_coarsely_and_below_2_to_minus_17_fp16_does():
    fp16, bf16 = formats.FORMATS["fp16"], formats.FORMATS["bf16"]
    assert {bf16.spacing(2.0**e) / fp16.spacing(2.0**e) for e in range(-14, 16)} == {8}
    assert fp16.spacing(2.0**-17) == bf16.spacing(2.0**-17)
    assert fp16.spacing(0.99 * 2.0**-17) > bf16.spacing(0.99 * 2.0**-17)


def test_at_its_roof_minilm_gains_a_quarter_of_what_an_a100s_peaks_promise():
    model = WithLoss(encoder.Classifier(encoder.Encoder(layers=2).layers, width=384, classes=8))
    batch = torch.randn(16, 16, 384), torch.ones(16, 16, dtype=torch.bool), torch.zeros(16, dtype=torch.long)
    sheet = measure.GPUS["A100 SXM 80 GB"]
    predicted = [
        measure.predict_bound(model, *batch, sheet=sheet, precision_name=name) for name in ("fp32", "fp16")
    ]
    fp32, fp16 = predicted
    assert fp32.product_ms > 0.8 * fp32.ms, "bound by arithmetic"
    assert fp16.product_ms == 0, "bound by memory, all of it"
    assert 3.5 < fp32.ms / fp16.ms < 4.7
    assert sheet.flop_per_s["fp16"] / sheet.flop_per_s["fp32"] == 16


def test_pytorch_says_itself_that_emptying_the_cache_gives_it_no_memory():
    said = " ".join(torch.cuda.empty_cache.__doc__.split())
    assert "Release all unoccupied cached memory" in said
    assert "doesn't increase the amount of GPU memory available for PyTorch" in said
    assert "may help reduce fragmentation" in said


@pytest.mark.parametrize(("outputs", "refused"), [(50_256, False), (50_257, True)])
def test_cudas_fp8_product_refuses_a_side_that_is_no_multiple_of_16_and_a_cpus_does_not(outputs, refused):
    def product(device):
        x, weight = (torch.zeros(n, 64, device=device).to(torch.float8_e4m3fn) for n in (16, outputs))
        one = torch.ones((), device=device)
        return torch._scaled_mm(x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    assert product("cpu").shape == (16, outputs)
    if refused:  # tensors without values are taken for CUDA's, by PyTorch's own rules of shapes
        with pytest.raises(RuntimeError, match="divisible by 16"):
            product("meta")
    else:
        assert product("meta").shape == (16, outputs)


def test_ddp_in_fp32_sends_twice_what_fsdp2_does_all_in_bf16_with_weights_gathered_once():
    model, x, half = torch.nn.Linear(64, 64), torch.randn(4, 64), torch.bfloat16
    ddp = parallel.communication(model, x, 8, "ddp")
    gathered_once = parallel.communication(model, x, 8, "fsdp2", param_dtype=half, reduce_dtype=half)
    assert gathered_once.calls == 2, "the root stays gathered"
    assert ddp.sent_bytes == 2 * gathered_once.sent_bytes


def test_in_four_bits_the_same_small_numbers_become_zero_each_time_and_drawn_ones_are_right_on_average():
    generator, e2m1 = torch.Generator().manual_seed(0), formats.FORMATS["fp4_e2m1"]
    values = torch.randn(1000, generator=generator)
    small = values[values.abs() < 0.24]
    assert (e2m1.quantize(small) == 0).all()
    drawn = torch.stack([e2m1.round_stochastically(small, generator) for _ in range(4000)]).mean(0)
    assert (drawn - small).abs().max() < 0.02
    assert small.abs().mean() > 0.1


def test_a_source_does_not_move():
    """No source lies on a branch, and lessons cite PyTorch's documentation by its version.

    Package data may cite the newest documentation: it speaks of the PyTorch that is installed.
    """
    branch = re.compile(
        r"github\.com/(?!amp-lessons/)[\w.-]+/[\w.-]+/(?:blob|tree)/(?:main|master|HEAD|develop)/"
    )
    kinds = ("py", "yaml", "md", "json")
    package = [path for kind in kinds for path in (ROOT / "amp_lessons").rglob(f"*.{kind}")]
    lessons = list((ROOT / "notebooks").glob("*.ipynb"))
    for path in (*package, *lessons):
        assert not branch.findall(path.read_text("utf-8")), path.name
    for path in lessons:
        assert "pytorch.org/docs/stable" not in path.read_text("utf-8"), path.name
