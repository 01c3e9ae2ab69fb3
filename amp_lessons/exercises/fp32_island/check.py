"""One operation that must not run in 16 bits, in the middle of a model that should."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.audit.watching.device import device_type
from amp_lessons.audit.watching.spies import spying
from amp_lessons.audit.watching.tape import Tape
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import cuda_replaced, fixed_device
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.text.describing import describe


@dataclass(frozen=True)
class Place:
    """The dtype of a call's input, and the 16-bit dtype that autocast casts to there, if it does."""

    dtype: torch.dtype
    autocast: torch.dtype | None


@dataclass
class Seen:
    """What ran in which dtype during one forward pass."""

    body: list[torch.dtype] = field(default_factory=list)
    head: list[torch.dtype] = field(default_factory=list)
    normalise: list[Place] = field(default_factory=list)
    inside: list[tuple[str, Place | None]] = field(default_factory=list)  # the linear layer that is running


class Energy(nn.Module):
    """Two linear layers around a normalisation by the energy of each row, which overflows float16."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 32)
        self.head = nn.Linear(32, 4)
        self.seen = Seen()
        for name, layer in (("body", self.body), ("head", self.head)):
            layer.register_forward_pre_hook(partial(self._enter, name))
            layer.register_forward_hook(partial(self._leave, name))

    def _enter(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        given = inputs[0] if inputs else None
        self.seen.inside.append((name, _place(given) if isinstance(given, Tensor) else None))

    def _leave(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.seen.inside.pop()
        getattr(self.seen, name).append(output.dtype)

    def normalise(self, hidden: Tensor) -> Tensor:
        """Divide each row of (batch, 32) by its norm, computed as a matrix product of the row with itself."""
        self.seen.normalise.append(_place(hidden))
        energy = hidden.unsqueeze(-2) @ hidden.unsqueeze(-1)
        return hidden / energy.squeeze(-1).sqrt()

    def reference(self, x: Tensor) -> Tensor:
        """Compute the same in float32 throughout."""
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.body(x)
            return self.head(hidden / hidden.norm(dim=-1, keepdim=True))


_HALVES = (torch.float16, torch.bfloat16)


def _place(hidden: Tensor) -> Place:
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    # in float32, which CUDA's allows, autocast is as good as off
    return Place(hidden.dtype, dtype if dtype in _HALVES else None)


_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.05, torch.float32: 1e-4}


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    finding = _not_a_method(attempt)
    if finding is not None:
        return Verdict((finding,))
    device = device_type()
    torch.manual_seed(0)
    model = type("Model", (Energy,), {"forward": attempt})().to(device)
    inputs = torch.randn(6, 8, generator=torch.Generator().manual_seed(1)).mul(150.0).to(device)
    tape = Tape(list(model.parameters()), device)
    islands: list[Place] = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        finding = _examine_in(model, inputs, dtype, tape)
        if finding is not None:
            return Verdict((finding,))
        islands += model.seen.normalise if dtype != torch.float32 else []
    return Verdict((_what_island(islands, tape), *_WHAT_HOLDS, *_remarks(attempt, tape)))


def _what_island(islands: list[Place], tape: Tape) -> Finding:
    if not islands:
        return passed(
            "island",
            "self.normalise was not called, but what stands in its place is right and overflowed nowhere",
        )
    dtypes = " and ".join(sorted({dtype_name(place.dtype) for place in islands}))
    off = f"off for {tape.device_type} instead of cuda" if tape.hard_coded else "off"
    return passed("island", f"normalise ran in {dtypes} with autocast {off}, and nothing overflowed")


def _remarks(attempt: Any, tape: Tape) -> Iterator[Finding]:
    if tape.hard_coded:
        yield cuda_replaced(
            "x.device.type",
            "it switches nothing off, and normalise would run in 16 bits",
            _USE_DEVICE_OF_X,
        )
    elif tape.deprecated or _names_a_device(attempt, tape):
        yield fixed_device(
            "the island switches autocast off for one fixed device: where x is on another, it stays on",
            _USE_DEVICE_OF_X,
        )
    for dtype in _too_wide(tape):
        yield note(
            "unsupported_autocast", f"{_refused(dtype)}, which is all that is needed here", _SWITCH_OFF
        )


_USE_DEVICE_OF_X = "use x.device.type"


def _names_a_device(attempt: Any, tape: Tape) -> bool:
    """Whether autocast was given a device that the learner's code spells out.

    By value it cannot be told from ``x.device.type``; but it is the very object that the code holds.
    """
    literals = list(_literals(getattr(attempt, "__code__", None)))
    if {"cpu", "cuda"} <= {literal for literal in literals if isinstance(literal, str)}:
        return False  # "cuda" if there is one, else "cpu": that is no fixed device
    return any(device is literal for device in tape.autocast_devices for literal in literals)


def _literals(code: Any) -> Iterator[Any]:
    for literal in getattr(code, "co_consts", ()):
        yield literal
        yield from _literals(literal)


def _too_wide(tape: Tape) -> list[torch.dtype]:
    """List the dtypes asked for that the CPU's autocast refuses."""
    return sorted(tape.autocast_dtypes - set(_HALVES), key=str)


