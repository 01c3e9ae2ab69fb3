"""One operation that must not run in 16 bits, in the middle of a model that should."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.exercises.attempt import Attempt, Rejected, reject
from amp_lessons.exercises.fp32_island.testbed import Pass, Place, TestBed, refused_dtypes
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import cuda_replaced, fixed_device
from amp_lessons.exercises.watching.tape import Tape
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES
from amp_lessons.text.describing import describe


def check(attempt: Attempt) -> Iterator[Finding]:
    """Run forward under autocast in fp16, in bf16, and without; see in which dtype each part ran."""
    forward = _method(attempt)
    bed = TestBed(forward)
    islands: list[Place] = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        done = bed.run(dtype)
        require_same_layers(done)
        require_no_exception(done)
        require_nothing_changed(done)
        require_output(done)
        if done.under_autocast:
            require_16_bits(done)
            require_island(done)
            islands += done.seen.normalise
        else:
            require_autocast_left_off(done)
        require_values(done)
        require_gradients(done)
    effect_of_cuda = bed.effect_of_cuda()
    yield _what_island(
        islands, f"off for {bed.tape.device_type} instead of cuda" if effect_of_cuda else "off"
    )
    yield passed("small", "both linear layers still ran in 16 bits under autocast, in fp16 and in bf16")
    yield passed("gradients", "gradients flow through the island, and forward works without autocast too")
    yield from remarks(forward, bed.tape, islands, effect_of_cuda)


def _method(attempt: Attempt) -> Callable[..., Any]:
    if inspect.isclass(attempt.value) or isinstance(attempt.value, nn.Module):
        message = "only the function forward(self, x) is asked for"
        reject("not_a_function", message, 'check("fp32_island", forward)')
    return attempt.function(None, None).function


def _what_island(islands: list[Place], off: str) -> Finding:
    if not islands:
        return passed(
            "island",
            "self.normalise was not called, but what stands in its place is right and overflowed nowhere",
        )
    dtypes = " and ".join(sorted({dtype_name(place.dtype) for place in islands}))
    return passed("island", f"normalise ran in {dtypes} with autocast {off}, and nothing overflowed")


# --- what is wrong with a forward pass, from what it raised to the gradients that flow through it

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.05, torch.float32: 1e-4}  # of a norm, relative
_FORWARD = "forward is head(normalise(body(x)))"
_ONLY_NORMALISE = "only self.normalise belongs inside autocast(enabled=False)"


def require_same_layers(done: Pass) -> None:
    """Reject a forward that changed the model's own layers: first of all, for all else may follow from it."""
    for name, became in done.changed_layers:
        layer = f"self.{name.partition('.')[0]}"
        reject(
            "layers_changed",
            f"forward {_TO_A_LAYER[became].format(layer)}, for this call and every later one",
            "leave the layers as they are, and cast the input of normalise: on a tensor .half() and .float() "
            "make a copy, on a module they work in place",
        )


_TO_A_LAYER = {
    "cast": "turned {} itself into another dtype",
    "replaced": "put another layer in the place of {}",
    "changed": "changed the weights of {} (casting them to 16 bits and back rounds them)",
}


def require_no_exception(done: Pass) -> None:
    """Reject what raised; where a linear layer met another dtype than its own, say why."""
    if done.outcome.error is None:
        return
    name, place = done.seen.inside[-1] if done.seen.inside else ("", None)
    if place is None or "same dtype" not in done.outcome.error_text:
        raise Rejected(common_findings.raised(done.outcome, done.when))
    _reject_unlike_dtypes(name, place, done)


def _reject_unlike_dtypes(layer: str, place: Place, done: Pass) -> NoReturn:
    met = f"self.{layer} met an input in {dtype_name(place.dtype)} and weights in fp32"
    if not done.under_autocast:
        reject(
            "needs_autocast",
            f"without autocast, {met}: nothing makes them alike there",
            "cast only the input of normalise, to fp32; autocast, if it is on, casts for linear layers",
        )
    if place.autocast is None:
        reject(
            "island_too_large",
            f"{met}: it stands inside the island, where autocast does not cast",
            _ONLY_NORMALISE,
        )
    reject(
        "float64_into_a_layer",
        f"{met}: autocast leaves fp64 alone",
        "fp32 is wide enough: cast the input of normalise to that",
    )


