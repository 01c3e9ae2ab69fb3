"""Record a run: hooks that sketch what passes by, and change nothing of it.

All hooks on modules are PyTorch's global ones, so none is left on a module, where copies and pickles would
carry it along. No random number of PyTorch's is drawn, and a device is waited for once in a step.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _pytree

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.audit.comparing.changes import Nudge
from amp_lessons.audit.comparing.recording import Call, How, Recording, Value, Weight, format_of, name_of
from amp_lessons.audit.comparing.sketches import WIDTH, Sketch, sketch
from amp_lessons.audit.comparing.whole_runs import settings_now
from amp_lessons.audit.numbers.naming import Names, is_compiled
from amp_lessons.audit.recorder.gradients import parameters_of
from amp_lessons.audit.recorder.later import Later, is_batched, scale_of
from amp_lessons.audit.recorder.replacing import replaced
from amp_lessons.audit.seen import Clock

MOST_CALLS = 16  # of one module in one step; a validation in between is no reason to grow
_WITH_KWARGS = torch.nn.modules.module._global_forward_hooks_with_kwargs  # ``remove`` leaves an entry there
_ONE = Later(1.0)
_COMPILED = "what compiled code computes inside: its modules are not seen, its gradients and weights are"
_TOO_OFTEN = f"calls of a module beyond the {MOST_CALLS}th in a step"


_Known = tuple[weakref.ref[Tensor], int, int]  # a tensor, its count of changes, its value's number


@dataclass
class _Pending:
    """A value that was seen, and is read from its device at the end of the step; ``scale`` is the loss's."""

    order: int
    dtype: str
    shape: tuple[int, ...]
    sketch: Sketch
    scale: Later
    gradient: int = -1

    def value(self) -> Value:
        nonfinite = 0 if self.sketch.nonfinite is None else int(self.sketch.nonfinite)
        return Value(self.order, self.dtype, self.shape, nonfinite, self.gradient)


@dataclass
class _Open:
    """A call of a module that is under way, or over."""

    module: nn.Module
    step: int
    parent: int
    order: int
    format: str = ""
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)


@dataclass
class _WeightSeen:
    step: int
    module: nn.Module
    name: str
    tensor: Tensor
    value: int
    gradient: int = -1

    def named(self, module: str) -> Weight:
        return Weight(self.step, f"{module}.{self.name}", module, self.value, self.gradient)


