"""Mistakes with dtypes: what ran in which, and numbers that 16 bits cannot hold."""

from __future__ import annotations

from amp_lessons.audit.catalogue.rows import Worded, mistake, remark

# --- in which dtype


@mistake("every gradient was exactly 0", lesson="03", only_audit=True, costs="stops")
def gradients_all_zero(scale: float | None) -> Worded:
    """Report gradients that are all 0, computed in fp16 at the loss ``scale``, None in another format."""
    seen = "every gradient was exactly 0 at two steps in a row that were looked at: no weight can learn"
    if scale is None or scale >= 2.0**16:  # a scaler's first one: what needs a larger one is cut off
        return seen, "look for what cuts the loss off from the weights: a mask, say, or a factor of 0"
    return (
        f"{seen}; in fp16, at the loss scale {scale:g}, smaller gradients than 2⁻²⁵ become 0 on their way",
        "leave the scaler's init_scale at its default, 65536; where the gradients stay 0, look for what cuts "
        "the loss off from the weights",
    )


@mistake("a forward pass ran outside autocast", lesson="02", costs="gain")
def no_autocast(
    forward: str,
    asked: str,
    hint: str = "run every forward pass and its loss inside with torch.autocast(device_type, dtype=dtype):",
) -> Worded:
    """Report that ``forward`` (of whom) ran in fp32 although ``asked`` was asked for."""
    return f"{forward} ran in fp32, outside autocast: nothing is gained from {asked}", hint


@mistake("autocast ran in another dtype than asked for", unseen="an audit gives it by another code")
def wrong_autocast_dtype(what: str, seen: str, asked: object) -> Worded:
    """Report that ``what`` ran in another dtype, ``seen``, than the one ``asked`` for, torch.float16 say."""
    return (
        f"{what} ran in {seen} although dtype={asked} was asked for",
        "pass the argument on: torch.autocast(device_type, dtype=dtype)",
    )


@remark(
    "the inputs were cast to 16 bits by hand, which autocast does where it should",
    unseen="a batch may come in 16 bits",
)
def inputs_cast(whose: str) -> Worded:
    """Remark on inputs cast to 16 bits by hand; ``whose`` ends in a verb: "the inputs were"."""
    return (
        f"{whose} cast to 16 bits by hand: autocast casts what an operation needs, and leaves the others the "
        "digits and the range of fp32, which a cast by hand takes from all",
        "pass them on as they are",
    )


@mistake("one autocast context, and its cache of weights, outlived an optimizer step", lesson="02")
def one_big_autocast(anew: str = "in every iteration") -> Worded:
    """Report that autocast's cache of 16-bit weights outlived a step; ``anew`` says when to begin again."""
    return (
        "the forward pass used old weights: one autocast context stays open over several optimizer steps, "
        "and its cache of 16-bit weights is emptied only when the outermost context ends",
        f"enter autocast anew {anew}, around forward and loss only",
    )


@mistake("backward ran inside the autocast context", lesson="02", costs="rounded")
def backward_in_autocast(half: str) -> Worded:
    """Report a backward pass inside the autocast context, whose dtype is ``half``."""
    return (
        "backward ran inside the autocast context: the backward pass of operations kept in fp32 is cast to "
        f"{half} there, and PyTorch advises against it",
        "leave the with block after the loss; backward, step and update belong outside",
    )


@mistake("the optimizer's step ran inside autocast", lesson="02", only_audit=True, costs="rounded")
def step_in_autocast(half: str) -> Worded:
    """Report an optimizer's step inside the autocast context, whose own products ran in ``half``."""
    return (
        "optimizer.step() stands inside the autocast context, which cast the optimizer's own products to "
        f"{half}",
        "leave the with block after the loss; backward, step and update belong outside",
    )


@mistake("the parameters themselves are in 16 bits", lesson="01", costs="rounded")
def half_parameters(which: str = "the model's parameters were converted to", scaler: bool = True) -> Worded:
    """Report parameters that are in 16 bits themselves; ``which`` ends in a verb, a ``scaler`` may be on."""
    kept_out = ", and the scaler refuses their gradients unless a fused optimizer unscales them"
    return (
        f"{which} a 16-bit dtype: small updates to them are rounded away{kept_out if scaler else ''}",
        "leave the parameters in fp32; autocast casts what an operation needs",
    )


