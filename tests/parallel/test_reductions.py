"""Reductions simulated hop by hop, against real gloo processes and against sums done one by one."""

import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.nn.parallel import DistributedDataParallel

from amp_lessons import parallel
from amp_lessons.formats import FORMATS
from amp_lessons.parallel.reductions import arithmetic

HALVES = (torch.float16, torch.bfloat16)
SIZES = (1, 5, 37, 1000, 100_003)


def values_of(rank, elements, dtype, scale=3.0):
    generator = torch.Generator().manual_seed(rank)
    return (scale * torch.randn(elements, generator=generator)).to(dtype)


def of_all(ranks, elements, dtype, scale=3.0):
    return [values_of(rank, elements, dtype, scale) for rank in range(ranks)]


def gloo_sums_and_means(sizes, dtypes):
    """Return what each all-reduce gave to all ranks alike; one of them says it."""

    def reduced(elements, dtype, op):
        values = values_of(dist.get_rank(), elements, dtype)
        dist.all_reduce(values, op=op)
        return values

    ops = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.AVG}
    results = {
        (elements, dtype, name): reduced(elements, dtype, op)
        for elements in sizes
        for dtype in dtypes
        for name, op in ops.items()
    }
    for values in results.values():
        of_rank_0 = values.clone()
        dist.broadcast(of_rank_0, 0)
        assert torch.equal(of_rank_0, values)
    return results if dist.get_rank() == 0 else None


@pytest.mark.parametrize(
    ("ranks", "sizes", "dtypes"),
    [
        (2, SIZES, (torch.float32, torch.float16)),
        (3, SIZES, (torch.float32, torch.float16)),
        (4, SIZES, (torch.float32, torch.float16)),
        (2, (1_200_001,), (torch.float32,)),  # more than two segments for each rank
    ],
)
def test_the_simulated_gloo_is_gloo_bit_for_bit(ranks, sizes, dtypes):
    results = parallel.run(gloo_sums_and_means, ranks, sizes, dtypes)
    for (elements, dtype, op), result in results[0].items():
        simulated = parallel.reduce(of_all(ranks, elements, dtype), dtype, "gloo", op)
        assert torch.equal(simulated, result), (elements, dtype, op)


def ddp_gradient(elements):
    """Return what a step of DDP leaves on a weight whose gradient, on this rank, is known."""

    class Weight(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(elements))

        def forward(self, x):
            return self.weight * x

    model = DistributedDataParallel(Weight())
    model(values_of(dist.get_rank(), elements, torch.float32)).sum().backward()
    return model.module.weight.grad


def test_ddp_divides_before_it_sums():
    (gradient, *_) = parallel.run(ddp_gradient, 3, 1000)
    values = of_all(3, 1000, torch.float32)
    assert torch.equal(gradient, parallel.reduce(values, torch.float32, "gloo", "ddp"))
    assert not torch.equal(gradient, parallel.reduce(values, torch.float32, "gloo", "mean"))


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("elements", [19, 24])  # which ranks share unevenly, and evenly
def test_a_ring_adds_one_rank_after_the_other(elements, ranks, dtype):
    values, chunk = of_all(ranks, elements, dtype), -(-elements // ranks)
    expected = torch.empty(elements, dtype=dtype)
    for element in range(elements):
        home = element // chunk
        order = [(home + 1 + hop) % ranks for hop in range(ranks)]  # it ends on the rank that it belongs to
        total = values[order[0]][element]
        for rank in order[1:]:
            total = total + values[rank][element]  # PyTorch's own addition, in the dtype
        expected[element] = total
    assert torch.equal(parallel.reduce(values, dtype, "ring", "sum"), expected)
    assert torch.equal(parallel.reduce(values, dtype, "ring", "mean"), expected / ranks)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 13])
