"""What lesson 08 asks and says in words is true of what is computed here."""

import json
import re

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module
from torch.utils.data import DistributedSampler

from amp_lessons import audit, parallel
from amp_lessons.course.quizzes import question, questions
from tests.notebook_rules import source
from tests.test_packaging import ROOT

NOTEBOOK = json.loads((ROOT / "notebooks" / "08_many_gpus.ipynb").read_text("utf-8"))
CODE = "\n".join(source(cell) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code")


def answer(name):
    return question(f"ranks.{name}").answer.text


def test_every_question_on_ranks_is_asked_once():
    asked = re.findall(r'views\.Quiz\("(ranks\.\w+)"\)', CODE)
    assert asked == [name for name in questions() if name.startswith("ranks.")]


def test_of_ranks_that_agree_a_ring_leaves_less_than_half():
    assert answer("agree") == "Less than half"
    gradients = parallel.rank_gradients(1024, noise=0.1)
    assert parallel.reduction(gradients, torch.bfloat16).size < 0.5
    assert parallel.reduction(gradients, torch.bfloat16, "tree").relative_error < 0.005


def test_of_ranks_that_disagree_the_error_grows_3_to_4_fold_from_32_to_512():
    assert answer("disagree") == "About 3- to 4-fold"
    gradients = parallel.rank_gradients(1024, noise=10.0)
    few, many = parallel.growth(gradients, torch.bfloat16, ranks=(32, 512)).errors
    assert 3 < many / few < 4


def test_what_the_ways_to_divide_make_of_small_and_large_gradients():
    means = {
        name: [
            parallel.reduce(torch.full((1024, 1), each), torch.float16, "tree", name).item()
            for each in (2.0**-20, 100.0)
        ]
        for name in parallel.AVERAGINGS
        if name != "sum"
    }
    assert answer("divide") == "Only a division after the sum"
    assert means.pop("mean") == [2.0**-20, torch.inf]
    assert list(means.values()) == [[0.0, 100.0]] * len(means)


@pytest.mark.parametrize(("stage", "fits"), [("ddp", False), ("zero1", False), ("zero2", True)])
def test_from_which_stage_on_a_model_three_times_too_large_fits(stage, fits):
    assert answer("recap_memory").startswith("Stage 2")
    alone, shared = (parallel.memory_per_rank(8_000_000, ranks, stage).total for ranks in (1, 8))
    assert (alone / shared >= 3) is fits


def test_what_the_tables_of_16_and_18_bytes_differ_in():
    assert answer("tables") == "Gradients in fp32 instead of 16 bits"
    first, second = (parallel.CONVENTIONS[name].bytes_per_parameter for name in ("zero", "megatron bf16"))
    assert (sum(first.values()), sum(second.values())) == (16, 18)
    assert {what for what in first if first[what] != second[what]} == {"gradients"}


def test_the_other_16_18_and_20_are_what_the_lesson_says():
    counts = {name: table.bytes_per_parameter for name, table in parallel.CONVENTIONS.items()}
    totals = {name: sum(parts.values()) for name, parts in counts.items()}
    assert totals == {"zero": 16, "megatron bf16": 18, "megatron fp16": 20, "fp32": 16}
    assert [counts["zero"][what] for what in ("weights", "gradients")] == [2, 2]
    assert set(counts["fp32"].values()) == {4, 8}  # nothing in 16 bits, two moments
    by_megatron = dict(counts["megatron bf16"])
    copies, masters = by_megatron.pop("weights"), by_megatron.pop("fp32 masters")
    assert (copies, {"weights": masters, **by_megatron}) == (18 - 16, counts["fp32"])
    twice = counts["megatron fp16"]
    assert (twice["gradients"], twice["fp32 copies of gradients"]) == (2, 4)


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this PyTorch has one dtype for both")
def test_adam_wants_fp32_gradients_of_a_bf16_weight_cast_before_its_step():
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    weight.grad_dtype = torch.float32
    weight.sum().backward()
    assert weight.grad.dtype == torch.float32
    adam = torch.optim.AdamW([weight], lr=0.1)
    with pytest.raises(RuntimeError, match="dtype"):
        adam.step()
    cast = weight.grad.bfloat16()
    weight.grad = None
    weight.grad_dtype, weight.grad = torch.bfloat16, cast
    torch.optim.AdamW([weight], lr=0.1).step()
    assert (weight < 1).all()


def test_ddp_sends_a_little_more_than_fsdp2_with_weights_gathered_in_bf16():
    assert answer("bill") == "DDP, a little"
    model, inputs = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(5))), torch.zeros(2, 64)
    ddp = parallel.communication(model, inputs, 8, "ddp").sent_bytes
    reduced = {"units": tuple("0123"), "reduce_dtype": torch.float32}
    mixed, plain = (
        parallel.communication(model, inputs, 8, param_dtype=dtype, **reduced).sent_bytes
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert 0.85 * ddp < mixed < ddp < plain < 1.5 * ddp


def of_an_overridden_norm():
    """Return the dtypes of a layer norm's weight and input, as it computes under FSDP2 with an override."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    norms, seen = set(model[1].parameters()), []
    model[1].register_forward_hook(
        lambda norm, inputs, output: seen.extend([norm.weight.dtype, inputs[0].dtype])
    )
    policy = MixedPrecisionPolicy(
        torch.bfloat16,
        torch.float32,
        param_dtype_override_fn=lambda each: each.dtype if each in norms else None,
    )
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)), mp_policy=policy)
    model(torch.ones(2, 8))
    return seen


@pytest.mark.skipif(
    "param_dtype_override_fn" not in MixedPrecisionPolicy.__dataclass_fields__, reason="from 2.15 on"
)
def test_an_override_spares_parameters_the_cast_and_not_their_inputs():
    assert parallel.run(of_an_overridden_norm, 2)[0] == [torch.float32, torch.bfloat16]


def test_a_sampler_that_is_not_told_the_epoch_repeats_the_first_ones_order():
    samplers = [DistributedSampler(range(101), num_replicas=2, rank=rank, seed=0) for rank in (0, 1)]
    first, again = ([list(each) for each in samplers] for _ in range(2))
    assert first == again
    for each in samplers:
        each.set_epoch(1)
    assert [list(each) for each in samplers] != first
    assert len(first[0]) == len(first[1]) == 51
    assert len({*first[0], *first[1]}) == 101  # one sample comes twice


def clipped_on_two_meshes():
    """Return what clipping raises on two meshes, and the norms and what is left of the cure of the lesson."""
    whole = init_device_mesh("cpu", (4,))
    pairs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pair", "within"))["within"]
    torch.manual_seed(dist.get_rank() // 2)  # each pair of ranks has an expert of its own
    dense, expert = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    for layer, mesh in ((dense, whole), (expert, pairs)):
        fully_shard(layer, mesh=mesh)
    expert(dense(torch.ones(2, 8))).square().sum().backward()
    groups = [list(layer.parameters()) for layer in (dense, expert)]
    said = ""
    try:
        torch.nn.utils.clip_grad_norm_([*groups[0], *groups[1]], 1.0)
    except RuntimeError as error:
        said = str(error)
    squares = [torch.nn.utils.get_total_norm([p.grad for p in group]).full_tensor() ** 2 for group in groups]
    mine = sum(squares).sqrt()  # of the expert of this pair
    dist.all_reduce(squares[1])  # each expert comes from the two ranks of its pair
    total = (squares[0] + squares[1] / 2).sqrt()
    for group in groups:
        torch.nn.utils.clip_grads_with_norm_(group, 1.0, total)
    left = sum(p.grad.to_local().square().sum() for group in groups for p in group)
    dist.all_reduce(left)
    return said, mine.item(), total.item(), left.sqrt().item()


def test_clipping_raises_on_two_meshes_and_leaves_out_what_no_mesh_spans():
    said, mine, total, left = zip(*parallel.run(clipped_on_two_meshes, 4), strict=True)
    assert all("aten.stack.default" in each and "mesh" in each for each in said)
    assert audit.explain(said[0]).name == "clipped_on_two_meshes"
    assert mine[0] == mine[1] != mine[2] == mine[3]  # joined by squares, it is still each pair's own
    assert len(set(total)) == 1
    assert left == pytest.approx([1.0] * 4, abs=1e-4)


def norm_of_a_stage():
    """Return the norm that a stage of a pipeline clips by, and that of both stages' squares."""
    stage = torch.nn.Linear(4, 4)
    (10 ** dist.get_rank() * stage(torch.ones(2, 4)).sum()).backward()
    norm = torch.nn.utils.clip_grad_norm_(stage.parameters(), torch.inf)
    square = norm**2
    dist.all_reduce(square)
    return norm.item(), square.sqrt().item()


def test_each_stage_of_a_pipeline_clips_by_its_own_norm():
    (first, of_both), (second, of_both_too) = parallel.run(norm_of_a_stage, 2)
    assert second == pytest.approx(10 * first)
    assert of_both == of_both_too == pytest.approx((first**2 + second**2) ** 0.5)


def beside_dtensors(call):
    """Return what a call says that meets plain gradients beside DTensors."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    fully_shard(model[0], mesh=init_device_mesh("cpu", (2,)))
    ways = {call: True} if call in ("foreach", "fused") else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **ways)
    scaler = torch.amp.GradScaler("cpu", enabled=call == "scaler")
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    try:
        if call == "clip":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("call", "raises"),
    [("scaler", True), ("clip", True), ("foreach", True), ("fused", True), ("step alone", False)],
)
def test_plain_parameters_beside_dtensors_are_refused_by_all_but_a_step_one_by_one(call, raises):
    said = parallel.run(beside_dtensors, 2, call)[0]
    assert ("got mixed torch.Tensor and DTensor" in said) is raises
    assert audit.explain(said or "nothing").known is raises


class TimesABuffer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("factors", torch.ones(4))

    def forward(self, x):
        return self.layer(x * self.factors)


def what_fsdp2_refuses():
    """Return what is said of an fp32 buffer, of a step without a reduction, and of ``grad_dtype``."""
    mesh, said = init_device_mesh("cpu", (2,)), []

    def add(call):
        with pytest.raises((RuntimeError, AssertionError)) as raised:
            call()
        said.append(str(raised.value))

    model = TimesABuffer()
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    add(lambda: model(torch.ones(2, 4)))
    layer, scaler = torch.nn.Linear(4, 4), torch.amp.GradScaler("cpu")
    fully_shard(layer, mesh=mesh)
    layer.set_requires_gradient_sync(False)
    scaler.scale(layer(torch.ones(2, 4)).sum()).backward()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    optimizer.step()  # without a scaler nothing is said
    add(lambda: scaler.step(optimizer))
    if torch.__version__.startswith("2.13"):
        layer = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        layer.weight.grad_dtype = torch.float32
        fully_shard(layer, mesh=mesh)
        said.append(layer.weight.grad_dtype)
        layer.weight.grad_dtype = torch.float32
        add(layer(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward)
    return said


def test_fsdp2_refuses_an_fp32_buffer_a_scaler_s_step_without_a_reduction_and_another_grad_dtype():
    of_buffer, of_step, *in_2_13 = parallel.run(what_fsdp2_refuses, 2)[0]
    assert "same dtype" in of_buffer
    assert "No inf checks" in of_step
    if in_2_13:
        dropped, raised = in_2_13
        assert dropped == torch.bfloat16
        assert "grad_dtype" in raised


def of_a_norm_beside_tensor_parallelism():
    """Return the gradient of a norm that two ranks replicate, one of which has 256 of it and the other 1."""
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    model = torch.nn.Sequential(torch.nn.LayerNorm(8, bias=False))
    parallelize_module(model, mesh["tensor"], {"0": SequenceParallel()})
    fully_shard(model, mesh=mesh["data"], mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    token = torch.tensor([1.0, -1.0] * 4, dtype=torch.bfloat16).reshape(1, 1, 8)  # as a norm leaves it
    output = model(DTensor.from_local(token, mesh["tensor"], [Shard(1)]))
    (output.to_local() * (1 if dist.get_rank() else 256)).sum().backward()
    return model[0].weight.grad.dtype, model[0].weight.grad.full_tensor()[0].item()


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="later versions may keep the promise")
def test_beside_tensor_parallelism_a_replicated_weight_is_not_reduced_in_reduce_dtype():
    assert parallel.run(of_a_norm_beside_tensor_parallelism, 2) == [(torch.float32, 256.0)] * 2  # 257 in fp32
    said = "a replicated weight's gradient, such as a norm's, is summed in `param_dtype`"
    assert said in "".join(source(cell) for cell in NOTEBOOK["cells"] if cell["id"] == "default-why")