def _refused(dtype: torch.dtype) -> str:
    return (
        f"autocast was asked for in {dtype_name(dtype)}, but the CPU's only does bf16 and "
        "fp16: it warns and switches itself off"
    )


_SWITCH_OFF = "say what you mean: torch.autocast(x.device.type, enabled=False)"


def _not_a_method(attempt: Any) -> Finding | None:
    if inspect.isclass(attempt) or isinstance(attempt, nn.Module):
        return failed(
            "not_a_function",
            "only the function forward(self, x) is asked for",
            'check("fp32_island", forward)',
        )
    return common_findings.uncallable(attempt, "forward", None, None)


def _examine_in(model: Any, inputs: Tensor, dtype: torch.dtype, tape: Tape) -> Finding | None:
    """Examine one forward and backward pass under autocast in ``dtype``; float32 stands for no autocast."""
    model.seen = Seen()
    model.zero_grad()
    batch = inputs.clone()

    def run() -> Any:
        with torch.autocast(inputs.device.type, enabled=dtype != torch.float32, dtype=_autocast_dtype(dtype)):
            return model(batch), torch.is_autocast_enabled(inputs.device.type)

    with spying(tape):
        outcome = sandbox.call(run)
    finding = common_findings.not_attempted(outcome) or common_findings.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return _explained_error(outcome, model.seen, dtype)
    if not torch.equal(batch, inputs):
        return failed("inputs_changed", "the input x was changed in place", "make new tensors")
    output, still_on = outcome.value
    if still_on != (dtype != torch.float32):
        return failed(
            "autocast_left_off" if dtype != torch.float32 else "autocast_left_on",
            f"after forward autocast is {'on' if still_on else 'off'} for the rest of the model",
            "use a with statement",
        )
    return (
        _wrong_type(output)
        or _precision(model, output, inputs, dtype, tape)
        or _gradients(model, output, inputs, dtype)
    )


def _autocast_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype == torch.float32 else dtype


def _explained_error(outcome: sandbox.Outcome, seen: Seen, dtype: torch.dtype) -> Finding:
    name, place = seen.inside[-1] if seen.inside else ("", None)
    if "same dtype" not in outcome.error_text or place is None:
        return common_findings.raised(outcome, _when(dtype))
    met = f"self.{name} met an input in {dtype_name(place.dtype)} and weights in fp32"
    if dtype == torch.float32:
        return failed(
            "needs_autocast",
            f"without autocast, {met}: nothing makes them alike there",
            "cast only the input of normalise, to fp32; autocast, if it is on, casts for linear layers",
        )
    if place.autocast is None:
        return failed(
            "island_too_large",
            f"{met}: it stands inside the island, where autocast does not cast",
            "only self.normalise belongs inside autocast(enabled=False)",
        )
    return failed(
        "float64_into_a_layer",
        f"{met}: autocast leaves fp64 alone",
        "fp32 is wide enough: self.normalise(hidden.float())",
    )


def _when(dtype: torch.dtype) -> str:
    return f"under autocast in {dtype_name(dtype)}" if dtype != torch.float32 else "without autocast"


def _wrong_type(output: Any) -> Finding | None:
    if isinstance(output, Tensor) and output.shape == (6, 4):
        return None
    seen = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else describe(output)
    return failed("wrong_return_type", f"forward returned {seen}", "return self.head(…)")


