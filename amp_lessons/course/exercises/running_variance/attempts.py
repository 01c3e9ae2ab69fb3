"""Wrong and right ways to a mean and a variance in one pass."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("running_variance")
wrong = TABLE.mutant
right = TABLE.variant

BETWEEN = " + delta.square() * count * more / (count + more)"
RETURN = "return mean, squares / count"


@TABLE.mistake("running_variance", "4096")
def mean_of_squares(blocks):
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for block in blocks:
        wide = block.float()
        count += len(wide)
        total += wide.sum()
        squares += wide.square().sum()
    mean = total / count
    return mean, squares / count - mean.square()


@TABLE.mistake("blocks_kept", "still kept")
def two_passes(blocks):
    numbers = torch.cat(list(blocks)).float()
    return numbers.mean(), numbers.var(correction=0)


@TABLE.mistake("state_in_fp64", "tolist() took")
def in_pythons_numbers(blocks):
    count, mean, squares = 0, 0.0, 0.0
    for block in blocks:
        for number in block.tolist():
            count += 1
            delta = number - mean
            mean += delta / count
            squares += delta * (number - mean)
    return torch.tensor(mean), torch.tensor(squares / count)


@TABLE.mistake("running_variance", "4096")
def both_distances_from_a_mean_of_zero(blocks):
    """Right number by number, where the first one becomes the mean; a first block is far from 0."""
    count, mean, squares = 0, torch.zeros(()), torch.zeros(())
    for block in blocks:
        count += block.numel()
        from_old = block.float() - mean
        mean = mean + from_old.sum() / count
        squares = squares + (from_old * (block.float() - mean)).sum()
    return mean, squares / count


wrong(
    "in_fp64",
    "state_in_fp64",
    "fp64 was made",
    ("block.float()", "block.double()"),
    (RETURN, "return mean.float(), (squares / count).float()"),
)
wrong("between_forgotten", "running_variance", "the variance is", (BETWEEN, ""))
wrong(
    "between_without_the_new_part", "running_variance", "the variance is", (" * count * more /", " * more /")
)
wrong("divided_by_n_minus_1", "running_variance", "n - 1", ("squares / count", "squares / (count - 1)"))
wrong("root", "running_variance", "the variance is", ("squares / count", "(squares / count).sqrt()"))
wrong(
    "mean_moved_first",
    "running_variance",
    "the variance",
    (BETWEEN, " + (own - mean - delta * more / (count + more)).square() * count * more / (count + more)"),
)
wrong(
    "mean_by_the_first_parts",
    "running_mean",
    "the mean is",
    ("mean += delta * more / (count + more)", "mean += delta / (count + more)"),
)
wrong(
    "blocks_weigh_alike",
    "running_mean",
    "the mean is",
    ("for block in blocks", "for i, block in enumerate(blocks)"),
    ("delta * more / (count + more)\n        count", "delta / (i + 1)\n        count"),
)
wrong(
    "summed_in_16_bits",
    "running_mean",
    "for fp16 numbers",
    ("wide.mean()", "(block.sum() / len(block)).float()"),
)
wrong(
    "first_block_only",
    "blocks_unread",
    "1 of 3",
    ("        count += more\n", "        count += more\n        break\n"),
)
wrong("variance_alone", "wrong_return_type", "two tensors", (RETURN, "return squares / count"))
wrong("nothing_returned", "wrong_return_type", "None", (RETURN, "mean"))
wrong(
    "in_the_blocks_dtype",
    "wrong_return_type",
    "float16",
    (RETURN, "return mean.to(block.dtype), (squares / count).to(block.dtype)"),
)

right("the_solution")
right("count_in_a_tensor", ("count, mean, squares = 0,", "count, mean, squares = torch.zeros(()),"))
right("a_list", (RETURN, "return [mean, squares / count]"))


@TABLE.correct()
def both_distances_from_the_first(blocks):
    """A block's numbers by their distances from the old mean and from the new one, which begins near them."""
    count, mean, squares = 0, None, torch.zeros(())
    for block in blocks:
        count += block.numel()
        mean = block[0].float() if mean is None else mean
        from_old = block.float() - mean
        mean = mean + from_old.sum() / count
        squares = squares + (from_old * (block.float() - mean)).sum()
    return mean, squares / count


@TABLE.correct()
def variance_itself_kept(blocks):
    """The variance instead of a sum that grows for ever."""
    count, mean, variance = 0, torch.tensor(0.0), torch.tensor(0.0)
    for block in blocks:
        fraction = len(block) / (count + len(block))
        delta = block.float().mean() - mean
        variance = (1 - fraction) * variance + fraction * block.float().var(correction=0)
        variance = variance + fraction * (1 - fraction) * delta.square()
        mean = mean + fraction * delta
        count += len(block)
    return mean, variance


@TABLE.correct()
def state_begins_with_the_first_block(blocks):
    """One block, of which no copy was made, stays as long as its name."""
    rest = iter(blocks)
    first = next(rest).float()
    count, mean, squares = len(first), first.mean(), (first - first.mean()).square().sum()
    for block in rest:
        wide = block.float()
        delta, more = wide.mean() - mean, len(wide)
        squares = squares + (wide - wide.mean()).square().sum()
        squares = squares + delta.square() * count * more / (count + more)
        mean = mean + delta * more / (count + more)
        count += more
    return mean, squares / count
