"""Over eight commits every attempt has its turn, and those at an exercise that changed all run at once."""

from __future__ import annotations

import subprocess

import pytest

from amp_lessons import exercises
from amp_lessons.exercises import shelf
from tests import selection
from tests.selection import SHARES, choice, together

ALL = range(40)


def taken(chosen, exercise_id="one"):
    return {index for index in ALL if chosen.takes(exercise_id, index)}


def test_the_shares_are_disjoint_and_together_all():
    shares = [taken(choice(f"{number}/{SHARES}")) for number in range(1, SHARES + 1)]
    assert sorted(index for share in shares for index in share) == list(ALL)
    assert {len(share) for share in shares} == {len(ALL) // SHARES}


def test_the_first_attempts_at_all_exercises_do_not_come_at_once():
    ids = [exercise.id for exercise in exercises.catalog()]
    firsts = {next(n for n in range(SHARES) if choice(f"{n + 1}/{SHARES}").takes(id, 0)) for id in ids}
    assert len(firsts) >= SHARES - 2


def test_without_a_share_and_of_an_exercise_that_changed_all_run():
    assert taken(choice("")) == set(ALL)
    chosen = choice("1/8", "two,one")
    assert taken(chosen) == set(ALL)
    assert len(taken(chosen, "three")) == len(ALL) // SHARES


@pytest.mark.parametrize("cases", [1, 2, 7, 8, 30])
def test_of_cases_in_turn_each_run_takes_one_at_least_and_eight_runs_take_all(cases):
    def run(number):
        chosen = choice(f"{number}/{SHARES}")
        return {index for index in range(cases) if chosen.takes("tests/test_one.py", index, cases)}

    runs = [run(number) for number in range(1, SHARES + 1)]
    assert all(runs)
    assert set.union(*runs) == set(range(cases))
    assert max(map(len, runs)) <= cases // SHARES + 1
    assert choice("1/8", "tests/test_one.py").takes("tests/test_one.py", 5, cases)


@pytest.mark.parametrize("asked", ["0/8", "9/8", "3", "some", "-1/8"])
def test_what_is_no_share_is_refused(asked):
    with pytest.raises(pytest.UsageError, match="is 'auto' or a share such as 3/8"):
        choice(asked)


@pytest.fixture
def repository(tmp_path):
    """Two exercises that import what both do, and one of them what only it does; committed on main."""
    folder = tmp_path / "amp_lessons" / "exercises"
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "card.md").write_text("title: x")
        (folder / name / "check.py").write_text("from amp_lessons.exercises import common\n")
    (folder / "common.py").write_text("")
    (folder / "loops.py").write_text("from amp_lessons.exercises.windows import Window\n")
    (folder / "windows.py").write_text("class Window: ...\n")
    with (folder / "two" / "check.py").open("a") as file:
        file.write("from amp_lessons.exercises.loops import loop\n")

    def git(*arguments):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "First")
    return tmp_path, folder, git


def changed(root):
    return set(selection.what_changed(root))


def test_a_file_of_tests_that_changed_runs_whole(repository):
    root, _, git = repository
    git("commit", "--allow-empty", "-m", "Another")
    (root / "tests").mkdir()
    (root / "tests" / "test_one.py").write_text("")
    (root / "tests" / "help.py").write_text("")
    assert changed(root) == {"tests/test_one.py"}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("one/check.py", {"one"}),
        ("two/attempts.py", {"two"}),  # which git does not know yet
        ("windows.py", {"two"}),  # imported by what it imports
        ("common.py", set()),  # all exercises' alike: their attempts take turns
    ],
)
def test_an_exercise_has_changed_with_what_only_some_import(repository, file, expected):
    root, folder, git = repository
    with (folder / file).open("a") as opened:
        opened.write("# more\n")
    git("checkout", "-b", "mine")
    git("commit", "--allow-empty", "-m", "Another")
    assert changed(root) == expected  # what is not committed yet
    git("add", ".")
    git("commit", "-m", "Mine", "--allow-empty")
    assert changed(root) == expected  # since main
    git("checkout", "main")
    git("merge", "--no-ff", "mine")
    assert changed(root) == expected  # by the last commit on main
    git("commit", "--allow-empty", "-m", "Another")
    assert changed(root) == set()


def test_each_commit_has_the_next_share_and_the_same_again_can_be_asked_for(repository, monkeypatch):
    root, _, git = repository
    numbers = []
    for _ in range(SHARES):
        git("commit", "--allow-empty", "-m", "Another")
        chosen = choice("auto", root=root)
        numbers.append(chosen.number)
        assert taken(chosen) == taken(choice(f"{chosen.number + 1}/{chosen.of}"))
        assert f"AMP_LESSONS_SHARE={chosen.number + 1}/8" in str(chosen)
    assert sorted(numbers) == list(range(SHARES))


def test_where_git_knows_nothing_the_date_decides(tmp_path):
    chosen = choice("auto", root=tmp_path)
    assert "by the date" in str(chosen)
    assert chosen.changed == frozenset()


def test_the_loops_of_lesson_04_share_more_than_all_exercises_do():
    contents = {name: {str(path) for path in files} for name, files in selection.contents().items()}
    assert set(contents) == {each.id for each in (*exercises.catalog(), *shelf.interview_tasks())}
    assert any("training_loops" in path for path in contents["train_with_amp"])
    assert not any("training_loops" in path for path in contents["decode_bits"])
    assert not any("containment" in path for path in contents["train_with_amp"])


def test_the_attempts_at_one_exercise_stay_together_and_so_does_a_file():
    file = "tests/exercises/test_attempts.py"
    first = together(f"{file}::test_wrong_attempt_is_named[time_step-never_waits]")
    assert first == together(f"{file}::test_right_attempt_passes[time_step-by_hand: a - b]")
    assert first != together(f"{file}::test_right_attempt_passes[mx_scale-by_hand]")
    assert together(f"{file}::test_tables_are_long_enough[mx_scale]") == f"{file} mx_scale"
    assert together("notebooks/01_formats.ipynb::Cell 3") == "notebooks/01_formats.ipynb"
    assert together("tests/views/test_quiz.py::test_a[x-y]") == "tests/views/test_quiz.py"
    proofs = {together(f"tests/interview/test_{name}.py::test_it") for name in ("bank", "proofs")}
    assert len(proofs) == 1
