"""What runs in the worker for training loops: a model, a loss and hooks that write down what happens.

Out come numbers and names only: at each training loss the weights and inputs, how backward began, what was
called after it and with which gradients. What each update should have been, the judge computes outside.
A judge lets the solution train by the same code in its own process: what is replaced here is put back.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from amp_lessons import autocast
from amp_lessons._base.text.describing import describe
from amp_lessons._base.whole_process import running_eagerly
from amp_lessons._base.worker.serving import told
from amp_lessons.audit.recorder.stale import is_stale
from amp_lessons.audit.watch import watch
from amp_lessons.course.exercises import bed_there

with autocast.cuda_rules():  # read once by whoever imports this: the host of all workers
    pass

_TORCH = str(Path(torch.__file__).parent)
# what the judge says of a problem: weights, batches, lr, factor, offset, epochs, dtype
Given = dict[str, Any]


class Net(nn.Module):
    """Two linear layers, which tell a log how each forward pass ran."""

    def __init__(self, log: Log | None = None) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 5)
        self.log = log

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, 6) to (batch, 5) logits."""
        hidden = self.body(inputs)
        # a forward pass during backward only recomputes what checkpointing did not keep
        if self.log is not None and torch._C._current_graph_task_id() == -1:
            self.log.forward(self, inputs, hidden)
        return self.head(F.silu(hidden))


def of_pass(model: Any, inputs: Tensor, hidden: Tensor) -> dict[str, Any]:
    """Say of a pass through ``body``, the first layer of a model, in which dtypes and mode it ran."""
    return {
        "inputs": inputs.detach().float().clone(),
        "input_dtype": inputs.dtype,
        "autocast": torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        "weight_dtype": model.body.weight.dtype,
        "stale": is_stale(model.body, inputs, hidden),
        "training": model.training,
    }


class Loss(nn.CrossEntropyLoss):
    """Cross entropy times a factor, plus an offset, which changes no gradient."""

    def __init__(self, log: Log, factor: float, offset: float) -> None:
        super().__init__()
        self.log, self.factor, self.offset = log, factor, offset

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean over (batch, 5) logits."""
        loss = super().forward(input, target) * self.factor + self.offset
        if torch._C._current_graph_task_id() == -1:
            self.log.loss(loss)
        return loss


class Loader:
    """The same batches in every epoch, in the same order."""

    drop_last = False

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.batches, self.batch_size = batches, len(batches[0][0])
        self.dataset = [pair for x, y in batches for pair in zip(x, y, strict=True)]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.batches)


class Log:
    """What is written down while one loop trains: an entry for each training loss, and calls after it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.before: list[dict[str, Any]] = []  # calls before the first training loss
        self.without_graph = 0
        self.cuda: set[str] = set()  # what was asked for "cuda", "GradScaler()" without a word
        self.old_spellings: set[str] = set()
        self.autocasts: list[tuple[Any, torch.dtype | None]] = []  # devices asked for, and what they cast to
        self.inside = False  # scaler.step
        self.last: dict[str, Any] = {}
        self._now: tuple[dict[str, Any], bool] | None = None
        self._owners: list[Any] = []

    def __deepcopy__(self, memo: Any) -> Log:
        return self  # a copy of a model reports here too, as a copy

    def watch(self, model: nn.Module) -> None:
        """Watch what backward adds to the gradients of ``model``."""
        self.model, self.parameters = model, list(model.parameters())
        for i, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(lambda p, i=i: self._filled(i, p))

    def weights(self) -> Tensor:
        """Return all weights in one flat tensor."""
        return torch.cat([p.detach().float().reshape(-1) for p in self.parameters])

    def gradients(self) -> Tensor:
        """Return all gradients in one flat tensor, zeros where there are none."""
        found = ((p.grad, p.numel()) for p in self.parameters)
        return torch.cat([torch.zeros(n) if g is None else g.detach().float().reshape(-1) for g, n in found])

    def forward(self, model: Net, inputs: Tensor, hidden: Tensor) -> None:
        """Note a forward pass; validation, which has no graph, does not hide one before it."""
        if not torch.is_grad_enabled() and self.last.get("graph"):
            return
        self.last = {
            "graph": torch.is_grad_enabled(),
            **of_pass(model, inputs, hidden),
            "own": model.body.weight is self.parameters[0],
        }

    def loss(self, loss: Tensor) -> None:
        """Begin an entry for a loss that backward can start from."""
        if not loss.requires_grad:
            self.without_graph += 1
            return
        entry = {
            **{name: value for name, value in self.last.items() if name != "graph"},
            "weights": self.weights(),
            "loss": float(loss.detach()),
            "loss_dtype": loss.dtype,
            "loss_autocast": torch.is_autocast_enabled("cpu"),
            "begun": [],
            "late": False,
            "backward_autocast": False,
            "filled": [0] * len(self.parameters),
            "leftover": False,
            "left": None,
            "calls": [],
        }
        self.seen.append(entry)
        loss.register_hook(lambda gradient: self._begun(entry, gradient))

    def _begun(self, entry: dict[str, Any], gradient: Tensor) -> None:
        entry["begun"].append(float(gradient))
        entry["late"] |= entry is not self.seen[-1]
        entry["backward_autocast"] |= torch.is_autocast_enabled("cpu")
        had = bool(self.gradients().nan_to_num(1.0).any())
        if not had and entry is self.seen[-1]:  # what an earlier pass had left was cleared, and did not count
            entry |= {"filled": [0] * len(self.parameters), "leftover": False}
        self._now = entry, had

    def _filled(self, index: int, parameter: Tensor) -> None:
        if self._now is not None and parameter.grad is not None:
            entry, had = self._now
            entry["filled"][index] += 1
            entry["leftover"] |= had
            entry["left"] = self.gradients()

    def call(self, name: str, owner: Any, **facts: Any) -> None:
        """Note a call, with the gradients that it found and the state of the scaler."""
        scaler = isinstance(owner, torch.amp.GradScaler)
        self._owners.append(owner)  # an object that lives on keeps its id to itself
        where = self.seen[-1]["calls"] if self.seen else self.before
        where.append(
            {
                "name": name,
                "owner": id(owner),
                "scale": scale_of(owner) if scaler else 1.0,
                "clean": clean_steps(owner) if scaler else 0,
                "enabled": scaler and owner.is_enabled(),
                "inside": self.inside,
                "gradients": self.gradients(),
                **facts,
            }
        )


