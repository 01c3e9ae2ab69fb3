"""Checkpoints that lose nothing: everything that decides how training goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Raised, Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises.attempt import Rejected, reject, require_none
from amp_lessons.course.exercises.bed import as_raised, described, require_not_raised, said_of
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_THERE = "amp_lessons.course.exercises.resume_training.checkpoints_there"
_NAME = "checkpoint.pt"
_EPOCH = 7


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Save a training that has come some way, load it into a fresh one, and look for what is lost."""
    both = _both(worker)
    for scaling in (True, False):
        _require_round_trip(worker, both, scaling)
    yield passed("model", "weights and buffers come back exactly")
    yield passed("optimizer", "so do the optimizer's state and learning rate, and the scheduler's position")
    yield passed(
        "scaler", "so do the scaler's scale and its count of clean steps; a disabled scaler works as well"
    )
    yield passed("position", "the epoch and PyTorch's random numbers go on where they stopped")


def _both(worker: Worker) -> Handle:
    """Return the two functions of a pair, a dict, or whatever holds them by their names."""
    handed_in = [Handle(number) for number in range(worker.handed_in)]
    both = worker.call(f"{_THERE}:Pair", *handed_in, keep=True)
    if words := worker.call(both, method="described"):
        reject("not_a_pair", f"two functions were expected, not {words}", _BOTH)
    names = (("save_checkpoint", 6), ("load_checkpoint", 5))
    for (name, count), wrong in zip(names, worker.call(both, method="uncallable"), strict=True):
        if wrong and wrong[0] == "not_a_function":
            reject("not_a_function", f"{name} is {wrong[1]}, not a function", _BOTH)
        if wrong:
            raise Rejected(common_findings.other_signature(name, count, (), wrong[1]))
    return both


_BOTH = (
    'pass both functions, without calling them: check("resume_training", (save_checkpoint, load_checkpoint))'
)


def _require_round_trip(worker: Worker, both: Handle, scaling: bool) -> None:
    """Look at a training that was saved, went on, and was loaded from the file into a fresh one."""
    told = worker.call(both, scaling, _EPOCH, method="round_trip")
    if told["left"]:
        raise Rejected(common_findings.leaving(told["left"]))
    seen = told["result"]
    for saved in seen["saved"]:
        require_not_raised(saved["raised"], "in save_checkpoint")
        require_none(not_written(saved["written"]))
        require_none(saving_changed(saved["after"], saved["before"], saved["random_after"], saved["random"]))
    first, later = seen["saved"]
    if seen["load_raised"] is not None:
        raise Rejected(load_raised(as_raised(seen["load_raised"]), scaling, seen["left_behind"]))
    found = seen["found"]
    require_none(from_memory(later["before"], first["before"], found))
    require_none(lost(first["before"], seen["own"], found, seen["replaced"], seen["frozen"]))
    require_none(wrong_epoch(seen["epoch"], _EPOCH))
    require_none(lost_random(first["random"], later["random"], seen["random_found"]))
    require_none(goes_on_otherwise(later["before"]["model"], seen["gone_on"]))


# --- what a training run that was loaded from a checkpoint has lost


def not_written(written: list[str]) -> Iterator[Finding]:
    """Look whether there is a file where one was to be; there may be more beside it."""
    if not written:
        yield failed(
            "nothing_saved",
            "save_checkpoint wrote no file into the folder of path",
            "write all of it to path",
        )
    if _NAME not in written:
        yield failed(
            "saved_elsewhere",
            f"save_checkpoint was given {_NAME!r} and wrote {written[0]!r}: whoever looks for the "
            "checkpoint under the name that was given does not find it",
            "write to path as it is given",
        )


def saving_changed(
    found: dict[str, Any], wanted: dict[str, Any], drawn_after: list[Tensor], drawn: list[Tensor]
) -> Iterator[Finding]:
    """Look whether the training that was saved is another after saving."""
    if not equal(found, wanted):
        changed = [name for name in wanted if not equal(found[name], wanted[name])]
        what = (
            "its model was in evaluation mode" if changed == ["training"] else f"its {changed[0]} was changed"
        )
        yield failed(
            "saving_changes_training",
            f"after save_checkpoint the running training was different: {what}; it goes on otherwise than "
            "if it had not been saved",
            "change copies, not the objects themselves (model.half() and model.eval() work in place), or "
            "change nothing",
        )
    if not equal(drawn_after, drawn):
        yield failed(
            "saving_changes_training",
            "save_checkpoint drew random numbers, or seeded them: the training that was saved goes on with "
            "others than it would have drawn, and than those that were saved",
            "only read the random state when saving",
        )


