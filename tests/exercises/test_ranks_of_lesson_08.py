"""Attempts of lesson 08 that hang, in a rank of theirs: a finding in time, and nothing is left running."""

from __future__ import annotations

import threading

import pytest

from amp_lessons import exercises
from amp_lessons.exercises.containment import isolation


@pytest.mark.parametrize("way", ["fork", "inprocess"])
def test_a_rank_of_a_ring_that_never_ends_is_stopped(way):
    if way == "fork" and not isolation.can_fork():
        pytest.skip("there is only one way on this machine")

    def endless(chunks, rank, world_size, send, recv):
        while rank == 1:
            pass
        return recv(1)

    before = threading.active_count()
    report = exercises.check("reduce_mean", endless, time_limit_s=1.0, isolation=way)
    assert [finding.code for finding in report.findings] == ["time_limit"]
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.main_thread() and threading.active_count() > before:
            thread.join(1.0)
    assert threading.active_count() <= before
