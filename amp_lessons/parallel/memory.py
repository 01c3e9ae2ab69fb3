"""Bytes per parameter and rank, by bookkeeping: whose table counts what, and what each stage shards.

Activations, buckets and workspace come on top: ``measure.predict_memory`` knows of the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from amp_lessons._base.arguments import require, require_whole
from amp_lessons._base.text.nearest import did_you_mean

# From which stage of ZeRO on a rank holds its n-th part only (Rajbhandari et al., arXiv:1910.02054, 5)
SHARDED_FROM = {
    "weights": 3,
    "gradients": 2,
    "fp32 copies of gradients": 1,
    "fp32 masters": 1,
    "Adam's moments": 1,
}
STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp2": 3}


@dataclass(frozen=True)
class Convention:
    """Bytes per parameter, by what they hold, as a table counts them. ``source`` is where it stands."""

    name: str
    says: str
    bytes_per_parameter: dict[str, int]
    source: str

    @property
    def total(self) -> int:
        """The bytes per parameter on one rank alone."""
        return sum(self.bytes_per_parameter.values())


_MEGATRON = "Megatron Core User Guide, Distributed Optimizer: theoretical bytes per parameter"

CONVENTIONS = {
    each.name: each
    for each in (
        Convention(
            "zero",
            "16-bit weights and gradients; fp32 masters and moments",
            {"weights": 2, "gradients": 2, "fp32 masters": 4, "Adam's moments": 8},
            "Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1: 2 + 2 + K, K = 12",
        ),
        Convention(
            "megatron bf16",
            "16-bit weights, gradients accumulated in fp32; fp32 masters and moments",
            {"weights": 2, "gradients": 4, "fp32 masters": 4, "Adam's moments": 8},
            f"{_MEGATRON}, 16-bit param, fp32 grads: 18, or 6 + 12/d",
        ),
        Convention(
            "megatron fp16",
            "16-bit weights and gradients; their fp32 copies, and moments",
            {
                "weights": 2,
                "gradients": 2,
                "fp32 copies of gradients": 4,
                "fp32 masters": 4,
                "Adam's moments": 8,
            },
            f"{_MEGATRON}, float16 param, float16 grads: 20, or 4 + 16/d",
        ),
        Convention(
            "fp32",
            "fp32 weights, gradients and moments: fp32 training, autocast (whose 16-bit copies of weights "
            "come and go), and FSDP2, whose shards are the masters",
            {"weights": 4, "gradients": 4, "Adam's moments": 8},
            f"{_MEGATRON}, fp32 param, fp32 grads: 16, or 8 + 8/d; torch/distributed/fsdp/_fully_shard/"
            "_fsdp_api.py, MixedPrecisionPolicy: sharded parameters stay in the original dtype",
        ),
    )
}


@dataclass(frozen=True)
class RankMemory:
    """The bytes that one rank holds; ``gathered`` are those that it holds unsharded for a while."""

    parameters: int
    world_size: int
    stage: str
    convention: str
    held: dict[str, int]
    gathered: int

    @property
    def total(self) -> int:
        """The bytes of all parts together."""
        return sum(self.held.values()) + self.gathered

    @property
    def bytes_per_parameter(self) -> float:
        """The bytes of all parts, divided by the number of parameters of the whole model."""
        return self.total / self.parameters


def memory_per_rank(
    parameters: int | nn.Module,
    world_size: int,
    stage: str = "ddp",
    convention: str = "zero",
    *,
    gathered_parameters: int = 0,
    gathered_itemsize: int = 2,
) -> RankMemory:
    """Return what each of ``world_size`` ranks holds of a model of so many parameters, by bookkeeping.

    ``parameters`` is their number, or the model, of which those count that are trained. ``stage`` is one of
    ``STAGES``: "ddp" holds everything, "zero1" to "zero3" shard more and more, "fsdp2" as much as "zero3".
    ``convention`` is one of ``CONVENTIONS``. With "zero3" and "fsdp2" parameters are gathered for computing,
    ``gathered_parameters`` at a time (the largest unit's, or two units' where the next is gathered
    meanwhile), in ``gathered_itemsize`` bytes each. A shard is an n-th, rounded up; the padding of single
    tensors is not counted. Raises TypeError or ValueError for other arguments.
    """
    for value, name, known in ((stage, "stage", STAGES), (convention, "convention", CONVENTIONS)):
        if require(value, str, name, f"a name such as {next(iter(known))!r}") not in known:
            raise ValueError(f"there is no {name} {value!r}; {did_you_mean(value, known)}")
    count = parameters
    if isinstance(parameters, nn.Module):
        count = sum(each.numel() for each in parameters.parameters() if each.requires_grad)
    count, ranks = require_whole(count, "parameters"), require_whole(world_size, "world_size")
    gathered = require_whole(gathered_parameters, "gathered_parameters", least=0)
    if gathered and STAGES[stage] < 3:
        raise ValueError(f"gathered_parameters is 0 for {stage!r}, where every rank holds all weights")
    itemsize = require_whole(gathered_itemsize, "gathered_itemsize")
    shard = -(-count // ranks)
    held = {
        what: nbytes * (shard if STAGES[stage] >= SHARDED_FROM[what] else count)
        for what, nbytes in CONVENTIONS[convention].bytes_per_parameter.items()
    }
    return RankMemory(count, ranks, stage, convention, held, gathered * itemsize)
