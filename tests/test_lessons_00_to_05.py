"""What lessons 00 to 05 say of real sizes and of other devices, held by recordings, counts and rules."""

from __future__ import annotations

import math
import re
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from torch._functorch import config as functorch_config
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    rms_norm,
    scaled_dot_product_attention,
)

from amp_lessons import autocast, bench, data, measure, models, quizzes, scaling
from amp_lessons.course.lessons import shipped
from amp_lessons.course.routes.catalogue import route
from amp_lessons.measure import Difference
from tests.stored_lessons import text
from tests.test_packaging import ROOT

H200 = next(each for each in bench.recordings() if each.setup.device == "NVIDIA H200")


def said_on_the_h200(number: str) -> str:
    """What a lesson printed on the GPU."""
    record = (ROOT / "docs/gpu/nvidia-h200-torch-2.11.0-cu130.md").read_text("utf-8")
    return record.partition(f"### `notebooks: {number}_")[2].partition("###")[0]


def gain(model: str, precision: str, baseline: str) -> Difference:
    found = H200.speedup(model, precision, baseline=baseline)
    assert found
    return found


def test_over_tf32_a_resnet_gains_little_and_the_lesson_says_over_which_fp32():
    prose = text("05", "source-speed-why")
    over = {name: gain(name, "fp16", "tf32").speedup for name in ("ResNet-50", "GPT-2", "BERT-Large")}
    plain = {name: gain(name, "fp16", "fp32").speedup for name in over}
    assert over["ResNet-50"] < 1.3 < 2.5 < plain["ResNet-50"]
    for name in ("ResNet-50", "BERT-Large", "GPT-2"):
        assert f"{plain[name]:.2f}x" in prose
    assert f"{over['ResNet-50']:.2f}x" in prose
    for name in ("BERT-Large", "GPT-2"):
        assert f"{gain(name, 'tf32', 'fp32').speedup:.2f}x" in prose


def test_by_amdahls_law_a_resnet_in_tf32_spends_less_than_half_of_its_step_in_products():
    rates = measure.GPUS["H200 SXM"].flop_per_s
    assert rates["fp16"] / rates["tf32"] == pytest.approx(2, rel=0.01)
    part = (1 - 1 / gain("ResNet-50", "fp16", "tf32").speedup) / (1 - rates["tf32"] / rates["fp16"])
    assert f"{part:.0%}".replace("%", " %") in text("05", "source-speed-why")
    assert part < 0.5
    assert gain("BERT-Large", "bf16", "tf32").low > 2, "more than products alone can gain"


def test_what_data_sheets_say_is_what_the_lesson_says():
    assert 2 * 459**3 / measure.GPUS["A100 SXM 40 GB"].flop_per_s["fp16"] < 1e-6
    assert "less than a microsecond" in text("05", "between-why")
    a100, gaming = (measure.GPUS[name].flop_per_s for name in ("A100 SXM 80 GB", "RTX 4090"))
    assert a100["tf32"] >= 8 * a100["fp32"]
    assert gaming["tf32"] == gaming["fp32"]
    assert "much faster than fp32 in an A100, no faster in an RTX 4090" in text("05", "limits")


def test_the_resnets_fp16_steps_drifted_and_its_interval_is_the_widest():
    spans = {
        key: gain(*key, "fp32") for key in (("ResNet-50", "fp16"), ("ResNet-50", "bf16"), ("GPT-2", "fp16"))
    }
    widths = {key: each.high / each.low for key, each in spans.items()}
    assert max(widths, key=widths.__getitem__) == ("ResNet-50", "fp16")
    assert widths["ResNet-50", "fp16"] > 1.2


def products_ms(width: int, batch: int, layers: int, flop_per_s: float) -> float:
    """Forward and backward of square layers: three products of 2 n² FLOP for each row."""
    return 1e3 * layers * 6 * batch * width**2 / flop_per_s


