import torch
import torch.distributed as dist
from torch import nn


class ShardedMasters:
    """This rank's share of a model's weights in fp32, and all of them, in 16 bits, to compute with."""

    def __init__(self, model, compute_dtype):
        """Keep this rank's share as ``shard``, a parameter: 1-D, fp32, padded with zeros."""
        self.parameters, self.compute_dtype = list(model.parameters()), compute_dtype
        flat = torch.cat([p.detach().flatten() for p in self.parameters])
        self.padding = (0, -len(flat) % dist.get_world_size())
        share = nn.functional.pad(flat, self.padding).chunk(dist.get_world_size())
        self.shard = nn.Parameter(share[dist.get_rank()].clone())

    def gather(self):
        """Give every parameter of the model its whole value, in ``compute_dtype``."""
        mine = self.shard.detach().to(self.compute_dtype)
        whole = mine.new_empty(len(mine) * dist.get_world_size())
        dist.all_gather_into_tensor(whole, mine)
        sizes = [p.numel() for p in self.parameters]
        for parameter, values in zip(self.parameters, whole[: sum(sizes)].split(sizes),
                                     strict=True):
            parameter.data = values.view_as(parameter)

    def reduce(self):
        """Put this rank's share of the mean gradient of all ranks into ``shard.grad``, in fp32."""
        flat = torch.cat([p.grad.float().flatten() for p in self.parameters])
        whole = nn.functional.pad(flat, self.padding)
        mine = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(mine, whole)
        self.shard.grad = mine / dist.get_world_size()
        for parameter in self.parameters:
            parameter.grad = None
