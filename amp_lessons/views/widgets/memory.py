"""The memory of a training step in fp32 and under autocast: what each layer saves, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from amp_lessons.measure import OPTIMIZERS, Footprint
from amp_lessons.measure.footprint import MEASURED
from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.text.words import memory, percent
from amp_lessons.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.views.base.still import Still
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.memory import activations_picture, memory_picture, step_picture

Footprints = Mapping[str, Footprint]
Predictor = Callable[..., Footprint]


def activation_stack(footprints: Footprints, *, depth: int | None = None) -> Still:
    """Show what each layer saves for the backward pass: ``footprints`` by precision, fp32 first.

    ``depth`` is the number of names of a module's path that tell layers apart, by default all of them.
    """
    picture, mark = activations_picture(footprints, depth), _mark(footprints)
    caption = f"{describe_saved(footprints)}{_warning(footprints)}"
    return Still(picture, caption, "Stacked bars, one pair per layer.", mark=mark)


def step_memory(footprints: Footprints) -> Still:
    """Show what is allocated at the worst moment of a step: ``footprints`` by precision, fp32 first."""
    picture, mark = step_picture(footprints), _mark(footprints)
    caption = f"{describe_step(footprints)}{_warning(footprints)}"
    return Still(picture, caption, "Stacked bars, one per precision.", mark=mark)


class MemoryView(View):
    """Saved activations by layer and the whole step, in fp32 and under the autocast that is chosen."""

    network = ControlValue[str]("_network", "The name of the network whose memory is shown.")
    precision = ControlValue[str](
        "_precision", "What autocast casts to, fp16 or bf16; fp32 stands beside it."
    )
    optimizer = ControlValue[str]("_optimizer", "The optimizer's name, one of ``measure.OPTIMIZERS``.")
    depth = ControlValue[int]("_depth", "How many names of a module's path tell layers apart.")

    def __init__(
        self,
        networks: Mapping[str, Predictor],
        network: str | None = None,
        *,
        precision: str = "fp16",
        optimizer: str = "AdamW",
        depth: int | None = None,
    ) -> None:
        """Show the memory of ``networks``: by name, functions that return a ``measure.Footprint``.

        Each is called with ``precision_name`` and ``optimizer``: ``partial(measure.predict_memory, model,
        images)``, say. ``depth`` is the number of names of a module's path that tell layers apart.
        """
        self._networks = dict(networks)
        self._found: dict[tuple[str, str, str], Footprint] = {}
        self._network = dropdown("network", list(self._networks), network or next(iter(self._networks)))
        self._precision = dropdown("autocast", ["fp16", "bf16"], precision)
        self._optimizer = dropdown("optimizer", list(OPTIMIZERS), optimizer)
        self._depth = Slider("Depth of module names", 1, 1, 1)
        choices = [self._network, self._precision, self._optimizer]
        super().__init__([row(*choices), self._depth], alt="Stacked bars of memory.")
        self._fit_depth(depth)
        self._refresh()
        self._network.observe(self._network_chosen, "value")
        for control in (self._precision, self._optimizer, self._depth):
            control.observe(self._refresh, "value")

    @property
    def footprints(self) -> dict[str, Footprint]:
        """What the picture shows, by precision."""
        return {name: self._footprint(name) for name in ("fp32", self.precision)}

    def _footprint(self, precision: str) -> Footprint:
        chosen = (self.network, precision, self.optimizer)
        if chosen not in self._found:
            self.begin_work(f"The memory of {self.network}, {precision}, {self.optimizer}")
            predict = self._networks[self.network]
            self._found[chosen] = predict(precision_name=precision, optimizer=OPTIMIZERS[self.optimizer])
        return self._found[chosen]

    def _network_chosen(self, _change: object) -> None:
        self._fit_depth(None)
        self._refresh()

    def _fit_depth(self, depth: int | None) -> None:
        """Let the slider go as deep as this network's modules; by default show all of them."""
        with self.answering():
            paths = [path for each in self.footprints.values() for path in each.saved_by_module()]
            self._depth.max = max((path.count(".") + 1 for path in paths), default=1)
            self._depth.value = self._depth.max if depth is None else depth

    def _refresh(self, _change: Any = None) -> None:
        with self.answering():
            found = self.footprints
            caption = f"{describe_saved(found)} {describe_step(found)}{_warning(found)}"
            self.show(memory_picture(found, self.depth), caption, mark=_mark(found))


def describe_saved(footprints: Footprints) -> str:
    """Say how much is saved for the backward pass in each precision, and what part of fp32's that is."""
    (_, first), *others = footprints.items()
    saved = sum(first.saved_bytes.values())
    said = [_say_saved(precision, each, saved) for precision, each in others]
    return f"{_source(first)}. Saved for the backward pass in fp32: {memory(saved)}. {' '.join(said)}"


def _say_saved(precision: str, each: Footprint, fp32_bytes: int) -> str:
    total, wide = sum(each.saved_bytes.values()), each.saved_bytes.get(torch.float32, 0)
    inside = f"{memory(each.weight_copy_bytes)} of it copies of weights, {memory(wide)} still in fp32"
    return f"Under {precision} autocast: {memory(total)}, {percent(total, fp32_bytes)} of that ({inside})."


def describe_step(footprints: Footprints) -> str:
    """Say the peaks, and why the whole is never half: what autocast leaves as it is."""
    (_, first), *others = footprints.items()
    unchanged = first.parameter_bytes + first.gradient_bytes + first.optimizer_bytes
    peaks = [
        f"{memory(each.peak_bytes)} under {precision} autocast ({percent(each.peak_bytes, first.peak_bytes)})"
        for precision, each in others
    ]
    return (
        f"Peak of the whole step, each bar at its own worst moment: {memory(first.peak_bytes)} in fp32, "
        f"{', '.join(peaks)}. "
        f"Parameters, gradients and optimizer state, {memory(unchanged)}, stay in fp32."
    )


def _warning(footprints: Footprints) -> str:
    """Say after a caption what the figures leave out, once for all precisions."""
    return "".join(f" {said}" for said in dict.fromkeys(each.warning for each in footprints.values()) if said)


def _source(each: Footprint) -> str:
    return each.source[:1].upper() + each.source[1:]


def _mark(footprints: Footprints) -> str:
    return MEASURED_MARK if any(each.source == MEASURED for each in footprints.values()) else ""
