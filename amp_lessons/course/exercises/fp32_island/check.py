"""One operation that must not run in 16 bits, in the middle of a model that should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.fp32_island import island_there
from amp_lessons.course.exercises.fp32_island.island_there import Place
from amp_lessons.course.exercises.report.common_findings import (
    cuda_replaced,
    inputs_changed,
    wrong_return_type,
)
from amp_lessons.course.material.models import seeded
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

_THERE = island_there.__name__
_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.05, torch.float32: 1e-4}  # of a norm, relative
_FORWARD = "forward is head(normalise(body(x))); whether autocast is on for it, the caller decides"
_ONLY_NORMALISE = (
    "only self.normalise belongs inside autocast(enabled=False), and only its input is to be cast, to fp32"
)
_BOTH = "autocast(enabled=False) around it, and its input cast to fp32 on the way in"


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Run forward under autocast in fp16, in bf16, and without; see in which dtype each part ran."""
    forward = bed.function(worker, "forward", None, None)
    model = seeded(island_there.Energy, int(torch.randint(2**30, (), generator=draw)))
    inputs = torch.randn(6, 8, generator=draw).mul(150.0)
    passes = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        passes.append(Pass(forward, model, inputs, dtype))
        bed.require_none(_mistakes(passes[-1]))
    if any(each.told["for_cuda"] for each in passes):
        effect = "it switches nothing off, and normalise would run in 16 bits"
        yield cuda_replaced("x.device.type", effect, "use x.device.type")
    yield passed("island", "normalise did not run in 16 bits, and nothing overflowed")
    yield passed("small", "both linear layers still ran in 16 bits under autocast, in fp16 and in bf16")
    yield passed("gradients", "gradients flow through the island, and forward works without autocast too")
    if any(dtype == torch.float64 for done in passes for dtype, _ in done.normalise):
        yield note(
            "wider_than_needed",
            "normalise ran in fp64: right, but fp32 was asked for and holds these numbers with ease, "
            "while fp64 takes twice its memory, and on most GPUs many times its time",
            "cast to fp32: Tensor.float() does, Tensor.double() goes to fp64",
        )


class Pass:
    """A pass under autocast in ``dtype``, fp32 for none, beside the same computation in fp32.

    ``told`` is what ``island_there.run`` says of it, ``left`` what the input ``given`` was afterwards.
    """

    def __init__(
        self,
        forward: bed.LearnersFunction,
        model: island_there.Energy,
        given: Tensor,
        dtype: torch.dtype,
    ) -> None:
        self.dtype, self.given, self.left = dtype, given, given.clone()
        state = dict(model.state_dict())
        self.told, _ = forward.called_by(f"{_THERE}:run", self.left, state, extra=(dtype,))
        self.under_autocast = dtype != torch.float32
        self.when = f"under autocast in {dtype_name(dtype)}" if self.under_autocast else "without autocast"
        self.output = self.told["output"]
        self.normalise: list[Place] = [(each[0], each[1]) for each in self.told["seen"]["normalise"]]
        self.right = model.reference(given)
        self.right_gradients = torch.autograd.grad(self.right.square().mean(), list(model.parameters()))


# --- what is wrong with a forward pass, from what it raised to the gradients that flow through it


def _mistakes(done: Pass) -> Iterator[Finding]:
    for name in done.told["changed"]:  # first of all: all else may follow from it
        yield failed(
            "layers_changed",
            f"forward changed self.{name.partition('.')[0]} itself, for this call and every later one: it is "
            "another layer now, or its weights are in another dtype, or rounded",
            "leave the layers as they are, and cast the input of normalise: on a tensor .half() and .float() "
            "make a copy, on a module they work in place",
        )
    if done.told["raised"] is not None:
        raised = bed.as_raised(done.told["raised"])
        said = bed.said_of(raised, done.when)
        yield replace(said, hint=_ONLY_NORMALISE) if "same dtype" in raised.text else said
    if not torch.equal(done.left, done.given):
        yield inputs_changed("the numbers in x", "make new tensors")
    left_on = done.told["autocast_left"]
    if left_on != done.under_autocast:
        message = f"after forward autocast is {'on' if left_on else 'off'} for the rest of the model"
        yield failed("autocast_left", message, "use a with statement")
    if not isinstance(done.output, Tensor) or done.output.shape != (6, 4):
        yield wrong_return_type("a tensor of shape (6, 4) was", bed.described(done.output), _FORWARD)
    for layer in ("body", "head"):
        if done.under_autocast and torch.float32 in done.told["seen"][layer]:
            message = f"self.{layer} ran in fp32: the island takes away what autocast is for"
            yield failed("island_too_large", message, _ONLY_NORMALISE)
    for place in done.normalise if done.under_autocast else ():
        yield from _of_island(*place)
    yield from _of_numbers(done)


def _of_island(dtype: torch.dtype, casts_to: torch.dtype | None) -> Iterator[Finding]:
    """Find a normalise that met autocast, or an input in 16 bits."""
    found, half = dtype_name(dtype), dtype_name(casts_to) if casts_to is not None else ""
    if casts_to is not None and dtype in HALVES.values():
        said = f"normalise ran in {half}: there the energy of a row easily exceeds 65504, the largest fp16"
        said = said if casts_to == torch.float16 else f"normalise ran in {half}, with 8 significant bits"
        yield failed("no_island", said, _BOTH)
    if casts_to is not None:
        said = (
            f"the input of normalise was in {found}, but autocast was still on: it casts fp32 back to {half}"
        )
        yield failed("autocast_still_on", f"{said} for the matrix product", _BOTH)
    if dtype in HALVES.values():
        said = f"autocast was off in the island, but its input is {found}: the operation ran in that"
        yield failed("input_not_cast", said, _BOTH)


def _of_numbers(done: Pass) -> Iterator[Finding]:
    """Find an output, or gradients through it, that are not those of fp32 within what 16 bits allow."""
    error = float((done.output.float() - done.right).norm() / done.right.norm())
    if not error <= _TOLERANCE[done.dtype]:
        yield failed("wrong_value", f"{done.when} the output is {error:.2%} off", _FORWARD)
    found = done.told["gradients"] or [None] * len(done.right_gradients)
    off = [
        float(((torch.zeros(()) if seen is None else seen.float()) - right).norm() / right.norm())
        for seen, right in zip(found, done.right_gradients, strict=True)
    ]
    if not max(off) <= 5 * _TOLERANCE[done.dtype]:
        said = f"the output is right, but the gradients of a layer through it are {max(off):.0%} off"
        yield failed("gradient_cut", f"{said}: is the graph cut on the way?", "leave out detach and no_grad")