class Run:
    """A run that is being recorded, or was: ``run.recording`` is what there is of it so far."""

    def __init__(
        self, models: Iterable[nn.Module], steps: int, every: int | None, nudge: Nudge | None, of: str = ""
    ) -> None:
        self._names = Names(models)
        self._steps, self._every, self._nudge = steps, every, nudge
        self._thread = threading.get_ident()
        self._clock, self._of = Clock(), of
        self._device: torch.device | None = None
        self._step = 0
        self._calls: list[_Open] = []
        self._first = 0  # call of this step
        self._stack: list[int] = []  # calls under way
        self._called: Counter[int] = Counter()  # of calls, in this step, by the id of their module
        self._values: list[Value] = []  # of the steps before this one
        self._sketches: list[np.ndarray] = []
        self._pending: dict[int, _Pending] = {}  # of this step, by number
        self._known: dict[int, _Known] = {}  # tensors whose value is known
        self._handed_through: dict[int, _Known] = {}  # those of them that a layer returned as it got them
        self._same_as: dict[int, int] = {}  # what became of them, in this step
        self._order = 0
        self._weights: list[_WeightSeen] = []  # of the steps before this one
        self._of_step: list[_WeightSeen] = []
        self._hooked: dict[int, Any] = {}  # parameters, by id
        self._of_parameters: dict[int, int] = {}  # in this step: the value of each one's gradient
        self._scale = _ONE
        self._stepping: torch.optim.Optimizer | None = None
        self._recorded: list[int] = []
        self._skipped: list[int] = []
        self._not_seen: list[str] = []
        self._ended = ""
        self._listeners: list[Callable[[int], None]] = []
        self._settings: dict[str, str] = {}  # as they are when the first step is asked for
        self._armed = True

    # --- what is read of it

    @property
    def recording(self) -> Recording:
        """The recording so far."""
        self._flush()
        name = cache(self._name)  # of a module, by what is known of the models now
        numbers: Counter[tuple[int, str]] = Counter()  # by name: of modules without one several are alike
        how = self._clock.how(self._device)
        modules = {name(each.module): each.module for each in self._calls}
        return Recording(
            how=How(
                of=self._of,
                torch=how.torch,
                amp_lessons=how.amp_lessons,
                python=how.python,
                device=how.device,
                began=how.began,
                threads=torch.get_num_threads(),
                nudged=self._nudge is not None,
                settings=self._settings,
            ),
            steps=tuple(self._recorded),
            skipped=tuple(self._skipped),
            calls=tuple(self._call(each, name(each.module), numbers) for each in self._calls),
            weights=tuple(each.named(name(each.module)) for each in self._weights),
            values=tuple(self._values),
            made_of={each: self._safely(module.extra_repr) or "" for each, module in modules.items()},
            not_seen=tuple(self._not_seen),
            ended=self._ended,
            sketches=np.concatenate(self._sketches) if self._sketches else np.zeros((0, WIDTH)),
        )

    def save(self, path: str) -> None:
        """Write what was recorded to a file. Raises OSError."""
        self.recording.save(path)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` after each step with its number, from 0; what it raises comes out of the step."""
        self._listeners.append(listener)

    def _call(self, seen: _Open, name: str, numbers: Counter[tuple[int, str]]) -> Call:
        kind = type(seen.module).__name__
        number = numbers[seen.step, name]
        numbers[seen.step, name] += 1
        return Call(
            seen.step, name, kind, number, seen.parent, seen.format, seen.order, seen.inputs, seen.outputs
        )

    def _name(self, module: nn.Module) -> str:
        """Name a module as its model does; one that belongs to no model that is trained by its class.

        A model itself has the name of its class, whatever is wrapped around it in one of the two runs.
        """
        inner = _unwrapped(module)
        name = self._names.module(module) or self._names.module(inner) or type(inner).__name__
        roots = {type(model).__name__: type(_unwrapped(model)).__name__ for model in self._names.models}
        return roots.get(name, name) if len(self._names.models) == 1 else name

    # --- hooks

    @contextmanager
    def recording_inside(self) -> Iterator[None]:
        """Record what happens inside, and leave PyTorch as it was."""
        with ExitStack() as stack:
            stack.callback(lambda: [handle.remove() for _, handle in self._hooked.values()])
            for handle in (
                register_module_forward_pre_hook(self._before),
                register_module_forward_hook(self._after, with_kwargs=True),
                register_optimizer_step_pre_hook(partial(self._safely, self._step_begins)),
                register_optimizer_step_post_hook(self._step_ends),
            ):
                stack.callback(handle.remove)
                stack.callback(_WITH_KWARGS.pop, handle.id, None)
            stack.enter_context(replaced(torch.amp.GradScaler, "scale", self._scaling))
            stack.enter_context(replaced(torch.amp.GradScaler, "step", self._scaler_stepping))
            try:
                yield
            except BaseException as error:
                self._ended = f"{type(error).__name__}: {error}".rstrip(": ")
                raise
            finally:
                self._clock.stop()
                self._safely(self._finish)

    def _safely(self, observe: Callable[..., Any], *args: Any) -> Any:
        """Call ``observe``; what goes wrong in it must not reach the training."""
        try:
            return observe(*args)
        except Exception as error:
            self._note(f"the recording's own trouble, {type(error).__name__}: {error}")
            return None

    def _note(self, said: str) -> None:
        if said not in self._not_seen:
            self._not_seen.append(said)

    def _is_elsewhere(self) -> bool:
        """Whether this is compiled code, another thread, or a checkpoint's second forward pass."""
        if torch.compiler.is_compiling() or not self._armed:
            return True
        return threading.get_ident() != self._thread or torch._C._current_graph_task_id() != -1

    def _before(self, module: nn.Module, args: Any) -> Any:
        return None if self._is_elsewhere() else self._safely(self._opened, module, args)

    def _opened(self, module: nn.Module, args: Any) -> Any:
        self._called[id(module)] += 1
        if self._called[id(module)] > MOST_CALLS:
            self._note(_TOO_OFTEN)
            return None
        if not self._stack:
            self._hook_parameters(module)
            self._look_at_weights(module)
            if is_compiled(module):
                self._note(_COMPILED)
        index = len(self._calls)
        parent = self._stack[-1] if self._stack else -1
        self._calls.append(_Open(module, self._step, parent, self._next()))
        self._stack.append(index)
        changed = None
        if self._nudge is not None and not module._modules:
            changed = args = self._nudge.nudged(args, self._step, index - self._first)
        self._calls[index].inputs.update(self._seen(args))
        return changed

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if self._is_elsewhere() or not self._stack:
            return None
        while self._calls[self._stack[-1]].module is not module:
            if not any(self._calls[i].module is module for i in self._stack):
                return None  # one too many of its calls
            self._stack.pop()  # an exception has ended that call, and was caught
        return self._safely(self._closed, self._stack[-1], kwargs, output)

    def _closed(self, index: int, kwargs: Any, output: Any) -> Any:
        call, changed = self._calls[index], None
        try:
            for name, value in kwargs.items():
                call.inputs.update(self._seen(value, f"{name}.", call.order))
            if self._nudge is not None:
                changed = output = self._nudge.nudged(output, self._step, index - self._first)
            self._forget_what_is_handed_through(call, output)
            call.outputs.update(self._seen(output))
            call.format = format_of(call.module, _tensors(output).values())
        finally:
            self._stack.pop()
        return changed

    def _forget_what_is_handed_through(self, call: _Open, output: Any) -> None:
        """Let what a layer returns be new even if it is what it was given: in the other run it may not be."""
        given = set() if call.module._modules else set(call.inputs.values())
        for tensor in _tensors(output).values() if given else ():
            known = self._known.get(id(tensor))
            if known is not None and known[2] in given:
                self._handed_through[id(tensor)] = self._known.pop(id(tensor))

    def _seen(self, nest: Any, prefix: str = "", order: int | None = None) -> dict[str, int]:
        """Sketch the tensors in what a module takes or returns; return their values by slot."""
        outermost = len(self._stack) == 1
        found = _tensors(nest)
        return {
            f"{prefix}{slot}": self._value(tensor, order)
            for slot, tensor in found.items()
            if outermost or tensor.is_floating_point() or tensor.is_complex()
        }

    def _value(self, tensor: Tensor, order: int | None) -> int:
        """Return the number of a tensor's value, a new one where it is new or was changed in place."""
        version = 0 if tensor.is_inference() else tensor._version
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == version:
            return known[2]
        value = self._add(tensor, _ONE, order)
        self._known[id(tensor)] = (weakref.ref(tensor), version, value)
        same = self._handed_through.pop(id(tensor), None)
        if same is not None and same[0]() is tensor:
            self._same_as[value] = self._same_as.get(same[2], same[2])  # whose gradient is this one's too
        elif tensor.requires_grad and tensor.grad_fn is not None:
            tensor.register_hook(partial(self._safely, self._arrived, value))
        return value

    def _add(self, tensor: Tensor, scale: Later, order: int | None = None) -> int:
        number = len(self._values) + len(self._pending)
        order = self._next() if order is None else order
        dtype, shape = name_of(tensor.dtype), tuple(tensor.shape)
        self._pending[number] = _Pending(order, dtype, shape, sketch(tensor), scale)
        if self._device is None or self._device.type == "cpu":
            self._device = tensor.device
        return number

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _arrived(self, value: int, gradient: Tensor | None) -> None:
        """Keep the gradient of a value, the last one where several came."""
        if value not in self._pending or gradient is None or not _can_be_seen(gradient):
            return  # of a step that is over
        self._pending[value].gradient = self._replaced(self._pending[value].gradient, gradient)
        for other, same in self._same_as.items():
            if same == value:
                self._pending[other].gradient = self._pending[value].gradient

    def _replaced(self, number: int, gradient: Tensor) -> int:
        """Sketch a gradient in the place of an earlier one of the same, if there was one in this step."""
        new = self._add(gradient, self._scale)
        if number in self._pending:
            self._pending[number] = self._pending.pop(new)
            return number
        return new

    def _hook_parameters(self, module: nn.Module) -> None:
        for parameter in module.parameters():
            hooked = self._hooked.get(id(parameter))
            if parameter.requires_grad and (hooked is None or hooked[0]() is not parameter):
                accumulated = partial(self._safely, self._accumulated)
                handle = parameter.register_post_accumulate_grad_hook(accumulated)
                self._hooked[id(parameter)] = weakref.ref(parameter), handle

    def _accumulated(self, parameter: Tensor) -> None:
        """Keep the gradient of a parameter before it is unscaled or clipped."""
        if self._armed and parameter.grad is not None:
            number = self._of_parameters.get(id(parameter), -1)
            self._of_parameters[id(parameter)] = self._replaced(number, parameter.grad)

    # --- steps

    def _scaling(self, original: Any) -> Any:
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            self._scale = self._safely(scale_of, scaler) or _ONE
            return scaled

        return scale

    def _scaler_stepping(self, original: Any) -> Any:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._step
            result = original(scaler, optimizer, *args, **kwargs)
            if self._step == before and scaler.is_enabled():
                self._skipped += [before] * self._armed
                self._safely(self._step_begins, optimizer)
                self._step_ends(optimizer)
            return result

        return step

    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._stepping not in (None, optimizer):
            return  # one optimizer inside of another
        self._stepping = optimizer
        self._settings = self._settings or settings_now()
        self._names.find(parameters_of(optimizer))
        if self._armed:
            self._look_at_all_weights()
            for weight in self._of_step:
                weight.gradient = self._of_parameters.get(id(weight.tensor), -1)

    def _look_at_all_weights(self) -> None:
        for model in self._names.models:
            self._look_at_weights(model)

    def _look_at_weights(self, model: nn.Module) -> None:
        """Sketch every parameter and floating buffer that was not yet seen in this step."""
        seen = {id(each.tensor) for each in self._of_step}
        named = {(id(each.module), each.name) for each in self._of_step}  # a forward pass may make one anew
        for module in model.modules():
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
                if tensor is None or id(tensor) in seen or (id(module), name) in named:
                    continue
                if _can_be_seen(tensor) and (tensor.is_floating_point() or tensor.is_complex()):
                    seen.add(id(tensor))
                    value = self._add(tensor, _ONE)
                    self._of_step.append(_WeightSeen(self._step, module, name, tensor, value))

    def _step_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._stepping is not optimizer:
            return
        self._stepping = None
        done = self._step
        self._safely(self._begin_next)
        for listener in self._listeners:
            listener(done)

    def _begin_next(self) -> None:
        self._flush()
        self._recorded += [self._step] * self._armed
        self._step += 1
        was_armed = self._armed
        step, every = self._step, self._every  # for None 0, 1, 2, 4, 8, 16 and so on
        self._armed = step < self._steps and (step & (step - 1) if every is None else step % every) == 0
        self._first = len(self._calls)
        self._called.clear()
        self._known.clear()
        self._of_parameters.clear()
        self._stack.clear()
        self._scale = _ONE
        if was_armed and not self._armed:
            self._look_at_all_weights()  # what the last step that was recorded has made of them

    def _flush(self) -> None:
        """Read from their device, all at once, the sketches of values that were seen since."""
        pending = [self._pending[number] for number in sorted(self._pending)]
        if not pending:
            return
        self._pending = {}
        self._same_as = {}
        self._weights += self._of_step
        self._of_step = []
        self._of_parameters.clear()
        self._known.clear()
        self._sketches.append(_read(pending))
        self._values += [each.value() for each in pending]

    def _finish(self) -> None:
        """Look at the weights once more, at what the last step made of them, and look for names."""
        for call in self._calls:
            if call.parent < 0 and self._names.module(call.module) is None:
                self._names.find(call.module.parameters())
        if self._armed and self._recorded:
            self._look_at_all_weights()
        self._flush()
        self._armed = False


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return what compiling and data parallelism have wrapped."""
    inner = model._modules.get("_orig_mod") or (
        model._modules.get("module") if type(model).__name__.endswith("DataParallel") else None
    )
    return model if inner is None else _unwrapped(inner)


def _read(pending: list[_Pending]) -> np.ndarray:
    """Read sketches from their devices, one transfer for each device, and take the loss's scale out."""
    rows = np.zeros((len(pending), WIDTH))
    by_device: dict[torch.device, list[int]] = {}
    for i, each in enumerate(pending):
        by_device.setdefault(each.sketch.sums.device, []).append(i)
    for there in by_device.values():
        rows[there] = torch.stack([pending[i].sketch.sums for i in there]).cpu().numpy()
    scales = np.array([each.scale.read() or 1.0 for each in pending])
    return rows / scales[:, None]


def _tensors(nest: Any) -> dict[str, Tensor]:
    """Return the tensors in what a module takes or returns, by their place in it."""
    if isinstance(nest, Tensor):
        leaves: Any = (nest,)
    else:  # what most modules are given is no nest, and looking for one takes longer than to sketch it
        flat = type(nest) is tuple and all(isinstance(each, Tensor) for each in nest)
        leaves = nest if flat else _pytree.tree_leaves(nest)
    return {str(i): leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and _can_be_seen(leaf)}


def _can_be_seen(tensor: Tensor) -> bool:
    """Whether a tensor has numbers that can be read."""
    stands_for_others = is_batched(tensor) or tensor.is_nested or type(tensor).__name__ == "FakeTensor"
    return not (stands_for_others or tensor.is_quantized or tensor.device.type == "meta")


_RECORDING = threading.Lock()


@contextmanager
def recording(
    *models: nn.Module, steps: int = 10, every: int | None = 1, nudged_by: Nudge | None = None
) -> Iterator[Run]:
    """Record the run inside: ``with audit.recording(model) as run: train(…)``, then ``run.recording``.

    Of the first ``steps`` steps of the optimizers every ``every``-th is recorded: what modules take and
    return, gradients, and weights, as sketches; with None the first three, the fifth, the ninth and so on,
    ever rarer. ``models`` give the names; those that are left out are found
    by the optimizers that step their parameters. The training's results are, bit for bit, those without it,
    unless it is ``nudged_by`` what rounding does. Raises TypeError or ValueError for arguments of the wrong
    kind, and RuntimeError inside another ``recording``.
    """
    for model in models:
        require(model, nn.Module, "a model", "an nn.Module; optimizers and scalers are found by themselves")
    every = None if every is None else require_whole(every, "every")
    run = Run(models, require_whole(steps, "steps"), every, nudged_by)
    if not _RECORDING.acquire(blocking=False):
        raise RuntimeError("another audit.recording is under way in this process; end it first")
    try:
        with run.recording_inside():
            yield run
    finally:
        _RECORDING.release()