def require_nothing_changed(done: Pass) -> None:
    """Reject a forward that changes its input, or leaves autocast on or off for what comes after it."""
    if not torch.equal(done.left, done.given):
        reject("inputs_changed", "the input x was changed in place", "make new tensors")
    if done.autocast_is_left_on != done.under_autocast:
        left_on = done.autocast_is_left_on
        reject(
            "autocast_left_on" if left_on else "autocast_left_off",
            f"after forward autocast is {'on' if left_on else 'off'} for the rest of the model",
            "use a with statement",
        )


def require_output(done: Pass) -> None:
    """Reject what cannot be the output of the head."""
    output = done.output
    if not isinstance(output, Tensor) or output.shape != (6, 4):
        seen = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else describe(output)
        reject("wrong_return_type", f"forward returned {seen}", "return self.head(…)")


def require_16_bits(done: Pass) -> None:
    """Reject a forward whose linear layers did not run, or gained nothing from autocast."""
    for name, dtypes in (("body", done.seen.body), ("head", done.seen.head)):
        if torch.float32 in dtypes:
            reject(
                "island_too_large",
                f"self.{name} ran in fp32: the island takes away what autocast is for",
                _ONLY_NORMALISE,
            )
        if not dtypes:
            reject("layer_unused", f"self.{name} was never called", _FORWARD)


def require_island(done: Pass) -> None:
    """Reject a forward in which normalise met a 16-bit input, or autocast."""
    for place in done.seen.normalise:
        if place.autocast is not None:
            _reject_autocast_on(place.dtype, place.autocast)
        if place.dtype in HALVES.values():
            _reject_input_not_cast(place.dtype, done)


def _reject_autocast_on(dtype: torch.dtype, casts_to: torch.dtype) -> NoReturn:
    if dtype == torch.float64:
        reject(
            "autocast_still_on",
            "normalise ran in fp64 with autocast still on: autocast leaves fp64 alone, but fp64 is slow on "
            "most GPUs, and an fp32 input would be cast down",
            "autocast(enabled=False) around it, and its input cast to fp32 on the way in",
        )
    found, half = dtype_name(dtype), dtype_name(casts_to)
    if dtype not in HALVES.values():
        reject(
            "autocast_still_on",
            f"the input of normalise was cast to {found}, but autocast was still on: it casts {found} back "
            f"to {half} for the matrix product",
            "switch autocast off around self.normalise, too",
        )
    reject(
        "no_island",
        f"normalise ran in {half}: the energy of a row {_WHAT_GOES_WRONG[casts_to]}",
        "switch autocast off around self.normalise and cast its input to fp32",
    )


_WHAT_GOES_WRONG = {
    torch.float16: "easily exceeds 65504, the largest fp16",
    torch.bfloat16: "is rounded to 8 significant bits",
}


def _reject_input_not_cast(dtype: torch.dtype, done: Pass) -> NoReturn:
    found = dtype_name(dtype)
    for refused in refused_dtypes(done.tape):
        reject(
            "input_not_cast",
            f"{refusal(refused)}. Nothing casts the input of normalise then: it is still {found}, and the "
            "operation ran in that",
            "autocast(enabled=False) around it, and its input cast to fp32 on the way in",
        )
    still = "still " if dtype == done.dtype else ""
    reject(
        "input_not_cast",
        f"autocast was off in the island, but its input is {still}{found}: the operation ran in that",
        "cast it to fp32 on the way in",
    )


def refusal(dtype: torch.dtype) -> str:
    """Say what became of an autocast that was asked for in a dtype that the CPU's does not do."""
    return (
        f"autocast was asked for in {dtype_name(dtype)}, but the CPU's only does bf16 and fp16: it warns and "
        "switches itself off"
    )