def test_on_an_h200_launches_decide_at_a_cpus_sizes_and_products_at_4096():
    printed = said_on_the_h200("05")
    found = re.findall(r"width (\d+), batch (\d+): (\d\.\d+)x", printed)
    assert [(width, batch) for width, batch, _ in found] == [("16", "8"), ("1024", "64")]
    assert all(float(times) < 1 for *_, times in found)
    assert "On an H200 both sizes lost" in text("05", "slower-2-cure")
    tera, bf16 = re.search(r"reach ([\d.]+) TFLOP/s.*bf16 ([\d.]+) times", printed).groups()
    rate = float(tera) * 1e12
    assert products_ms(1024, 64, 4, rate) < 0.04, "far below what a step's launches take"
    assert products_ms(4096, 4096, 4, rate) > 20 > 3 > products_ms(4096, 4096, 4, rate * float(bf16))

    steps = re.search(r"fp32 ([\d.]+), bf16 ([\d.]+);", said_on_the_h200("00")).groups()
    fp32_ms, bf16_ms = map(float, steps)
    assert "with small layers a GPU may wait for Python" in text("00", "play-why")
    assert products_ms(512, 1024, 1, rate) < 0.05 * fp32_ms < 0.05 * bf16_ms
    assert products_ms(4096, 4096, 1, rate) > 5 * fp32_ms
    assert 3 * len(data.digits().train.labels) >= 4096


def test_a_cublas_workspace_of_32_mib_was_on_top_of_the_first_run_on_an_h200():
    first, second = (H200.results["BERT-Large", name, "eager"] for name in ("fp32", "tf32"))
    assert first.measured_at < second.measured_at
    assert (first.peak_bytes - second.peak_bytes) / 2**20 == 32


def test_bf16_saves_memory_at_the_larger_batches_and_costs_some_at_the_smaller():
    model, images = models.digits_classifier(512), data.digits().train.images

    def saved(size, dtype):
        batch = images[:size].clone()
        return sum(measure.saved_activation_bytes(model, batch, dtype=dtype, device_type="cpu").values())

    saves = [saved(size, torch.bfloat16) < saved(size, None) for size in (16, 64, 256, 1024)]
    assert saves == [False, False, True, True]


def test_an_evening_uses_no_word_that_lesson_01_alone_explains():
    for stop in route("evening").stops:
        cells = map(shipped.source, shipped.cells_in(stop.lesson))
        asked = (f"{each.text} {each.choices}" for each in quizzes.of_lesson(stop.lesson))
        assert [said for said in (*cells, *asked) if "mantissa" in said] == []


@pytest.mark.parametrize(
    ("lesson", "view"), [("00", "surprise"), ("00", "play-view"), ("03", "live-view"), ("03", "scaler-view")]
)
def test_what_a_slider_is_moved_to_find_stands_behind_a_question_or_folded(lesson, view):
    cells = shipped.cells_in(lesson)
    here = next(at for at, cell in enumerate(cells) if cell["id"] == view)
    below = [(cell["cell_type"], shipped.source(cell)) for cell in cells[here + 1 :]]
    first = next(said for kind, said in below if kind == "code" or said.startswith("<details>"))
    assert first.startswith(("views.Quiz(", "<details>"))