def _precision(model: Any, output: Tensor, inputs: Tensor, dtype: torch.dtype, tape: Tape) -> Finding | None:
    seen: Seen = model.seen
    if dtype != torch.float32:
        finding = _too_much_float32(seen, dtype) or _island(seen, dtype, tape)
        if finding is not None:
            return finding
    expected = model.reference(inputs)
    error = float((output.float() - expected).norm() / expected.norm())
    if error <= _TOLERANCE[dtype]:
        return None
    when = _when(dtype)
    if not output.isfinite().all():
        return failed(
            "overflow", f"{when} the output contains inf or NaN", "compute the normalisation in fp32"
        )
    return failed(
        "wrong_value", f"{when} the output is {error:.1%} off", "forward is head(normalise(body(x)))"
    )


def _too_much_float32(seen: Seen, dtype: torch.dtype) -> Finding | None:
    for name, dtypes in (("body", seen.body), ("head", seen.head)):
        if any(d == torch.float32 for d in dtypes):
            return failed(
                "island_too_large",
                f"self.{name} ran in fp32: the island takes away what autocast is for",
                "only self.normalise belongs inside autocast(enabled=False)",
            )
        if not dtypes:
            return failed(
                "layer_unused", f"self.{name} was never called", "forward is head(normalise(body(x)))"
            )
    return None


def _island(seen: Seen, dtype: torch.dtype, tape: Tape) -> Finding | None:
    findings = (
        _autocast_off(place, dtype, tape)
        if place.autocast is None
        else _autocast_on(place.dtype, place.autocast)
        for place in seen.normalise
    )
    return next((finding for finding in findings if finding is not None), None)


def _autocast_on(dtype: torch.dtype, casts_to: torch.dtype) -> Finding:
    found = dtype_name(dtype)
    if dtype == torch.float64:
        return failed(
            "autocast_still_on",
            "normalise ran in fp64 with autocast still on: autocast leaves fp64 alone, but fp64 is "
            "slow on most GPUs, and an fp32 input would be cast down",
            "with torch.autocast(x.device.type, enabled=False): self.normalise(hidden.float())",
        )
    if dtype not in _HALVES:
        return failed(
            "autocast_still_on",
            f"the input of normalise was cast to {found}, but autocast was still on: it casts {found} back "
            f"to {dtype_name(casts_to)} for the matrix product",
            "with torch.autocast(x.device.type, enabled=False): around self.normalise",
        )
    return failed(
        "no_island",
        f"normalise ran in {dtype_name(casts_to)}: "
        + (
            "the energy of a row easily exceeds 65504, the largest fp16"
            if casts_to == torch.float16
            else "the energy of a row is rounded to 8 significant bits"
        ),
        "switch autocast off around self.normalise and cast its input to fp32",
    )


def _autocast_off(place: Place, dtype: torch.dtype, tape: Tape) -> Finding | None:
    if place.dtype not in _HALVES:
        return None
    found = dtype_name(place.dtype)
    if wide := _too_wide(tape):
        return failed(
            "input_not_cast",
            f"{_refused(wide[0])}. Nothing casts the input of normalise then: it is still {found}, and the "
            "operation ran in that",
            "autocast(enabled=False) around it, and cast on the way in: self.normalise(hidden.float())",
        )
    still = "still " if place.dtype == dtype else ""
    return failed(
        "input_not_cast",
        f"autocast was off in the island, but its input is {still}{found}: the operation ran in that",
        "cast on the way in: self.normalise(hidden.float())",
    )


def _gradients(model: Any, output: Tensor, inputs: Tensor, dtype: torch.dtype) -> Finding | None:
    parameters = list(model.parameters())
    if not output.requires_grad:
        return _gradient_cut()
    found = torch.autograd.grad(output.float().square().mean(), parameters, allow_unused=True)
    if any(g is None for g in found):
        return _gradient_cut()
    expected = torch.autograd.grad(model.reference(inputs).square().mean(), parameters)
    flat = [
        torch.cat([g.reshape(-1).float() for g in gradients if g is not None])
        for gradients in (found, expected)
    ]
    if (flat[0] - flat[1]).norm() <= 5 * _TOLERANCE[dtype] * flat[1].norm():
        return None
    return failed(
        "wrong_gradient",
        "the output is right, but gradients through it are not",
        "leave out detach and no_grad",
    )


def _gradient_cut() -> Finding:
    return failed(
        "gradient_cut",
        "the gradients do not reach every layer: the graph was cut on the way",
        "leave out detach and no_grad",
    )


_WHAT_HOLDS = (
    passed("small", "both linear layers still ran in 16 bits under autocast, in fp16 and in bf16"),
    passed("gradients", "gradients flow through the island, and forward works without autocast too"),
)
