"""Turn the operations that a model calls into rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import torch

from amp_lessons.autocast.cast_policy import (
    Policy,
    autocast_key,
    is_composite,
    policy,
    tensors_in,
    without_overload,
)
from amp_lessons.autocast.cuda_on_cpu import policy_on_cpu
from amp_lessons.autocast.ledger.rows import Cast, Phase, Row
from amp_lessons.autocast.running import Call, ModulePaths, PreparedRun, loss_tensors, watching
from amp_lessons.formats.dtypes import dtype_name

_CONVERSION = "aten::_to_copy"
_CONVERSION_CALLS = frozenset(f"aten::to.{form}" for form in ("dtype", "dtype_layout", "device", "other"))


class RecordingError(RuntimeError):
    """The model failed while it was recorded. ``rows`` holds what ran until then."""

    def __init__(self, message: str, rows: tuple[Row, ...]) -> None:
        super().__init__(message)
        self.rows = rows


class _Frame:
    """A call that is under way."""

    __slots__ = ("casts", "inserted", "name", "policy", "tensors", "through")

    def __init__(self, name: str, rule: Policy | None, tensors: tuple[torch.Tensor, ...]) -> None:
        self.name = name
        self.policy = rule
        self.tensors = tensors
        self.inserted: list[tuple[int, Cast]] = []
        self.casts: list[Cast] = []
        self.through: _Frame | None = None


class Recorder:
    """Turns the calls that it is shown into rows."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared
        self.autocast_key = autocast_key(prepared.device.type)
        self.policies = _policies(prepared)
        self.parameters = {id(parameter): name for name, parameter in prepared.model.named_parameters()}
        self.paths = ModulePaths()
        self.phase: Phase = "forward"
        self.stage = "forward pass"
        self.frames: list[_Frame] = []
        self.rows: list[Row] = []
        self.failure = ("", "")

    def record_forward(self, backward: bool | Callable[[Any], torch.Tensor]) -> list[torch.Tensor]:
        """Run the model and return the tensors to start the backward pass from."""
        with self.prepared.autocast(), self._recording(), self.paths.following(self.prepared.model):
            output = self.prepared.forward()
            if not callable(backward):
                return loss_tensors(output)
            self.stage = "function given as backward"
            loss = backward(output)
        targets = list(tensors_in(loss))
        if not targets:
            raise TypeError(
                f"the function given as backward returns the loss, a tensor, not {type(loss).__name__}"
            )
        return targets

    def record_backward(self, targets: list[torch.Tensor]) -> None:
        """Compute the gradients of all parameters and inputs that want one, without storing any."""
        self.phase, self.stage = "backward", "backward pass"
        targets = [target for target in targets if target.requires_grad]
        tensors = [*self.prepared.model.parameters(), *tensors_in((self.prepared.args, self.prepared.kwargs))]
        leaves = [tensor for tensor in tensors if tensor.requires_grad]
        if not targets or not leaves:
            raise ValueError(
                "there is nothing to run backward: no output depends on a tensor that requires grad"
            )
        seeds = [torch.ones_like(target) for target in targets]
        with self._recording():
            torch.autograd.grad(targets, leaves, seeds, allow_unused=True)

    @contextmanager
    def _recording(self) -> Iterator[None]:
        with watching(self, self.prepared.python_below):
            try:
                yield
            except Exception as error:
                raise RecordingError(self._failed(error), tuple(self.rows)) from error

    def called(self, call: Call, run: Callable[[bool], Any]) -> Any:
        """Follow one call: a row if the model made it, a cast if autocast did."""
        rule = self.policies.get(call.name) if call.keys.has(self.autocast_key) else None
        look_inside = rule is not None or is_composite(call.name)
        if self.frames and not look_inside and call.name != _CONVERSION:
            return run(False)
        frame = _Frame(call.name, rule, tuple(tensors_in((call.args, call.kwargs))))
        if self.frames and rule is not None:
            self.frames[0].through = frame
        self.frames.append(frame)
        try:
            result = run(look_inside)
        except Exception as error:
            self._note_failure(error)
            raise
        finally:
            self.frames.pop()
        if call.name == _CONVERSION:
            self._note_cast(frame, result)
        if frame.inserted:
            root = self.frames[0] if self.frames else frame
            root.casts += [cast for _, cast in sorted(frame.inserted, key=itemgetter(0))]
        if not self.frames and (row := self._row(frame, result)):
            self.rows.append(row)
        return result

    def _note_cast(self, conversion: _Frame, result: torch.Tensor) -> None:
        """Credit a conversion to the row under way if autocast made it for an argument of a call it rules."""
        source = conversion.tensors[0]
        if not (source.is_floating_point() and result.is_floating_point()) or source.dtype is result.dtype:
            return
        cast = Cast(source.dtype, result.dtype, result.numel(), self.parameters.get(id(source), ""))
        caller = next((frame for frame in reversed(self.frames) if frame.name not in _CONVERSION_CALLS), None)
        if caller is None and self.phase == "backward":
            conversion.inserted.append((0, cast))
        elif caller is not None and caller.policy is not None:
            places = [place for place, tensor in enumerate(caller.tensors) if tensor is source]
            caller.inserted += [(place, cast) for place in places[:1]]

    def _row(self, frame: _Frame, result: Any) -> Row | None:
        first = next(tensors_in(result), None)
        decided = frame if frame.policy is not None or frame.through is None else frame.through
        if first is None and not frame.tensors:
            return None
        return Row(
            module=self._module(),
            op=without_overload(frame.name),
            input_dtypes=tuple(tensor.dtype for tensor in frame.tensors),
            output_dtype=first.dtype if first is not None else None,
            casts=tuple(frame.casts),
            policy=decided.policy,
            through="" if decided is frame else without_overload(decided.name),
            phase=self.phase,
            autocast=torch.is_autocast_enabled(self.prepared.device.type),
            output_shape=tuple(first.shape) if first is not None else (),
        )

    def _module(self) -> str:
        if self.phase == "forward":
            return self.paths.current
        node = torch._C._current_autograd_node()
        return self.paths.when_made(node._sequence_nr()) if node is not None else ""

    def _note_failure(self, error: Exception) -> None:
        """Remember which of the model's own calls raised the error."""
        frame = self.frames[0]
        dtypes = ", ".join(dtype_name(tensor.dtype) for tensor in frame.tensors)
        where = f"{self._module() or 'the model itself'}, at {without_overload(frame.name)}({dtypes})"
        self.failure = (str(error), where)

    def _failed(self, error: Exception) -> str:
        message, where = self.failure
        place = f" in {where}" if message == str(error) else ""
        return f"the {self.stage} failed on {self.prepared.where}{place}: {type(error).__name__}: {error}"


def _policies(prepared: PreparedRun) -> dict[str, Policy]:
    if prepared.dtype is None:
        return {}
    return policy(prepared.device_type) if prepared.device.type == prepared.device_type else policy_on_cpu()
