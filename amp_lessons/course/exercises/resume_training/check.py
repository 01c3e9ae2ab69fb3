"""Checkpoints that lose nothing: everything that decides how training goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import bed, bed_there
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.resume_training import checkpoints_there
from amp_lessons.course.exercises.resume_training.checkpoints_there import Training
from amp_lessons.formats.dtypes import dtype_name

_THERE = checkpoints_there.__name__
_NAME = "checkpoint.pt"
_LATER = (3, 3, 3)  # epochs for which the training goes on, of so many steps


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Save a training that has come some way, load it into a fresh one, and look for what is lost."""
    save, load = _both(worker)
    folder = worker.call("tempfile:mkdtemp")  # where the worker may write, behind a wall not here
    try:
        for scaling in (True, False):
            worker.call("os:mkdir", f"{folder}/{scaling}")
            _judge_trip(worker, save, load, scaling, f"{folder}/{scaling}", draw)
    except bed.Rejected:
        worker.call("shutil:rmtree", folder, True)
        raise
    worker.call("shutil:rmtree", folder, True)
    yield passed("model", "weights and buffers come back exactly")
    yield passed("optimizer", "so do the optimizer's state and learning rate, and the scheduler's position")
    yield passed("scaler", "so do the scaler's scale and its count of clean steps; a disabled one works, too")
    yield passed("position", "the epoch and PyTorch's random numbers go on where they stopped")


def _both(worker: bed.Worker) -> list[bed.Handle]:
    """Return the two functions of a pair, a dict, or whatever holds them by their names."""
    both, handed_in = [], [bed.Handle(number) for number in range(worker.handed_in)]
    for at, (name, count) in enumerate((("save_checkpoint", 6), ("load_checkpoint", 5))):
        both.append(worker.call(f"{_THERE}:held", at, name, *handed_in, keep=True))
        wrong = worker.call(f"{bed_there.__name__}:uncallable", both[at], count, [])
        if wrong and wrong[0] == "not_a_function":
            said = f"two functions were expected, and {name} is {wrong[1]}, not a function"
            hint = 'without calling them: check("resume_training", (save_checkpoint, load_checkpoint))'
            bed.reject("not_a_function", said, hint)
        if wrong:
            raise bed.Rejected(common_findings.other_signature(name, count, (), wrong[1]))
    return both


def _judge_trip(
    worker: bed.Worker, save: bed.Handle, load: bed.Handle, scaling: bool, folder: str, draw: torch.Generator
) -> None:
    """Save a training, let it go on and save it elsewhere; load the first file, alone, into a fresh one.

    The same training runs here, without being saved: what it is at each moment is what is right.
    """
    seed, epoch = (int(torch.randint(10, 100, (1,), generator=draw)) for _ in range(2))
    fresh, here = Training(seed + 1, scaling).state(), Training(seed, scaling)
    running = worker.call(f"{_THERE}:Training", seed, scaling, keep=True)
    states = []
    for name, epochs, finished in (("first", (4,), epoch), ("later", _LATER, epoch + 100)):
        here.train(*epochs)
        worker.call(running, *epochs, method="train")
        states.append(here.state() | {"epoch": finished})
        on_gpus = _require_saved(worker, running, save, f"{folder}/{name}", states[-1])["random_on_gpus"]
    worker.call("os:mkdir", f"{folder}/moved")
    moved = f"{folder}/moved/{_NAME}"
    worker.call("os:rename", f"{folder}/first/{_NAME}", moved)
    left_behind = list(map(str, worker.call("os:listdir", f"{folder}/first")))
    for each in left_behind:
        worker.call("os:rename", f"{folder}/first/{each}", f"{folder}/{each}")
    resumed = worker.call(f"{_THERE}:Training", seed + 1, scaling, keep=True)
    try:
        told = worker.call(resumed, load, moved, method="given_to")
    except bed.Raised as raised:
        raise bed.Rejected(_load_raised(raised, scaling, left_behind)) from None
    if told["left"]:
        raise bed.Rejected(common_findings.leaving(told["left"]))
    saved, later = states
    found = told["state"] | {"epoch": common_findings.number_in(told["epoch"])}
    bed.require_none(_lost(found, saved, later, fresh, bed.described(told["epoch"])))
    if not _equal(told["random_on_gpus"], on_gpus):
        said = "the state of random numbers on the GPU did not come back"
        bed.reject("random_state_lost", said, _HINTS["random_state_lost"])
    beside = next((what for what, its in told["beside"].items() if its), None)
    if beside is None:
        worker.call(resumed, *_LATER, method="train", random=saved["state of random numbers"])
        weights, wanted = worker.call(resumed, method="state")["weights"], later["weights"]
        if not all(torch.allclose(weights[name], each, rtol=1e-4) for name, each in wanted.items()):
            beside = "something beside them was changed (a hook, a layer's setting)"
    if beside is not None:
        said = f"all states came back, and yet training goes on otherwise than without a stop: {beside}"
        hint = "change the objects by load_state_dict only, which copies into the tensors that are there, "
        hint += "and without assign=True"
        bed.reject("goes_on_otherwise", said, hint)


