"""Mistakes that only several ranks can make; those that show beside each other ``report/together`` finds."""

from __future__ import annotations

from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import Worded, mistake, remark
from amp_lessons.audit.rules.rule import Verdicts, likely, on


@mistake("the ranks had different loss scales", lesson="08", section="deeper-loop")
def scales_apart(who: str) -> Worded:
    """Report loss scales that differ: ``who`` is a clause, "the ranks went into step 3 with … scales"."""
    return (
        f"{who}: gradients scaled differently were added up",
        "begin with the same scale, and let every scaler see the gradients that all ranks have in common",
    )


@mistake("one rank skipped a step that another made", lesson="08", section="skip")
def skipped_apart(who: str) -> Worded:
    """Report a step that not all ranks made: ``who`` is a clause that says which did."""
    return (
        f"{who}: from then on they are different models, and no error says so",
        "let every rank's scaler look for inf in gradients that are reduced already; one that looks before, "
        "or at the loss, sees only its own",
    )


@mistake("the ranks had different weights after a step", lesson="08", section="skip")
def weights_apart(who: str) -> Worded:
    """Report weights, or updates of them, that differ: ``who`` is a clause that says when and where."""
    return (
        f"{who}, and no error said so: some gradients were not reduced, or a rank changed them by itself",
        "call the wrapped model, ddp(inputs), and let the last backward pass of every window, the short "
        "one too, run outside of no_sync",
    )


@remark("the ranks took different numbers of steps", lesson="08", only_audit=True, costs="beside")
def steps_apart(counts: str) -> Worded:
    return (
        f"the ranks took different numbers of steps, {counts}: what the others did with a rank that was "
        "through is not seen",
        "give every rank as many batches, as DistributedSampler does, or train inside model.join()",
    )


@mistake("this rank's share is in 16 bits", lesson="08", costs="rounded", section="masters")
def masters_not_fp32(dtype: str) -> Worded:
    return (
        f"the shard is in {dtype}: small updates to it would be rounded away",
        "keep the shard in fp32, and cast what is gathered; fully_shard does so for a model in fp32 with "
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
    )


@on(events.ShardsInHalf)
def _(event: events.ShardsInHalf, past: Past) -> Verdicts:
    kept = "an optimizer that keeps fp32 copies, or rounds at random, needs no other"
    yield likely(masters_not_fp32(str(event.dtype)), f"`{event.layer}` has some; {kept}")
