"""Checkpoints that lose nothing: everything that decides how training goes on."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.exercises import conduct, sandbox
from amp_lessons.exercises.bench import device_type
from amp_lessons.exercises.results import Exercise, Finding, Verdict, failed, passed
from amp_lessons.exercises.sources import source_of


def save_checkpoint(path, model, optimizer, scheduler, scaler, epoch):  # type: ignore[no-untyped-def]
    """Write everything that training needs to go on after ``epoch`` finished epochs to one file."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": scaler.state_dict(),
        "epoch": epoch,
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    torch.save(state, path)


def load_checkpoint(path, model, optimizer, scheduler, scaler):  # type: ignore[no-untyped-def]
    """Put everything back, in place, and return the number of finished epochs."""
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    scaler.load_state_dict(state["scaler"])
    torch.set_rng_state(state["rng"])
    if state["cuda_rng"]:
        torch.cuda.set_rng_state_all(state["cuda_rng"])
    return state["epoch"]


_EPOCH = 7


@dataclass
class Training:
    """What a checkpoint has to hold: the objects of a training run."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    scaler: torch.amp.GradScaler

    def objects(self) -> tuple[Any, ...]:
        """The objects, in the order in which the exercise takes them."""
        return self.model, self.optimizer, self.scheduler, self.scaler

    def state(self) -> dict[str, Any]:
        """Copy everything that decides how training goes on, apart from random numbers."""
        named = zip(("model", "optimizer", "scheduler", "scaler"), self.objects(), strict=True)
        states = {name: copy.deepcopy(each.state_dict()) for name, each in named}
        return states | {"training": self.model.training}


def _make(seed: int, device: str, scaling: bool) -> Training:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**12, growth_interval=4, enabled=scaling)
    return Training(model, optimizer, scheduler, scaler)


def _train(training: Training, device: str, steps: int) -> None:
    """Train a little, with one overflow, so that every part of the state differs from a fresh one."""
    for step in range(steps):
        training.optimizer.zero_grad()
        loss = training.model(torch.randn(6, 4, device=device)).square().mean()
        training.scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        if training.scaler.is_enabled() or step != 1:
            training.scaler.step(training.optimizer)
        training.scaler.update()
    training.scheduler.step()


def _random_states() -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]


def _functions(attempt: Any) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    if isinstance(attempt, (tuple, list)) and len(attempt) == 2:
        return attempt[0], attempt[1]
    if isinstance(attempt, dict) and {"save_checkpoint", "load_checkpoint"} <= set(attempt):
        return attempt["save_checkpoint"], attempt["load_checkpoint"]
    if hasattr(attempt, "save_checkpoint") and hasattr(attempt, "load_checkpoint"):
        return attempt.save_checkpoint, attempt.load_checkpoint
    return None


def _examine(attempt: Any) -> Verdict:
    functions = _functions(attempt)
    if functions is None:
        what = conduct.describe(attempt)
        return Verdict((failed("not_a_pair", f"two functions were expected, not {what}", _PASS_BOTH),))
    save, load = functions
    finding = conduct.uncallable(save, "save_checkpoint", *[None] * 6) or conduct.uncallable(
        load, "load_checkpoint", *[None] * 5
    )
    for scaling in (True, False):
        finding = finding or _round_trip(save, load, scaling)
    return Verdict(_WHAT_HOLDS if finding is None else (finding,))


_PASS_BOTH = 'check("resume_training", (save_checkpoint, load_checkpoint))'


def _round_trip(save: Callable[..., Any], load: Callable[..., Any], scaling: bool) -> Finding | None:
    device = device_type()
    running = _make(seed=1, device=device, scaling=scaling)
    _train(running, device, steps=4)
    wanted, random_wanted = running.state(), _random_states()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        finding = _saved(save, path, running, wanted)
        if finding is not None:
            return finding
        resumed = _make(seed=2, device=device, scaling=scaling)

        def load_and_look() -> tuple[Any, list[Tensor]]:
            return load(path, *resumed.objects()), _random_states()

        outcome = sandbox.call(load_and_look)
    finding = conduct.unwritten_part(outcome, "load_checkpoint") or conduct.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return _load_raised(outcome, scaling)
    epoch, random_found = outcome.value
    return (
        _model(wanted["model"], resumed.model)
        or _same_parameters(resumed)
        or _optimizer(wanted["optimizer"], resumed.optimizer)
        or _scheduler(wanted["scheduler"], resumed.scheduler.state_dict())
        or _scaler(wanted["scaler"], resumed.scaler)
        or _epoch(epoch)
        or _random(random_wanted, random_found)
    )


def _saved(save: Callable[..., Any], path: Path, running: Training, wanted: dict[str, Any]) -> Finding | None:
    drawn = _random_states()

    def save_and_look() -> list[Tensor]:
        save(path, *running.objects(), _EPOCH)
        return _random_states()

    outcome = sandbox.call(save_and_look)
    finding = conduct.not_attempted(outcome) or conduct.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return conduct.raised(outcome, "in save_checkpoint")
    if not any(path.parent.iterdir()):
        return failed("nothing_saved", "save_checkpoint wrote no file", "torch.save(state, path)")
    if not _equal(running.state(), wanted) or not _equal(_random_states(), drawn):
        return failed(
            "saving_changes_training",
            "after save_checkpoint the objects of the running training were different (model.half() "
            "converts in place, for one)",
            "convert copies, not the model: {name: tensor.half() for name, tensor in "
            "model.state_dict().items()}; or do not convert",
        )
    return None


def _load_raised(outcome: sandbox.Outcome, scaling: bool) -> Finding:
    text = outcome.error_text
    if "source state dict is empty" in text:
        return failed(
            "empty_scaler_state",
            "the scaler refused the state it was given: it is empty, as that of a disabled scaler is",
            "save scaler.state_dict() of the scaler that training uses",
        )
    if type(outcome.error).__name__ == "UnpicklingError" and "Weights only load failed" in text:
        return failed(
            "pickled_objects",
            "torch.load refused the file, since it holds whole Python objects instead of their state",
            "save model.state_dict(), optimizer.state_dict() and so on: tensors, numbers, lists and dicts",
        )
    return conduct.raised(outcome, "in load_checkpoint" + ("" if scaling else " with a disabled scaler"))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return (
            isinstance(a, Tensor)
            and isinstance(b, Tensor)
            and a.dtype == b.dtype
            and torch.equal(a, b.to(a.device))
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def _model(wanted: dict[str, Tensor], model: nn.Module) -> Finding | None:
    found = model.state_dict()
    wrong = [name for name in wanted if not _equal(wanted[name], found[name])]
    if not wrong:
        return None
    if all(
        _equal(wanted[name].to(dtype).float(), found[name].float())
        for name in wrong
        for dtype in [torch.float16]
    ):
        return failed(
            "weights_rounded",
            "the weights came back rounded to 16 bits: the digits that float32 weights exist for are gone",
            "save the float32 weights as they are",
        )
    if len(wrong) < len(wanted):
        return failed(
            "model_incomplete",
            f"{', '.join(wrong)} did not come back; buffers (batch norm's running statistics) belong to the "
            "state as well",
            "model.state_dict() holds parameters and buffers; model.parameters() holds only the former",
        )
    return failed(
        "model_not_restored",
        "the model that was passed to load_checkpoint still has its own weights",
        "model.load_state_dict(state['model']) changes the model in place; assigning to the name model "
        "does not",
    )


def _same_parameters(resumed: Training) -> Finding | None:
    if not resumed.model.training:
        return failed(
            "evaluation_mode",
            "after loading the model is in evaluation mode: dropout is off and batch norm's statistics stand "
            "still from now on",
            "leave out model.eval(), which is for inference",
        )
    stepped = {id(p) for group in resumed.optimizer.param_groups for p in group["params"]}
    if all(id(parameter) in stepped for parameter in resumed.model.parameters()):
        return None
    return failed(
        "parameters_replaced",
        "the model has new parameter tensors (load_state_dict with assign=True, for one), while the "
        "optimizer still steps the old ones: training would change nothing",
        "model.load_state_dict(state['model']) copies into the tensors that are there",
    )


def _optimizer(wanted: dict[str, Any], optimizer: torch.optim.Optimizer) -> Finding | None:
    found = optimizer.state_dict()
    if not _equal(wanted["state"], found["state"]):
        return failed(
            "optimizer_not_restored",
            "the optimizer's state did not come back: its momentum (or Adam's averages) starts from zero "
            "again",
            "optimizer.load_state_dict(state['optimizer']), on the optimizer that was passed in",
        )
    groups = [{k: v for k, v in g.items() if k != "lr"} for g in found["param_groups"]]
    expected = [{k: v for k, v in g.items() if k != "lr"} for g in wanted["param_groups"]]
    rates = [[g["lr"] for g in state["param_groups"]] for state in (found, wanted)]
    if rates[0] != rates[1] or groups != expected:
        return failed(
            "learning_rate_lost",
            f"after loading the learning rate is {rates[0][0]:g} instead of {rates[1][0]:g}",
            "load the optimizer's whole state dict, which holds its param_groups, and create nothing that "
            "resets them",
        )
    return None


def _scheduler(wanted: dict[str, Any], found: dict[str, Any]) -> Finding | None:
    if wanted["last_epoch"] == found["last_epoch"]:
        return None
    return failed(
        "scheduler_not_restored",
        f"the scheduler thinks it is in epoch {found['last_epoch']} instead of {wanted['last_epoch']}: "
        "the learning rate schedule starts again",
        "scheduler.load_state_dict(state['scheduler'])",
    )


def _scaler(wanted: dict[str, Any], scaler: torch.amp.GradScaler) -> Finding | None:
    found = scaler.state_dict()
    if _equal(wanted, found):
        return None
    if found.get("scale") != wanted.get("scale"):
        return failed(
            "scaler_not_restored",
            f"the scaler starts with scale {found['scale']:g} instead of {wanted['scale']:g}: the first "
            "steps may be skipped until it has found its scale again",
            "save scaler.state_dict() and call scaler.load_state_dict",
        )
    return failed(
        "growth_tracker_lost",
        "the scale came back, but not the scaler's count of clean steps (or its settings)",
        "scaler.state_dict() holds all of it; get_scale() alone does not",
    )


def _epoch(found: Any) -> Finding | None:
    if found == _EPOCH and not isinstance(found, bool):
        return None
    return failed(
        "epoch_lost",
        f"load_checkpoint returned {conduct.describe(found)}; {_EPOCH} finished epochs were saved",
        "return the epoch that was passed to save_checkpoint",
    )


def _random(wanted: list[Tensor], found: list[Tensor]) -> Finding | None:
    if _equal(wanted, found):
        return None
    return failed(
        "random_state_lost",
        "the state of PyTorch's random numbers did not come back: dropout masks and the shuffling of data "
        "differ from now on",
        "save torch.get_rng_state() (and torch.cuda.get_rng_state_all() on a GPU), and set it when loading",
    )


_WHAT_HOLDS = (
    passed("model", "weights and buffers come back exactly"),
    passed("optimizer", "so do the optimizer's state and learning rate, and the scheduler's position"),
    passed(
        "scaler", "so do the scaler's scale and its count of clean steps; a disabled scaler works as well"
    ),
    passed("position", "the epoch and PyTorch's random numbers go on where they stopped"),
)

EXERCISE = Exercise(
    id="resume_training",
    title="Resume training and lose nothing",
    lesson="04",
    difficulty=2,
    minutes=15,
    names=("save_checkpoint", "load_checkpoint"),
    task=(
        "Write `save_checkpoint` and `load_checkpoint` so that a training run that was stopped goes on "
        "exactly as if it had not been: model, optimizer, scheduler, scaler (it may be disabled), the "
        "number of finished epochs and PyTorch's random state. `load_checkpoint` changes the objects it "
        "is given in place and returns the number of finished epochs."
    ),
    stub='''def save_checkpoint(path, model, optimizer, scheduler, scaler, epoch):
    """Write everything that training needs to go on after ``epoch`` finished epochs to the file ``path``."""
    raise NotImplementedError


def load_checkpoint(path, model, optimizer, scheduler, scaler):
    """Put everything back, in place, and return the number of finished epochs."""
    raise NotImplementedError
''',
    hints=(
        "Make a list of everything that changes while training goes on. Dropout draws random numbers: "
        "where is their state?",
        "Model, optimizer, scheduler and scaler all have `state_dict()` and `load_state_dict()`. Random "
        "numbers have `torch.get_rng_state()` and `torch.set_rng_state()`.",
        "One dict with the four state dicts, the epoch and the random state, written by `torch.save` "
        "and read by `torch.load`. On a GPU also `torch.cuda.get_rng_state_all()` and `set_rng_state_all`.",
    ),
    explanation=(
        "The scaler's state is small and easily forgotten: without it a resumed run starts at 65536 "
        "again and skips steps until the scale has fallen. Save it after `update()`, when it holds "
        "nothing half done. State dicts instead of whole objects keep the file readable by "
        "`torch.load`, which refuses arbitrary pickled objects by default."
    ),
    answer=(save_checkpoint, load_checkpoint),
    answer_source=source_of(save_checkpoint, load_checkpoint),
    examine=_examine,
)