def require_autocast_left_off(done: Pass) -> None:
    """Reject a forward whose linear layers ran in 16 bits though its caller had no autocast on."""
    for name, dtypes in (("body", done.seen.body), ("head", done.seen.head)):
        for half in dtypes:
            if half in HALVES.values():
                reject(
                    "switches_autocast_on",
                    f"without autocast, self.{name} ran in {dtype_name(half)}: your forward switches "
                    "autocast on by itself",
                    "leave that choice to the caller: only switch it off, around self.normalise",
                )


def require_values(done: Pass) -> None:
    """Reject an output that is not that of the same computation in fp32, within what 16 bits allow."""
    expected = done.model.reference(done.given)
    error = float((done.output.float() - expected).norm() / expected.norm())
    if error <= _TOLERANCE[done.dtype]:
        return
    if not done.output.isfinite().all():
        message = f"{done.when} the output contains inf or NaN"
        reject("overflow", message, "compute the normalisation in fp32")
    reject("wrong_value", f"{done.when} the output is {error:.1%} off", _FORWARD)


def require_gradients(done: Pass) -> None:
    """Reject an output through which no gradients flow, or others than through the reference."""
    parameters = list(done.model.parameters())
    if not done.output.requires_grad:
        _reject_cut()
    found = torch.autograd.grad(done.output.float().square().mean(), parameters, allow_unused=True)
    if any(gradient is None for gradient in found):
        _reject_cut()
    expected = torch.autograd.grad(done.model.reference(done.given).square().mean(), parameters)
    right = _flat(expected)
    if not (_flat(found) - right).norm() <= 5 * _TOLERANCE[done.dtype] * right.norm():
        message = "the output is right, but gradients through it are not"
        reject("wrong_gradient", message, "leave out detach, .data and no_grad")


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.reshape(-1).float() for gradient in gradients])


def _reject_cut() -> NoReturn:
    reject(
        "gradient_cut",
        "the gradients do not reach every layer: the graph was cut on the way",
        "leave out detach, .data and no_grad",
    )


# --- what can be said of an island that is right

_USE_DEVICE_OF_X = "use x.device.type"


def remarks(
    forward: Callable[..., Any], tape: Tape, islands: list[Place], effect_of_cuda: str
) -> Iterator[Finding]:
    """Remark on autocast for one device only, and in a dtype that the CPU's refuses, and on fp64."""
    if effect_of_cuda:
        yield cuda_replaced(
            "x.device.type",
            effect_of_cuda,
            _USE_DEVICE_OF_X,
        )
    elif tape.deprecated or _names_a_device(forward, tape):
        yield fixed_device(
            "the island switches autocast off for one fixed device: where x is on another, it stays on",
            _USE_DEVICE_OF_X,
        )
    for dtype in refused_dtypes(tape):
        yield note(
            "unsupported_autocast",
            f"{refusal(dtype)}, which is all that is needed here",
            "say what you mean: torch.autocast(x.device.type, enabled=False)",
        )

    if any(place.dtype == torch.float64 for place in islands):
        yield note(
            "wider_than_needed",
            "normalise ran in fp64: right, but fp32 was asked for and holds these numbers with ease, "
            "while fp64 takes twice its memory, and on most GPUs many times its time",
            "cast to fp32: Tensor.float() does, Tensor.double() goes to fp64",
        )


def _names_a_device(forward: Callable[..., Any], tape: Tape) -> bool:
    """Whether autocast was given a device that the learner's code spells out.

    By value it cannot be told from ``x.device.type``; but it is the very object that the code holds.
    """
    literals = list(_literals(getattr(forward, "__code__", None)))
    if {"cpu", "cuda"} <= {literal for literal in literals if isinstance(literal, str)}:
        return False  # "cuda" if there is one, else "cpu": that is no fixed device
    return any(device is literal for device in tape.autocast_devices for literal in literals)


def _literals(code: Any) -> Iterator[Any]:
    for literal in getattr(code, "co_consts", ()):
        yield literal
        yield from _literals(literal)
