"""The ledger: one row per operation that a model really ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

import torch
from torch import nn

from amp_lessons._base.arguments import require
from amp_lessons.autocast.cast_policy import (
    Policy,
    autocast_key,
    is_composite,
    policy,
    tensors_in,
    without_overload,
)
from amp_lessons.autocast.cuda_on_cpu import policy_on_cpu
from amp_lessons.autocast.running import (
    ModulePaths,
    OperationCall,
    PreparedRun,
    as_in_inference_mode,
    counting_saved,
    gradients_on,
    loss_tensors,
    prepare,
    watching,
)
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALF_DTYPES

# --- what a ledger is made of: casts, rows, and what they add up to

Phase = Literal["forward", "backward"]


@dataclass(frozen=True)
class Cast:
    """One conversion between floating dtypes, of the named parameter or (empty name) of another tensor."""

    source: torch.dtype
    target: torch.dtype
    elements: int
    parameter: str = ""

    @property
    def bytes(self) -> int:
        """Size of the copy that the cast wrote."""
        return self.elements * self.target.itemsize


@dataclass(frozen=True)
class Row:
    """One operation that ran.

    ``module`` is the path of the module whose forward called it (in the backward phase: whose forward
    operation this is the gradient of), ``""`` for the model itself. ``op`` is the ATen name without overload.
    ``input_dtypes`` are those of the tensors it was called with, in order, before autocast cast them;
    ``output_dtype`` is that of its first result, None if that is no tensor. ``casts`` are those that autocast
    inserted for it (in the backward phase: the conversions that autograd makes to undo a cast of the
    forward). ``policy`` is the rule that decided: that of the operation or, if it is in no list, of the last
    listed operation that it called in turn, which is then named by ``through``. None means that no list has
    it, or that ``autocast`` was off there.
    """

    module: str
    op: str
    input_dtypes: tuple[torch.dtype, ...]
    output_dtype: torch.dtype | None
    casts: tuple[Cast, ...]
    policy: Policy | None
    phase: Phase = "forward"
    autocast: bool = True
    through: str = ""
    output_shape: tuple[int, ...] = ()

    @property
    def rule(self) -> str:
        """The rule in words."""
        if self.policy is not None:
            return self.policy.value
        if self.phase == "backward":
            return "dtype of the forward"
        if self.op == "aten::to" and self.output_dtype not in self.input_dtypes:
            return "cast in the code"
        return "follows its inputs" if self.autocast else "autocast off"

    def __str__(self) -> str:
        inputs = ", ".join(dtype_name(dtype) for dtype in self.input_dtypes)
        output = dtype_name(self.output_dtype) if self.output_dtype else "no tensor"
        rule = f"{self.rule} through {self.through}" if self.through else self.rule
        casts = f", {len(self.casts)} cast{'s' if len(self.casts) > 1 else ''}" if self.casts else ""
        return f"{self.module or '(model)'}: {self.op}({inputs}) -> {output} [{rule}{casts}]"


@dataclass(frozen=True)
class Summary:
    """The sums over some rows of a ledger."""

    operations: int
    output_dtypes: Mapping[torch.dtype, int]
    casts: int
    cast_bytes: int


@dataclass(frozen=True)
class Ledger:
    """The rows of one run of a model, in the order in which the operations ran, and what they add up to.

    ``saved_bytes`` is what autograd kept for the backward pass, by dtype (see
    ``measure.saved_activation_bytes``). ``where`` says on what and by whose rules the model ran; ``notes``
    say what is unusual about it.
    """

    rows: tuple[Row, ...]
    device_type: str
    dtype: torch.dtype | None
    where: str
    saved_bytes: Mapping[torch.dtype, int]
    notes: tuple[str, ...] = ()

    @property
    def forward(self) -> tuple[Row, ...]:
        """The rows of the forward pass."""
        return tuple(row for row in self.rows if row.phase == "forward")

    @property
    def backward(self) -> tuple[Row, ...]:
        """The rows of the backward pass; none unless one was recorded."""
        return tuple(row for row in self.rows if row.phase == "backward")

    @property
    def casts(self) -> tuple[Cast, ...]:
        """All casts, in order."""
        return tuple(cast for row in self.rows for cast in row.casts)

    @property
    def cast_bytes(self) -> int:
        """Bytes that all casts wrote."""
        return sum(cast.bytes for cast in self.casts)

    @property
    def weight_copy_bytes(self) -> int:
        """Bytes of the half-precision copies of parameters, part of ``saved_bytes`` where they are kept."""
        return sum(cast.bytes for cast in self.casts if cast.parameter)

    def total(self) -> Summary:
        """All rows together."""
        return _summary(self.rows)

    def by_module(self) -> dict[str, Summary]:
        """One summary per module path, in the order in which they first ran."""
        return _grouped(self.rows, lambda row: row.module)

    def by_rule(self) -> dict[str, Summary]:
        """One summary per rule (see ``Row.rule``), in the order in which they first decided."""
        return _grouped(self.rows, lambda row: row.rule)

    def by_op(self) -> dict[str, Summary]:
        """One summary per operation, in the order in which they first ran."""
        return _grouped(self.rows, lambda row: row.op)


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, Summary]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: _summary(members) for name, members in groups.items()}


def _summary(rows: Iterable[Row]) -> Summary:
    rows = list(rows)
    casts = [cast for row in rows for cast in row.casts]
    outputs = Counter(row.output_dtype for row in rows if row.output_dtype is not None)
    return Summary(len(rows), dict(outputs.most_common()), len(casts), sum(cast.bytes for cast in casts))


# --- writing one


def record(
    model: nn.Module,
    *inputs: Any,
    device_type: str = "cuda",
    dtype: torch.dtype | None = torch.float16,
    backward: bool | Callable[[Any], torch.Tensor] = False,
    **named_inputs: Any,
) -> Ledger:
    """Run ``model(*inputs, **named_inputs)`` under autocast and write down every operation that it calls.

    ``device_type`` is whose rules apply; CUDA's also on a machine without a GPU (see ``cuda_rules``).
    ``dtype=None`` records a run without autocast. ``backward=True`` records the gradients too, of the
    output's ``loss`` if it has one, else of all its floating tensors; a function is called with the output,
    under autocast, and returns the loss. Gradients, buffers and random numbers are left as they were.

    Under ``torch.no_grad`` or ``torch.inference_mode`` a forward pass is recorded as it runs there: autograd
    keeps nothing, as a note says. ``backward`` switches gradients on.

    Model and inputs may be fake (``fake_tensors``, ``fake_copy``): then nothing is computed and no memory
    needed. On a CPU, real float16 products are computed in float32 and rounded. Raises ``RecordingError`` if
    the model fails, ``TypeError`` or ``ValueError`` if the arguments make no sense.
    """
    if not callable(backward):
        require(backward, bool, "backward", "True, False, or a function that takes the output")
    mode = as_in_inference_mode() if torch.is_inference_mode_enabled() else nullcontext()
    with gradients_on() if backward else mode:
        prepared = prepare(model, inputs, named_inputs, device_type, dtype)
        recorder = LedgerRecorder(prepared)
        with prepared.without_trace(), counting_saved(model) as saved:
            targets = recorder.record_forward(backward)
            saved_bytes = saved.by_dtype
            if backward:
                recorder.record_backward(targets)
        return Ledger(tuple(recorder.rows), device_type, dtype, prepared.where, saved_bytes, _notes(model))


def _notes(model: nn.Module) -> tuple[str, ...]:
    """Return what a reader should know about the model's own dtypes, and the mode that it ran in."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    notes = []
    if not dtypes:
        notes.append("the model has no floating parameters: autocast has no weights to cast")
    trained = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    rounded = ": nothing keeps them in fp32, updates will be rounded"
    for half in sorted(dtypes & HALF_DTYPES, key=str):
        updates = rounded if half in trained else ", and frozen"
        notes.append(f"parameters are {dtype_name(half)} already{updates}")
    if torch.float64 in dtypes:
        notes.append("parameters are float64: autocast leaves float64 alone")
    if not torch.is_grad_enabled():
        notes.append("recorded under no_grad or inference_mode: nothing is kept for a backward pass there")
    return tuple(notes)


