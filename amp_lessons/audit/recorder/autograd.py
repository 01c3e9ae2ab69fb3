"""Casts of models, autocast contexts and backward passes: how what is computed came to its dtype."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from amp_lessons.audit.recorder import events, graph
from amp_lessons.audit.recorder.gradients import parameters_of
from amp_lessons.audit.recorder.later import Later, is_batched, looks_closely, may_read, scale_of
from amp_lessons.audit.recorder.places import (
    called_by_own_code,
    line_outside,
    opened_by_library,
    own_line,
    place_of,
)
from amp_lessons.audit.recorder.shared import Known, Log, Loss, Part, Taken
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALF_DTYPES


class _Cast(NamedTuple):
    """A call of ``method`` that cast parameters, "" where they came so into their module."""

    parameters: tuple[weakref.ref[nn.Parameter], ...]
    dtype: torch.dtype
    method: str
    line: events.Line


class CastCalls(Part):
    """Calls that cast a model: ``half``, ``bfloat16`` and ``to``."""

    def __init__(self, log: Log, known: Known) -> None:
        super().__init__(log, known)
        self._casts: list[_Cast] = []

    def cast(self, module: nn.Module, before: torch.dtype | None, method: str) -> None:
        """Record that a method has run on a module; only what changed its dtype is kept."""
        dtype = dtype_of(module)
        if dtype is not None and dtype != before:
            parameters = tuple(weakref.ref(each) for each in module.parameters())
            self._casts.append(_Cast(parameters, dtype, method, own_line()))

    def registered(self, module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        """Record that a module was given a parameter; only one that came in 16 bits is kept."""
        if parameter is not None and parameter.dtype in HALF_DTYPES:
            self._casts.append(_Cast((weakref.ref(parameter),), parameter.dtype, "", own_line()))

    def since(self, parameter: Tensor | None) -> events.Line:
        """Return the line on which a parameter came to its dtype, None if unknown."""
        cast = None if parameter is None else self._cast_of(parameter)
        return None if cast is None else cast.line

    def origin(self, parameter: Tensor, models: Iterable[nn.Module]) -> str:
        """Say how a parameter came to its dtype, in words that follow "they are in bf16"; "" if unknown."""
        cast = self._cast_of(parameter)
        place = None if cast is None else place_of(cast.line)
        where = f" ({place.file}, line {place.line})" if place else ""
        if cast is not None and cast.method:
            return f"since a call of .{cast.method}(){where}"
        loaded = next(filter(None, (_loaded(model, parameter) for model in models)), "")
        return loaded or (f"since they were made{where}" if cast is not None else "")

    def _cast_of(self, parameter: Tensor) -> _Cast | None:
        casts = (cast for cast in reversed(self._casts) if cast.dtype == parameter.dtype)
        return next((c for c in casts if any(each() is parameter for each in c.parameters)), None)


def dtype_of(module: nn.Module) -> torch.dtype | None:
    """Return the dtype of a module's first floating parameter, None without one."""
    return next((each.dtype for each in module.parameters() if each.is_floating_point()), None)


def _loaded(model: nn.Module, parameter: Tensor) -> str:
    """Read from a model of transformers, or one that holds such a model, in which dtype it was loaded."""
    for module in model.modules():
        config = getattr(module, "config", None)
        name = getattr(config, "_name_or_path", "")
        if isinstance(name, str) and name and any(each is parameter for each in module.parameters()):
            loaded = getattr(config, "dtype", None)
            if loaded == parameter.dtype:
                return "since they were loaded: from_pretrained keeps the file's dtype, unless given another"
            return (
                f"since a cast that was not seen: they were loaded in {dtype_name(loaded)}" if loaded else ""
            )
    return ""


class AutocastCalls(Part):
    """Where autocast is switched on and off, and in which dtype."""

    def made(self, context: Any, device: str, wanted: bool) -> None:
        """Record that an autocast context was made; one for a device that is not here disables itself."""
        if wanted and not context._enabled and device != "cpu" and not torch.accelerator.is_available():
            self._record(context, disabled_for=device)

    def entered(self, before: None, entered: Any, context: Any) -> None:
        """Record that an autocast context began."""
        self._here.note("autocast")
        self._here.autocasts.append((own_line(), context._enabled, opened_by_library()))
        self._here.note_switch()
        if context._enabled and torch.is_grad_enabled():  # an evaluation is no part of what is trained
            self._here.forward.add(context.fast_dtype)
        if context._enabled or called_by_own_code():  # checkpointing switches off what nobody asked for
            self._record(context)

    def _record(self, context: Any, disabled_for: str = "") -> None:
        asked = {"device": context.device, "dtype": context.fast_dtype, "enabled": context._enabled}
        self._log.record(events.AutocastEntered, **asked, disabled_for=disabled_for)

    def left(self, *_: Any) -> None:
        """Take note that the innermost autocast context has ended."""
        if self._here.autocasts:  # one may have been open before the watch began
            self._here.autocasts.pop()
        self._here.note_switch()

    def old_spelling(self, name: str) -> None:
        """Record that something was made by a deprecated name."""
        self._log.record(events.OldSpelling, name=name)