@remark(
    "the weights themselves are bf16, and so are the optimizer's moments",
    lesson="07",
    only_audit=True,
    costs="rounded",
)
def pure_bfloat16(seen: str, under_autocast: bool) -> Worded:
    """Remark on weights in bf16; ``seen`` says which, and since when they are so."""
    flag = ", whatever autocast or a flag such as bf16=True promises" if under_autocast else ""
    return (
        f"{seen}: that is pure bf16, not mixed precision{flag}; a step below 1/512 of a weight is always "
        "rounded away",
        "for fp32 masters load with dtype=torch.float32 and cast nothing; pure bf16, which takes half the "
        "memory, wants rounding at random, or a look at the share of lost updates",
    )


@mistake("updates are below half a spacing of the weights' format", lesson="01", costs="rounded")
def updates_rounded_away(seen: str, half: str) -> Worded:
    """Report weights in 16 bits that stay what they are; ``seen`` says how many, ``half`` names the dtype."""
    return (
        f"{seen}: an update below half the distance to the next {half} number is rounded away, and so is the "
        "next, however many there are",
        "keep the weights themselves, or what rounding cuts off them, in fp32; only the forward and backward "
        f"pass need be in {half}",
    )


@remark("weight decay in 16 bits never acts", lesson="01", only_audit=True, costs="rounded")
def decay_rounded_away(part: float, half: str) -> Worded:
    """Remark on weights in ``half`` precision from which each step takes a ``part`` that is rounded away."""
    return (
        f"weight decay takes {part:.1g} of each weight in a step, at most, which is less than half the "
        f"distance to the next {half} number: it is rounded away from every weight, and has never acted",
        f"keep the weights in fp32, where it acts; only the forward and backward pass need be in {half}",
    )


@remark("gradients are added up in 16 bits", lesson="01", only_audit=True, costs="rounded")
def gradients_summed_in_half(seen: str, half: str) -> Worded:
    """Remark on gradients added up in ``half`` precision; ``seen`` says of what and where."""
    return (
        f"{seen}: each sum loses what is less than half the distance to the next {half} number, and more the "
        "more terms there are",
        "keep the weights, whose dtype gradients have, in fp32; between ranks add up in fp32",
    )


@mistake(
    "matrix products ran in another dtype than asked for",
    unseen="in which dtype products were to run is not known",
)
def products_in_another_dtype(what: str, seen: str | None, asked: str) -> Worded:
    """Report that ``what`` (whose, in the plural) ran in ``seen``; None stands for none that ran at all."""
    ran = f"ran in {seen}" if seen else "did not run at all"
    why = ": their speed and memory are what 16 bits are for" if seen in ("fp32", "fp64") else ""
    return (
        f"{what} {ran}, and {asked} was asked for{why}",
        f"keep the products in {asked}, and take only what loses digits to fp32",
    )


@mistake("NaN went in and an ordinary number came out", unseen="whatever goes in and out is data")
def nan_hidden(what: str) -> Worded:
    """Report that NaN went in, and that ``what`` came out as an ordinary number."""
    return (
        f"NaN went in, and {what} came out as an ordinary number: whatever is broken before this point will "
        "never be noticed",
        "mend the operation that makes NaN out of good numbers, and let any other NaN through; "
        "leave out nan_to_num and its like",
    )


@mistake("parameters were left without requires_grad", unseen="an audit gives it by another code")
def parameters_frozen(when: str, which: str, hint: str) -> Worded:
    """Report parameters left with ``requires_grad=False``."""
    return (
        f"{when}, {which} had requires_grad=False: training would not change them any more, and where "
        "nothing else needs a gradient backward raises",
        hint,
    )


@mistake("the model was in evaluation mode")
def evaluation_mode(when: str) -> Worded:
    """Report a model that trains, or goes on to train, in evaluation mode."""
    return (
        f"{when} the model was in evaluation mode, in which dropout is off and batch norm's statistics "
        "stand still",
        "leave the model in training mode (model.train()); model.eval() is for inference",
    )


# --- numbers that 16 bits cannot hold


