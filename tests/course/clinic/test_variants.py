"""Writing a source in other ways: names as whole words, pieces where they stand, and nothing else."""

from __future__ import annotations

import pytest

from amp_lessons import clinic
from amp_lessons.course.exercises.patients.case import LOOP_NAMES, Choice, drawn, names, pieces, written


def test_a_name_is_exchanged_as_a_whole_word_and_a_piece_where_it_stands():
    put = names("x, loss", "inputs, value").put("loss = f(x); losses = x.max, y.loss", ("inputs", "value"))
    assert put == "value = f(inputs); losses = inputs.max, y.loss"
    choice = pieces(("a = 1\n", "b = 2\n"), ("", "b = 2\na = 1\n"))
    assert choice.put("a = 1\nb = 2\n", choice.ways[1]) == "b = 2\na = 1\n"


@pytest.mark.parametrize("source", ["", "f(1) f(1)"])
def test_a_piece_that_stands_elsewhere_is_an_error(source):
    with pytest.raises(ValueError, match="stands"):
        pieces(("f(1)",), ("f(2)",)).put(source, ("f(2)",))


def test_seed_0_is_the_source_and_every_way_is_drawn_by_some_seed():
    told = [written("a", drawn((names("a", "b", "c"),), seed)) for seed in range(30)]
    assert (told[0], set(told)) == ("a", {"a", "b", "c"})


def test_ways_have_as_many_pieces():
    with pytest.raises(ValueError, match="zip"):
        Choice((("a", "b"), ("c",))).put("a b", ("c",))


def test_what_a_patients_variants_differ_in_is_read_from_its_texts():
    choices = clinic.patient("heal_snail").case.choices
    assert {*LOOP_NAMES, names("scaler", "grad_scaler", "amp_scaler")} <= {*choices}
    assert pieces(("enabled=dtype == torch.float16",), ("enabled=(dtype is torch.float16)",)) in choices
