"""Mistakes that only several ranks can make, worded once for exercises and audits.

Nothing here needs PyTorch: reports of ranks are joined without it. A function is called as the
code of its finding.
"""

from __future__ import annotations

from amp_lessons.audit.findings import Finding, failed, note


def scales_apart(who: str) -> Finding:
    """Report loss scales that differ: ``who`` is a clause, "the ranks went into step 3 with … scales"."""
    return failed(
        "scales_apart",
        f"{who}: gradients scaled differently were added up",
        "begin with the same scale, and let every scaler see the gradients that all ranks have in common",
    )


def skipped_apart(who: str) -> Finding:
    """Report a step that not all ranks made: ``who`` is a clause that says which did."""
    return failed(
        "skipped_apart",
        f"{who}: from then on they are different models, and no error says so",
        "let every rank's scaler look for inf in gradients that are reduced already; one that looks before, "
        "or at the loss, sees only its own",
    )


def weights_apart(who: str) -> Finding:
    """Report weights, or updates of them, that differ: ``who`` is a clause that says when and where."""
    return failed(
        "weights_apart",
        f"{who}, and no error said so: some gradients were not reduced, or a rank changed them by itself",
        "call the wrapped model, ddp(inputs), and let the last backward pass of every window, the short "
        "one too, run outside of no_sync",
    )


def steps_apart(counts: str) -> Finding:
    """Remark on ranks that took different numbers of steps."""
    return note(
        "steps_apart",
        f"the ranks took different numbers of steps, {counts}: what the others did with a rank that was "
        "through is not seen",
        "give every rank as many batches, as DistributedSampler does, or train inside model.join()",
    )


def masters_not_fp32(dtype: str) -> Finding:
    """Report shards that are to be the masters, and are in 16 bits."""
    return failed(
        "masters_not_fp32",
        f"the shard is in {dtype}: small updates to it would be rounded away",
        "keep the shard in fp32, and cast what is gathered; fully_shard does so for a model in fp32 with "
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16)",
    )
