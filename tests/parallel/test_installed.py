"""What is asked of the installed PyTorch, against what it does when asked by hand."""

import torch
import torch.distributed as dist

from amp_lessons import parallel
from amp_lessons.parallel import installed
from amp_lessons.precisions import HALVES


def reduce_scattered(op):
    shard = torch.empty(2)
    dist.reduce_scatter_tensor(shard, torch.full((4,), 1.0 + dist.get_rank()), op=op)
    return shard.tolist()


def test_whether_gloo_sums_where_it_should_average():
    facts = parallel.gloo_facts()
    (given, *_) = parallel.run(reduce_scattered, 2, dist.ReduceOp.AVG)
    assert given == ([3.0, 3.0] if facts.sums_where_it_should_average else [1.5, 1.5])
    assert facts.torch_version == torch.__version__
    assert set(facts.averages.values()) <= {4.0, 8.0, None}
    assert facts.averages["fully_shard"] in (4.0, 8.0)
    assert facts.reduces[torch.float16]


def test_what_is_refused_is_no_average():
    def refuse():
        raise RuntimeError("Cannot use ReduceOp.AVG with Gloo")

    assert installed._or_none(refuse) is None
    assert installed._or_none(lambda: 4.0) == 4.0


def test_what_no_reduce_dtype_means():
    told = parallel.default_reduce_dtype()
    assert told.seen[None] is torch.float32
    assert set(told.seen) == {None, torch.float16, torch.bfloat16}
    follows_gradients = torch.__version__ >= "2.15"
    assert all((told.seen[dtype] is torch.float32) == follows_gradients for dtype in HALVES.values())
    assert told.documented.startswith("reduce_dtype (")
    assert "output_dtype" not in told.documented
