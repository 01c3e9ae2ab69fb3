"""What lessons 06 to 09 say of real sizes, of several ranks and of libraries, held by counts and casts."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.functional import binary_cross_entropy_with_logits

from amp_lessons import autocast, clinic, measure, pretrained
from amp_lessons.parallel.traffic import fake_group
from tests.stored_lessons import cells, printed, text
from tests.test_packaging import ROOT

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
E4M3_LARGEST = 448.0


# --- 06: when AMP breaks
def test_a_patient_of_the_core_trains_in_bf16_and_without_a_scaler():
    core = list(cells("06"))
    core = core[: core.index("deeper")]
    shown = [text("06", each) for each in core if text("06", each).startswith("views.Patient(")]
    sources = [clinic.patient(each.split('"')[1]).source for each in shown]
    assert [("bfloat16" in each, "GradScaler" in each) for each in sources].count((True, False)) == 1


def test_what_the_lesson_printed_of_adam_and_clipping_before_unscaling_is_what_adam_does_at_that_size():
    rows = re.findall(
        r"([\d,]+) weights as it came: .* at most (\d+)% of lr", printed("06", "heal-standstill-adam-run")
    )
    assert len(rows) == 4
    moved = {}
    for count, percent in rows:
        weights = int(count.replace(",", ""))
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.full((1,), 1 / 65536 / weights**0.5)
        torch.optim.Adam([weight], lr=1e-3).step()
        moved[weights] = -weight.item() / 1e-3
        assert f"{moved[weights]:.0%}" == f"{percent}%"
    assert moved[9_000] > 0.9, "a toy hides the mistake"
    assert moved[7 * 10**9] < 0.03 < moved[124 * 10**6] < 0.15, "and real sizes show it"


def test_no_code_cell_of_the_lesson_is_longer_than_twenty_lines_stubs_included():
    code = {name: text("06", name) for name, cell in cells("06").items() if cell["cell_type"] == "code"}
    assert {name: len(each.splitlines()) for name, each in code.items() if each.count("\n") >= 20} == {}


# --- 07: real models
def norm_after_decay_and_noise(dtype: torch.dtype, lr: float, size: float) -> float:
    """By which part of a weight's norm fused AdamW's decay shortens it, with noise for gradients."""
    norms = []
    for decay in (0.0, 0.1):
        draws = torch.Generator().manual_seed(0)
        weight = torch.nn.Parameter((size * torch.randn(4000, generator=draws)).to(dtype))
        adam = torch.optim.AdamW([weight], lr=lr, weight_decay=decay, fused=True)
        for _ in range(300):
            weight.grad = torch.randn(4000, generator=draws).to(dtype)
            adam.step()
        norms.append(weight.detach().double().norm().item())
    return 1 - norms[1] / norms[0]


@pytest.mark.parametrize(
    ("lr", "size", "said", "least", "most"),
    [
        (1e-3, 0.05, "here most of the decay survives", 0.7, 1.0),
        (3e-4, 0.05, "with a smaller learning rate less", 0.15, 0.3),
        (3e-4, 0.02, "the step against the weight's spacing counts", 0.65, 0.85),
    ],
)
def test_how_much_decay_a_fused_adam_keeps_in_bf16_hangs_on_rate_and_size(lr, size, said, least, most):
    in_bf16, in_fp32 = (
        norm_after_decay_and_noise(dtype, lr, size) for dtype in (torch.bfloat16, torch.float32)
    )
    assert least < in_bf16 / in_fp32 < most
    assert said in text("11", "decay-why")


@pytest.mark.parametrize("fused", [False, True])
def test_beside_gradients_of_zero_bf16_rounds_all_of_the_decay_away_in_a_fused_adam_as_well(fused):
    draw = torch.Generator().manual_seed(0)
    weight = torch.nn.Parameter((0.05 * torch.randn(1000, generator=draw)).bfloat16())
    adam = torch.optim.AdamW([weight], lr=3e-4, weight_decay=0.1, fused=fused)
    before = weight.detach().clone()
    for _ in range(300):
        weight.grad = torch.zeros_like(weight)
        adam.step()
    assert torch.equal(weight, before)
    assert "here loses all of it, too" in text("07", "decay-why")


def test_the_mean_square_of_lesson_07_rises_above_the_true_one_in_bf16_and_never_falls():
    said: dict[str, object] = {"torch": torch, "nn": torch.nn}
    exec(text("07", "decay-run"), said)
    (_, right), (_, half) = (
        said["adamw"](dtype, sizes=(1.0, 0.1)) for dtype in (torch.float32, torch.bfloat16)
    )
    assert right[1] < right[0] < 0.8 * half[0]
    assert half[1] == half[0]
    assert "above the true one, and steps get too short" in text("07", "decay-why")


@pytest.mark.skipif(TORCH < (2, 10), reason="grad_dtype came with PyTorch 2.10")
def test_an_fp16_weight_with_grad_dtype_fp32_is_unscaled_before_2_15():
    weight, scaler = torch.nn.Parameter(torch.ones(3).half()), torch.amp.GradScaler("cpu")
    weight.grad_dtype = torch.float32
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale((weight * 1e-6).sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.dtype == torch.float32
    assert "since PyTorch 2.10 unless you set `grad_dtype`" in text("07", "unscale-why")


class SharesItsInput(torch.nn.Module):
    """Two layers that read one input, as query and value do."""

    def __init__(self):
        super().__init__()
        self.query, self.value = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.query(x) * self.value(x)


def test_fp32_adapters_keep_a_copy_of_their_input_each_which_without_peft_s_casts_they_share():
    peft = pytest.importorskip("peft")
    from peft.helpers import disable_input_dtype_casting

    torch.manual_seed(0)
    options = peft.LoraConfig(r=8, target_modules=["query", "value"], init_lora_weights=False)
    model = peft.get_peft_model(SharesItsInput().bfloat16(), options)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {p.dtype for p in trained.values()} == {torch.float32}

    def kept_and_gradients(tokens: int):
        batch = torch.linspace(-1, 1, tokens * 64).reshape(tokens, 64).bfloat16()
        kept = measure.saved_activation_bytes(model, batch, dtype=torch.bfloat16, device_type="cpu")
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            model(batch).float().square().sum().backward()
        return kept, {name: p.grad for name, p in trained.items()}

    for tokens in (128, 512):
        dear, wanted = kept_and_gradients(tokens)
        with disable_input_dtype_casting(model):
            cheap, found = kept_and_gradients(tokens)
        assert dear.pop(torch.bfloat16) - cheap.pop(torch.bfloat16) == tokens * 64 * 2
        assert dear == cheap, "no copy in fp32 is kept"
        assert all(torch.equal(wanted[name], found[name]) for name in trained)


def test_the_lesson_measured_what_the_casts_of_real_adapters_keep_as_more_than_the_adapters():
    with_casts, without = map(float, re.findall(r"([\d.]+) MiB", printed("07", "lora-kept")))
    one_copy = 32 * 16 * 384 * 2 / 2**20
    assert with_casts - without == pytest.approx(2 * one_copy, abs=0.1), "one in each of two layers"
    assert with_casts - without > 101_384 * 4 / 2**20
    assert "0.4 MiB" in text("07", "lora-cost")


def test_accelerate_casts_what_is_trained_up_to_fp32_before_it_shards():
    accelerate = pytest.importorskip("accelerate", minversion="1.15")
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    def sharded(mixed_precision: str) -> list[tuple[bool, torch.dtype]]:
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).bfloat16()
        model[0].requires_grad_(False)
        plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False)
        state = SimpleNamespace(fsdp_plugin=plugin)
        asks = SimpleNamespace(state=state, mixed_precision=mixed_precision, is_main_process=False)
        return [(p.requires_grad, p.dtype) for p in fsdp2_prepare_model(asks, model).parameters()]

    in_bf16, frozen = [(True, torch.bfloat16)] * 2, [(False, torch.bfloat16)] * 2
    with fake_group(2):
        assert sharded("no") == frozen + in_bf16
        assert sharded("bf16") == [*frozen, (True, torch.float32), (True, torch.float32)]
    for said in (text("07", "load-why"), text("08", "masters-why")):
        assert re.search(r"1\.15 casts what is trained up to fp32 before it shards", said)


def test_the_lessons_count_minilm_alike():
    if pretrained.missing():
        pytest.skip("the extra pretrained is not installed")
    millions = sum(each.numel() for each in pretrained.minilm().parameters()) / 1e6
    for lesson in ("07", "09"):
        said = "".join(text(lesson, each) for each in cells(lesson))
        assert set(re.findall(r"(2\d(?:\.\d)?) million (?:weights|parameters)", said)) == {f"{millions:.1f}"}


def test_what_a_vae_computes_in_fp32_is_cast_to_inf_by_the_next_linear_layer():
    ends = {2 * math.log(65504): 22.2, math.log(65504): 11.1}
    for computed, said in ends.items():
        assert computed == pytest.approx(said, abs=0.05)
        assert f" {said} on" in text("07", "vae") + text("07", "vae-why")
    logvar = torch.tensor([[22.0], [22.5]]).half()
    images = torch.rand(4, 64, generator=torch.Generator().manual_seed(0))
    decoder = torch.nn.Linear(1, 3)
    assert logvar.exp().isinf().all()
    with autocast.region("cuda", torch.float16):
        deviation, logits = (0.5 * logvar).exp(), images.half()
        loss = binary_cross_entropy_with_logits(logits, images, reduction="sum")
        in_fp32 = (logvar.exp(), deviation, logits**2, logits.sum(), loss)
        assert {each.dtype for each in in_fp32} == {torch.float32}
        assert (0.5 * logvar).dtype == decoder(deviation).dtype == torch.float16
        assert all(each.isfinite().all() for each in in_fp32)
        assert decoder(deviation).isfinite().all(1).tolist() == [True, False]


# --- 08: many GPUs
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(8) for _ in range(2))
        self.products = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        for norm, product in zip(self.norms, self.products, strict=True):
            x = x + product(norm(x))
        return x


IN_BF16 = MixedPrecisionPolicy(torch.bfloat16, torch.float32)


@pytest.fixture
def mesh():
    """Two ranks that are there in name only: what is called is counted, and nothing is sent."""
    with fake_group(2) as mesh:
        yield mesh


def collectives(mesh, norms: str, blocks: bool = True) -> tuple[int, int]:
    """All-gathers and reduce-scatters of one step of twelve blocks, as a rank calls them."""
    model = torch.nn.Sequential(*(Block() for _ in range(12)), torch.nn.Linear(8, 8))
    mine = [norm for block in model[:12] for norm in block.norms]
    own = MixedPrecisionPolicy(torch.float32, torch.float32, output_dtype=torch.bfloat16)
    for group in {"none": [], "together": [mine], "each": mine}[norms]:
        fully_shard(group, mesh=mesh, mp_policy=own)
    for module in (*(model[:12] if blocks else ()), model):
        fully_shard(module, mesh=mesh, mp_policy=IN_BF16)
    with CommDebugMode() as counted:
        model(torch.ones(2, 8)).float().sum().backward()
    calls = {str(each): times for each, times in counted.get_comm_counts().items()}
    kinds = ("gather", "reduce_scatter")
    return tuple(sum(times for name, times in calls.items() if kind in name) for kind in kinds)


@pytest.mark.filterwarnings("ignore:Full backward hook")  # CommDebugMode's
def test_norms_in_one_call_cost_two_gathers_more_and_norms_one_by_one_three_times_as_many(mesh):
    said = text("08", "islands-why")
    for norms, words in {
        "together": "{} all-gathers and {} reduce-scatters",
        "each": "each of 24 norms {} and {}",
    }.items():
        assert words.format(*collectives(mesh, norms)) in said
    assert collectives(mesh, "together")[0] == collectives(mesh, "none")[0] + 2
    assert "from PyTorch 2.13 on all norms in one call" in said  # a test of "together", with several norms


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_sharded_at_the_root_alone_a_model_is_gathered_at_once_so_the_lesson_shards_its_blocks(mesh):
    assert collectives(mesh, "none", blocks=False) == (1, 1)
    assert "for module in (*blocks, model)" in text("08", "fsdp-run")


def test_while_the_reduction_waits_a_rank_holds_the_whole_gradient_in_fp32_and_no_shard_of_it(mesh):
    layer = torch.nn.Linear(8, 8, bias=False)
    fully_shard(layer, mesh=mesh, mp_policy=IN_BF16)
    (weight,) = fully_shard.state(layer)._fsdp_param_group.fsdp_params
    shards, whole = [], []
    for waits in (True, True, False):  # what is summed up waits from the first backward pass on
        layer.set_requires_gradient_sync(not waits)
        layer(torch.ones(2, 8)).float().sum().backward()
        shards.append(layer.weight.grad is not None)
        whole.append(weight.unsharded_accumulated_grad)
    assert shards == [False, False, True]
    assert {(tuple(each.shape), each.dtype) for each in whole[:2]} == {((8, 8), torch.float32)}
    assert whole[2] is None
    assert f"{7e9 * 4 / 1e9:.0f} GB a rank" in text("08", "accumulate-fsdp")


def test_a_checkpoint_names_the_random_numbers_that_gpus_draw():
    assert "# on GPUs also torch.cuda.get_rng_state()" in text("08", "checkpoint-save")


# --- 09: FP8 and FP4
def test_further_down_in_the_table_of_recipes_fewer_activations_and_gradients_share_a_scale():
    rows = [each.split("|") for each in text("09", "map").splitlines() if each.startswith("| `")]
    shared = [row[3].split(";")[0].strip() for row in rows]
    words = {"the tensor": 10**6, "the same": 10**6, "a row": 4096}
    sizes = [words.get(each) or math.prod(map(int, each.split("×"))) for each in shared]
    assert len(sizes) == 7
    assert sizes == sorted(sizes, reverse=True)
    read = "For activations and gradients read down: fewer and fewer numbers share a scale."
    assert read in text("09", "map")


@pytest.mark.skipif(TORCH < (2, 13), reason="saturates from 2.13 on")
def test_cuda_s_eager_cast_is_the_same_function_as_the_cpu_s():
    header = Path(torch.__file__).parent / "include/torch/headeronly/util/Float8_e4m3fn.h"
    if not header.exists():
        pytest.skip("this wheel has no headers")
    found = header.read_text("utf-8").partition("C10_HOST_DEVICE uint8_t fp8e4m3fn_from_fp32_value")[2]
    assert "saturate to max finite value" in found
    assert "in eager mode on CUDA too" in text("09", "scaled-cast-exercise")
    assert "eager cast, on CUDA too" in text("09", "cast-why")


def test_what_is_too_large_for_e4m3_saturates_from_2_13_on_and_was_nan_before():
    found = torch.tensor([465.0, 1e6, torch.inf]).to(torch.float8_e4m3fn).float()
    assert bool((found == E4M3_LARGEST).all()) == (TORCH >= (2, 13))
    assert bool(found.isnan().all()) == (TORCH < (2, 13))
    card = ROOT / "amp_lessons/course/exercises/scaled_cast/card.md"
    for said in (text("09", "cast-why"), card.read_text("utf-8")):
        assert "2.13" in said
        assert "2.12" not in said


def test_peft_leaves_the_head_that_a_task_adds_in_the_dtype_of_the_base():
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=32, num_labels=2, **sizes)
    base = transformers.BertForSequenceClassification(config).bfloat16()
    adapted = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"]))
    trained = {name: p.dtype for name, p in adapted.named_parameters() if p.requires_grad}
    assert {dtype for name, dtype in trained.items() if "lora_" in name} == {torch.float32}
    assert {dtype for name, dtype in trained.items() if "classifier" in name} == {torch.bfloat16}
    assert "`float()` on it before the optimizer is made" in text("07", "unscale-why")


def test_a_rank_s_state_holds_its_shard_alone(mesh):
    layer = torch.nn.Linear(8, 8, bias=False)
    fully_shard(layer, mesh=mesh, mp_policy=IN_BF16)
    kept = layer.state_dict()["weight"]
    assert kept.shape == (8, 8)
    assert kept.to_local().numel() == kept.numel() // mesh.size()
    assert "keeps its shard alone" in text("08", "fsdp-loop")


def test_the_filter_of_the_choice_leaves_a_head_out_wherever_it_stands():
    found = {}
    exec(text("09", "choose-run").partition("\n\n")[0], found)
    wide = torch.nn.Linear(4096, 128 * 256, bias=False, device="meta")
    names = ("lm_head", "model.head", "layers.0.mlp")
    assert [found["large"](wide, name) for name in names] == [False, False, True]


def test_the_choice_is_that_of_the_published_runs_and_their_range_the_verdict_s():
    lines = [line for line in text("09", "published").splitlines() if "x |" in line]
    table = [line.split("|")[2:6] for line in lines]
    runs = []
    for bf16, *recipes in table:
        per_second = [each.split(", ")[0].strip(" K") for each in (bf16, *recipes)]
        gains = [float(each) / float(per_second[0]) if each else math.nan for each in per_second[1:]]
        said = [each.partition(", ")[2].strip(" x") for each in recipes]
        assert [f"{each:.2f}" for each in gains if each == each] == [each for each in said if each]
        runs.append(gains)
    tensorwise, rowwise, in_bf16 = zip(*runs, strict=True)
    assert len(runs) == 6
    assert all(a > b for a, b in zip(tensorwise, rowwise, strict=True))
    alike = [not re.search("Llama3-8B|the same", line) for line in lines]  # † says whose weights are in FP8
    met = [a < b for a, b, each in zip(tensorwise, in_bf16, alike, strict=True) if each and b == b]
    assert met == [True, True]
    ratios = [b / a for a, b, each in zip(tensorwise, in_bf16, alike, strict=True) if each and b == b]
    assert ratios == pytest.approx([1.0, 1.05], abs=0.006)
    assert "as fast for 8B, 5 % faster for 3B" in text("09", "choose")
    both = [(a, b) for a, b in zip(in_bf16, rowwise, strict=True) if a == a]
    assert len(both) == 3
    assert all(a > b for a, b in both)
    every = [each for gains in runs for each in gains if each == each]
    low, high = min(every), max(every)
    assert f"between {low:.2f}x and {high:.2f}x" in text("09", "verdict-run")
    said = f"nanochat's {low:.2f}x (rowwise) to torchao's {high:.2f}x (tensorwise)"
    assert said in text("09", "verdict-why")
