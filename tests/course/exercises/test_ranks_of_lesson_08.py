"""Attempts of lesson 08 that hang, in a rank of theirs: a finding in time, and nothing is left running."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import threading

import pytest
import torch
import torch.distributed as dist

from amp_lessons import exercises
from amp_lessons.course.exercises.sharded_masters.shards_there import kept_in_fp32


def test_a_rank_of_a_ring_that_never_ends_is_stopped():
    def endless(chunks, rank, world_size, send, recv):
        while rank == 1:
            pass
        return recv(1)

    report = exercises.check("reduce_mean", endless, time_limit_s=1.0)
    assert [finding.code for finding in report.findings] == ["time_limit"]


def endless(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    while True:
        pass


def killed(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    os.kill(os.getpid(), signal.SIGKILL)


def crashed(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    ctypes.string_at(0)


def cannot_be_copied():
    lock = threading.Lock()

    def train(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
        lock.acquire()

    return train


@pytest.mark.parametrize(
    ("attempt", "code"),
    [
        (endless, "rank_time_limit"),
        (killed, "rank_ended"),
        (crashed, "rank_ended"),
        (cannot_be_copied(), "not_taken_along"),
        (3, "not_a_function"),
        (lambda: None, "signature"),
    ],
)
def test_whatever_a_rank_does_ends_in_a_finding(attempt, code):
    report = exercises.check("ddp_step", attempt, time_limit_s=2.0)
    assert [finding.code for finding in report.findings] == [code]


def test_what_both_ranks_print_is_shown():
    def talks(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
        print(f"rank {dist.get_rank()} of {os.environ['WORLD_SIZE']}")

    printed = exercises.check("ddp_step", talks).printed
    assert "rank 0 of 2" in printed
    assert "rank 1 of 2" in printed


def test_what_is_kept_is_found_wherever_it_is_and_counted_once():
    whole = torch.zeros(10)

    class Keeper:
        def __init__(self):
            self.inner = torch.nn.Sequential(torch.nn.Linear(3, 2))

        def look(self):
            return self.inner

    kept = {
        "itself": (whole, 10),
        "a view": (whole[:2], 10),
        "views of one": ([whole[:2], whole[2:]], 10),
        "a dict of lists": ({"a": [whole, {"b": torch.zeros(3)}]}, 13),
        "a closure": (lambda: whole, 10),
        "a default": (lambda x=whole: x, 10),
        "a partial": (functools.partial(print, whole), 10),
        "an object's module": (Keeper(), 8),
        "a bound method": (Keeper().look, 8),
        "16 bits": (whole.half(), 0),
        "PyTorch": (torch, 0),
        "none": (None, 0),
    }
    found = {name: kept_in_fp32(value) for name, (value, _) in kept.items()}
    assert found == {name: elements for name, (_, elements) in kept.items()}
    assert kept_in_fp32([whole, torch.zeros(3)], apart_from=[whole]) == 3
    itself: list[object] = []
    itself.append(itself)
    assert kept_in_fp32(itself) == 0