@mistake("the moving average is rounded to 16 bits in every step", lesson="01", costs="rounded")
def average_stuck(came: str, half: str, what: str = "the average is") -> Worded:
    """Report a moving average that is rounded to ``half`` precision; ``came`` says what was seen of it."""
    return (
        f"{came}: {what} rounded to {half} in every step, and what is left of an update after (1 - decay) is "
        "too small to survive that",
        "keep the average, and decay, in more digits than the weights have",
    )


@mistake("several positions are rounded to one", lesson="01", costs="rounded")
def positions_rounded(seen: str, lacking: str) -> Worded:
    """Report positions that run together; ``seen`` says of what, ``lacking`` what the format lacks."""
    return (
        f"{seen}: the positions are rounded to a format that has no {lacking}, and several of them become "
        "one",
        "compute with the positions in fp32 from the beginning; cos and sin may be cast",
    )


@mistake("a count in 16 bits stops growing", lesson="01", costs="beside")
def metric_stops(seen: str, half: str, stop: float) -> Worded:
    """Report a sum in ``half`` precision that takes no more ones from ``stop`` on; ``seen`` says where."""
    return (
        f"{seen}: a sum in {half} takes no more ones from {stop:,.0f} on, where they are half of its "
        "spacing, and stands still while the number of samples grows",
        "sum in fp32, in integers, or in Python's own numbers",
    )


@mistake("a metric was rounded to 16 bits on its way", lesson="01", costs="beside")
def metric_rounded(
    seen: str, how: str, hint: str = "sum in fp32, in integers, or in Python's own numbers"
) -> Worded:
    """Report a metric that is not the true one; ``seen`` gives both, ``how`` says when it was rounded."""
    return (f"{seen}: {how}", hint)


@mistake("eps is rounded to zero, or away", lesson="02", costs="rounded")
def eps_vanishes(seen: str, how: str, hint: str = "add eps where it is a number: in fp32") -> Worded:
    """Report a small constant that a format does not have; ``seen`` says where, ``how`` it vanished."""
    return (f"{seen}: {how}", hint)


@mistake("a query without a key gives NaN", lesson="02", costs="stops")
def masked_row_nan(
    seen: str,
    how: str = "-1e9 is beyond fp16, where it becomes -inf, and softmax of nothing but -inf divides zero by "
    "zero",
    hint: str = "mask with a number that the dtype has, or with a bool mask, and give such rows zeros",
) -> Worded:
    """Report a mask whose number is -inf in 16 bits; ``seen`` says where, ``how`` what comes of it."""
    return (f"{seen}: {how}", hint)


@mistake(
    "a query without a key gives an average of what is hidden",
    lesson="02",
    unseen="only an exercise asks for it",
)
def masked_row_not_zero(seen: str, hint: str) -> Worded:
    """Report numbers in a row that may see no key; ``seen`` says where, ``hint`` how it gives zeros."""
    return f"{seen}; of scores that are all equal, softmax gives every key the same weight", hint


@mistake(
    "a buffer that forward passes write is inf or NaN, and the weights are not", lesson="06", costs="beside"
)
def buffers_not_finite(seen: str, statistics: bool = True) -> Worded:
    """Report buffers that are inf or NaN; ``seen`` says which, ``statistics`` that they are a norm's."""
    later = (
        "training takes mean and variance of each batch and looks sound, evaluation takes these, and is NaN"
        if statistics
        else "whatever is computed with them is not finite either"
    )
    return (
        f"{seen}, and all weights are finite: a forward pass wrote it there, and skipping the step after it "
        f"takes nothing of that back; {later}",
        "put back what they held before a batch whose step is skipped, or keep inf from them: what overflows "
        "before them belongs in fp32; a norm's statistics that are lost can be estimated anew",
    )


@mistake("the weights themselves are inf or NaN", lesson="06", only_audit=True)
def weights_broken(
    which: str,
    step: str = "a step",
    gradients: str = "were not finite, or that were too large",
    hint: str = "",
) -> Worded:
    """Report weights that are not finite; ``which`` names the layers that own them.

    A ``step`` has done it, whose ``gradients`` were as that says.
    """
    return (
        f"weights of {which} are inf or NaN: {step} was made with gradients that {gradients}, and no later "
        "step takes that back",
        hint
        or "go back to a checkpoint whose weights are finite, and audit the training from there: it names "
        "the first inf or NaN, and steps that were made past the scaler",
    )
