"""Wrong and right rings."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("reduce_mean")
wrong = TABLE.mutant
right = TABLE.variant

FLOAT = "chunk.float() for chunk in chunks"
ADD = "sums[chunk] = sums[chunk] + recv(before)"
MEAN = "torch.cat(sums) / world_size"
MEAN_WITH_OWN = (
    "torch.cat([own.div(world_size).float() if world_size > 1 and i == (rank + 1) % world_size else each / world_size "
    "for i, each in enumerate(sums)])"
)
FIRST = "        send(sums[(rank - step) % world_size], after)\n"
SECOND = "        send(sums[(rank + 1 - step) % world_size], after)\n"
NEIGHBOURS = "after, before = (rank + 1) % world_size, (rank - 1) % world_size"

wrong("in_the_dtype_given", "sent_in_half", "bf16", (FLOAT, "chunk.clone() for chunk in chunks"))
wrong("sent_in_bf16", "sent_in_half", "bf16 was sent", (FIRST, FIRST.replace("],", "].bfloat16(),")))
wrong("sums_handed_round_in_half", "sent_in_half", "fp16", (SECOND, SECOND.replace("],", "].half(),")))
wrong(
    "in_fp64",
    "sent_wider",
    "fp64",
    (FLOAT, "chunk.double() for chunk in chunks"),
    (MEAN, f"({MEAN}).float()"),
)
wrong("in_place", "inputs_changed", "in place", (ADD, "sums[chunk] += recv(before)"))
wrong(
    "list_overwritten",
    "inputs_changed",
    "in place",
    ("sums = [chunk.float() for chunk in chunks]", "sums = chunks"),
)
wrong("sum_not_mean", "wrong_mean", "rank 0 returned", (MEAN, "torch.cat(sums)"))
wrong(
    "divided_twice",
    "wrong_mean",
    "rank 0 returned",
    (FLOAT, "chunk.float() / world_size for chunk in chunks"),
)
wrong(
    "divided_in_the_dtype_given",
    "wrong_mean",
    "of the magnitudes that were added",
    (FLOAT, "(chunk / world_size).float() for chunk in chunks"),
    (MEAN, "torch.cat(sums)"),
)
wrong(
    "rounded_on_the_way",
    "wrong_mean",
    "of the magnitudes that were added",
    (FIRST, FIRST.replace("],", "].to(chunks[0].dtype).float(),")),
)
wrong(
    "own_chunk_more_exact",
    "results_differ",
    "last bit",
    (
        "sums[chunk] = sums[chunk] + recv(before)",
        "got = recv(before)\n        own = sums[chunk].double() + got\n        sums[chunk] = own.float()",
    ),
    (MEAN, MEAN_WITH_OWN),
)
wrong(
    "halved_at_each_hop",
    "wrong_mean",
    "rank 0 returned",
    (ADD, "sums[chunk] = (sums[chunk] + recv(before)) / 2"),
    (MEAN, "torch.cat(sums)"),
)
wrong(
    "clamped",
    "wrong_mean",
    "not inf",
    (FLOAT, "chunk.float().clamp(-65504, 65504) for chunk in chunks"),
)
wrong("returned_in_the_dtype_given", "wrong_return_type", "bfloat16", (MEAN, f"({MEAN}).to(chunks[0].dtype)"))
wrong("returns_a_list", "wrong_return_type", "list", (MEAN, "[each / world_size for each in sums]"))
wrong("returns_nothing", "wrong_return_type", "None", ("return torch", "torch"))
wrong(
    "receives_first",
    "deadlock",
    "rank 0 for rank 1, rank 1 for rank 0",
    (FIRST, ""),
    (ADD, ADD + "\n" + FIRST.rstrip()),
)
wrong("both_to_the_next", "deadlock", "wait", (NEIGHBOURS, "after = before = (rank + 1) % world_size"))
wrong("one_hop_too_few", "wrong_mean", "rank 0 returned", (
    "one chunk\n    for step in range(world_size - 1):",
    "one chunk\n    for step in range(max(1, world_size - 2) if world_size > 1 else 0):",
))  # fmt: skip
wrong("no_modulo", "raised", "rank 0 of 2", (NEIGHBOURS, "after, before = rank + 1, rank - 1"))
wrong(
    "talks_to_itself",
    "raised",
    "rank 0 of 1",
    (
        "one chunk\n    for step in range(world_size - 1)",
        "one chunk\n    for step in range(max(1, world_size - 1))",
    ),
)
wrong("sends_a_list", "raised", "was given list", (FIRST, FIRST.replace("],", "].tolist(),")))
wrong(
    "never_hands_round",
    "wrong_mean",
    "rank 0 returned",
    (SECOND, ""),
    ("sums[(rank - step) % world_size] = recv(before)", "pass"),
)
wrong(
    "sends_once_more",
    "never_received",
    "never received",
    ("    return torch", "    if world_size > 1:\n        send(sums[0], after)\n    return torch"),
)
wrong(
    "wrong_chunk_handed_round",
    "wrong_return_type",
    "shape (14,)",
    (SECOND, SECOND.replace("rank + 1 - step", "rank - step")),
)
wrong("order_of_arrival", "wrong_mean", "rank 0 returned", (MEAN, "torch.cat(sums[::-1]) / world_size"))
wrong("inf_removed", "wrong_mean", "returned 0, not inf", (MEAN, f"({MEAN}).nan_to_num(0.0, 0.0, 0.0)"))
wrong(
    "sends_without_end",
    "raised",
    "went on",
    (FIRST, FIRST + "        while True:\n" + FIRST.replace("        ", "            ", 1)),
)


@TABLE.mistake("sends_too_much", "bytes")
def everybody_sends_everything(chunks, rank, world_size, send, recv):
    whole = passing = torch.cat([chunk.float() for chunk in chunks])
    for _ in range(world_size - 1):
        send(passing, (rank + 1) % world_size)
        passing = recv((rank - 1) % world_size)
        whole = whole + passing
    return whole / world_size


@TABLE.mistake("sends_too_much", "rank 0 sent")
def through_rank_zero(chunks, rank, world_size, send, recv):
    mine = torch.cat([chunk.float() for chunk in chunks])
    if rank:
        send(mine, 0)
        return recv(0)
    for other in range(1, world_size):
        mine = mine + recv(other)
    for other in range(1, world_size):
        send(mine / world_size, other)
    return mine / world_size


@TABLE.mistake("sends_too_much", "rank 1 sent")
def along_a_chain_and_back(chunks, rank, world_size, send, recv):
    """Neighbours only, and together no more than a ring: but those in the middle send everything twice."""
    whole = torch.cat([chunk.float() for chunk in chunks])
    if rank > 0:
        whole = whole + recv(rank - 1)
    if rank < world_size - 1:
        send(whole, rank + 1)
        whole = recv(rank + 1)
    else:
        whole = whole / world_size
    if rank > 0:
        send(whole, rank - 1)
    return whole


@TABLE.mistake("not_a_ring", "no neighbour")
def each_chunk_straight_to_its_rank(chunks, rank, world_size, send, recv):
    others = [other for other in range(world_size) if other != rank]
    for other in others:
        send(chunks[other].float(), other)
    mine = chunks[rank].float()
    for other in others:
        mine = mine + recv(other)
    for other in others:
        send(mine, other)
    sums = [mine if i == rank else recv(i) for i in range(world_size)]
    return torch.cat(sums) / world_size


@TABLE.mistake("wrong_mean", "of the magnitudes that were added")
def summed_in_half_and_sent_in_fp32(chunks, rank, world_size, send, recv):
    sums = list(chunks)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        send(sums[(rank - step) % world_size].float(), after)
        at = (rank - step - 1) % world_size
        sums[at] = sums[at] + recv(before).to(sums[at].dtype)
    sums = [each.float() for each in sums]
    for step in range(world_size - 1):
        send(sums[(rank + 1 - step) % world_size], after)
        sums[(rank - step) % world_size] = recv(before)
    return torch.cat(sums) / world_size


@TABLE.mistake("raised", "ZeroDivisionError")
def one_rank_raises(chunks, rank, world_size, send, recv):
    return 1 // rank and recv(0)


right("the_solution")
right("divided_before", (FLOAT, "chunk.float() / world_size for chunk in chunks"), (MEAN, "torch.cat(sums)"))
right(
    "own_copies_in_place",
    (FLOAT, "chunk.float().clone() for chunk in chunks"),
    (ADD, "sums[chunk] += recv(before)"),
)
right(
    "the_other_way_round",
    (NEIGHBOURS, "rank, after, before = -rank, (rank - 1) % world_size, (rank + 1) % world_size"),
)


@TABLE.correct()
def divides_its_own_chunk_once(chunks, rank, world_size, send, recv):
    """Each rank begins with the chunk before its own, so that it ends with its own."""
    passing = None
    for step in range(world_size):
        mine = chunks[(rank - 1 - step) % world_size].to(torch.float32)
        passing = mine if passing is None else mine + passing
        if step < world_size - 1:
            send(passing, (rank + 1) % world_size)
            passing = recv((rank - 1) % world_size)
    means = {rank: passing / world_size}
    for step in range(world_size - 1):
        send(means[(rank - step) % world_size], (rank + 1) % world_size)
        means[(rank - step - 1) % world_size] = recv((rank - 1) % world_size)
    return torch.cat([means[i] for i in range(world_size)])


@TABLE.correct()
def summed_in_fp64_on_each_rank(chunks, rank, world_size, send, recv):
    sums = [chunk.float() for chunk in chunks]
    for step in range(world_size - 1):
        send(sums[(rank - step) % world_size], (rank + 1) % world_size)
        at = (rank - step - 1) % world_size
        sums[at] = (sums[at].double() + recv((rank - 1) % world_size).double()).float()
    for step in range(world_size - 1):
        send(sums[(rank + 1 - step) % world_size], (rank + 1) % world_size)
        sums[(rank - step) % world_size] = recv((rank - 1) % world_size)
    return torch.hstack(sums).div_(world_size)


@TABLE.correct()
def in_one_loop(chunks, rank, world_size, send, recv):
    sums = [chunk.float() for chunk in chunks]
    for hop in range(2 * (world_size - 1)):
        send(sums[(rank - hop) % world_size], (rank + 1) % world_size)
        at = (rank - hop - 1) % world_size
        arrived = recv((rank - 1) % world_size)
        sums[at] = sums[at] + arrived if hop < world_size - 1 else arrived
    return torch.cat(sums) / world_size


@TABLE.correct()
def half_of_it_each_way_round(chunks, rank, world_size, send, recv):
    halves = []
    for way in (1, -1):
        me, to, source = way * rank, (rank + way) % world_size, (rank - way) % world_size
        cuts = [len(chunk) // 2 for chunk in chunks]
        parts = [c[:cut] if way == 1 else c[cut:] for c, cut in zip(chunks, cuts, strict=True)]
        sums = [part.float().clone() for part in parts]
        for step in range(world_size - 1):
            send(sums[(me - step) % world_size], to)
            sums[(me - step - 1) % world_size] += recv(source)
        for step in range(world_size - 1):
            send(sums[(me - step + 1) % world_size], to)
            sums[(me - step) % world_size] = recv(source)
        halves.append(sums)
    return torch.cat([half for pair in zip(*halves, strict=True) for half in pair]).div_(world_size)


@TABLE.correct()
def what_is_empty_is_not_sent(chunks, rank, world_size, send, recv):
    sums = [chunk.float() for chunk in chunks]
    for hop in range(2 * (world_size - 1)):
        out, into = (rank - hop) % world_size, (rank - hop - 1) % world_size
        if sums[out].numel():
            send(sums[out], (rank + 1) % world_size)
        if sums[into].numel():
            arrived = recv((rank - 1) % world_size)
            sums[into] = sums[into] + arrived if hop < world_size - 1 else arrived
    return torch.cat(sums) / world_size


@TABLE.correct()
def in_small_pieces(chunks, rank, world_size, send, recv):
    sums = [chunk.float() for chunk in chunks]
    for hop in range(2 * (world_size - 1)):
        for piece in sums[(rank - hop) % world_size].split(3):
            send(piece, (rank + 1) % world_size)
        into = (rank - hop - 1) % world_size
        arrived = torch.cat([recv((rank - 1) % world_size) for _ in sums[into].split(3)])
        sums[into] = sums[into] + arrived if hop < world_size - 1 else arrived
    return torch.cat(sums).mul(1 / world_size)


@TABLE.mistake("wrong_mean", "inf")
def running_mean(chunks, rank, world_size, send, recv):
    means = [chunk.float() for chunk in chunks]
    for step in range(world_size - 1):
        send(means[(rank - step) % world_size], (rank + 1) % world_size)
        index, mean = (rank - step - 1) % world_size, recv((rank - 1) % world_size)
        means[index] = mean + (means[index] - mean) / (step + 2)  # inf - inf
    for step in range(world_size - 1):
        send(means[(rank + 1 - step) % world_size], (rank + 1) % world_size)
        means[(rank - step) % world_size] = recv((rank - 1) % world_size)
    return torch.cat(means)