def scale_of(scaler: torch.amp.GradScaler) -> float:
    """Return the scale, NaN where it cannot be had."""
    with contextlib.suppress(Exception):
        return float(scaler.get_scale())
    return math.nan


def clean_steps(scaler: torch.amp.GradScaler) -> int:
    """Return how many clean steps a scaler has counted, or loaded, since its scale last changed."""
    with contextlib.suppress(Exception):
        return int(scaler.state_dict().get("_growth_tracker", 0))
    return 0


def train(loop: Callable[..., Any], given: Given) -> dict[str, Any]:
    """Let the loop train, and return what was written down, whatever it raises."""
    log = Log()
    model = Net(log)
    with torch.no_grad():
        nn.utils.vector_to_parameters(given["weights"].clone(), model.parameters())
    log.watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=given["lr"])
    batches = [tuple(batch) for batch in given["batches"]]
    settings = _settings(optimizer)
    returned, raised = None, None
    with _quietly(), spying(log), autocast.cuda_rules():
        before, methods = bed_there.settings(), _methods()
        try:
            loss_fn = Loss(log, given["factor"], given["offset"])
            arguments = (model, Loader(batches), optimizer, loss_fn, given["epochs"])
            returned = loop(*arguments, device_type="cpu", dtype=given["dtype"], **given["options"])
        except BaseException as error:
            raised = told(error)
        left, methods_after = bed_there.changed_since(before), _methods()
        told_of_history = history(returned)
    return {
        "raised": raised,
        "seen": log.seen,
        "before": log.before,
        "without_graph": log.without_graph,
        "weights": log.weights(),
        "weight_dtypes": [p.dtype for p in model.parameters()],
        "sizes": [p.numel() for p in model.parameters()],
        "optimizer": id(optimizer),
        "settings_kept": _settings(optimizer) == settings,
        "batches": [list(batch) for batch in batches],
        "left": left,
        "patched": [name for name, value in methods_after.items() if methods.get(name) is not value],
        "cuda": sorted(log.cuda),
        "old_spellings": sorted(log.old_spellings),
        "history": told_of_history,
    }


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Run without warnings, compilers and threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), running_eagerly():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


def history(returned: Any) -> dict[str, Any]:
    """Describe what a loop has returned: its kind, and its values where they are numbers."""
    what: dict[str, Any] = {
        "kind": type(returned).__name__,
        "described": describe(returned),
        "values": None,
        "tensors": [],
    }
    if type(returned).__name__ in ("list", "tuple", "Tensor", "ndarray"):
        with contextlib.suppress(Exception):
            items = list(returned)
            if type(returned).__name__ in ("list", "tuple"):
                what["tensors"] = [v.requires_grad for v in items if isinstance(v, Tensor)]
            strange = [v for v in items if isinstance(v, (bool, str)) or not hasattr(v, "__float__")]
            what["strange"] = describe(strange[0]) if strange else ""
            graph = isinstance(returned, Tensor) and returned.requires_grad
            what["values"] = None if strange or graph else [float(v) for v in items]
    return what


def _settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def _methods() -> dict[str, Any]:
    """Return what a learner might replace; PyTorch itself replaces some of it by code of its own."""
    owners = (torch.amp.GradScaler, torch.autocast, torch.optim.Optimizer, torch.optim.SGD, Tensor, nn.Module)
    modules = (torch, F, nn.utils, torch.autograd)
    return {
        f"{owner.__name__}.{name}": value
        for owner in (*owners, *modules)
        for name, value in list(vars(owner).items())
        if isinstance(value, FunctionType) and not value.__code__.co_filename.startswith(_TORCH)
    }


