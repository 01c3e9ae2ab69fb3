"""Half-mended checkpoints, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_limping_restart")

SAVE_SCALER = ', "scaler": scaler.state_dict()'
LOAD_SCALER = '    scaler.load_state_dict(state["scaler"])\n'
SAVE = "    torch.save(state, path)\n"
LOAD_RNG = '    torch.set_rng_state(state["rng"])\n'

wrong = TABLE.mutant
right = TABLE.variant

wrong("saved_and_not_loaded", "scaler_not_restored", "scale", (LOAD_SCALER, ""))
wrong(
    "loaded_into_a_new_one",
    "scaler_not_restored",
    "scale",
    (LOAD_SCALER, "    scaler = torch.amp.GradScaler()\n" + LOAD_SCALER),
)
wrong(
    "the_scale_alone",
    "growth_tracker_lost",
    "count of clean steps",
    (SAVE_SCALER, ', "scale": scaler.get_scale()'),
    (LOAD_SCALER, '    scaler._init_scale = state["scale"]\n'),
)
wrong(
    "saved_from_another",
    "raised",
    "empty",
    (SAVE_SCALER, ', "scaler": torch.amp.GradScaler(enabled=False).state_dict()'),
)
wrong(
    "saved_whole",
    "pickled_objects",
    "whole Python objects",
    (SAVE_SCALER, ', "scaler": scaler'),
    (LOAD_SCALER, '    scaler.load_state_dict(state["scaler"].state_dict())\n'),
)
wrong(
    "kept_in_a_variable",
    "state_not_in_file",
    "kept in a variable",
    ("def save", "KEPT = {}\n\n\ndef save"),
    (SAVE_SCALER, ""),
    (SAVE, SAVE + "    KEPT.update(scaler.state_dict())\n"),
    (LOAD_SCALER, "    scaler.load_state_dict(KEPT)\n"),
)
wrong(
    "epoch_counted_on",
    "epoch_lost",
    "when it was saved",
    ('return state["epoch"]', 'return state["epoch"] + 1'),
)
wrong(
    "updated_before_saving",
    "saving_changes_training",
    "different",
    (SAVE, "    if scaler.is_enabled():\n        scaler.update(scaler.get_scale() / 2)\n" + SAVE),
)
wrong("random_numbers_lost_on_the_way", "random_state_lost", "random", (LOAD_RNG, ""))
wrong("returns_nothing", "epoch_lost", "None", ('    return state["epoch"]\n', ""))

right("loaded_first", (LOAD_SCALER, ""), (LOAD_RNG, LOAD_SCALER + LOAD_RNG))
right("only_where_enabled", (LOAD_SCALER, "    if scaler.is_enabled():\n    " + LOAD_SCALER))


def save_flat(path, model, optimizer, scheduler, scaler, epoch):
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    states = [each.state_dict() for each in (model, optimizer, scheduler, scaler)]
    torch.save([epoch, torch.get_rng_state(), cuda, *states], path)


def load_flat(path, model, optimizer, scheduler, scaler):
    epoch, rng, cuda, *states = torch.load(path, map_location="cpu")
    for each, state in zip((model, optimizer, scheduler, scaler), states, strict=True):
        each.load_state_dict(state)
    torch.set_rng_state(rng)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)
    return epoch


TABLE.right["in_a_list"] = ((), (save_flat, load_flat))
