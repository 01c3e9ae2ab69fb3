"""Backward passes that fail, or give what is not finite."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

GRADIENTS = (
    Message(
        name="nan_in_backward",
        patterns=(
            r"Function '\w+' returned nan values in its \d+\w+ output",
            r"Compiled [Aa]utograd returned NaN gradients",
            r"inputs\[\S+\] already having NaN gradient",
        ),
        meaning="Anomaly detection stopped at the first operation whose gradient is NaN. With a "
        "`GradScaler` an overflow is part of its work: the scale starts too high, inf times 0 is NaN, and "
        "the step would only have been skipped. NaN at a low scale, or without one, is a real fault of "
        "this operation.",
        cure="Try again with the scaler off, or with `init_scale=1.0`. If NaN stays, look at the forward "
        "line that the warning before it names: a square root or a division at 0, a log of 0, an eps that "
        "16 bits round to 0. Compute that in fp32.",
        lesson="06",
        source="C++",
    ),
    Message(
        name="norm_not_finite",
        patterns=(r"The total norm of order \S+ for gradients from `parameters` is non-finite",),
        meaning="Clipping with `error_if_nonfinite=True` met inf or NaN. With a `GradScaler` that is how "
        "it finds a scale that is too high: it would have skipped the step and lowered the scale.",
        cure="With a scaler leave `error_if_nonfinite` False, and clip after `scaler.unscale_(optimizer)`. "
        "Without one, in bf16 or fp32, the error is right: look for the first tensor that is not finite.",
        lesson="03",
        source="torch/nn/utils/clip_grad.py",
    ),
    Message(
        name="no_graph",
        patterns=(r"element \d+ of tensors does not require grad and does not have a grad_fn",),
        meaning="The loss has no graph to go back through. Apart from a detached or frozen loss, older "
        "versions of PyTorch lose it under autocast: a forward pass under `no_grad` leaves its cast "
        "weights in autocast's cache, and the training pass in the same `with` block takes them, without "
        "their history.",
        cure="Give the pass under `no_grad` an autocast block of its own, or say `cache_enabled=False`. If "
        "that changes nothing, look for `.detach()`, `.item()` or `requires_grad=False` on the way to the "
        "loss.",
        lesson="06",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/120483",
    ),
    Message(
        name="backward_twice",
        patterns=(r"Trying to backward through the graph a second time",),
        meaning="Two backward passes went through one graph. Neither autocast nor the scaler does that: "
        "two losses share a forward pass, a step that was skipped is tried again with the same loss, or "
        "something is carried from one batch to the next, such as a hidden state or a summed loss.",
        cure="Where two losses share a forward pass, call `scaler.scale(loss_a + loss_b).backward()` once. "
        "After a skipped step go on with the next batch. Detach what is carried on.",
        lesson="06",
        source="C++",
    ),
    Message(
        name="checkpoint_recomputed_otherwise",
        patterns=(r"Recomputed values for the following tensors have different metadata",),
        meaning="Activation checkpointing repeated a forward pass and got tensors of another dtype or "
        "shape. If the dtypes differ, autocast was not the same both times: it was switched within the "
        "function from outside, or set by a hook that runs only once.",
        cure="Enter autocast around `checkpoint(...)`, or unconditionally inside the function, not in "
        "between; checkpointing restores the state it found at the call. Take `use_reentrant=False`.",
        lesson="07",
        source="torch/utils/checkpoint.py",
    ),
)
