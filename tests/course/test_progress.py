"""What is kept about a learner survives kills, damage, other kernels and other versions of the course."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import date, datetime, timezone

import pytest

from amp_lessons.course import progress
from amp_lessons.course.progress import ProgressError, Record, Review, Round
from tests.course.keep import keep

WHEN = datetime(2022, 11, 29, 12, 30, tzinfo=timezone.utc)
AT = WHEN.isoformat()


def write(content):
    """Let the file hold something: what JSON makes of it, or text or bytes as they are."""
    progress.path().parent.mkdir(exist_ok=True)
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    progress.path().write_bytes(text if isinstance(text, bytes) else text.encode())


def content():
    return json.loads(progress.path().read_text())


def refused(number, words):
    """A function that the system refuses."""

    def refuse(*_, **__):
        raise OSError(number, words)

    return refuse


def test_home_is_the_users_data_folder_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("AMP_LESSONS_HOME", "/somewhere/else")
    assert str(progress.path()) == os.path.join("/somewhere/else", "progress.json")
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("AMP_LESSONS_HOME", os.path.join("~", "amp"))
    assert progress.home() == tmp_path / "amp"
    monkeypatch.setenv("AMP_LESSONS_HOME", "~nobody-of-that-name")
    with pytest.raises(ProgressError, match="nobody's home"):
        progress.read()
    monkeypatch.delenv("AMP_LESSONS_HOME")
    assert progress.home().name == "amp-lessons"


def every_act():
    return (
        progress.read,
        lambda: keep("record_try", "a", True),
        lambda: keep("record_hint", "a", 1),
        lambda: keep("record_solution", "a"),
        lambda: keep("forget"),
        progress.damaged_files,
    )


def test_a_relative_home_would_split_progress_by_folder_and_is_refused(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMP_LESSONS_HOME", "myhome")
    for act in every_act():
        with pytest.raises(ProgressError, match=r"in 'myhome', another folder .* an absolute path"):
            act()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("below", ["", "below"])
def test_a_home_that_is_a_file_is_named(monkeypatch, tmp_path, below):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "file" / below))
    for act in every_act()[:5]:
        with pytest.raises(ProgressError, match="progress cannot be"):
            act()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_home_that_cannot_be_entered_is_an_error_in_words_and_keeps_nobody_from_going_on(monkeypatch):
    monkeypatch.setattr("pathlib.Path.stat", refused(13, "Permission denied"))
    with pytest.raises(ProgressError, match=r"cannot be read: .*Permission denied"):
        progress.read()
    assert "Permission denied" in progress.try_reading().message


def test_tries_count_until_solved_and_hints_and_solutions_are_remembered(progress_home):
    assert progress.read().of("a") == Record()
    assert not progress_home.exists(), "reading must not write"
    for passed in (False, False, True, False, True):
        keep("record_try", "a", passed)
    keep("record_hint", "b", 2)
    keep("record_hint", "b", 1)
    keep("record_solution", "b")
    solved, seen = (progress.read().of(name) for name in "ab")
    assert (solved.tries, solved.solved) == (3, True)
    assert solved.first_try_at <= solved.solved_at
    assert (seen.hints, seen.solution_seen, seen.solved) == (2, True, False)
    keep("forget", "a")
    assert set(progress.read().records) == {"b"}
    keep("forget")
    assert progress.read().records == {}
    keep("forget", "never seen")


def with_exercise(record):
    return json.dumps({"schema": 1, "exercises": {"a": record}}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        *(b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"schema": 1}', b'{"schema": "x", "exercises": {}}'),
        *map(with_exercise, (3, {"unknown": 3}, {"tries": 1.5}, {"tries": None}, {"hints": True})),
        *map(with_exercise, ({"solution_seen": 1}, {"first_try_at": ["2026"]})),
        b"[" * 200_000,
        b'{"schema": 1, "exercises": ' + b'{"a": ' * 200_000,
    ],
    ids=lambda damage: repr(damage[:60]),
)
def test_a_damaged_file_is_set_aside_and_named(progress_home, damage):
    write(damage)
    found = progress.read()
    assert found.records == {}
    (aside,) = progress_home.glob("progress.damaged-*.json")
    assert str(aside) in found.message
    assert aside.read_bytes() == damage
    assert keep("record_try", "a", True) == ""
    assert progress.read().of("a").solved
    assert aside.read_bytes() == damage


def test_damaged_files_are_named_by_whoever_finds_them_and_found_later():
    assert progress.damaged_files() == []
    for damage, act in (("{", ("record_try", "a", False)), ("[", ("forget",))):
        write(damage)
        assert "progress.damaged-" in keep(*act)
        assert keep(*act) == ""
    assert [file.read_text() for file in progress.damaged_files()] == ["{", "["]


@pytest.fixture
def read_only(progress_home):
    """Make the folder one that nothing can be written to, also for root."""
    progress_home.mkdir()
    (progress_home / "progress.lock").mkdir()  # cannot be opened as a file


def test_what_can_only_be_read_is_read_without_a_lock(read_only):
    write({"schema": 1, "exercises": {"a": {"tries": 2}}})
    assert progress.read().of("a").tries == 2
    with pytest.raises(ProgressError, match="cannot be saved"):
        keep("record_try", "a", True)
    assert "cannot be saved" in progress.try_changing(lambda kept: kept.record_try("a", True))


@pytest.mark.parametrize("has_a_lock", [False, True])
def test_damage_that_cannot_be_set_aside_is_named_and_left(monkeypatch, request, has_a_lock):
    if has_a_lock:
        monkeypatch.setattr(os, "replace", refused(13, "Permission denied"))
    else:
        request.getfixturevalue("read_only")
    write("garbage")
    found = progress.read()
    assert found.records == {}
    assert f"{progress.path()} is damaged" in found.message
    for act in every_act()[1:5]:
        with pytest.raises(ProgressError, match="cannot be saved"):
            act()
    assert progress.path().read_text() == "garbage"


def too_deep(*_, **__):
    raise RecursionError("maximum recursion depth exceeded")


@pytest.mark.parametrize(
    ("call", "failing", "said"),
    [
        ("json.dumps", too_deep, "cannot be saved: maximum recursion depth"),
        ("os.fsync", refused(28, "No space left on device"), "No space left"),
    ],
)
def test_a_write_that_fails_leaves_the_old_file(monkeypatch, call, failing, said):
    keep("record_try", "a", True)
    before = progress.path().read_bytes()
    monkeypatch.setattr(call, failing)
    with pytest.raises(ProgressError, match=said):
        keep("record_try", "b", True)
    assert progress.path().read_bytes() == before


def test_a_file_of_a_newer_version_is_left_alone():
    newer = {"schema": progress.SCHEMA + 1, "exercises": {"a": {"stars": 3}}}
    write(newer)
    for act in (every_act()[0], every_act()[1], every_act()[4]):
        with pytest.raises(ProgressError, match="newer version"):
            act()
    assert content() == newer


def grades(id):
    return [review.grade for review in progress.read().reviews.get(id, ())]


def test_reviews_are_kept_in_order_and_the_last_is_taken_back():
    for grade in ("again", "good"):
        assert keep("review", "why", grade) == ""
    assert grades("why") == ["again", "good"]
    moment = progress.read().reviews["why"][0].moment
    assert abs((moment - datetime.now(timezone.utc)).total_seconds()) < 60
    keep("review", "bf16", "easy", in_mock=True)
    assert progress.read().reviews["bf16"][0].in_mock
    for id in ("why", "bf16", "nothing.of_the_kind"):
        keep("take_back", id)
    assert {id: grades(id) for id in progress.read().reviews} == {"why": ["again"]}
    with pytest.raises(ValueError, match="again, hard, good, easy, not 'perfect'"):
        keep("review", "why", "perfect")


def test_reviews_that_later_versions_wrote_are_read_and_stay():
    old, later = {"at": AT, "grade": "good"}, {"at": AT, "grade": "hard", "where": "on paper"}
    write({"schema": 1, "exercises": {}, "practice": {"why": [old, later]}})
    assert progress.read().message == ""
    assert progress.read().reviews["why"] == (Review(AT, "good"), Review(AT, "hard"))
    keep("review", "bf16", "good")
    assert content()["practice"]["why"] == [old, later]
    assert set(content()["practice"]["bf16"][0]) == {"at", "grade"}, "what every version reads"


def test_the_first_answer_and_the_first_end_of_a_core_stay_and_the_last_route():
    for id, right in (("floor", False), ("floor", True), ("count", True)):
        assert keep("answer", id, right, "2⁻²⁴") == ""
    kept = progress.read().answers
    assert {id: (each.right, bool(each.found_at)) for id, each in kept.items()} == {
        "floor": (False, True),
        "count": (True, False),
    }
    assert set(content()["answers"]["count"]) == {"right", "at", "chosen"}, "what every version reads"
    write({**content(), "cores": {"03": AT}})
    for number in ("03", "01"):
        keep("end_core", number)
    assert progress.read().cores["03"] == AT
    assert set(progress.read().cores) == {"03", "01"}
    for route in ("hour", "evening"):
        keep("choose", route)
    assert progress.read().route == "evening"


def test_what_changes_nothing_writes_nothing():
    keep("answer", "floor", True)
    before = progress.path().stat().st_mtime_ns
    for act in (("answer", "floor", False), ("take_back", "why"), ("forget", "never seen")):
        keep(*act)
    assert progress.path().stat().st_mtime_ns == before


# one act for each part of the file, and what no version can have written there
ACTS = {
    "practice": ("review", "a", "good", WHEN),
    "answers": ("answer", "floor", True),
    "cores": ("end_core", "03"),
    "route": ("choose", "evening"),
    "plan": ("plan_for", date(2022, 12, 2), 40, date(2022, 11, 29)),
    "rounds": ("keep_round", "softmax 0 10", Round(10, AT)),
    "written": ("keep_version", "a", "x = 1"),
}
DAMAGES = {
    "practice": [
        *([1], 7, {"a": [3]}, {"a": [{"at": AT}]}, {"a": [{"at": AT, "grade": "superb"}]}),
        *({"a": [{"at": at, "grade": "good"}]} for at in (AT[:19], "yesterday", 7)),
    ],
    "answers": [[1], {"a": {"right": 1, "at": "x"}}, {"a": {"right": True}}],
    "cores": [7, {"03": 1}],
    "route": [[1], {"id": 1}],
    "plan": [[1], {"until": 7}, {"until": "Friday"}, {"minutes": "ten"}, {"done": {"x": "soon"}}],
    "rounds": [[1], {"x": {"minutes": 10}}],
    "written": [{"a": {"versions": 7, "emptied_at": ""}}, {"a": {"emptied_at": 7}}],
}


def test_every_part_is_in_the_file_and_what_others_keep_there_stays():
    old = {"schema": 1, "exercises": {"a": {"tries": 2}}, "interview": {"due": [1, 2]}}
    write(old)
    for act in ACTS.values():
        assert keep(*act) == ""
    assert content() == {**content(), **old}
    assert content().keys() == {*old, *ACTS}
    keep("forget")
    assert content() == {"schema": 1, "exercises": {}}


@pytest.mark.parametrize(
    ("part", "damage"), [(part, damage) for part, damages in DAMAGES.items() for damage in damages]
)
@pytest.mark.parametrize("reads", [True, False])
def test_a_damaged_part_is_copied_and_named_and_the_rest_stays(part, damage, reads):
    keep("record_try", "solved", True)
    for act in (act for name, act in ACTS.items() if name != part):
        keep(*act)
    intact = content()
    write({**intact, part: damage})
    before = progress.path().read_text()
    said = progress.read().message if reads else keep(*ACTS[part])
    (copy,) = progress.damaged_files()
    assert said.endswith(f" could not be read; the file was kept as {copy}, and that part was begun anew")
    assert copy.read_text() == before
    assert content() == {**content(), **intact}
    assert content().get(part) != damage
    assert progress.read().message == ""


def test_two_damaged_parts_are_copied_once():
    keep("record_try", "solved", True)
    write({**content(), "cores": 7, "plan": [1]})
    said = progress.read().message
    assert said.startswith("which lessons you have done and the plan for your interview could not be read")
    assert len(progress.damaged_files()) == 1
    assert progress.read().of("solved").solved


def test_a_damaged_part_of_what_can_only_be_read_is_named_and_left(read_only):
    damaged = {"schema": 1, "exercises": {"a": {"tries": 2}}, "cores": 7}
    write(damaged)
    found = progress.read()
    assert found.of("a").tries == 2
    assert "which lessons you have done cannot be read" in found.message
    with pytest.raises(ProgressError, match="cannot be saved"):
        keep("end_core", "03")
    assert content() == damaged


def test_two_learners_never_mix(monkeypatch, tmp_path):
    for name, grade in (("ada", "good"), ("bob", "again"), ("ada", "easy")):
        monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / name))
        keep("review", "why", grade)
    for name, kept in (("ada", ["good", "easy"]), ("bob", ["again"])):
        monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / name))
        assert grades("why") == kept


WRITER = """
import sys
from amp_lessons.course import progress
name, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    progress.change(lambda kept: kept.record_try(f"{name}{i}", True))
    print(i, flush=True)
"""


def writer(name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(count)], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )


def test_two_kernels_at_once_lose_nothing():
    processes = [writer(name, 40) for name in "ab"]
    for process in processes:
        assert process.wait(60) == 0
        process.stdout.close()
    assert set(progress.read().records) == {f"{name}{i}" for name in "ab" for i in range(40)}


def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(progress_home):
    draw = random.Random(0)
    for turn in range(6):
        process = writer(f"turn{turn}-", 100_000)
        process.stdout.readline()  # it has begun to write
        time.sleep(draw.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        acknowledged = [0, *(int(line) for line in process.communicate()[0].splitlines() if line.strip())]
        found = progress.read()
        assert found.message == ""
        assert {f"turn{turn}-{i}" for i in acknowledged} <= set(found.records)
        assert {f"turn{t}-0" for t in range(turn)} <= set(found.records)
    assert not list(progress_home.glob("*damaged*"))


def test_a_lock_that_is_not_given_back_is_an_answer(monkeypatch):
    monkeypatch.setattr(progress, "_LOCK_TIMEOUT_S", 0.1)
    with progress._locked(), pytest.raises(ProgressError, match="another process"):
        keep("record_try", "a", True)
