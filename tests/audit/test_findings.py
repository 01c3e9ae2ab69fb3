"""Findings are looked for in order, and no further than the first."""

from __future__ import annotations

from amp_lessons.audit.findings import failed, first


def test_the_first_mistake_is_the_root_cause_and_nobody_looks_further():
    def mistakes():
        yield failed("cause", "seen", "mend it")
        raise AssertionError("what comes later takes for granted that nothing came before")

    found = first(mistakes())
    assert found is not None
    assert found.code == "cause"


def test_without_a_mistake_there_is_none():
    assert first(iter([])) is None