def test_a_tree_adds_pairs_then_pairs_of_pairs(ranks, dtype):
    def summed(values):
        while len(values) > 1:
            pairs = [a + b for a, b in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[2 * len(pairs) :]
        return values[0]

    values = of_all(ranks, 7, dtype)
    assert torch.equal(parallel.reduce(values, dtype, "tree", "sum"), summed(values))


@pytest.mark.parametrize("algorithm", parallel.ALGORITHMS)
def test_whole_numbers_are_summed_exactly(algorithm):
    values = torch.randint(-8, 9, (16, 3, 5)).float()
    for dtype in (*HALVES, torch.float8_e5m2, FORMATS["tf32"]):
        fits = values if dtype is not torch.float8_e5m2 else values.sign() * 0.25
        result = parallel.reduce(fits, dtype, algorithm, "sum")
        if dtype is not torch.float8_e5m2:
            assert torch.equal(result.float(), fits.sum(0))
        assert result.shape == (3, 5)


def test_a_format_without_a_dtype_is_rounded_to():
    values, tf32 = torch.tensor([[1.0], [2.0**-11]]), FORMATS["tf32"]
    assert parallel.reduce(values, tf32, "tree", "sum").item() == 1.0
    assert parallel.reduce(values, torch.float32, "tree", "sum").item() == 1 + 2.0**-11


@pytest.mark.parametrize("algorithm", parallel.ALGORITHMS)
@pytest.mark.parametrize("op", parallel.AVERAGINGS)
def test_single_numbers_are_reduced_as_tensors_of_one_element_are(algorithm, op):
    losses = [torch.tensor(value) for value in (1.0, 3.0, 2.5)]
    found = parallel.reduction(losses, torch.float16, algorithm, op)
    of_one = parallel.reduction([loss.view(1) for loss in losses], torch.float16, algorithm, op)
    assert found.result.shape == found.exact.shape == ()
    assert torch.equal(found.result, of_one.result[0])
    assert torch.equal(parallel.reduce(torch.stack(losses), torch.float16, algorithm, op), found.result)
    for hop, same in zip(found.hops, of_one.hops, strict=True):
        assert torch.equal(hop.partial_sums, same.partial_sums[:, 0])
        assert torch.equal(hop.ranks, same.ranks[:, 0])
    assert found.result.item() == pytest.approx(6.5 if op == "sum" else 6.5 / 3, rel=2**-9)


def test_4096_ranks_take_seconds():
    start = time.perf_counter()
    result = parallel.reduce(parallel.rank_gradients(4096, 4096), torch.bfloat16)
    assert result.dtype == torch.bfloat16
    assert time.perf_counter() - start < 60


@pytest.mark.parametrize(("algorithm", "hops"), [("ring", 5), ("gloo", 5), ("tree", 4)])
def test_every_hop_is_told(algorithm, hops):
    values = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0], [5.0, 50.0]])
    told = parallel.reduction(values, torch.float32, algorithm, "sum")
    assert len(told.hops) == hops
    assert torch.equal(told.hops[0].partial_sums, values)
    assert all(hop.partial_sums.shape == hop.ranks.shape for hop in told.hops)
    assert told.hops[-1].partial_sums.tolist() == [[15.0, 150.0]]
    assert told.exact.tolist() == [15.0, 150.0]
    assert told.relative_error == 0
    assert told.size == 1


def test_nccl_rounds_one_over_n_to_the_dtype_and_ddp_does_not():
    values = torch.full((3, 1), 2.0**-20 + 1)
    third = torch.tensor(1 / 3).bfloat16()
    factors = {
        op: parallel.AVERAGINGS[op].factors(3, arithmetic(torch.bfloat16)) for op in ("ddp", "nccl_avg")
    }
    assert factors["nccl_avg"].before == third.item()
    assert factors["ddp"].before == 1 / 3
    assert parallel.reduce(values, torch.float64, op="ddp").item() == pytest.approx(2.0**-20 + 1, rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12, 64, 100, 1024])
def test_fsdp_divides_as_the_installed_one(ranks, dtype):
    group = SimpleNamespace(size=lambda: ranks)
    before, after, *_ = _fsdp_collectives._get_gradient_divide_factors(group, None, dtype, "cuda")
    factors = parallel.AVERAGINGS["fsdp"].factors(ranks, arithmetic(dtype))
    assert (1 / factors.before, factors.after) == (before, after)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fsdp_leaves_fp32_and_bf16_to_nccl_as_the_installed_one(dtype):
    group = SimpleNamespace(size=lambda: 6)
    chosen = _fsdp_collectives._get_gradient_divide_factors(group, None, dtype, "cuda")
    assert chosen[:3] == (None, None, dist.ReduceOp.AVG)
    values = of_all(6, 50, dtype)
    assert torch.equal(*(parallel.reduce(values, dtype, op=op) for op in ("fsdp", "nccl_avg")))


def test_each_way_names_its_source():
    assert all(way.source for name, way in parallel.AVERAGINGS.items() if name != "sum")


def test_what_is_not_finite_stays_so():
    values = torch.tensor([[float("inf"), 1.0], [1.0, float("nan")]])
    result = parallel.reduce(values, torch.bfloat16)
    assert result[0].isinf()
    assert result[1].isnan()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], torch.float32), "each item of tensors is a floating tensor"),
        ((torch.tensor(1.0), torch.float32), "tensors is one tensor per rank"),
        (([], torch.float32), "tensors is at least one"),
        ((torch.empty(2, 0), torch.float32), "tensors is at least one"),
        ((torch.ones(2, 2).long(), torch.float32), "tensors are of a floating dtype, not torch.int64"),
        (([torch.ones(2), torch.ones(3)], torch.float32), r"tensors are of one shape, not of \(2,\) and"),
        ((torch.ones(2, 2), "bf16"), "dtype is a floating dtype"),
        ((torch.ones(2, 2), torch.float8_e8m0fnu), "dtype is one that sums can be kept in"),
        ((torch.ones(2, 2), torch.float32, "rings"), "there is no algorithm 'rings'; did you mean ring"),
        ((torch.ones(2, 2), torch.float32, "ring", "avg"), "there is no op 'avg'; did you mean nccl_avg"),
    ],
)
def test_other_arguments_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        parallel.reduce(*arguments)