def test_one_misread_digit_lowers_the_upper_end_of_the_window_below_the_untrained_networks():
    batches = data.batches(data.digits().train, batch_size=32)
    images, labels = batches[0]

    def overflows(model, labels, scale):
        return scaling.backward_at(model, (images, labels), cross_entropy, scale).overflowed

    def highest(model, labels):
        return max(e for e in range(12, 33) if not overflows(model, labels, 2.0**e))

    model = models.digits_classifier(seed=0)
    untrained = highest(model, labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for inputs, targets in islice(cycle(batches), 1000):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    misread = labels.clone()
    misread[5] = (misread[5] + 5) % 10
    assert highest(model, misread) < untrained < highest(model, labels)


@pytest.mark.parametrize(
    ("loss", "targets", "dtype", "finite"),
    [
        (cross_entropy, torch.tensor([0, 1]), torch.float16, False),
        (mse_loss, torch.zeros(2, 3), torch.float32, True),
        (l1_loss, torch.zeros(2, 3), torch.float32, True),
        (binary_cross_entropy_with_logits, torch.zeros(2, 3), torch.float32, True),
        (mse_loss, torch.zeros(2, 3).half(), torch.float16, False),
    ],
)
def test_of_the_losses_outside_the_block_those_with_fp32_targets_are_fp32(loss, targets, dtype, finite):
    outputs = torch.tensor([[0.5, -0.25, 0.125], [0.25, 0.5, -1.0]]).half().requires_grad_()
    found = loss(outputs, targets)
    assert found.dtype == dtype
    torch.amp.GradScaler("cpu").scale(found).backward()
    assert outputs.grad.isfinite().all() == finite


def test_an_exp_by_hand_overflows_from_11_1_on_outside_autocast_and_from_88_73_on_by_cudas_rules():
    scores = torch.tensor([11.08, 11.1, 88.7, 88.75]).half()
    assert scores.exp().isinf().tolist() == [False, True, True, True]
    with autocast.region("cpu", torch.float16):
        assert scores.exp().isinf().tolist() == [False, True, True, True]
    with autocast.region("cuda", torch.float16):
        assert scores.exp().dtype == torch.float32
        assert scores.exp().isinf().tolist() == [False, False, False, True]
    assert 88.72 < math.log(torch.finfo(torch.float32).max) < 88.73


def test_cudas_lower_precision_list_holds_products_convolutions_and_hardly_anything_else():
    policy = autocast.policy("cuda")
    lower = [name for name, rule in policy.items() if rule.name == "LOWER_PRECISION"]
    names = {name.removeprefix("aten::").partition(".")[0] for name in lower}
    assert {"linear", "matmul", "conv2d", "einsum", "scaled_dot_product_attention"} <= names
    product = re.compile("conv|mm|mv|addr|matmul|linear|einsum|dot|multi|_cell|_rnn|attention|bilinear|prelu")
    assert {name for name in names if not product.search(name)} == set()


def test_what_breaks_a_forward_pass_in_fp32_too_is_not_cured_by_fp32():
    def not_finite(function, dtype):
        return not bool(function(dtype).isfinite().all())

    breaks = {
        "a fully masked row": lambda dtype: torch.full((3,), -math.inf, dtype=dtype).softmax(0),
        "`eps`": lambda dtype: (torch.zeros((), dtype=dtype) + 1e-8).log(),
        "bf16": lambda dtype: torch.tensor(70_000.0).bfloat16().to(dtype),
    }
    assert all(not_finite(each, torch.float16) for each in breaks.values())
    cured = {name for name, each in breaks.items() if not not_finite(each, torch.float32)}
    assert cured == {"`eps`", "bf16"}
    told = text("03", "scaler-floor-why")
    causes, cure, _ = told.partition("Computing that part in fp32 cures the last two.")
    assert cure
    first, *last_two = causes.split("Three causes:")[1].split(";")
    assert "a softmax of nothing but −inf, NaN in fp32 as well" in first
    assert [name for each in last_two for name in sorted(cured) if name in each] == sorted(cured)


def test_with_a_finite_forward_pass_a_scale_falls_for_a_gradient_that_is_infinite():
    for exponent in (0, 16, -30):
        x = torch.zeros((), requires_grad=True)
        loss = x.sqrt()
        (loss * 2.0**exponent).backward()
        assert loss.isfinite()
        assert x.grad.isinf()
    assert "look for a gradient that is infinite at any scale, such as that of `sqrt` at 0" in text(
        "03", "forward-breaks-why"
    )


def test_shuffling_draws_from_the_random_state_and_a_loader_does_not_say_where_it_is():
    def order():
        return [int(batch) for batch in torch.utils.data.DataLoader(range(20), shuffle=True, batch_size=1)]

    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = order()
    assert order() != first
    torch.set_rng_state(state)
    assert order() == first  # from its first batch on
    assert not hasattr(torch.utils.data.DataLoader(range(20)), "state_dict")
    assert "for dropout and shuffling; if it stops within an epoch, also its place" in text(
        "04", "resume-why"
    )


def test_since_2_12_rms_norm_returns_fp32_by_cudas_rules_and_keeps_twice_the_bytes():
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12):
        pytest.skip("rms_norm is in no list before 2.12")
    hidden, kept = torch.randn(4, 256).half().requires_grad_(), {}

    def pack(tensor):
        kept[tensor.shape] = tensor.dtype
        return tensor

    with autocast.region("cuda", torch.float16), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = rms_norm(hidden, (256,))
    assert (result.dtype, kept[hidden.shape]) == (torch.float32, torch.float32)
    assert rms_norm(hidden, (256,)).dtype == torch.float16
    assert "[computed] torch.nn.RMSNorm returns torch.float16" in said_on_the_h200("02"), "in 2.11"


