"""What a step sends, told without ranks, against real gloo processes, PyTorch's own counts and formulas."""

import math
import sys
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn.parallel import DistributedDataParallel

from amp_lessons import autocast, parallel
from amp_lessons.parallel.collectives import CollectiveLog
from tests.stored_lessons import text

BF16, FP32 = torch.bfloat16, torch.float32
WIDTH, BLOCKS, VOCABULARY = 32, 3, 48


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Model(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(BLOCKS))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


TOKENS = torch.zeros(4, 8, dtype=torch.long)
PLAN = {
    f"blocks.{i}.{name}": kind()
    for i in range(BLOCKS)
    for name, kind in (("up", ColwiseParallel), ("down", RowwiseParallel))
}
IN_BLOCK = sum(p.numel() for p in Block(WIDTH).parameters())
IN_MODEL = sum(p.numel() for p in Model().parameters())
# FSDP2 reduces in the gradients' dtype where none is named, since PyTorch 2.15 in fp32
UNNAMED = 4 if torch.__version__ >= "2.15" else 2


@pytest.mark.few
@pytest.mark.parametrize("ranks", [2, 4, 8])  # WIDTH and VOCABULARY divide by them: nothing is padded
@pytest.mark.parametrize(
    ("param_dtype", "reduce_dtype", "gathered", "reduced"),
    [(None, None, 4, 4), (BF16, FP32, 2, 4), (BF16, None, 2, UNNAMED), (BF16, torch.float16, 2, 2)],
)
def test_fsdp2_by_the_closed_formula(ranks, param_dtype, reduce_dtype, gathered, reduced):
    told = parallel.communication(Model(), TOKENS, ranks, param_dtype=param_dtype, reduce_dtype=reduce_dtype)
    others = (ranks - 1) / ranks
    # the root is gathered once: it is still there when the backward pass begins
    assert told.by_purpose() == {
        "parameters for the forward pass": others * gathered * IN_MODEL,
        "parameters for the backward pass": others * gathered * BLOCKS * IN_BLOCK,
        "gradients": others * reduced * IN_MODEL,
    }
    assert told.sent_bytes == sum(told.by_purpose().values())
    assert told.calls == 3 * BLOCKS + 2


