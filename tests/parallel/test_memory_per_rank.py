"""Bytes per parameter and rank, against the papers' tables, FSDP2's shards and PyTorch's own tracker."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from amp_lessons import parallel
from amp_lessons.parallel.traffic import fake_group


def gigabytes(parameters, ranks, stage, convention="zero"):
    return parallel.memory_per_rank(parameters, ranks, stage, convention).total / 1e9


@pytest.mark.parametrize(
    ("parameters", "ranks", "expected"),  # table 1 of the ZeRO paper: DDP, stages 1, 2 and 3, in GB
    [
        (7_500_000_000, 4, (120, 52.5, 41.3, 30)),
        (7_500_000_000, 64, (120, 31.4, 16.6, 1.88)),
        (128_000_000_000, 1024, (2048, 513, 257, 2)),
    ],
)
def test_the_zero_papers_table(parameters, ranks, expected):
    stages = ("ddp", "zero1", "zero2", "zero3")
    assert tuple(gigabytes(parameters, ranks, stage) for stage in stages) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("convention", "alone", "kept", "shared"),  # Megatron's table: x, or a + b/d
    [("megatron fp16", 20, 4, 16), ("megatron bf16", 18, 6, 12), ("fp32", 16, 8, 8)],
)
def test_megatrons_table(convention, alone, kept, shared):
    assert parallel.CONVENTIONS[convention].total == alone
    for ranks in (1, 8, 64):
        told = parallel.memory_per_rank(64_000, ranks, "zero1", convention)
        assert told.bytes_per_parameter == kept + shared / ranks


def layers():
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))


def sharded(model, mesh, policy):
    for module in (*model, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return model


def booked(make, inputs, ranks, policy):
    """Return what PyTorch's own tracker books on rank 0 after a step, by its names of kinds."""
    with fake_group(ranks) as mesh, FakeTensorMode(allow_non_fake_inputs=True):
        model = sharded(make(), mesh, policy)
        optimizer = torch.optim.AdamW(model.parameters())
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((inputs,))
        with tracker:
            model(inputs).sum().backward()
            optimizer.step()
            found = tracker.get_tracker_snapshot("current")[torch.device("cpu")]
    return {str(getattr(kind, "value", kind)): nbytes for kind, nbytes in found.items()}


class Uneven(nn.Sequential):
    """A vocabulary of 101, which no number of ranks divides."""

    def __init__(self):
        super().__init__(nn.Embedding(101, 24), *(nn.Linear(24, 24) for _ in range(9)), nn.Linear(24, 101))


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize(
    ("make", "inputs"), [(layers, torch.ones(4, 64)), (Uneven, torch.zeros(2, dtype=torch.int64))]
)
def test_fsdp2_holds_what_pytorchs_tracker_books_and_rank_0_the_rest_of_each_tensor(
    make, inputs, dtype, ranks
):
    """FSDP2 cuts tensors along their first dimension, and rank 0 holds the larger piece of what is uneven."""
    by_name = booked(make, inputs, ranks, MixedPrecisionPolicy(dtype, torch.float32))
    parameters = list(make().parameters())
    on_rank_0 = sum(-(-len(each) // ranks) * (each.numel() // len(each)) for each in parameters)
    even = -(-sum(each.numel() for each in parameters) // ranks)
    rest = on_rank_0 - even
    assert 0 <= rest < 0.1 * even
    assert (rest > 0) == (make is Uneven)
    told = parallel.memory_per_rank(make(), ranks, "fsdp2", "fp32").held
    assert by_name["Sharded Param"] - told["weights"] == 4 * rest
    assert by_name["Sharded Grad"] - told["gradients"] == 4 * rest
    assert by_name["OptState"] - told["Adam's moments"] == 8 * rest + 4 * len(
        parameters
    )  # and its step counts


def bytes_of_a_rank():
    model = sharded(
        layers(), init_device_mesh("cpu", (2,)), MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    gradients = [parameter.grad for parameter in model.parameters()]
    return [sum(t.to_local().nbytes for t in kind) for kind in (model.parameters(), gradients, moments)]


def test_fsdp2_holds_it_on_real_ranks():
    told = parallel.memory_per_rank(layers(), 2, "fsdp2", "fp32").held
    assert parallel.run(bytes_of_a_rank, 2) == [list(told.values())] * 2
    assert not dist.is_initialized()


def test_what_is_gathered_for_a_while_comes_on_top():
    told = parallel.memory_per_rank(1000, 10, "fsdp2", "fp32", gathered_parameters=300)
    assert told.gathered == 600
    assert told.total == 16 * 100 + 600


def test_only_what_is_trained_counts_and_a_shard_is_rounded_up():
    model = nn.Linear(3, 3)
    model.bias.requires_grad_(False)
    told = parallel.memory_per_rank(model, 2, "zero3")
    assert told.parameters == 9
    assert told.held["weights"] == 2 * 5


def test_each_convention_names_its_source():
    assert all(convention.source and convention.says for convention in parallel.CONVENTIONS.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": 0}, "parameters is a whole number of at least 1"),
        ({"parameters": nn.ReLU()}, "parameters is a whole number of at least 1"),
        ({"stage": "zero4"}, "there is no stage 'zero4'; did you mean zero"),
        ({"convention": "adam"}, "there is no convention 'adam'"),
        ({"gathered_parameters": 5}, "gathered_parameters is 0 for 'ddp'"),
    ],
)
def test_other_arguments_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        parallel.memory_per_rank(**{"parameters": 100, "world_size": 2, **options})