def test_an_island_keeps_a_recurrent_layer_in_fp32_which_cudas_rules_put_into_fp16():
    layer, inputs = torch.nn.LSTM(8, 8), torch.randn(5, 4, 8)
    with autocast.region("cuda", torch.bfloat16):
        alone = layer(inputs)[0]
        with torch.autocast("cpu", enabled=False):
            inside = layer(inputs.float())[0]
    assert (alone.dtype, inside.dtype) == (torch.float16, torch.float32)


def test_adam_hides_most_of_one_gradient_that_a_scale_moved_too_early_has_halved():
    assert "it halves one step's gradient. Adam hides most of that" in text("04", "two-why")
    moved = {}
    for optimizer_class in (torch.optim.SGD, torch.optim.Adam):
        for last in (1.0, 0.5):
            weight = torch.nn.Parameter(torch.zeros(()))
            optimizer = optimizer_class([weight], lr=1e-3)
            for gradient in [1.0] * 1000 + [last]:
                before = weight.item()
                weight.grad = torch.full_like(weight, gradient)
                optimizer.step()
            moved[optimizer_class, last] = before - weight.item()
    for optimizer_class, left in ((torch.optim.SGD, 0.5), (torch.optim.Adam, 0.95)):
        assert moved[optimizer_class, 0.5] / moved[optimizer_class, 1.0] == pytest.approx(left, abs=0.005)


@pytest.mark.parametrize(
    ("weights", "least", "most"), [(10**4, 0.9, 1.0), (2_330_000, 0.48, 0.52), (10**9, 0.0, 0.06)]
)
def test_adam_hides_clipping_before_unscaling_in_small_networks_only(weights, least, most):
    """Clipped to a norm of 1, then divided by 2¹⁶: so large is a gradient, if the weights share it evenly."""
    each = 2.0**-16 / weights**0.5
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = torch.optim.Adam([weight], lr=1e-3)
    for _ in range(10):
        weight.grad = torch.full_like(weight, each)
        optimizer.step()
    assert least <= (1 - weight.item()) / (10 * 1e-3) <= most


def test_a_checkpoint_in_fp16_loads_in_fp16_without_a_dtype_since_transformers_5(tmp_path):
    transformers = pytest.importorskip("transformers", minversion="5")
    config = transformers.GPT2Config(vocab_size=8, n_positions=4, n_embd=8, n_layer=1, n_head=1)
    transformers.GPT2LMHeadModel(config).half().save_pretrained(tmp_path)
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}
    scaler = torch.amp.GradScaler("cpu")
    model.lm_head.weight.grad = torch.zeros_like(model.lm_head.weight)
    scaler.scale(torch.ones(()))
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("scale", "images", "fits"), [(2**16, 1, False), (2**16, 2, True), (2**17, 2, False)]
)
def test_a_scaled_gradient_of_a_mean_with_logits_fits_up_to_a_scale_of_65504_an_image(scale, images, fits):
    """The scaled gradient by a logit of -20 with target 1, of a mean loss of so many, under CUDA's rules."""
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(layer.weight, -20.0)
    with autocast.region("cuda", torch.float16):
        logits = layer(torch.ones(images, 1))
        loss = binary_cross_entropy_with_logits(logits, torch.ones(images, 1))
    logits.retain_grad()
    (scale * loss).backward()
    assert logits.grad.dtype == torch.float16
    assert math.isfinite(logits.grad[0].item()) == fits


def test_batchnorm_on_half_precision_computes_in_fp32_where_nothing_is_added_up_as_well():
    norm = torch.nn.BatchNorm1d(1, affine=False).eval()
    norm.running_mean.fill_(-60000.0)
    norm.running_var.fill_(1e10)
    assert norm(torch.tensor([[60000.0]]).half()).item() == pytest.approx(1.2, rel=1e-3)
    assert torch.tensor(120000.0).half().isinf()
    assert "true of its arithmetic only" in text("02", "three-dtypes")


