"""Wrong and right ways to share masters out."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("sharded_masters")
wrong = TABLE.mutant
right = TABLE.variant

SHARD = "nn.Parameter(share[dist.get_rank()].clone())"
CAST = "self.shard.detach().to(self.compute_dtype)"
VALUES = "values.view_as(parameter)"
GRADIENTS = "whole = nn.functional.pad(flat, self.padding)"
REDUCE = "        dist.reduce_scatter_tensor(mine, whole)\n"
MEAN = "mine / dist.get_world_size()"
NONE = "        for parameter in self.parameters:\n            parameter.grad = None\n"
GATHER = "        dist.all_gather_into_tensor(whole, mine)\n"

wrong("no_parameter", "no_shard", "tensor", (SHARD, "share[dist.get_rank()].clone()"))
right("a_leaf_that_requires_a_gradient", (SHARD, "share[dist.get_rank()].clone().requires_grad_()"))
wrong(
    "reduced_to_one_rank",
    "wrong_shard_gradient",
    "dist.reduce promises the sum on one rank alone",
    (REDUCE, "        dist.reduce(whole, dst=0)\n        mine = whole.chunk(2)[dist.get_rank()]\n"),
)
right(
    "reduced_to_one_rank_that_hands_it_out",
    (
        REDUCE,
        "        dist.reduce(whole, dst=0)\n"
        "        dist.scatter(mine, list(whole.chunk(2)) if dist.get_rank() == 0 else None)\n",
    ),
)
wrong(
    "the_smallest_entry_wrong",
    "wrong_shard_gradient",
    "at index 3 it",
    (
        MEAN,
        f"{MEAN} * (1 + 2**-22)\n        self.shard.grad[self.shard.grad.abs().argmin()] *= 1 + 2**-18",
    ),
)
wrong(
    "masters_in_half",
    "masters_not_fp32",
    "rounded away",
    (SHARD, SHARD.replace(".clone()", ".to(compute_dtype)")),
)
wrong("a_view_of_the_whole", "whole_masters_kept", "shard holds 64", (SHARD, SHARD.replace(".clone()", "")))
wrong(
    "everything_kept",
    "whole_masters_kept",
    "whole holds 64",
    ("        self.shard =", "        self.whole = torch.cat(share).clone()\n        self.shard ="),
)
wrong(
    "a_copy_of_the_model_kept",
    "whole_masters_kept",
    "spare holds 63",
    (
        "        self.shard =",
        "        import copy\n        self.spare = copy.deepcopy(model)\n        self.shard =",
    ),
)
wrong(
    "everything_kept_behind_a_function",
    "whole_masters_kept",
    "peek holds 63",
    ("        self.shard =", "        self.peek = lambda: flat\n        self.shard ="),
)
wrong(
    "padded_with_halves",
    "shard_values",
    "at index 31 it is 0.5, not 0",
    ("nn.functional.pad(flat, self.padding).chunk", "nn.functional.pad(flat, self.padding, value=0.5).chunk"),
)
wrong(
    "gradients_padded_with_halves",
    "wrong_shard_gradient",
    "at index 31 it is 0.5, not 0",
    (GRADIENTS, "whole = nn.functional.pad(flat, self.padding, value=0.5)"),
)
wrong(
    "a_whole_round_of_padding",
    "no_shard",
    "an equal share of 56",
    ("-len(flat) % dist.get_world_size()", "dist.get_world_size() - len(flat) % dist.get_world_size()"),
)
wrong("not_sharded", "no_shard", "equal share", (SHARD, "nn.Parameter(torch.cat(share).clone())"))
wrong(
    "rank_zeros_share_for_all", "shard_values", "not this rank's part", ("share[dist.get_rank()]", "share[0]")
)
wrong(
    "masters_rounded_once",
    "shard_values",
    "after __init__",
    (SHARD, SHARD.replace(".clone()", ".to(compute_dtype).float()")),
)
wrong(
    "computes_in_fp32",
    "compute_dtype_ignored",
    "weights are in fp32",
    (CAST, "self.shard.detach()"),
)
wrong(
    "sent_in_fp32",
    "gathered_in_fp32",
    "256 bytes",
    (CAST, "self.shard.detach()"),
    (VALUES, "values.to(self.compute_dtype).view_as(parameter)"),
)
wrong(
    "sent_in_fp32_as_bytes",
    "gathered_in_fp32",
    "uint8",
    (CAST, "self.shard.detach()"),
    (GATHER, "        dist.all_gather_into_tensor(whole.view(torch.uint8), mine.view(torch.uint8))\n"),
    (VALUES, "values.to(self.compute_dtype).view_as(parameter)"),
)
wrong("always_fp16", "compute_dtype_ignored", "bf16", (CAST, "self.shard.detach().half()"))
wrong(
    "copied_into_fp32",
    "compute_dtype_ignored",
    "fp32",
    ("parameter.data = values.view_as(parameter)", "parameter.data.copy_(values.view_as(parameter))"),
)
wrong(
    "gathers_nothing",
    "gathered_wrong",
    "all ranks",
    (GATHER, "        whole = torch.cat([mine] * dist.get_world_size())\n"),
)
wrong(
    "gathers_only_once",
    "gathered_wrong",
    "in step 2",
    (
        "        mine = self.shard.detach()",
        '        if hasattr(self, "gathered"):\n            return\n        self.gathered = True\n        mine = self.shard.detach()',
    ),
)
wrong(
    "reduced_in_half",
    "shard_reduced_in_half",
    "fp16",
    (GRADIENTS, f"{GRADIENTS}.to(self.compute_dtype)"),
    ("torch.empty_like(self.shard)", "whole.new_empty(len(self.shard))"),
    (MEAN, f"({MEAN}).float()"),
)
wrong("never_divided", "wrong_shard_gradient", "mean gradient is wrong", (MEAN, "mine"))
wrong(
    "own_gradients_only",
    "wrong_shard_gradient",
    "it is -0.4880371, not",
    (REDUCE, "        mine = whole.chunk(dist.get_world_size())[dist.get_rank()] * dist.get_world_size()\n"),
)
wrong(
    "divided_in_half_before",
    "wrong_shard_gradient",
    "mean gradient is wrong",
    ("p.grad.float().flatten()", "(p.grad / dist.get_world_size()).float().flatten()"),
    (MEAN, "mine"),
)
wrong(
    "handed_on_and_added_up_in_half",
    "shard_reduced_in_half",
    "as far as adding up in fp16 rounds",
    (
        REDUCE,
        "        half = whole.to(self.compute_dtype)\n"
        "        every = [torch.empty_like(half) for _ in range(dist.get_world_size())]\n"
        "        dist.all_gather(every, half)\n"
        "        mine = sum(every[1:], every[0]).chunk(dist.get_world_size())[dist.get_rank()].float()\n",
    ),
)
wrong("inf_removed", "wrong_shard_gradient", "it is 0, not", (MEAN, f"({MEAN}).nan_to_num(0.0, 0.0, 0.0)"))
wrong("no_gradient", "no_shard_gradient", "None", (f"        self.shard.grad = {MEAN}\n", ""))
wrong("gradients_left", "gradients_kept", "still there", (NONE, ""))
wrong(
    "a_new_shard",
    "no_shard_gradient",
    "that the optimizer steps has the gradient None",
    (
        "        self.shard.grad =",
        "        self.shard = nn.Parameter(self.shard.detach().clone())\n        self.shard.grad =",
    ),
)
wrong(
    "steps_itself",
    "shard_values",
    "after step 1",
    (
        f"        self.shard.grad = {MEAN}\n",
        f"        self.shard.grad = {MEAN}\n        self.shard.data -= 0.1 * self.shard.grad.nan_to_num(0.0, 0.0, 0.0)\n",
    ),
)
wrong(
    "raises",
    "raised",
    "in gather",
    ("        mine = self.shard.detach()", "        1 // 0\n        mine = self.shard.detach()"),
)
wrong(
    "reduce_unwritten",
    "unfinished",
    "reduce",
    (
        "        flat = torch.cat([p.grad",
        "        raise NotImplementedError\n        flat = torch.cat([p.grad",
    ),
)


@TABLE.mistake("not_a_class", "not the class ShardedMasters")
def a_function(model, compute_dtype):
    return model


right("the_solution")
right("divided_before", (GRADIENTS, f"{GRADIENTS} / dist.get_world_size()"), (MEAN, "mine"))
right(
    "all_reduced_then_cut",
    (
        REDUCE,
        "        dist.all_reduce(whole)\n        mine = whole.chunk(dist.get_world_size())[dist.get_rank()].clone()\n",
    ),
    notes=("shard_all_reduced",),
)
right(
    "gathered_into_a_list",
    (
        GATHER,
        "        parts = list(whole.chunk(dist.get_world_size()))\n        dist.all_gather(parts, mine)\n",
    ),
)


right(
    "gathered_as_bytes",
    (GATHER, "        dist.all_gather_into_tensor(whole.view(torch.uint8), mine.view(torch.uint8))\n"),
)
right(
    "handed_on_in_half_and_added_up_in_fp32",
    (
        REDUCE,
        "        half = whole.to(self.compute_dtype)\n"
        "        parts = torch.empty_like(half)\n"
        "        dist.all_to_all_single(parts.view(torch.uint8), half.view(torch.uint8))\n"
        "        mine = parts.float().view(dist.get_world_size(), -1).sum(0)\n",
    ),
)
right(
    "reduced_to_one_rank_after_the_other",
    (
        REDUCE,
        "        for rank, part in enumerate(whole.chunk(dist.get_world_size())):\n"
        "            dist.reduce(part, dst=rank)\n"
        "        mine = whole.chunk(dist.get_world_size())[dist.get_rank()].clone()\n",
    ),
)
right(  # as FSDP2 does, so that backward passes can be accumulated
    "added_to_the_gradient_there_is",
    (
        f"self.shard.grad = {MEAN}",
        f"self.shard.grad = {MEAN} + (0 if self.shard.grad is None else self.shard.grad)",
    ),
)


@TABLE.correct()
class ByDTensors:
    """Leaves the collectives to DTensors, and the model without weights between the steps."""

    def __init__(self, model, compute_dtype):
        self.model, self.dtype = model, compute_dtype
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.shapes = [p.shape for p in model.parameters()]
        flat = self._flat([p.detach() for p in model.parameters()])
        self.shard = nn.Parameter(flat.tensor_split(dist.get_world_size())[dist.get_rank()].clone())
        self._free()

    def _free(self):
        for p in self.model.parameters():
            p.data = p.data.new_empty(0)

    def _flat(self, tensors):
        flat = torch.cat([t.to(torch.float32).reshape(-1) for t in tensors])
        return torch.cat([flat, flat.new_zeros(-len(flat) % dist.get_world_size())])

    def gather(self):
        mine = DTensor.from_local(self.shard.detach().to(self.dtype), self.mesh, [Shard(0)])
        whole, start = mine.full_tensor(), 0
        for p, shape in zip(self.model.parameters(), self.shapes, strict=True):
            p.data = whole.narrow(0, start, shape.numel()).reshape(shape)
            start += shape.numel()

    def reduce(self):
        flat = self._flat([p.grad for p in self.model.parameters()])
        summed = DTensor.from_local(flat, self.mesh, [Partial("sum")]).redistribute(placements=[Shard(0)])
        self.shard.grad = summed.to_local() / dist.get_world_size()
        self.model.zero_grad()
        self._free()


@TABLE.correct()
class InPlaceOfThePadding:
    """Pads only at the end, and writes into buffers that it keeps."""

    def __init__(self, model, compute_dtype):
        self.model, self.dtype = model, compute_dtype
        flat = nn.utils.parameters_to_vector(model.parameters()).detach()
        self.share = -(-flat.numel() // dist.get_world_size())
        start = dist.get_rank() * self.share
        shard = torch.zeros(self.share)
        mine = flat[start : start + self.share]
        shard[: len(mine)] = mine
        self.shard = nn.Parameter(shard)
        self.buffer = torch.empty(self.share * dist.get_world_size(), dtype=compute_dtype)
        model.to(compute_dtype)

    def gather(self):
        with torch.no_grad():
            dist.all_gather_into_tensor(self.buffer, self.shard.to(self.dtype))
            start = 0
            for parameter in self.model.parameters():
                parameter.copy_(self.buffer[start : start + parameter.numel()].view_as(parameter))
                start += parameter.numel()

    def reduce(self):
        whole = torch.zeros(self.share * dist.get_world_size())
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        whole[: flat.numel()] = flat
        mine = torch.empty(self.share)
        dist.reduce_scatter_tensor(mine, whole)
        self.shard.grad = mine.div_(dist.get_world_size())
        self.model.zero_grad(set_to_none=True)
