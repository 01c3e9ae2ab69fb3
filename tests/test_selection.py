"""What a change can break runs at once; all other files of tests and attempts within eight commits."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

from amp_lessons import exercises
from amp_lessons.exercises import shelf
from tests import selection
from tests.contents import Contents
from tests.selection import SHARES, Choice, choice, together

ALL = range(40)
FILES = tuple(f"tests/test_{name}.py" for name in "abcdefghijk")
QUIET = Choice(0, "HEAD~1", tests=FILES)  # nothing has changed


def turns(count=SHARES):
    return [replace(QUIET, turn=turn) for turn in range(1000, 1000 + count)]


def attempts(chosen, exercise_id="one"):
    return {index for index in ALL if chosen.takes_attempt(exercise_id, index)}


def test_in_eight_turns_each_file_and_each_attempt_runs_once():
    for taken in (
        [{file for file in FILES if each.takes_file(file)} for each in turns()],
        list(map(attempts, turns())),
    ):
        assert sum(map(len, taken)) == len(set.union(*taken))
        assert max(map(len, taken)) - min(map(len, taken)) <= 1
    assert set.union(*map(attempts, turns())) == set(ALL)
    assert all(any(each.takes_file(file) for each in turns()) for file in FILES)


def test_the_first_attempts_at_all_exercises_do_not_come_at_once():
    ids = [exercise.id for exercise in exercises.catalog()]
    firsts = {next(place for place, each in enumerate(turns()) if each.takes_attempt(id, 0)) for id in ids}
    assert len(firsts) >= SHARES - 2


def test_what_differs_runs_whole_and_what_rests_on_it():
    chosen = replace(QUIET, edited=("one", FILES[3]), touched=FILES[3:5])
    assert attempts(chosen) == set(ALL)
    assert len(attempts(chosen, "two")) == len(ALL) // SHARES
    assert chosen.takes_file(FILES[3])
    assert chosen.takes_file(FILES[4])
    assert all(chosen.takes_case(FILES[3], index, 30) for index in range(30))
    assert not all(chosen.takes_case(FILES[4], index, 30) for index in range(30))


def test_notebooks_views_and_what_is_no_file_of_tests_run_every_time():
    for file in ("notebooks/03_loss_scaling.ipynb", "tests/views/test_quiz.py", "elsewhere/test_it.py"):
        assert all(each.takes_file(file) for each in turns())


@pytest.mark.parametrize("cases", [1, 2, 7, 8, 30])
def test_of_cases_in_turn_one_at_least_runs_where_the_file_does_and_each_within_its_eight_turns(cases):
    def taken(turn):
        chosen = replace(QUIET, turn=turn)
        return {index for index in range(cases) if chosen.takes_case("tests/test_a.py", index, cases)}

    turn_of_the_file = [taken(1000 + SHARES * number) for number in range(SHARES)]
    assert all(turn_of_the_file)
    assert set.union(*turn_of_the_file) == set(range(cases))
    assert max(map(len, turn_of_the_file)) <= cases // SHARES + 1
    assert all(map(taken, range(1000, 1030)))


def test_without_a_turn_everything_runs():
    for everything in (choice(""), choice("all")):
        assert attempts(everything) == set(ALL)
        assert all(map(everything.takes_file, FILES))
        assert everything.takes_case(FILES[0], 5, 8)


@pytest.mark.parametrize("asked", ["3/8", "some", "-1", "1.5"])
def test_what_is_no_turn_is_refused(asked):
    with pytest.raises(pytest.UsageError, match="is 'auto', 'all' or a number of commits"):
        choice(asked)


@pytest.fixture
def repository(tmp_path):
    """Two exercises that import what both do, one of them what only it does, and their tests; on main."""
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
    (tmp_path / "tests").mkdir()
    for name in ("one", "two"):
        of = f"from amp_lessons.exercises.{name} import check\n"
        (tmp_path / "tests" / f"test_{name}.py").write_text(of)

    def git(*arguments):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "First")
    git("commit", "--allow-empty", "-m", "Second")
    return tmp_path, git


BOTH = {"tests/test_one.py", "tests/test_two.py"}


@pytest.mark.parametrize(
    ("file", "edited", "touched"),
    [
        ("tests/test_one.py", {"tests/test_one.py"}, {"tests/test_one.py"}),
        (
            "tests/test_three.py",
            {"tests/test_three.py"},
            {"tests/test_three.py"},
        ),  # which git does not know yet
        ("amp_lessons/exercises/one/check.py", {"one"}, {"tests/test_one.py"}),
        ("amp_lessons/exercises/two/attempts.py", {"two"}, set()),
        ("amp_lessons/exercises/two/card.md", {"two"}, {"tests/test_two.py"}),
        ("amp_lessons/exercises/windows.py", {"two"}, {"tests/test_two.py"}),  # imported by what it imports
        ("amp_lessons/exercises/common.py", set(), BOTH),  # all exercises' alike: their attempts take turns
        ("constraints.txt", set(), BOTH),
        ("CHANGELOG.md", set(), set()),
    ],
)
def test_what_differs_from_main_or_on_it_from_the_last_commit(repository, file, edited, touched):
    root, git = repository
    with (root / file).open("a") as opened:
        opened.write("# more\n")

    def differing():
        chosen = choice("auto", root=root)
        return set(chosen.edited), set(chosen.touched)

    git("checkout", "-b", "mine")
    git("commit", "--allow-empty", "-m", "Another")
    assert differing() == (edited, touched)  # what is not committed yet
    git("add", ".")
    git("commit", "-m", "Mine", "--allow-empty")
    assert differing() == (edited, touched)  # since main
    git("checkout", "main")
    git("merge", "--no-ff", "mine")
    assert differing() == (edited, touched)  # by the last commit on main
    git("commit", "--allow-empty", "-m", "Another")
    assert differing() == (set(), set())
    assert set(choice("auto", "HEAD~2", root).touched) == touched


def test_each_commit_has_the_next_turn_and_the_same_again_can_be_asked_for(repository):
    root, git = repository
    for _ in range(3):
        git("commit", "--allow-empty", "-m", "Another")
        chosen = choice("auto", root=root)
        turn, since = str(chosen).partition("again: ")[2].split()
        assert (
            choice(turn.removeprefix(f"{selection.TURN}="), since.removeprefix(f"{selection.SINCE}="), root)
            == chosen
        )
    assert chosen.turn == 5


def test_a_commit_that_is_none_is_refused(repository):
    with pytest.raises(pytest.UsageError, match="AMP_LESSONS_SINCE is a commit, not 'v99'"):
        choice("auto", "v99", repository[0])


def test_who_does_not_know_what_differs_runs_all(tmp_path, repository):
    root, _ = repository
    assert choice("auto", root=tmp_path / "amp_lessons" / "nowhere").turn is None
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{root}", tmp_path / "shallow"], check=True)
    assert choice("auto", root=tmp_path / "shallow").turn is None


def test_the_loops_of_lesson_04_share_more_than_all_exercises_do():
    files = subprocess.run(
        ["git", "ls-files"], cwd=selection.ROOT, capture_output=True, text=True, check=True
    )
    contents = selection.of_exercises(Contents(selection.ROOT, files.stdout.splitlines()))
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


def test_what_has_no_turn_is_not_imported_unless_some_of_it_runs_by_itself():
    paths = {path: path.read_text("utf-8") for path in selection.ROOT.glob("tests/**/test_*.py")}
    files = tuple(sorted(path.relative_to(selection.ROOT).as_posix() for path in paths))
    config = SimpleNamespace(stash={selection._CHOICE: replace(QUIET, tests=files)})
    ignored = {path for path in paths if selection.pytest_ignore_collect(path, config)}
    assert len(ignored) > len(files) / 2
    assert not any("mark.attempt" in paths[path] or "verdicts" in paths[path] for path in ignored)
    assert not any("/views/" in path.as_posix() for path in ignored)
    assert (
        selection.pytest_ignore_collect(selection.ROOT / "notebooks" / "01_number_formats.ipynb", config)
        is None
    )