def test_adam_makes_much_of_gradients_that_are_next_to_nothing_of_the_norm():
    gradient = torch.tensor(500 * [1e-3] + 500 * [2e-8], dtype=torch.float64)
    in_fp16 = gradient.half().double()
    lost = ((gradient - in_fp16).norm() / gradient.norm()).item()

    def first_update(gradients):
        return gradients / (gradients.abs() + 1e-8)  # Adam's, its moments corrected for their zeros at first

    updates = first_update(gradient), first_update(in_fp16)
    assert lost < 1e-3
    assert ((updates[0] - updates[1]).norm() / updates[0].norm()).item() > 0.4
    assert "Adam lengthens small gradients" in text("03", "hurt-why")


def test_a_sum_of_ones_is_inf_where_fp16_stores_it_and_stops_at_2048_where_fp16_adds_it_up():
    stored = torch.tensor([65_519.0, 65_520.0]).half()  # the sums in fp32, cast
    assert stored.isinf().tolist() == [False, True]
    total = torch.zeros((), dtype=torch.float16)
    for _ in range(2100):
        total += 1
    assert total == 2048


def test_of_pytorchs_attentions_only_the_function_gives_zeros_to_a_row_that_may_see_nothing():
    x, hidden = torch.randn(1, 3, 8), torch.zeros(3, 3, dtype=torch.bool)
    hidden[1] = True
    assert scaled_dot_product_attention(x, x, x, attn_mask=~hidden)[0, 1].eq(0).all()
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    assert attention(x, x, x, attn_mask=hidden)[0].isnan().any()
    assert "do not count on that in other layers" in text("03", "forward-breaks-why")


def test_a_product_of_fp64_and_fp32_is_an_error_under_autocast_too():
    assert "a product of fp64 and fp32 is an error" in text("02", "limits")
    for device_type in ("cuda", "cpu"):
        with autocast.region(device_type, torch.float16), pytest.raises(RuntimeError, match="same dtype"):
            torch.randn(4, 8, dtype=torch.float64) @ torch.randn(8, 8)


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda: torch.randn(8, 8, requires_grad=True), True),
        (lambda: torch.randn(64).view(8, 8).requires_grad_(), False),
        (lambda: torch.randn(8, 8), False),
    ],
)
def test_autocast_keeps_the_copies_of_leaf_tensors_that_are_no_views(make, kept):
    weight = make()
    assert weight.is_leaf
    with torch.autocast("cpu", torch.bfloat16), torch.profiler.profile() as profile:
        for _ in range(3):
            torch.nn.functional.linear(torch.ones(4, 8, dtype=torch.bfloat16), weight)
    casts = sum(each.count for each in profile.key_averages() if each.key == "aten::_to_copy")
    assert casts == (1 if kept else 3)
    assert "that require gradients and are not views" in text("02", "cache-leaf")


def test_before_2_11_the_compiler_reads_the_older_switch_for_products_and_until_2_14_backward_is_cast():
    folder = Path(torch.__file__).parent / "_inductor"
    read = (folder / "compile_fx.py").read_text("utf-8") + (folder / "fx_passes/pad_mm.py").read_text("utf-8")
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    assert ("cuda.matmul.allow_tf32" in read) == (release < (2, 11))
    assert "Before 2.11 `torch.compile` reads the older" in text("02", "tf32-why")
    if release in ((2, 13), (2, 14)):
        assert functorch_config.backward_pass_autocast == "same_as_forward"
    assert "by default (2.13 and 2.14)" in text("02", "compile-backward")


def test_unscaling_raises_not_implemented_for_a_dtype_that_its_kernel_lacks_and_the_cpus_has_bf16():
    def unscale(dtype, device):
        found, inverse = torch.zeros(1, device=device), torch.ones(1, device=device)
        gradients = [torch.ones(2, device=device).to(dtype)]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)

    unscale(torch.bfloat16, "cpu")
    with pytest.raises(NotImplementedError, match="_amp_foreach_non_finite_check_and_unscale_cpu"):
        unscale(torch.float8_e4m3fn, "cpu")
    if torch.cuda.is_available() and torch.__version__ < "2.15":
        with pytest.raises(NotImplementedError, match="_amp_foreach_non_finite_check_and_unscale_cuda"):
            unscale(torch.bfloat16, "cuda")
