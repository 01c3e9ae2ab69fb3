"""A bar counts, says how long work takes here, and leaves nothing behind."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from amp_lessons._base.text import bars
from amp_lessons._base.text.bars import with_bar


@pytest.fixture
def page(monkeypatch, capsys):
    """A notebook's page: what a kernel prints there. Bars appear at once."""
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(bars, "APPEARS_AFTER_S", 0)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    return lambda: capsys.readouterr().out


def made(steps, elapsed_s, done, **options):
    """Return what a bar says so long after its beginning."""
    bar = bars._bar_class()(steps, desc="training", file=io.StringIO(), **options)
    bar.start_t -= elapsed_s
    bar.n = done
    return str(bar)


def test_it_says_how_long_all_of_it_takes_here_and_what_is_left():
    said = made(range(10), 30, 5, total=10, within_s=float("inf"))
    assert said.startswith("training: about 60 s here |")
    assert said.endswith("| 5 of 10, 30 s left")
    assert "about 5 minutes here" in made(range(10), 30, 1, total=10, within_s=float("inf"))
    said = made(range(10), 20, 1, total=10, within_s=30.0)
    assert "about 30 s here" in said, "it takes so long at most"
    assert said.endswith("1 of 10, 10 s left")


def test_where_nobody_knows_how_many_there_are_it_counts():
    assert made(iter("abc"), 30, 5, total=None, within_s=float("inf")) == "training: 5 done in 00:30"


def test_every_step_comes_and_the_line_is_empty_afterwards(page):
    assert list(with_bar(range(3), "training")) == [0, 1, 2]
    said = page()
    *_, last, end = said.split("\r")
    assert "of 3" in said
    assert last.strip() == end == ""


def test_a_loop_that_is_left_early_clears_its_line_too(page):
    for _ in with_bar(range(3), "training"):
        break
    assert page().split("\r")[-2].strip() == ""


def test_storing_and_comparing_switch_it_off(page, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert list(with_bar(range(3), "training")) == [0, 1, 2]
    assert page() == ""


def test_where_nobody_watches_there_is_none(capsys):
    assert list(with_bar(range(3), "training")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