def _require_saved(
    worker: bed.Worker, training: bed.Handle, save: bed.Handle, folder: str, wanted: dict[str, Any]
) -> dict[str, Any]:
    """Let a training be saved into a new folder; reject another file or none, and a training that changes."""
    worker.call("os:mkdir", folder)
    about, path = "in save_checkpoint", f"{folder}/{_NAME}"
    told = bed.asked(worker, training, save, path, wanted["epoch"], about=about, method="given_to")
    if told["left"]:
        raise bed.Rejected(common_findings.leaving(told["left"]))
    written = list(map(str, worker.call("os:listdir", folder)))
    if _NAME not in written:
        said = f"save_checkpoint was given {_NAME!r} in an empty folder, and wrote {written or 'no file'}"
        bed.reject("not_saved", said, "write all of it to path as it is given")
    changed = next((part for part, its in told["state"].items() if not _equal(its, wanted[part])), None)
    if changed:
        said = f"after save_checkpoint the running training was different, its {changed} changed"
        hint = "only read when saving, and change copies: model.half(), model.eval() and torch.manual_seed() "
        hint += "change what is there"
        bed.reject("saving_changes_training", said, hint)
    return told


# --- what a training run that was loaded from a checkpoint has lost

_CODES = {  # of what is compared, in this order
    "weights": "model_not_restored",
    "buffers": "model_incomplete",
    "momentum": "optimizer_not_restored",
    "scheduler's epoch": "scheduler_not_restored",
    "learning rate": "learning_rate_lost",
    "scheduler's last learning rate": "scheduler_not_restored",
    "scaler's scale": "scaler_not_restored",
    "scaler's count of clean steps": "growth_tracker_lost",
    "epoch": "epoch_lost",
    "state of random numbers": "random_state_lost",
}
_HINTS = {
    "model_not_restored": "model.load_state_dict changes the model in place; assigning to its name does not",
    "model_incomplete": "model.state_dict() holds parameters and buffers, model.parameters() only the former",
    "optimizer_not_restored": "load what was saved into the optimizer passed in, with load_state_dict",
    "scheduler_not_restored": "scheduler.load_state_dict alone: no scheduler.step() when loading, and no "
    "attribute by hand, for most schedulers have more state than last_epoch",
    "learning_rate_lost": "load the optimizer's whole state dict, which holds its rate, and reset nothing",
    "scaler_not_restored": "scaler.state_dict() holds all of its state; load it into the scaler passed in",
    "growth_tracker_lost": "scaler.state_dict() holds all of its state, not the scale alone",
    "epoch_lost": "return the epoch that was passed to save_checkpoint",
    "random_state_lost": "save torch.get_rng_state(), on a GPU torch.cuda.get_rng_state_all() too, in that "
    "one file, which is moved alone, and set it last: dropout and shuffling follow it",
}


def _lost(
    found: dict[str, Any], saved: dict[str, Any], later: dict[str, Any], fresh: dict[str, Any], epoch: str
) -> Iterator[Finding]:
    """Look for what was found and is not what was saved, and whether it is what a known mistake makes of it.

    ``later`` is the training as it went on, ``fresh`` the one into which it was loaded, before.
    """
    for part, code in _CODES.items():
        if _equal(found[part], saved[part]):
            continue
        for dtype in (torch.float16, torch.bfloat16):
            if _equal(_rounded(found[part], torch.float32), _rounded(saved[part], dtype)):
                rounded = f"the {part} came back rounded to {dtype_name(dtype)}: digits of fp32 are gone"
                yield failed("state_rounded", rounded, "save the states as they are, in fp32")
        if _equal(found[part], later[part]):
            yield _not_in_file(f"the {part} that came back, of a later checkpoint in another file: this")
        seen = (
            f"found {epoch if part == 'epoch' else found[part]} where it was {saved[part]} when it was saved"
        )
        if isinstance(found[part], (dict, Tensor)):
            stays = _equal(found[part], fresh[part])
            seen = "found as before loading" if stays else "found otherwise than it was at the time of saving"
        yield failed(code, f"the {part} did not come back: {seen}", _HINTS[code])


def _not_in_file(what: str) -> Finding:
    said = f"{what} was kept in a variable, which is gone when the process ends, or in a file of its own"
    return failed("state_not_in_file", said, "write all of it to the file, and read nothing but the file")


def _load_raised(raised: bed.Raised, scaling: bool, left_behind: list[str]) -> Finding:
    """Explain the exception that ended load_checkpoint; ``left_behind`` are files beside the one it got."""
    for name in left_behind:
        if name in raised.text:
            what = f"load_checkpoint looks for {name!r} beside the file, which was moved alone: it"
            return _not_in_file(what)
    if raised.kinds[0] == "UnpicklingError" and "Weights only load failed" in raised.text:
        said = "torch.load refused the file, since it holds whole Python objects instead of their state"
        hint = "save model.state_dict(), optimizer.state_dict() and so on: tensors, numbers, lists and dicts"
        return failed("pickled_objects", said, hint)
    about = f"in load_checkpoint{'' if scaling else ' with a disabled scaler'}"
    return bed.said_of(raised, about, part="load_checkpoint")


def _rounded(state: Any, dtype: torch.dtype) -> Any:
    """Return a state with its tensors rounded to ``dtype``, in fp32."""
    if isinstance(state, dict):
        return {name: _rounded(each, dtype) for name, each in state.items()}
    return state.to(dtype).float() if isinstance(state, Tensor) else state


def _equal(a: Any, b: Any) -> bool:
    """Compare states, which are nested dicts of tensors and numbers, exactly."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)
