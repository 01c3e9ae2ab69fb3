"""From a symptom to its cause: questions that somebody with a broken training can answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from amp_lessons.course.clinic import causes
from amp_lessons.course.clinic.causes import End


@dataclass(frozen=True)
class SymptomAnswer:
    """One answer, and what comes after it."""

    text: str
    then: SymptomQuestion | End


@dataclass(frozen=True)
class SymptomQuestion:
    """One question about a training, with the answers that tell causes apart."""

    text: str
    answers: tuple[SymptomAnswer, ...]


@dataclass(frozen=True)
class Path:
    """One way through the questions: what was answered to each, and the end."""

    answered: tuple[tuple[SymptomQuestion, SymptomAnswer], ...]
    end: End


def paths(question: SymptomQuestion | End | None = None) -> Iterator[Path]:
    """Yield every path from a question, by default the first, to a leaf."""
    at = SYMPTOMS if question is None else question
    if isinstance(at, End):
        yield Path((), at)
        return
    for answer in at.answers:
        for rest in paths(answer.then):
            yield Path(((at, answer), *rest.answered), rest.end)


def _ask(text: str, answers: Mapping[str, SymptomQuestion | End]) -> SymptomQuestion:
    return SymptomQuestion(text, tuple(SymptomAnswer(said, then) for said, then in answers.items()))


def _in_fp32_too(if_not: End) -> SymptomQuestion:
    return _ask(
        "And all in fp32? Without autocast, or FSDP2's param_dtype.",
        {"NaN or inf as well": causes.IN_FP32_TOO, "a number": if_not},
    )


_TO_THE_LAST_DIGIT = _ask(
    "Is the mean loss of each epoch the same, to the last digit?",
    {"yes": causes.STALE, "no": causes.NOT_AMP},
)
_DO_THE_WEIGHTS_MOVE = _ask(
    "How far do the weights move in a few steps, and how far in an fp32 run? Keep before = "
    "p.detach().float().clone(), then print (p.float() - before).norm() / before.norm() and "
    "(p != before).float().mean(), of shards with p.full_tensor(), of DeepSpeed's "
    "masters with safe_get_full_fp32_param(p); p.norm() may stay while the weights turn.",
    {
        "not at all, and the loss scale falls": _ask(
            "Where does it go?",
            {
                "in fp16, down to some value, and then the weights move": causes.FOUND,
                "down without end": causes.ALWAYS,
                "back to 65,536 now and then": causes.ANEW,
            },
        ),
        "not at all, or only some; the weights are bf16 or fp16": causes.HALF_WEIGHTS,
        "not at all, or only some; fp32 weights, computed in fp16, the scale stands": _ask(
            "Are most of their gradients zero?", {"yes": causes.UNDERFLOW, "no": causes.NOT_STEPPED}
        ),
        "not at all, or only some; fp32 weights, computed in bf16": causes.NOT_STEPPED,
        "five to tens of thousands of times less far than in fp32; the loss is scaled": causes.CLIPPED,
        "five to tens of thousands of times less far than in fp32; the loss is not scaled": _ask(
            "In which dtype?",
            {
                "fp32 weights, computed in fp16": causes.UNDERFLOW,
                "fp32 weights, computed in bf16": causes.NOT_STEPPED,
                "the weights are bf16 or fp16": causes.HALF_WEIGHTS,
            },
        ),
        "as far as in fp32": _TO_THE_LAST_DIGIT,
    },
)
_GO_BACK = "Go back to the last finite weights. What is the loss of the batch with which it began?"


def _back_in_fp16(a_number: End) -> SymptomQuestion:
    return _ask(
        _GO_BACK,
        {
            "NaN or inf in fp16, a number in fp32": causes.FORWARD,
            "NaN or inf in both": causes.IN_FP32_TOO,
            "a number in both": a_number,
        },
    )


_ARE_THE_WEIGHTS_FINITE_IN_FP16 = _ask(
    "Are weights and buffers finite, and the weights below 65,504?",
    {
        "yes": _in_fp32_too(causes.FORWARD),
        "finite, and some weights are above 65,504": causes.TOO_LARGE,
        "no, a weight is not": _back_in_fp16(causes.PAST_SCALER),
        "the weights are, a buffer other than a mask is not": causes.STATISTICS,
    },
)
_FROM_WHEN_IN_FP16 = _ask(
    "From when on?",
    {
        "from the first batch": _in_fp32_too(causes.FORWARD),
        "from some batch on, for ever": _ARE_THE_WEIGHTS_FINITE_IN_FP16,
        "in single batches, then it recovers": _ask(
            "And the loss of such a batch, all in fp32?",
            {"NaN or inf as well": causes.ONE_BATCH, "a number": causes.FORWARD},
        ),
    },
)
_IN_FP16_WEIGHTS = _ask(
    "Are the weights finite?",
    {"yes": _in_fp32_too(causes.FORWARD), "no": _back_in_fp16(causes.FP16_ADAM)},
)
_THE_LAST_FINITE_WEIGHTS_IN_BF16 = _ask(
    _GO_BACK,
    {
        "a number in fp32, NaN or inf in bf16": causes.ROUNDED,
        "NaN or inf in both, and the weights stayed finite": causes.IN_FP32_TOO,
        "NaN or inf in both, and after its step so were weights": causes.UNGUARDED,
        "a number in both, and after its step weights were not finite": causes.UNGUARDED,
    },
)
_FROM_WHEN_IN_BF16 = _ask(
    "From when on?",
    {
        "from the first batch": _in_fp32_too(causes.ROUNDED),
        "from some batch on, for ever": _THE_LAST_FINITE_WEIGHTS_IN_BF16,
        "in single batches, then it recovers": _ask(
            "And the loss of such a batch, all in fp32?",
            {"NaN or inf as well": causes.ONE_BATCH, "a number": causes.ROUNDED},
        ),
    },
)
_SCALE_FALLS_IN_FP16 = _ask(
    "Where does it go?",
    {
        "down to some value, and stays there": causes.FOUND,
        "down by half now and then, and up again": causes.EVERYDAY,
        "down without end, and the loss is NaN or inf": _ARE_THE_WEIGHTS_FINITE_IN_FP16,
        "down without end, and the loss is finite": causes.ALWAYS,
        "back to 65,536 now and then": causes.ANEW,
    },
)
_SCALE_FALLS_IN_BF16 = _ask(
    "Where does it go?",
    {
        "below 65,536, and the loss is NaN or inf": _THE_LAST_FINITE_WEIGHTS_IN_BF16,
        "below 65,536, and the loss is finite": causes.ALWAYS,
        "it stays above 65,536": causes.BF16_SCALER,
        "back to 65,536 now and then": causes.ANEW,
    },
)
SYMPTOMS = _ask(
    "What do you see? Trainer's log hides NaN, unless logging_nan_inf_filter=False.",
    {
        "the loss is NaN or inf": _ask(
            "In which dtype? That of autocast or FSDP2's param_dtype, else that of the weights: DeepSpeed's "
            "are the fp32 masters in its optimizer.",
            {
                "fp16, with fp32 weights": _FROM_WHEN_IN_FP16,
                "fp16, and so are the weights": _IN_FP16_WEIGHTS,
                "bf16": _FROM_WHEN_IN_BF16,
                "fp32": causes.IN_FP32_TOO,
            },
        ),
        "the loss scale keeps falling": _ask(
            "In which dtype is the forward pass? That of autocast, or of FSDP2's param_dtype.",
            {"fp16": _SCALE_FALLS_IN_FP16, "bf16": _SCALE_FALLS_IN_BF16},
        ),
        "the loss scale climbs without end": _ask(
            "In which dtype is the forward pass? That of autocast, or of FSDP2's param_dtype.",
            {
                "bf16": causes.BF16_SCALER,
                "fp16": _ask(
                    "Does anything change the gradients between backward and the scaler?",
                    {"clip_grad_value_, nan_to_num or the like": causes.HIDDEN, "nothing": causes.GROWS},
                ),
            },
        ),
        "the loss is flat": _DO_THE_WEIGHTS_MOVE,
        "the loss rises or jumps, and is a number": _ask(
            "Print the norm of the gradients, unscaled, at each step. Is it a number?",
            {
                "inf or NaN at some step, and the step is made": causes.UNGUARDED,
                "a number at every step": _ask(
                    "And in fp32, from weights of before the trouble, on the same batches?",
                    {
                        "it rises or jumps as well": causes.TOO_FAST,
                        "only in 16 bits; the weights are bf16 or fp16": causes.HALF_STATE,
                        "only in 16 bits; fp32 weights": causes.TOO_COARSE,
                    },
                ),
            },
        ),
        "it is worse on several GPUs than on one": _ask(
            "Do the ranks hold the same? Print on each a parameter's dtype and a checksum of the weights. "
            "Shards and experts differ by design, and full_tensor() is alike everywhere: there print "
            "scaler.get_scale(), and whether the step was made.",
            {
                "no, the ranks have parted": causes.PARTED,
                "the shards are bf16 or fp16": causes.HALF_WEIGHTS,
                "yes": _ask(
                    "One step of plain SGD without clipping, on one rank and on two, on the same samples, "
                    "BatchNorm and dropout in eval(), as ranks differ by them on purpose: the same update?",
                    {
                        "no": causes.WEIGHED,
                        "yes, but for rounding": causes.REDUCED,
                    },
                ),
            },
        ),
        "it computes in FP8, and is worse or slower": _ask(
            "What of it?",
            {
                "the loss is worse from the first hundred steps on": causes.FP8_UNSCALED,
                "the loss is worse after a long time": causes.FP8_OUTLIERS,
                "it is no faster than bf16, or the kernel refuses": causes.FP8_SMALL,
            },
        ),
        "training is no faster than in fp32, or slower": _ask(
            "Where does it run?",
            {
                "on a CPU": causes.CPU,
                "on a GPU that is not busy": causes.SMALL,
                "on a GPU that is busy all the time": causes.FP32_PART,
            },
        ),
        "the memory is full": _ask(
            "When?",
            {"at some later step": causes.GRAPHS, "in the first or second step": causes.NOT_HALVED},
        ),
        "the loss falls, and the model is worse than it should be": _ask(
            "What of it is worse?",
            {
                "the averaged weights (EMA)": causes.AVERAGE,
                "long inputs, late time steps": causes.LONG,
                "evaluation is NaN, and training is not": _ask(
                    "Does a buffer other than a mask hold inf or NaN?",
                    {
                        "yes": causes.STATISTICS,
                        "no": _ask(
                            "And all in fp32? Without autocast, or FSDP2's param_dtype.",
                            {
                                "NaN or inf as well": causes.ONE_BATCH,
                                "a number, where fp16 gave none": causes.FORWARD,
                                "a number, where bf16 gave none": causes.ROUNDED,
                            },
                        ),
                    },
                ),
                "the number that evaluation prints": causes.METRIC,
                "what comes after a restart": _ask(
                    "Is the loss scaled?",
                    {"yes, in fp16": causes.ANEW, "no, or in bf16": causes.RESTART},
                ),
                "all of it, or I cannot say": _ask(
                    "In which dtype did the weights load? Print that of a parameter that is trained.",
                    {"bf16 or fp16": causes.HALF_WEIGHTS, "fp32, as usual": causes.AUDIT},
                ),
            },
        ),
    },
)
