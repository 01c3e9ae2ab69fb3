"""The memory that ``accelerate estimate-memory`` promises a training, beside what the course predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from amp_lessons.measure import predict_memory

_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Estimate:
    """Bytes of a training step: what accelerate says, and what a step with Adam is predicted to need.

    ``predicted_state_bytes`` are weights, gradients and Adam's state alone, without any activation,
    ``predicted_peak_bytes`` those of the whole step.
    """

    precision: str
    said_bytes: int
    predicted_state_bytes: int
    predicted_peak_bytes: int


def accelerate_estimate(model: nn.Module, *inputs: Any, precision_name: str, **named_inputs: Any) -> Estimate:
    """Ask the function behind ``accelerate estimate-memory``, and ``measure.predict_memory``.

    Without network: the model is given, real or fake, where the command loads a configuration from the Hub.
    What the command prints as the memory of a training is the largest of the parts that it returns. Raises
    ``ImportError`` without accelerate, ``ValueError`` for a precision that is not one of fp32, fp16, bf16.
    """
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    if precision_name not in _NAMES:
        raise ValueError(f"precision_name is one of {', '.join(_NAMES)}, not {precision_name!r}")
    total, _ = calculate_maximum_sizes(model)
    parts = estimate_training_usage(total, _NAMES[precision_name])
    step = predict_memory(model, *inputs, precision_name=precision_name, **named_inputs)
    state = step.parameter_bytes + step.gradient_bytes + step.optimizer_bytes
    return Estimate(precision_name, int(max(parts.values())), state, step.peak_bytes)
