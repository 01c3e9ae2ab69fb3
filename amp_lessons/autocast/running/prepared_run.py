"""Run a model once under the autocast of some device, and leave no trace of it."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from amp_lessons._base.arguments import require
from amp_lessons._base.whole_process import running_eagerly, without_anomaly_detection
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.cuda_on_cpu import ProductsInFp32, cuda_rules, region
from amp_lessons.autocast.running.fake_models import (
    BroughtAlong,
    RealResults,
    fake_mode_of,
    for_autograd,
    made_fake,
    require_module,
    require_normal_parameters,
    twins,
)
from amp_lessons.devices import without_autocast
from amp_lessons.formats.dtypes import dtype_name


@dataclass(frozen=True)
class PreparedRun:
    """A model and its inputs, ready to run: where they live, and under which autocast they are to run."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: torch.device
    fake_mode: FakeTensorMode | None
    device_type: str
    dtype: torch.dtype | None
    twins: Mapping[int, torch.Tensor] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """On which tensors, where and by whose rules the model runs, in words."""
        tensors = f"{'real' if self.fake_mode is None else 'fake'} tensors on {self.device}"
        if self.dtype is None:
            return f"{tensors}, without autocast"
        rules = "autocast" if self.device.type == self.device_type else "autocast rules"
        return f"{tensors}, {self.device_type} {rules}, {dtype_name(self.dtype)}"

    def forward(self) -> Any:
        """Return the model's output, computed inside the region of autocast."""
        return self.model(*self.args, **self.kwargs)

    def autocast(self) -> Any:
        """Return the region of autocast. Raises ``ValueError`` if this device cannot have it."""
        return region(self.device_type, self.dtype, self.device)

    @property
    def cuda_on_cpu(self) -> bool:
        """Whether CUDA's rules must be brought to the CPU, also for what a backward pass computes again."""
        return self.dtype is not None and (self.device_type, self.device.type) == ("cuda", "cpu")

    @property
    def needs_float16_products(self) -> bool:
        """Whether real float16 products would run on a CPU."""
        return self.fake_mode is None and self.device.type == "cpu" and self.dtype is torch.float16

    @property
    def python_below(self) -> bool:
        """Whether operations end in Python, below autograd."""
        return self.fake_mode is not None or self.needs_float16_products

    @contextmanager
    def without_trace(self) -> Iterator[None]:
        """Run with everything in place; afterwards buffers and random numbers are what they were."""
        torch.clear_autocast_cache()  # an autocast that is active already may have cast these weights
        with ExitStack() as stack:
            stack.callback(torch.clear_autocast_cache)  # nor is it to find those that are cast here
            for kind in {"cpu", "cuda", self.device.type}:
                # only the caller's: inside of any region, even one that is off, casts are kept longer
                if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                    stack.enter_context(without_autocast(kind))
            if "torch._dynamo" in sys.modules:  # else a compiled model would never be compiled again
                stack.enter_context(running_eagerly())
            if self.fake_mode is not None:
                stack.enter_context(without_anomaly_detection())  # which looks at values
                stack.enter_context(self.fake_mode)
                stack.enter_context(RealResults())
                stack.enter_context(BroughtAlong(self.fake_mode, self.twins))
            else:
                gpus = [self.device] if self.device.type == "cuda" else []
                stack.enter_context(torch.random.fork_rng(gpus))
                stack.enter_context(values_kept(self.model.buffers()))
                if self.needs_float16_products:
                    stack.enter_context(ProductsInFp32(torch.float16))
            if self.cuda_on_cpu:
                stack.enter_context(cuda_rules("cpu"))
            yield


def prepare(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device_type: str,
    dtype: torch.dtype | None,
    of: nn.Module | None = None,
) -> PreparedRun:
    """Find out where model and inputs live; give a fake model fake inputs. ``of`` is what it is a copy of.

    Raises ``TypeError`` if ``model`` is not a module, ``ValueError`` for tensors on several devices, for fake
    inputs of a real model, for a model made under inference_mode, and for rules that the device cannot have.
    """
    require_module(model)
    if torch.is_grad_enabled():
        require_normal_parameters(model)
    args, kwargs = for_autograd((args, kwargs))
    owned = list(chain(model.parameters(), model.buffers()))
    given = list(tensors_in([args, kwargs]))
    mode = fake_mode_of(owned + given)
    if mode is not None:
        if owned and fake_mode_of(owned) is None:
            raise ValueError("the inputs are fake and the model is real; use fake_copy(model) instead")
        args, kwargs = made_fake((args, kwargs), mode)
    stand_ins = {} if of is None else twins(of, model)
    place = _device_of(owned + given)
    prepared = PreparedRun(model, args, kwargs, place, mode, device_type, dtype, stand_ins)
    prepared.autocast()
    return prepared