# --- turn the operations that a model calls into rows

_CONVERSION = "aten::_to_copy"
_CONVERSION_CALLS = frozenset(f"aten::to.{form}" for form in ("dtype", "dtype_layout", "device", "other"))


class RecordingError(RuntimeError):
    """The model failed while it was recorded. ``rows`` holds what ran until then."""

    def __init__(self, message: str, rows: tuple[Row, ...]) -> None:
        super().__init__(message)
        self.rows = rows


@dataclass(slots=True)
class _Frame:
    """A call that is under way."""

    name: str
    policy: Policy | None
    tensors: tuple[torch.Tensor, ...]
    inserted: list[tuple[int, Cast]] = field(default_factory=list)
    casts: list[Cast] = field(default_factory=list)
    through: _Frame | None = None


class LedgerRecorder:
    """Turns the calls that it is shown into rows."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared
        self.autocast_key = autocast_key(prepared.device.type)
        self.policies: Mapping[str, Policy] = {}
        if prepared.dtype is not None:
            own = prepared.device.type == prepared.device_type
            self.policies = policy(prepared.device_type) if own else policy_on_cpu()
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
            given = type(loss).__name__
            raise TypeError(f"the function given as backward returns the loss, a tensor, not {given}")
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
                raise RecordingError(self._failure_message(error), tuple(self.rows)) from error

    def called(self, call: OperationCall, run: Callable[[bool], Any]) -> Any:
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

    def _failure_message(self, error: Exception) -> str:
        message, where = self.failure
        place = f" in {where}" if message == str(error) else ""
        return f"the {self.stage} failed on {self.prepared.where}{place}: {type(error).__name__}: {error}"