class AutogradCalls(Part):
    """Backward passes: from which loss they start, what they reach, and gradients taken for a penalty."""

    def __init__(self, log: Log, known: Known, refused: Callable[[str, Exception, bool], None]) -> None:
        super().__init__(log, known)
        self._refused = refused

    @contextmanager
    def backward(self, tensors: Any, gradients: Any = None) -> Iterator[None]:
        """Record a backward pass into ``.grad``; those that it calls itself are part of it.

        A device has a thread of its own for backward passes, from which a checkpoint calls the inner one.
        """
        depth = self._here.backwards
        self._here.backwards = depth + 1
        outermost = depth == 0 and torch._C._current_graph_task_id() == -1
        seen = self._log.safely(self._before_backward, tensors, gradients) if outermost else None
        try:
            yield
        except Exception as error:
            again = seen is not None and seen[0]["again"]
            self._log.safely(self._refused, "backward", error, again)
            raise
        finally:
            self._here.backwards = depth
        if seen is not None:
            self._log.safely(self._after_backward, *seen)

    def differentiated(self, outputs: Iterable[Any], gradients: Iterable[Any], count: int) -> None:
        """Record ``autograd.grad``, before which autograd had counted ``count`` operations.

        Gradients of a scaled loss that can be differentiated again are marked, for they may become a penalty.
        Of ``is_grads_batched`` they have no graph before ``unbatched``.
        """
        if torch.autograd._get_sequence_nr() > count:
            self._here.note_switch(derived_since=count)
        scalers = [graph.scaler_of(each) for each in outputs if isinstance(each, Tensor)]
        scaler = next((each for each in scalers if each is not None), None)
        if scaler is None:
            return
        self._here.scaled = scaler, self._log.steps
        gradients, taken = list(gradients), Taken(count, scaler, own_line())
        if any(is_batched(each) for each in gradients):
            self._here.batched = taken
        else:
            self._may_be_penalty(gradients, taken)

    def batching(self) -> None:
        """Record that gradients of several directions are about to be computed at once."""
        self._here.batched = None

    def unbatched(self, gradients: Iterable[Any]) -> None:
        """Record what became of them."""
        taken, self._here.batched = self._here.batched, None
        if taken is not None:
            self._may_be_penalty(gradients, taken)

    def _may_be_penalty(self, gradients: Iterable[Any], taken: Taken) -> None:
        if graph.mark_gradients(gradients) and self._here.penalty is None:
            self._here.penalty = taken

    def _record_penalty(self, loss: Tensor) -> None:
        """Record a loss that has scaled gradients in it."""
        taken = self._here.penalty
        if taken is not None:
            scale = scale_of(self._known.scalers[taken.scaler]).at_once()
            if graph.penalises_scaled(loss, taken.count, scale):
                self._log.record(events.ScaledPenalty, line=taken.line, scale=scale)

    def _before_backward(self, tensors: Any, gradients: Any) -> tuple[Any, ...] | None:
        roots = [tensors] if isinstance(tensors, Tensor) else [t for t in tensors if isinstance(t, Tensor)]
        if not roots:
            return None
        self._here.begin_round()
        self._here.note("backward")
        scaled = ((each, by) for each in roots if (by := graph.scaler_of(each)) is not None)
        root, scaler = next(scaled, (roots[0], None))
        self._record_penalty(root)
        device = root.device.type
        held = any(by_library for *_, by_library in self._here.autocasts[-1:])
        asked_for = torch.is_autocast_enabled(device) and not held
        factor, seed = graph.factor(root), _seed(gradients)
        handed_on = scaler is None and self._is_handed_on(root, gradients)
        scales = self._scales() if len(roots) == 1 and gradients is None and not handed_on else []
        sure = 1.0 not in scales and not self._known.scale_read  # one that was read may be in any number
        unscaled = graph.Unscaled()
        if scales and scaler is None:
            unscaled = graph.look_for_scale(root.grad_fn, scales)
        if handed_on:
            scaler = self._here.scaled[0]
        elif scaler is None and root.numel() == 1:
            large = (each if each >= events.LARGE_NUMBER else 1.0 for each in (factor * seed, factor))
            self._here.by_hand, of_loss = large
            self._here.loss = Later(root.detach() / of_loss)
        for optimizer in self._known.of_this_thread().values():
            self._known.look(parameters_of(optimizer))
        # of a loss in fp32, computed in 16 bits once autocast had ended
        looked_for = looks_closely() and root.dtype not in HALF_DTYPES and self._here.switches
        part_in_half = graph.part_in_half(root, self._here.switches) if looked_for else None
        facts = {
            "dtype": root.dtype,
            "made_by": graph.operations(root),
            "inside": graph.look_inside(root, self._is_copy) if looks_closely() else None,
            "part_in_half": part_in_half,
            "outside": graph.made_outside(root, self._here.switches),
            "cast": graph.has_casts(root),
            "scaler": scaler,
            "factor": factor * seed,
            "in_fp32": unscaled.in_fp32,
            "part_unscaled": bool(scales and scaler) and sure and graph.has_unscaled_term(root, scales),
            "averaged": graph.is_mean(root),
            "again": graph.went_backward(root),
            "autocast": torch.get_autocast_dtype(device) if asked_for else None,
            "line": line_outside(),
            "made_at": graph.line_of(root, graph.MADE_AT),
            "cast_at": graph.line_of(root, graph.CAST_AT),
        }
        beside = graph.weights_beside(roots) if scaler and gradients is None else frozenset()
        return facts, handed_on, unscaled.surely and sure, beside

    def _scales(self) -> list[float]:
        """Return the scales of all scalers, the first ones where reading them would cost something."""
        scalers = (each for each in self._known.scalers.values() if each.is_enabled())
        return [scale_of(each).at_once() or each._init_scale for each in scalers]

    def _is_handed_on(self, root: Tensor, gradients: Any) -> bool:
        """Whether a pass takes on a gradient of a loss that a scaler has scaled since the last step.

        It may be its argument, ``h.backward(hd.grad)``, or what a product with it is the gradient of.
        """
        if self._here.scaled[1] != self._log.steps:
            return False
        given = gradients if isinstance(gradients, (list, tuple)) else [gradients]
        return any(isinstance(each, Tensor) and each.numel() > 1 for each in given) or graph.has_constant(
            root
        )

    def _is_copy(self, dtype: torch.dtype) -> bool:
        """Whether weights in a dtype were made for this pass, by FSDP or by hand: others are stepped."""
        optimizers = self._known.in_use() or self._known.of_this_thread()
        stepped = [each for of in optimizers.values() for each in parameters_of(of)]
        return bool(stepped) and all(each.dtype != dtype for each in stepped)

    def _after_backward(
        self, facts: dict[str, Any], handed_on: bool, unscaled: bool, beside: frozenset[int]
    ) -> None:
        scaler = facts["scaler"]
        if scaler is not None:
            self._here.scaled = scaler, self._log.steps
        filled_by = partial(
            self._known.book.after_backward,
            scaled_by=scaler or 0,
            generation=self._known.updates[scaler] if scaler else 0,
            line=facts["line"],
            unscaled=unscaled,
            beside=beside,
        )
        self._known.book.passes += 1
        reached = frozenset(
            key
            for key, optimizer in self._known.of_this_thread().items()
            if filled_by(parameters_of(optimizer))
        )
        loss = Loss(self._here.loss, facts["line"], facts["made_at"], facts["averaged"])
        for key in () if handed_on else reached:  # it is no loss
            self._known.losses[key].append(loss)
        parameters = (parameters_of(self._known.optimizers[each]) for each in reached)
        self._log.record(
            events.Backward,
            **facts,
            forward=frozenset(self._here.forward),
            reached=reached,
            scalers_called=frozenset({"scale"} & set(self._here.called)),
            loss=self._here.loss.at_once(),
            summed=next(filter(None, map(self._known.book.summed_in_half, parameters)), None),
        )
        if self._here.over:  # an optimizer has stepped within it
            self._here.forward.clear()


def _seed(gradients: Any) -> float:
    """Return the number that a backward pass begins with; NaN for one on a device, where reading it waits."""
    given = gradients[0] if isinstance(gradients, (list, tuple)) and len(gradients) == 1 else gradients
    if not isinstance(given, Tensor) or given.numel() != 1:
        return 1.0
    return float(given) if may_read(given) else math.nan