def loss_tensors(output: Any) -> list[torch.Tensor]:
    """Return where a backward pass starts: the output's loss, else every floating tensor in it."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return [loss]
    return [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]


def losses_of(output: Any, loss_fn: Callable[[Any], Any] | None) -> list[torch.Tensor]:
    """Return what a backward pass starts from: what ``loss_fn`` makes of the output, or ``loss_tensors``.

    Raises TypeError where ``loss_fn`` returns no tensor, ValueError where no gradient is asked for.
    """
    if loss_fn is None:
        found = loss_tensors(output)
    else:
        found = [require(loss_fn(output), torch.Tensor, "what loss_fn returns", "a tensor, the loss")]
    losses = [loss for loss in found if loss.requires_grad]
    if not losses:
        raise ValueError("there is nothing to train: no output depends on a tensor that requires grad")
    return losses


def _device_of(tensors: list[torch.Tensor]) -> torch.device:
    """Return the device of all tensors, single numbers aside if there are others; of none, the CPU."""
    counting = [tensor for tensor in tensors if tensor.dim() > 0] or tensors
    devices = {tensor.device for tensor in counting}
    if len(devices) > 1:
        raise ValueError(f"model and inputs must be on one device, they are on {sorted(map(str, devices))}")
    return devices.pop() if devices else torch.device("cpu")


@contextmanager
def values_kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Put back what is written into parameters or buffers, such as BatchNorm's running statistics.

    The copies lie in main memory, where they are in nobody's way.
    """
    before = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, values in before:
                if not torch.equal(tensor, values := values.to(tensor.device)):
                    tensor.copy_(values)


# --- which module of a model is running


class ModulePaths:
    """Which module is running, and which was when a node of the autograd graph was made."""

    def __init__(self) -> None:
        self.stack = [""]
        self.numbers: list[int] = []
        self.paths: list[str] = []

    @property
    def current(self) -> str:
        """Path of the innermost module that runs now, "" for the model itself."""
        return self.stack[-1]

    def when_made(self, sequence_number: int) -> str:
        """Path of the module that ran when autograd gave out ``sequence_number``."""
        place = bisect_right(self.numbers, sequence_number) - 1
        return self.paths[place] if place >= 0 else ""

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Follow the modules of ``model`` as they run; scripted ones count as part of their parent."""
        with ExitStack() as stack:
            for path, module in model.named_modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    for handle in self._hooks(path, module):
                        stack.callback(handle.remove)
            yield

    def _hooks(self, path: str, module: nn.Module) -> Iterable[Any]:
        def enter(*_: Any) -> None:
            self.stack.append(path)
            self._note()

        def leave(*_: Any) -> None:
            self.stack.pop()
            self._note()

        yield module.register_forward_pre_hook(enter, prepend=True)
        yield module.register_forward_hook(leave, always_call=True)

    def _note(self) -> None:
        self.numbers.append(torch.autograd._get_sequence_nr())
        self.paths.append(self.current)


# --- passes that drop the same numbers out, whatever their dtype, so that they can be compared

_DROPOUTS = {
    *(torch.dropout, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d),
    *(F.alpha_dropout, F.feature_alpha_dropout),
}


class AlikeDropout(TorchFunctionMode):
    """Let dropout drop the same numbers whatever their dtype, or with ``none`` drop nothing.

    From the same random state a GPU draws other masks in fp16 than in fp32. So all are drawn in fp32. What
    attention drops is decided inside of kernels that differ by dtype: it drops nothing.
    """

    def __init__(self, none: bool = False) -> None:
        super().__init__()
        self._none = none

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            x, *rest = args or (kwargs.pop("input"),)
            return x if self._none else func(x.float(), *rest, **kwargs).to(x.dtype)
        if func is F.scaled_dot_product_attention:
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        elif func is F.multi_head_attention_forward:
            kwargs["training"] = False
        return func(*args, **kwargs)
