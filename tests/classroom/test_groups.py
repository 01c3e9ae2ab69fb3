from __future__ import annotations

import json
import runpy

import pytest

from amp_lessons import clinic, exercises, groups, interview
from amp_lessons.cli import cli
from amp_lessons.teaching.groups import Variant, Work

PATIENTS = [each.id for each in clinic.patients()]


def few(variants: int) -> Work:
    """Make work of which there are only so many variants."""

    def drawn(seed: int) -> Variant:
        return Variant(seed, str(seed % variants), (f"answer {seed}",), ("task",))

    return Work("few", "few", "00", drawn)


def tasks(handed) -> list[str]:
    return [each.variant.task for each in handed]


@pytest.mark.parametrize(("id", "number"), [*((id, 30) for id in PATIENTS), ("drills", 3)])
def test_no_two_groups_get_the_same(id, number):
    handed = groups.hand_out(groups.work(id), number, seed=2026)
    assert len(set(tasks(handed))) == number
    assert not any(each.shared_with for each in handed)


@pytest.mark.thorough
def test_estimates_differ_while_there_are_others():
    handed = groups.hand_out(groups.work("estimation.training_state"), 8, seed=1)  # it has six
    assert len(set(tasks(handed[:6]))) == len(set(tasks(handed))) == 6
    assert [each.shared_with for each in handed[:6]] == [0] * 6
    for each in handed[6:]:
        assert tasks(handed)[each.shared_with - 1] == each.variant.task


@pytest.mark.parametrize("variants", [1, 2, 5, 40])
def test_variants_are_used_up_before_one_comes_again(variants):
    seen = tasks(groups.hand_out(few(variants), 2 * variants, seed=7))
    assert len(set(seen[:variants])) == len(set(seen[variants:])) == variants


def test_the_same_seed_hands_out_the_same_and_a_late_group_changes_nothing():
    work = groups.work("heal_first_batch")
    six = groups.hand_out(work, 6, seed=2026)
    assert six == groups.hand_out(work, 7, seed=2026)[:6]
    assert tasks(six) != tasks(groups.hand_out(work, 6, seed=2027))


def test_what_has_no_variants_is_refused_by_name():
    with pytest.raises(ValueError, match="heal_snail"):
        groups.work("heal_snale")
    with pytest.raises(ValueError, match="at least 1"):
        groups.hand_out(few(3), 0, seed=1)


def test_everything_that_takes_a_seed_is_there():
    estimates = {each.id for each in interview.QUESTIONS if each.asks_for_a_number}
    assert {each.id for each in groups.all_work()} == {*PATIENTS, "drills", *estimates}


def test_the_answers_are_those_of_the_variant():
    given = groups.hand_out(groups.work("heal_snail"), 3, seed=5)[2].variant
    patient = clinic.patient("heal_snail", given.seed)
    letter, text = given.answers[0].split(") ", 1)
    right = patient.diagnoses["abcdefgh".index(letter)]
    assert right.right
    assert right.text == text
    mending = [line[2:] for line in given.answers[1:] if line.startswith("+")]
    assert all(line in patient.mended_source.splitlines() for line in mending)
    assert not set(mending) <= set(patient.source.splitlines())

    estimate = groups.hand_out(groups.work("estimation.logit_bytes"), 1, seed=5)[0].variant
    said = float(estimate.answers[1].split()[0])
    assert interview.estimate("estimation.logit_bytes", estimate.seed).accepts(said)

    eight = groups.hand_out(groups.work("drills"), 1, seed=5)[0].variant
    drawn = interview.drills(eight.seed, 8)
    right = [each.question.choices[each.right].text for each in drawn]
    assert list(eight.answers) == [f"{i}. {text}" for i, text in enumerate(right, 1)]


def test_the_command_prints_the_same_again_and_says_what_has_no_variants(capsys):
    call = ["groups", "--groups", "2", "--seed", "2026", "--only", "heal_snail", "drills"]
    assert cli.main(call) == 0
    printed = capsys.readouterr().out
    assert cli.main(call) == 0
    assert capsys.readouterr().out == printed
    for said in ("group 1: seed=", "group 2: seed=", *groups.WITHOUT_VARIANTS):
        assert said in printed


def test_learners_by_name_get_handouts_that_run_and_hold_no_answers(tmp_path, capsys):
    call = ["groups", "--seed", "3", "--only", "heal_lost_order", "estimation.lost_update"]
    assert cli.main([*call, "--learners", "Ada L.", "Grace", "--handouts", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "Ada L.: seed=" in printed
    assert {each.name for each in tmp_path.iterdir()} == {"ada_l_.ipynb", "grace.ipynb"}
    cells = json.loads((tmp_path / "grace.ipynb").read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    patient = groups.hand_out(groups.work("heal_lost_order"), 2, seed=3)[1].variant
    estimate = groups.hand_out(groups.work("estimation.lost_update"), 2, seed=3)[1].variant
    assert sources == [*patient.cells, *estimate.cells]
    for answer in (*patient.answers, estimate.answers[2]):
        assert answer.lstrip("+- ") not in "\n".join(sources) or answer.startswith("-")
    assert patient.task.strip() in sources


def test_the_code_of_a_handout_is_what_its_check_takes(tmp_path):
    given = groups.hand_out(groups.work("heal_lost_order"), 1, seed=9)[0].variant
    handed = tmp_path / "handed.py"
    handed.write_text(given.cells[1], "utf-8")
    name = clinic.patient("heal_lost_order").exercise.names[0]
    assert not exercises.check("heal_lost_order", runpy.run_path(str(handed))[name]).passed
    assert exercises.check("heal_lost_order", clinic.patient("heal_lost_order", given.seed).mended).passed


def test_two_learners_of_one_name_are_refused(capsys):
    assert cli.main(["groups", "--seed", "1", "--only", "drills", "--learners", "Ada", "ada"]) == 1
    assert "Ada, ada" in capsys.readouterr().err
    assert cli.main(["groups", "--seed", "1", "--only", "nonsense"]) == 1
    assert "nonsense" in capsys.readouterr().err
