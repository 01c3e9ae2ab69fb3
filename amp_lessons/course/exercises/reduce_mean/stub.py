def reduce_mean(chunks, rank, world_size, send, recv):
    """Return the mean over all ranks of the gradient in ``chunks``, in fp32, by a ring.

    ``send(tensor, to)`` hands a copy to another rank and does not wait; ``recv(source)`` waits for the next
    tensor from that rank.
    """
    raise NotImplementedError
