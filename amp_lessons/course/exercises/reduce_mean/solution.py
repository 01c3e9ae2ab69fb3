import torch


def reduce_mean(chunks, rank, world_size, send, recv):
    """Return the mean over all ranks of the gradient in ``chunks``, in fp32, by a ring."""
    sums = [chunk.float() for chunk in chunks]
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    # add up: at the end this rank has the whole sum of one chunk
    for step in range(world_size - 1):
        send(sums[(rank - step) % world_size], after)
        chunk = (rank - step - 1) % world_size
        sums[chunk] = sums[chunk] + recv(before)
    for step in range(world_size - 1):  # hand round the sums that are whole
        send(sums[(rank + 1 - step) % world_size], after)
        sums[(rank - step) % world_size] = recv(before)
    return torch.cat(sums) / world_size