def audited(loop: Callable[..., Any], given: Given, train_by: str) -> list[list[str]]:
    """Let the audit watch the loop; return what it names: code, message, hint, line."""
    module, _, name = train_by.partition(":")
    gc.freeze()  # what was there before the loop is none of its optimizers, which the audit looks for
    with contextlib.suppress(Exception), watch(every=3) as seen:
        getattr(importlib.import_module(module), name)(loop, given)
    found = [each for each in seen.report.findings if not each.ok]
    return [[f.code, f.message, f.hint, f"line {f.place.line}" if f.place else ""] for f in found]


# --- spies on PyTorch's classes, so that every spelling, subclasses and names imported earlier are seen

_log: list[Log] = []  # the one that is written to


@contextlib.contextmanager
def spying(log: Log) -> Iterator[None]:
    """Let the calls of scalers, optimizers and clipping be noted in ``log``, and "cuda" mean this device."""
    _log[:] = [log]
    scaler, autocasts = torch.amp.GradScaler, torch.amp.autocast_mode.autocast
    with contextlib.ExitStack() as stack:
        before = register_optimizer_step_pre_hook(lambda o, a, k: _log[0].call("optimizer.step", o))
        stack.callback(before.remove)
        after = register_optimizer_step_post_hook(lambda o, a, k: _log[0].call("stepped", o))
        stack.callback(after.remove)

        def replace(owner: Any, name: str, by: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, by))

        replace(scaler, "__init__", _made(scaler.__init__, "GradScaler", 0))
        replace(autocasts, "__init__", _made(autocasts.__init__, "autocast", 0))
        for name in ("scale", "unscale_", "step", "update"):
            replace(scaler, name, _noted(getattr(scaler, name), name))
        for cleared in (torch.optim.Optimizer, nn.Module):
            replace(cleared, "zero_grad", _cleared(cleared.zero_grad))
        for moved in (Tensor, nn.Module):
            replace(moved, "to", _moved(moved.to))
            replace(moved, "cuda", _stayed)
        replace(clip_grad, "_clip_grads_with_norm_", _clipped(clip_grad._clip_grads_with_norm_))
        yield


def _clipped(original: Callable[..., Any]) -> Callable[..., Any]:
    def clipped(parameters: Any, max_norm: float, total_norm: Tensor, *args: Any, **kwargs: Any) -> None:
        _log[0].call("clip", original, norm=float(total_norm), limit=float(max_norm))
        original(parameters, max_norm, total_norm, *args, **kwargs)

    return clipped


def _noted(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Note the call of a scaler's method before and after."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        facts: dict[str, Any] = {}
        given = (*args, *kwargs.values())
        if name == "scale" and given and isinstance(given[0], Tensor):
            facts = {"elements": given[0].numel(), "dtype": given[0].dtype}
        if name == "step":
            facts = {"arguments": len(given) - 1}
        _log[0].call("scaler.step" if name == "step" else name, self, **facts)
        outside = _log[0].inside
        _log[0].inside = outside or name == "step"
        try:
            return original(self, *args, **kwargs)
        finally:
            _log[0].inside = outside
            if name in ("unscale_", "update"):
                _log[0].call({"unscale_": "unscaled", "update": "updated"}[name], self)

    return method


def _cleared(original: Callable[..., Any]) -> Callable[..., Any]:
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        _log[0].call("zero_grad", self)
        original(self, *args, **kwargs)

    return zero_grad


def _is_cuda(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")


def _here(value: Any, spelling: str) -> Any:
    """Return this device where the learner asked for "cuda"."""
    if _is_cuda(value):
        _log[0].cuda.add(spelling)
        return "cpu"
    return value


def _made(original: Callable[..., Any], spelling: str, place: int) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        module = type(self).__module__
        if module.startswith(("torch.cuda.", "torch.cpu.")):
            _log[0].old_spellings.add(f"{module.rsplit('.', 1)[0]}.{spelling}")
        name = "device" if spelling == "GradScaler" else "device_type"
        named = f"{spelling}()" if not args and name not in kwargs else spelling
        asked = args[place] if args else kwargs.pop(name, "cuda")
        if spelling == "autocast" and _is_cuda(asked) and len(args) < 2 and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float16  # the default of the device that was asked for
        original(self, _here(asked, named), *args[1:], **kwargs)
        if spelling == "GradScaler":
            _log[0].call("GradScaler", self)
        else:
            enabled = args[2] if len(args) > 2 else kwargs.get("enabled", True)
            _log[0].autocasts.append((asked, self.fast_dtype if enabled else None))

    return __init__


def _stayed(self: Any, *args: Any, **kwargs: Any) -> Any:
    _log[0].cuda.add("cuda")
    return self


def _moved(original: Callable[..., Any]) -> Callable[..., Any]:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_here(argument, "to") for argument in args)
        return original(self, *args, **{name: _here(value, "to") for name, value in kwargs.items()})

    return to
