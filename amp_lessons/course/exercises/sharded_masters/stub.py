class ShardedMasters:
    """This rank's shard of a model's weights in fp32; all weights, in 16 bits, to compute."""

    def __init__(self, model, compute_dtype):
        """Keep this rank's part as ``shard``, a parameter: 1-D, fp32, padded with zeros."""
        raise NotImplementedError

    def gather(self):
        """Give every parameter of the model its whole value, in ``compute_dtype``."""
        raise NotImplementedError

    def reduce(self):
        """Put this rank's shard of the mean gradient of all ranks into ``shard.grad``, in fp32."""
        raise NotImplementedError