def from_memory(later: dict[str, Any], wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    """Look whether what came back is the training as it is by now, and not what the file was to hold."""
    parts = ("model", "optimizer", "scaler")
    newer = [
        each for each in parts if equal(found[each], later[each]) and not equal(found[each], wanted[each])
    ]
    if newer:
        yield _not_in_file(
            f"the {newer[0]} that came back is that of a later checkpoint in another file: it was "
            f"{_ELSEWHERE}"
        )


_ELSEWHERE = "kept in a variable, which is gone when the process ends, or in a file of its own"


def _not_in_file(what: str) -> Finding:
    return failed("state_not_in_file", what, "write all of it to the file, and read nothing but the file")


def lost(
    wanted: dict[str, Any], own: dict[str, Any], found: dict[str, Any], replaced: bool, frozen: list[str]
) -> Iterator[Finding]:
    """Look for what was ``found`` and is not what was saved, ``wanted``; ``own`` is from before loading.

    ``replaced`` says that the optimizer steps other parameters, ``frozen`` names those that are not trained.
    """
    yield from _model(wanted["model"], own["model"], found["model"])
    yield from _same_parameters(found["training"], replaced, frozen)
    yield from _optimizer(wanted["optimizer"], found["optimizer"])
    yield from _scheduler(wanted["scheduler"], found["scheduler"])
    yield from _learning_rate(wanted["optimizer"], found["optimizer"])
    yield from _scaler(wanted["scaler"], found["scaler"])


def _model(wanted: dict[str, Tensor], own: dict[str, Tensor], found: dict[str, Tensor]) -> Iterator[Finding]:
    wrong = [name for name in wanted if not equal(wanted[name], found[name])]
    if not wrong:
        return
    if any(_rounded_to(dtype, wrong, wanted, found) for dtype in (torch.float16, torch.bfloat16)):
        yield failed(
            "weights_rounded",
            "the weights came back rounded to 16 bits: the digits that fp32 weights exist for are gone",
            "save the fp32 weights as they are",
        )
    if not any(equal(own[name], found[name]) for name in wrong):
        yield failed(
            "model_altered",
            f"{', '.join(wrong)} are neither those that were saved nor those that the model had before: they "
            "were changed on their way through the file, or after loading",
            "save model.state_dict() and load it as it is",
        )
    if len(wrong) < len(wanted):
        yield failed(
            "model_incomplete",
            f"{', '.join(wrong)} did not come back; buffers (batch norm's running statistics) belong to the "
            "state as well",
            "model.state_dict() holds parameters and buffers; model.parameters() holds only the former",
        )
    yield failed(
        "model_not_restored",
        "the model that was passed to load_checkpoint still has its own weights",
        "model.load_state_dict(state['model']) changes the model in place; assigning to the name model "
        "does not",
    )


def _rounded_to(
    dtype: torch.dtype, names: list[str], wanted: dict[str, Tensor], found: dict[str, Tensor]
) -> bool:
    """Whether what came back under these names is what was saved, rounded to ``dtype``."""
    return all(equal(wanted[name].to(dtype).float(), found[name].float()) for name in names)


def _same_parameters(training: bool, replaced: bool, frozen: list[str]) -> Iterator[Finding]:
    if not training:
        yield catalogue.precision.evaluation_mode("after loading")
    if replaced:
        yield failed(
            "parameters_replaced",
            "the model has new parameter tensors (load_state_dict with assign=True, for one), while the "
            "optimizer still steps the old ones: training would change nothing",
            "model.load_state_dict(state['model']) copies into the tensors that are there",
        )
    if frozen:
        yield catalogue.precision.parameters_frozen(
            "after loading",
            ", ".join(frozen),
            "leave requires_grad as it is; for inference use torch.no_grad() instead",
        )


def _optimizer(wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    if not equal(wanted["state"], found["state"]):
        yield _optimizer_state(_tensors(wanted["state"]), _tensors(found["state"]))


def _learning_rate(wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    if wanted["param_groups"] != found["param_groups"]:
        rates = [state["param_groups"][0]["lr"] for state in (found, wanted)]
        yield failed(
            "learning_rate_lost",
            f"after loading the learning rate is {rates[0]:g} instead of {rates[1]:g}",
            "load the optimizer's whole state dict, which holds its param_groups, and create nothing that "
            "resets them",
        )


def _tensors(state: dict[int, dict[str, Any]]) -> list[Tensor]:
    return [value for each in state.values() for value in each.values() if isinstance(value, Tensor)]


def _optimizer_state(wanted: list[Tensor], found: list[Tensor]) -> Finding:
    """Report what of the optimizer's state differs after loading from what was saved."""
    for dtype in (torch.float16, torch.bfloat16):
        rounded = [tensor.to(dtype).float() for tensor in wanted]
        if found and equal(rounded, [tensor.float() for tensor in found]):
            return failed(
                "optimizer_rounded",
                f"the optimizer's momentum came back rounded to {dtype_name(dtype)}: the update after "
                "loading is another than it would have been",
                "save the optimizer's state as it is, in fp32",
            )
    how = (
        "came back changed: the steps after loading are others than they would have been"
        if any(tensor.any() for tensor in found)
        else "did not come back: its momentum (or Adam's averages) starts from zero again"
    )
    return failed(
        "optimizer_not_restored",
        f"the optimizer's state {how}",
        "load the state that was saved into the optimizer that was passed in, with load_state_dict",
    )


def _scheduler(wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    if wanted["last_epoch"] != found["last_epoch"]:
        goes_on = "runs ahead" if found["last_epoch"] > wanted["last_epoch"] else "starts again"
        yield failed(
            "scheduler_not_restored",
            f"the scheduler thinks it is in epoch {found['last_epoch']} instead of {wanted['last_epoch']}: "
            f"the learning rate schedule {goes_on}",
            "scheduler.load_state_dict(state['scheduler']), and no scheduler.step() when loading",
        )


def _scaler(wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    if found.get("scale") != wanted.get("scale"):
        yield failed(
            "scaler_not_restored",
            f"the scaler starts with scale {found['scale']:g} instead of {wanted['scale']:g}: the first "
            "steps may be skipped until it has found its scale again",
            "treat the scaler as the optimizer is treated: it has a state too",
        )
    if not equal(wanted, found):
        yield failed(
            "growth_tracker_lost",
            "the scale came back, but not the scaler's count of clean steps (or its settings)",
            "scaler.state_dict() holds all of it; get_scale() alone does not",
        )


def wrong_epoch(found: Any, saved: int) -> Iterator[Finding]:
    """Look whether load_checkpoint returned another epoch than was saved."""
    if found != saved or isinstance(found, bool):
        yield failed(
            "epoch_lost",
            f"load_checkpoint returned {described(found)}; {saved} finished epochs were saved",
            "return the epoch that was passed to save_checkpoint",
        )


def goes_on_otherwise(later: dict[str, Tensor], found: Any) -> Iterator[Finding]:
    """Compare the weights of a training that went on from the file with those of one never stopped."""
    if not isinstance(found, dict) or not all(
        torch.allclose(later[name].float(), found[name].float(), rtol=1e-4, atol=1e-6) for name in later
    ):
        yield failed(
            "goes_on_otherwise",
            "all states came back, and yet two steps after loading gave other weights than the training that "
            "was not stopped: something beside the states was changed (a hook, a layer's setting)",
            "change the objects by load_state_dict only",
        )


def lost_random(wanted: list[Tensor], later: list[Tensor], found: list[Tensor]) -> Iterator[Finding]:
    """Look whether the random state of PyTorch is another than the one that was saved."""
    if equal(later, found):
        yield failed(
            "random_state_lost",
            "the random numbers go on as after a later checkpoint in another file: their state was "
            f"{_ELSEWHERE}, so dropout masks and the shuffling of data differ from now on",
            "write the random state to the file, and set what the file holds",
        )
    if not equal(wanted, found):
        yield failed(
            "random_state_lost",
            "the state of PyTorch's random numbers did not come back, or numbers were drawn after it had: "
            "dropout masks and the shuffling of data differ from now on",
            "save torch.get_rng_state() (and torch.cuda.get_rng_state_all() on a GPU), and set it last when "
            "loading",
        )


def load_raised(raised: Raised, scaling: bool, left_behind: list[str]) -> Finding:
    """Explain the exception that ended load_checkpoint; ``left_behind`` are files beside the one it got."""
    text = raised.text
    missing = next((name for name in left_behind if name in text), None)
    if missing is not None:
        return _not_in_file(
            f"save_checkpoint wrote a part of the state to {missing!r}, beside the file it was given, and "
            "load_checkpoint does not find it: the file was moved, and nothing with it"
        )
    if "source state dict is empty" in text:
        return failed(
            "empty_scaler_state",
            "the scaler refused the state it was given: it is empty, as that of a disabled scaler is",
            "save scaler.state_dict() of the scaler that training uses",
        )
    if raised.kinds[0] == "UnpicklingError" and "Weights only load failed" in text:
        return failed(
            "pickled_objects",
            "torch.load refused the file, since it holds whole Python objects instead of their state",
            "save model.state_dict(), optimizer.state_dict() and so on: tensors, numbers, lists and dicts",
        )
    about = f"in load_checkpoint{'' if scaling else ' with a disabled scaler'}"
    return said_of(raised, about, part="load_checkpoint")


def equal(a: Any, b: Any) -> bool:
    """Compare states, which are nested dicts and lists of tensors and numbers, exactly."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return (
            isinstance(a, Tensor)
            and isinstance(b, Tensor)
            and a.dtype == b.dtype
            and torch.equal(a, b.to(a.device))
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)
