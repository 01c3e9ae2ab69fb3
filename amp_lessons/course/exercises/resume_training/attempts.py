"""Wrong and right checkpoints."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("resume_training")
wrong = TABLE.mutant
right = TABLE.variant

LOAD_SCALER = '    scaler.load_state_dict(state["scaler"])\n'
LOAD_MODEL = '    model.load_state_dict(state["model"])\n'
LOAD_OPTIMIZER = '    optimizer.load_state_dict(state["optimizer"])\n'
LOAD_SCHEDULER = '    scheduler.load_state_dict(state["scheduler"])\n'
LOAD_RNG = '    torch.set_rng_state(state["rng"])\n'

wrong("scaler_forgotten", "scaler_not_restored", "the scaler's scale did not come back", (LOAD_SCALER, ""))
wrong(
    "scale_only",
    "growth_tracker_lost",
    "count of clean steps",
    (LOAD_SCALER, '    scaler._init_scale = state["scaler"].get("scale", 1.0)\n'),
)
wrong("optimizer_forgotten", "optimizer_not_restored", "momentum", (LOAD_OPTIMIZER, ""))
wrong(
    "momentum_without_rate",
    "learning_rate_lost",
    "learning rate",
    (
        LOAD_OPTIMIZER,
        '    rate = optimizer.param_groups[0]["lr"]\n'
        + LOAD_OPTIMIZER
        + '    optimizer.param_groups[0]["lr"] = rate\n',
    ),
)
wrong("scheduler_forgotten", "scheduler_not_restored", "epoch", (LOAD_SCHEDULER, ""))
wrong(
    "last_epoch_by_hand",
    "scheduler_not_restored",
    "last learning rate",
    (LOAD_SCHEDULER, '    scheduler.last_epoch = state["scheduler"]["last_epoch"]\n'),
)
right("schedulers_attributes", (LOAD_SCHEDULER, '    vars(scheduler).update(state["scheduler"])\n'))
wrong("model_forgotten", "model_not_restored", "as before", (LOAD_MODEL, ""))
wrong(
    "model_rebound",
    "pickled_objects",
    "whole Python objects",
    ('"model": model.state_dict()', '"model": model'),
    (LOAD_MODEL, '    model = state["model"]\n'),
)
wrong(
    "model_rebound_and_trusted",
    "model_not_restored",
    "as before",
    ('"model": model.state_dict()', '"model": model'),
    (LOAD_MODEL, '    model = state["model"]\n'),
    ('map_location="cpu")', 'map_location="cpu", weights_only=False)'),
)
wrong(
    "parameters_only",
    "model_incomplete",
    "the buffers did not come back",
    ('"model": model.state_dict()', '"model": dict(model.named_parameters())'),
    (LOAD_MODEL, '    model.load_state_dict(state["model"], strict=False)\n'),
)
wrong(
    "weights_in_half",
    "state_rounded",
    "weights came back rounded to fp16",
    (
        '"model": model.state_dict()',
        '"model": {k: v.half() if v.is_floating_point() else v for k, v in model.state_dict().items()}',
    ),
)
wrong(
    "weights_in_bfloat16",
    "state_rounded",
    "weights came back rounded to bf16",
    (
        '"model": model.state_dict()',
        '"model": {k: v.bfloat16() if v.is_floating_point() else v for k, v in model.state_dict().items()}',
    ),
)
wrong(
    "model_halved_in_place",
    "saving_changes_training",
    "its weights changed",
    ("model.state_dict()", "model.half().state_dict()"),
)
wrong("random_state_forgotten", "random_state_lost", "random numbers", (LOAD_RNG, ""))
wrong("seeded_again", "random_state_lost", "random numbers", (LOAD_RNG, "    torch.manual_seed(0)\n"))
wrong("epoch_not_returned", "epoch_lost", "None", ('    return state["epoch"]\n', ""))
wrong(
    "epoch_off_by_one",
    "epoch_lost",
    "when it was saved",
    ('return state["epoch"]', 'return state["epoch"] + 1'),
)
wrong("nothing_written", "not_saved", "no file", ("    torch.save(state, path)\n", ""))
wrong("key_missing", "raised", "KeyError", ('"scaler": scaler.state_dict(),\n', ""))
wrong(
    "disabled_scaler_breaks",
    "raised",
    "disabled scaler",
    (LOAD_SCALER, LOAD_SCALER + '    assert state["scaler"]["scale"] > 0\n'),
)
wrong(
    "draws_while_saving",
    "saving_changes_training",
    "different",
    (
        "    torch.save(state, path)\n",
        "    model.train(False)\n    model[1].running_mean.zero_()\n    torch.save(state, path)\n",
    ),
)
wrong(
    "load_unwritten",
    "unfinished",
    "load_checkpoint",
    ('    state = torch.load(path, map_location="cpu")\n', "    raise NotImplementedError\n"),
)
wrong("scaler_saved_empty", "raised", "empty", ('"scaler": scaler.state_dict()', '"scaler": {}'))
TABLE.wrong["one_function"] = ("not_a_function", "two functions", lambda path: None)

SAVE = "    torch.save(state, path)\n"
HALF_MOMENTUM = (
    '"optimizer": optimizer.state_dict(),',
    '"optimizer": {**optimizer.state_dict(), "state": {i: {k: v.half() for k, v in each.items()} '
    'for i, each in optimizer.state_dict()["state"].items()}},',
)
OTHER_NAME = (
    ("torch.save(state, path)", 'torch.save(state, f"{path}.pt")'),
    ("torch.load(path", 'torch.load(f"{path}.pt"'),
)

wrong(
    "draws_after_saving",
    "saving_changes_training",
    "its state of random numbers changed",
    (SAVE, SAVE + "    torch.rand(1)\n"),
)
wrong("momentum_in_half", "state_rounded", "momentum came back rounded to fp16", HALF_MOMENTUM)
wrong(
    "frozen", "goes_on_otherwise", "requires_grad", (LOAD_RNG, LOAD_RNG + "    model.requires_grad_(False)\n")
)
wrong("another_name", "not_saved", "checkpoint.pt.pt", *OTHER_NAME)
wrong("weights_doubled", "model_not_restored", "otherwise than it was at", (LOAD_RNG, LOAD_RNG +
      "    with torch.no_grad():\n        for p in model.parameters():\n            p.mul_(2)\n"))  # fmt: skip
wrong(
    "dropout_off", "goes_on_otherwise", "a layer's setting", (LOAD_RNG, LOAD_RNG + "    model[2].p = 0.0\n")
)
TABLE.wrong["no_function"] = ("not_a_function", "load_checkpoint is", (TABLE.changed()[0], None))

KEPT: dict[str, Any] = {}


def save_in_a_variable(path, model, optimizer, scheduler, scaler, epoch):
    TABLE.changed()[0](path, model, optimizer, scheduler, scaler, epoch)
    KEPT.update(torch.load(path))


def load_from_a_variable(path, model, optimizer, scheduler, scaler):
    for key, each in {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "scaler": scaler,
    }.items():
        each.load_state_dict(KEPT[key])
    torch.set_rng_state(KEPT["rng"])
    return KEPT["epoch"]


def load_random_numbers_from_a_variable(path, model, optimizer, scheduler, scaler):
    epoch = TABLE.changed()[1](path, model, optimizer, scheduler, scaler)
    torch.set_rng_state(KEPT["rng"])
    return epoch


TABLE.wrong["kept_in_a_variable"] = (
    "state_not_in_file",
    "kept in a variable",
    (save_in_a_variable, load_from_a_variable),
)
TABLE.wrong["random_numbers_in_a_variable"] = (
    "state_not_in_file",
    "random numbers that came back",
    (save_in_a_variable, load_random_numbers_from_a_variable),
)

right("the_solution")
right("a_list_instead_of_a_tuple")
TABLE.right["a_list_instead_of_a_tuple"] = ((), list(TABLE.changed()))
TABLE.right["a_dict"] = ((), dict(zip(("save_checkpoint", "load_checkpoint"), TABLE.changed(), strict=True)))


class Pickled:
    """Keeps everything in one pickled list, and copies it back by hand where that works."""

    @staticmethod
    def save_checkpoint(path, model, optimizer, scheduler, scaler, epoch):
        states = [each.state_dict() for each in (model, optimizer, scheduler, scaler)]
        with open(path, "wb") as file:
            pickle.dump([epoch, torch.random.get_rng_state(), states, _cuda()], file)

    @staticmethod
    def load_checkpoint(path, model, optimizer, scheduler, scaler):
        with open(path, "rb") as file:
            epoch, random_state, (weights, *others), cuda = pickle.load(file)
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.copy_(weights[name])
        for each, state in zip((optimizer, scheduler, scaler), others, strict=True):
            each.load_state_dict(state)
        torch.random.set_rng_state(random_state)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        return int(epoch)


def _cuda():
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


TABLE.right["pickled"] = ((), Pickled)


def save_in_two_files(path, model, optimizer, scheduler, scaler, epoch):
    torch.save({"rng": torch.get_rng_state(), "cuda": _cuda(), "epoch": epoch}, f"{path}.position")
    torch.save(
        {k: v.state_dict() for k, v in {"m": model, "o": optimizer, "l": scheduler, "s": scaler}.items()},
        path,
    )


def load_from_two_files(path, model, optimizer, scheduler, scaler):
    states = torch.load(path)
    for key, each in {"m": model, "o": optimizer, "l": scheduler, "s": scaler}.items():
        each.load_state_dict(states[key])
    position = torch.load(f"{path}.position")
    torch.set_rng_state(position["rng"])
    if position["cuda"]:
        torch.cuda.set_rng_state_all([state.cpu() for state in position["cuda"]])
    return position["epoch"]


TABLE.wrong["two_files"] = (
    "state_not_in_file",
    "'checkpoint.pt.position'",
    (save_in_two_files, load_from_two_files),
)
wrong(
    "model_in_a_file_beside",
    "state_not_in_file",
    "'checkpoint.pt.model'",
    (SAVE, '    torch.save(state.pop("model"), f"{path}.model")\n' + SAVE),
    (LOAD_MODEL, '    model.load_state_dict(torch.load(f"{path}.model"))\n'),
)
wrong(
    "path_remembered",
    "state_not_in_file",
    "'checkpoint.pt.model'",
    (
        SAVE,
        '    state["model"] = f"{path}.model"\n    torch.save(model.state_dict(), f"{path}.model")\n' + SAVE,
    ),
    (LOAD_MODEL, '    model.load_state_dict(torch.load(state["model"]))\n'),
)
ONE_FOR_ALL = 'path.parent.parent / "of_all_checkpoints.pt"'
wrong(
    "random_numbers_in_one_file_for_all",
    "state_not_in_file",
    "or in a file of its own",
    (SAVE, f'    torch.save(state.pop("rng"), {ONE_FOR_ALL})\n' + SAVE),
    (LOAD_RNG, f"    torch.set_rng_state(torch.load({ONE_FOR_ALL}))\n"),
)
wrong(
    "scaler_in_one_file_for_all",
    "state_not_in_file",
    "scale that came back",
    (SAVE, f'    torch.save(state.pop("scaler"), {ONE_FOR_ALL})\n' + SAVE),
    (LOAD_SCALER, f"    scaler.load_state_dict(torch.load({ONE_FOR_ALL}))\n"),
)
right("another_copy_beside", (SAVE, SAVE + '    torch.save(state, f"{path}.copy")\n'))
right(
    "renamed_when_whole",
    (SAVE, '    import os\n    torch.save(state, f"{path}.unfinished")\n    os.replace(f"{path}.unfinished", path)\n'),
)  # fmt: skip

wrong(
    "left_in_evaluation_mode",
    "goes_on_otherwise",
    "evaluation mode",
    (LOAD_RNG, LOAD_RNG + "    model.eval()\n"),
)
wrong(
    "tensors_assigned",
    "goes_on_otherwise",
    "steps other tensors",
    (LOAD_MODEL, '    model.load_state_dict(state["model"], assign=True)\n'),
)
wrong(
    "saved_in_evaluation_mode",
    "saving_changes_training",
    "different",
    ("    torch.save(state, path)\n", "    model.eval()\n    torch.save(state, path)\n"),
)
wrong(
    "scheduler_stepped_when_loaded",
    "scheduler_not_restored",
    "found 2 where it was 1",
    (LOAD_SCHEDULER, LOAD_SCHEDULER + "    scheduler.step()\n"),
)
wrong(
    "draws_when_loaded",
    "random_state_lost",
    "otherwise than it was at",
    (LOAD_RNG, LOAD_RNG + "    torch.randn(3)\n"),
)