def test_fsdp2_pads_what_its_ranks_do_not_divide():
    plain, padded = (parallel.communication(Model(), TOKENS, ranks).rows[-1].elements for ranks in (8, 100))
    assert plain < padded
    root = [Model().embedding.weight, *Model().head.parameters()]
    assert padded == sum(100 * math.ceil(len(p) / 100) * (p.numel() // len(p)) for p in root)


def test_units_are_chosen():
    whole = parallel.communication(Model(), TOKENS, 4, units=())
    assert [row.elements for row in whole.rows] == [IN_MODEL] * 2
    one = parallel.communication(Model(), TOKENS, 4, units=["blocks.1"])
    assert {row.elements for row in one.rows} == {IN_MODEL - IN_BLOCK, IN_BLOCK}


@pytest.mark.few
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("dtype", [None, BF16])
def test_tensor_parallelism_reduces_activations_twice_a_block(ranks, dtype):
    told = parallel.communication(Model(), TOKENS, ranks, "tp", plan=PLAN, param_dtype=dtype)
    passes = BLOCKS * 2 * (ranks - 1) / ranks * TOKENS.numel() * WIDTH * (2 if dtype else 4)
    assert told.by_purpose() == {"activations": passes, "gradients of activations": passes}
    assert {(row.collective, row.times) for row in told.rows} == {("all-reduce", BLOCKS)}


def test_a_small_model_is_cast_for_tensor_parallelism_whatever_a_fake_mode_remembers_of_it():
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    for _ in range(2):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        told = parallel.communication(model, torch.ones(2, 8), 2, "tp", plan=plan, param_dtype=BF16)
        assert {row.dtype for row in told.rows} == {BF16}


@pytest.mark.few
@pytest.mark.parametrize(("ranks", "dtype", "itemsize"), [(2, None, 4), (6, None, 4), (6, BF16, 2)])
def test_ddp_by_the_closed_formula(ranks, dtype, itemsize):
    told = parallel.communication(Model(), TOKENS, ranks, "ddp", reduce_dtype=dtype)
    assert told.sent_bytes == round(2 * (ranks - 1) / ranks * IN_MODEL * itemsize)


@pytest.mark.filterwarnings("ignore:Full backward hook")  # CommDebugMode's, on a model of whole numbers
@pytest.mark.parametrize("options", [{"strategy": "fsdp2"}, {"strategy": "tp", "plan": PLAN}])
def test_pytorchs_own_count_of_calls(options):
    with CommDebugMode() as counted:
        told = parallel.communication(Model(), TOKENS, 4, **options)
    counts = {str(operation): calls for operation, calls in counted.get_comm_counts().items()}
    distributing = ("scatter_", "broadcast_")  # the parameters, once, before the first step
    in_step = {name: n for name, n in counts.items() if not name.split(".")[-1].startswith(distributing)}
    assert sum(in_step.values()) == told.calls > 0


WIDE = 256  # its gradients fill several of DDP's buckets


def second_step_of_ddp(**options):
    """Return the model, the buckets of its second step, and what this process wrote in it."""
    buckets = []

    def hook(state, bucket):
        buckets.append(bucket.buffer())
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

    model = DistributedDataParallel(Model(WIDE), **options)
    model.register_comm_hook(None, hook)
    model(TOKENS).sum().backward()
    buckets.clear()  # after the first step DDP may order them anew
    before = bytes_written()
    model(TOKENS).sum().backward()
    dist.barrier()
    return model, buckets, bytes_written() - before


def ddp_buckets():
    _, buckets, written = second_step_of_ddp()
    return [(each.dtype, each.numel()) for each in buckets], written


def bytes_written():
    """Return what this process wrote, to its sockets above all; zero where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return 0
    with open("/proc/self/io") as file:
        return int(dict(line.split(":") for line in file)["wchar"])


def test_ddps_buckets_are_those_of_two_real_ranks():
    told = parallel.communication(Model(WIDE), TOKENS, 2, "ddp")
    (sent, written), _ = parallel.run(ddp_buckets, 2)
    assert len(sent) > 1
    assert Counter(sent) == Counter({(row.dtype, row.elements): row.times for row in told.rows})
    if sys.platform.startswith("linux"):
        assert written == pytest.approx(told.sent_bytes, rel=0.01)


def gradients_and_buckets(as_view):
    """Return the bytes of gradients and buckets after a step of DDP, over those of the parameters."""
    model, buckets, _ = second_step_of_ddp(gradient_as_bucket_view=as_view)
    storages = [each.untyped_storage() for each in (*buckets, *(p.grad for p in model.parameters()))]
    kept = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(kept.values()) / sum(p.nbytes for p in model.parameters())


def test_ddp_keeps_each_gradient_twice_unless_it_is_a_view_of_its_bucket():
    for as_view, times in ((False, 2), (True, 1)):
        assert parallel.run(gradients_and_buckets, 2, as_view)[0] == pytest.approx(times, rel=0.01)
    assert "20 bytes per parameter" in text("08", "bill-why")
    assert "16 with `gradient_as_bucket_view=True`" in text("08", "bill-why")


def fsdp2_calls(param_dtype, reduce_dtype):
    model, mesh = Model(), init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype, reduce_dtype)
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    with CollectiveLog() as log:
        log.phase = "forward"
        loss = model(TOKENS).sum()
        log.phase = "backward"
        loss.backward()
    return log.calls


def test_fsdp2_calls_the_same_on_real_ranks():
    told = parallel.communication(Model(), TOKENS, 3, param_dtype=BF16, reduce_dtype=FP32)
    calls = [(each.name, each.dtype, each.elements) for each in parallel.run(fsdp2_calls, 3, BF16, FP32)[0]]
    assert Counter(calls) == Counter(
        (row.collective, row.dtype, row.elements) for row in told.rows for _ in range(row.times)
    )


def each_collective_of_gloo():
    """Call what gloo has, one after the other; return what was noted of each."""
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (2,))
    ones, parts, first = torch.ones(4), [torch.ones(4), torch.ones(4)], rank == 0
    calls = {
        "all-reduce": lambda: dist.all_reduce(ones),
        "reduce": lambda: dist.reduce(ones, 0),
        "broadcast": lambda: dist.broadcast(ones, 0),
        "all-gather": lambda: dist.all_gather(parts, ones),
        "gather": lambda: dist.gather(ones, parts if first else None),
        "scatter": lambda: dist.scatter(ones, parts if first else None),
        "reduce-scatter": lambda: dist.reduce_scatter(ones, parts),
        "all-to-all": lambda: dist.all_to_all_single(torch.empty(4), ones),
        "send": lambda: dist.send(ones, 1) if first else dist.recv(ones, 0),
        "DTensor, all-gather": lambda: DTensor.from_local(ones, mesh, [Shard(0)]).full_tensor(),
        "DTensor, reduce-scatter": lambda: (
            DTensor.from_local(ones, mesh, [Partial()]).redistribute(placements=[Shard(0)]).to_local()
        ),
        "": dist.barrier,
    }
    noted = {}
    for name, call in calls.items():
        with CollectiveLog() as log:
            call()
        noted[name] = [each.name for each in log.calls]
    return noted


def test_each_collective_is_noted_by_its_name():
    of_rank_0, of_rank_1 = parallel.run(each_collective_of_gloo, 2)
    assert of_rank_0 == {name: [name.rpartition(", ")[2]] if name else [] for name in of_rank_0}
    assert of_rank_1 == of_rank_0 | {"send": []}  # who receives sends nothing


def gloo_writes(collective, elements):
    whole, ranks = torch.ones(elements), dist.get_world_size()
    shard = torch.ones(elements // ranks)
    calls = {
        "all-reduce": lambda: dist.all_reduce(whole),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, shard),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }
    dist.barrier()
    before = bytes_written()
    calls[collective]()
    return bytes_written() - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux counts what a process writes")
@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "broadcast"])
def test_real_ranks_write_what_the_formula_says(collective):
    written = parallel.run(gloo_writes, 4, collective, 400_000)
    assert sum(written) / 4 == pytest.approx(float(parallel.sent_bytes(collective, 1_600_000, 4)), rel=0.01)


def test_a_strategy_of_ones_own_may_have_groups_within_groups():
    def hybrid(model, mesh):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("copies", "shards"))
        return fully_shard(model, mesh=mesh)

    told = parallel.communication(Model(), TOKENS, 8, hybrid)
    assert told.strategy == "own"
    assert {(row.collective, row.ranks, row.elements) for row in told.rows} == {
        ("all-gather", 4, IN_MODEL),
        ("reduce-scatter", 4, IN_MODEL),
        ("all-reduce", 2, IN_MODEL // 4),
    }


class Distributed(nn.Module):
    """Does with the output of a model, and with the mesh, what a function says."""

    def __init__(self, model, mesh, what):
        super().__init__()
        self.model, self.mesh, self.what = model, mesh, what

    def forward(self, tokens):
        return self.what(self.model(tokens), self.mesh)


def test_a_strategy_of_ones_own_may_gather_a_dtensor():
    def gathered(output, mesh):
        return DTensor.from_local(output, mesh, [Shard(0)]).full_tensor()

    told = parallel.communication(Model(), TOKENS, 8, lambda *given: Distributed(*given, gathered))
    output = Model()(TOKENS).numel()
    assert ("all-gather", 8 * output) in {(row.collective, row.elements) for row in told.rows}


def test_what_no_formula_knows_is_refused():
    def sent(output, mesh):
        dist.send(output.detach(), 1)
        return output

    with pytest.raises(NotImplementedError, match="what a rank sends in send is not known here"):
        parallel.communication(Model(), TOKENS, 2, lambda *given: Distributed(*given, sent))
    assert not dist.is_initialized()


def test_ddp_sends_its_buffers_too():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    told = parallel.communication(model, torch.ones(3, 4), 4, "ddp")
    sent = {(row.collective, row.dtype, row.elements): row.purpose for row in told.rows}
    assert sent == {
        ("broadcast", FP32, 12): "buffers",
        ("broadcast", torch.int64, 1): "buffers",
        ("all-reduce", FP32, 42): "gradients",
    }


def test_a_billion_parameters_on_many_ranks_without_memory():
    with autocast.fake_tensors():
        model, tokens = Model(8192), torch.zeros(1, 4, dtype=torch.long)
    told = parallel.communication(model, tokens, 64, param_dtype=BF16, reduce_dtype=FP32)
    count = sum(p.numel() for p in model.parameters())
    assert count > 1e9
    assert told.by_purpose()["gradients"] == pytest.approx(63 / 64 * 4 * count, rel=1e-3)


def test_a_fake_model_can_be_asked_about_again():
    with autocast.fake_tensors():
        model, tokens = Model(), torch.zeros(4, 8, dtype=torch.long)
    first, again = (parallel.communication(model, tokens, 4) for _ in range(2))
    assert first == again == parallel.communication(Model(), TOKENS, 4)
    assert type(model) is Model


def test_the_model_is_left_as_it_was():
    model, excepthook = Model(), sys.excepthook
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for strategy in ("ddp", "fsdp2"):
        parallel.communication(model, TOKENS, 4, strategy)
    assert type(model) is Model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert sys.excepthook is excepthook
    assert not dist.is_initialized()


def test_nothing_is_left_of_a_step_that_fails():
    with pytest.raises(RuntimeError):
        parallel.communication(Model(), torch.zeros(2, 3), 4)  # an embedding of fractions
    assert not dist.is_initialized()
    assert parallel.communication(Model(), TOKENS, 4).calls == 3 * BLOCKS + 2


def test_one_rank_sends_nothing():
    for options in ({"strategy": "ddp"}, {"strategy": "fsdp2"}, {"strategy": "tp", "plan": PLAN}):
        assert parallel.communication(Model(), TOKENS, 1, **options).sent_bytes == 0


def test_a_rank_is_told_to_ask_elsewhere():
    with pytest.raises(parallel.RankError, match="this process is a rank of a group already"):
        parallel.run(lambda: parallel.communication(nn.Linear(2, 2), torch.ones(1, 2), 2), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": nn.ReLU(), "inputs": torch.ones(2)}, "without parameters has nothing to distribute"),
        ({"strategy": "fsdp"}, "there is no strategy 'fsdp'; did you mean fsdp2"),
        ({"strategy": 3}, "strategy is one of ddp, fsdp2, tp, or a function"),
        ({"reduce_dtype": torch.int8}, "reduce_dtype is a floating dtype, not torch.int8"),
        ({"units": ["nowhere"]}, "units are names of the model's modules; 'nowhere' is none"),
        ({"strategy": "ddp", "param_dtype": BF16}, "param_dtype changes nothing of what DDP sends"),
        ({"strategy": "tp", "plan": PLAN, "reduce_dtype": FP32}, "reduce_dtype is for gradients"),
        ({"strategy": "tp"}, 'plan is for the strategy "tp", which needs it'),
        ({"plan": PLAN}, 'plan is for the strategy "tp"'),
        ({"strategy": "ddp", "units": []}, 'units is for the strategy "fsdp2"'),
        ({"loss_fn": "mean"}, "loss_fn is a function of the model's output"),
        ({"strategy": fully_shard, "param_dtype": BF16}, "the business of a strategy that is a function"),
        ({"loss_fn": lambda output: output.detach().sum()}, "there is nothing to train"),
    ],
)
def test_other_arguments_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        parallel.communication(**{"model": Model(), "inputs": TOKENS, "world_size": 4, **options})


def test_other_collectives_are_refused():
    with pytest.raises(ValueError, match="there is no collective 'gather'"):
        parallel.sent_bytes("gather", 10, 2)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_loss_may_bring_its_targets_along(strategy):
    model, x, targets = nn.Sequential(nn.Linear(8, 4)), torch.randn(4, 8), torch.arange(4)
    plain = parallel.communication(model, x, 2, strategy)
    brought = parallel.communication(
        model, x, 2, strategy, loss_fn=lambda out: nn.functional.cross_entropy(out, targets)
    )
    assert brought.rows == plain.rows
    assert model[0].weight.grad is None
