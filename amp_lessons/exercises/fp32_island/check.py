"""One operation that must not run in 16 bits, in the middle of a model that should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.exercises.attempt import Rejected, reject
from amp_lessons.exercises.bed import LearnersFunction, as_raised, described, function, said_of
from amp_lessons.exercises.fp32_island import island_there
from amp_lessons.exercises.report.common_findings import cuda_replaced, fixed_device
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.material.models import seeded
from amp_lessons.precisions import HALVES

_THERE = island_there.__name__


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Run forward under autocast in fp16, in bf16, and without; see in which dtype each part ran."""
    if worker.call(f"{_THERE}:kind", Handle(0)):
        message = "only the function forward(self, x) is asked for"
        reject("not_a_function", message, 'check("fp32_island", forward)')
    bed = Bed(function(worker, "forward", None, None), draw)
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
            islands += done.normalise
        else:
            require_autocast_left_off(done)
        require_values(done)
        require_gradients(done)
    effect_of_cuda = bed.effect_of_cuda()
    yield _what_island(islands, "off for cpu instead of cuda" if effect_of_cuda else "off")
    yield passed("small", "both linear layers still ran in 16 bits under autocast, in fp16 and in bf16")
    yield passed("gradients", "gradients flow through the island, and forward works without autocast too")
    yield from remarks(bed, islands, effect_of_cuda)


@dataclass(frozen=True)
class Place:
    """The dtype of a call's input, and the 16-bit dtype that autocast casts to there, if it does."""

    dtype: torch.dtype
    autocast: torch.dtype | None


@dataclass(frozen=True)
class Pass:
    """A pass under autocast in ``dtype``, fp32 for none, of ``given``; ``left`` is what that was afterwards.

    ``told`` is what ``island_there.run`` says of it.
    """

    model: island_there.Energy
    dtype: torch.dtype
    given: Tensor
    left: Tensor
    told: dict[str, Any]

    @property
    def output(self) -> Any:
        """What forward returned."""
        return self.told["output"]

    @property
    def normalise(self) -> list[Place]:
        """What normalise met, call by call."""
        return [Place(*each) for each in self.told["seen"]["normalise"]]

    @property
    def refused_dtypes(self) -> list[torch.dtype]:
        """The dtypes in which autocast was asked for though the CPU's refuses them."""
        return [dtype for dtype in self.told["asked"]["dtypes"] if dtype not in HALVES.values()]

    @property
    def under_autocast(self) -> bool:
        """Whether autocast was on when forward was called."""
        return self.dtype != torch.float32

    @property
    def when(self) -> str:
        """The autocast of this pass, as a message names it."""
        return f"under autocast in {dtype_name(self.dtype)}" if self.under_autocast else "without autocast"


class Bed:
    """The model and its inputs, and all passes so far."""

    def __init__(self, forward: LearnersFunction, draw: torch.Generator) -> None:
        self._forward = forward
        self._model = seeded(island_there.Energy, int(torch.randint(2**30, (), generator=draw)))
        self._inputs = torch.randn(6, 8, generator=draw).mul(150.0)
        self.passes: list[Pass] = []

    def run(self, dtype: torch.dtype, *, watched: bool = True) -> Pass:
        """Run forward under autocast in ``dtype``, or without it in fp32."""
        batch, state = self._inputs.clone(), dict(self._model.state_dict())
        told, _ = self._forward.called_by(f"{_THERE}:run", batch, state, extra=(dtype, watched))
        done = Pass(self._model, dtype, self._inputs, batch, told)
        self.passes.append(done)
        return done

    def effect_of_cuda(self) -> str:
        """Say what a forward that names "cuda" does without a GPU; nothing, if that is right too."""
        if not any(done.told["asked"]["cuda"] for done in self.passes):
            return ""
        watched, alone = (self.run(torch.bfloat16, watched=each) for each in (True, False))
        if alone.told["raised"] is not None:
            return f"it raises {as_raised(alone.told['raised']).kinds[0]}"
        if torch.equal(watched.output, alone.output):
            return ""
        return "it switches nothing off, and normalise would run in 16 bits"


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
    for name, became in done.told["changed"]:
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
    if done.told["raised"] is None:
        return
    raised = as_raised(done.told["raised"])
    name, place = done.told["inside"] or ("", None)
    if place is None or "same dtype" not in raised.text:
        raise Rejected(said_of(raised, done.when))
    _reject_unlike_dtypes(name, Place(*place), done)


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
    left_on = done.told["autocast_left"]
    if left_on != done.under_autocast:
        reject(
            "autocast_left_on" if left_on else "autocast_left_off",
            f"after forward autocast is {'on' if left_on else 'off'} for the rest of the model",
            "use a with statement",
        )


def require_output(done: Pass) -> None:
    """Reject what cannot be the output of the head."""
    output = done.output
    if not isinstance(output, Tensor) or output.shape != (6, 4):
        seen = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else described(output)
        reject("wrong_return_type", f"forward returned {seen}", "return self.head(…)")


def require_16_bits(done: Pass) -> None:
    """Reject a forward whose linear layers did not run, or gained nothing from autocast."""
    for name, dtypes in (("body", done.told["seen"]["body"]), ("head", done.told["seen"]["head"])):
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
    for place in done.normalise:
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
    for refused in done.refused_dtypes:
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
    for name, dtypes in (("body", done.told["seen"]["body"]), ("head", done.told["seen"]["head"])):
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
    found = done.told["gradients"]
    if found is None or any(gradient is None for gradient in found):
        _reject_cut()
    loss = done.model.reference(done.given).square().mean()
    expected = torch.autograd.grad(loss, list(done.model.parameters()))
    right = _flat(expected)
    if not (_flat(found) - right).norm() <= 5 * _TOLERANCE[done.dtype] * right.norm():
        message = "the output is right, but gradients through it are not"
        reject("wrong_gradient", message, "leave out detach, .data and no_grad")


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([gradient.reshape(-1).float() for gradient in gradients])


def _reject_cut() -> NoReturn:
    reject(
        "gradient_cut",
        "the gradients do not reach every layer: the graph was cut on the way",
        "leave out detach, .data and no_grad",
    )


# --- what can be said of an island that is right

_USE_DEVICE_OF_X = "use x.device.type"


def remarks(bed: Bed, islands: list[Place], effect_of_cuda: str) -> Iterator[Finding]:
    """Remark on autocast for one device only, and in a dtype that the CPU's refuses, and on fp64."""
    if effect_of_cuda:
        yield cuda_replaced("x.device.type", effect_of_cuda, _USE_DEVICE_OF_X)
    elif any(done.told["asked"]["fixed"] for done in bed.passes):
        yield fixed_device(
            "the island switches autocast off for one fixed device: where x is on another, it stays on",
            _USE_DEVICE_OF_X,
        )
    for dtype in dict.fromkeys(dtype for done in bed.passes for dtype in done.refused_dtypes):
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
