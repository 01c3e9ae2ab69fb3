"""``amp-lessons audit`` on two ranks, started by ``torchrun`` or as it would start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from amp_lessons.cli.audit import ranks
from amp_lessons.cli.audit.ranks import Meeting, Rank, of_environment
from tools.ports import free_port

pytestmark = pytest.mark.skipif(os.name == "nt", reason="gloo and signals are otherwise there")

TRAINING = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(5):
    optimizer.zero_grad()
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
    exec(sys.argv[1])
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(inputs).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
if rank == 0:
    print("weights", model.module.weight.sum().item().hex())
dist.destroy_process_group()
"""
AUDIT = ["-m", "amp_lessons", "audit"]


@pytest.fixture
def meetings(tmp_path, monkeypatch):
    """Let ranks meet in a folder of this test's own, which they leave empty."""
    folder = tmp_path / "meetings"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert list(folder.glob("amp-lessons-*")) == []


def on_two_ranks(folder, *command):
    """Start both ranks as ``torchrun`` does; return their exit statuses, outputs and errors, by rank."""
    (folder / "script.py").write_text(TRAINING)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}"}
    of_both = {**os.environ, **address, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    words = [sys.executable, *map(str, command)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = ({"RANK": f"{rank}", "LOCAL_RANK": f"{rank}"} for rank in range(2))
    started = [subprocess.Popen(words, cwd=folder, env=of_both | rank, **pipes) for rank in ranks]
    outputs = [each.communicate(timeout=100) for each in started]
    return [each.returncode for each in started], *zip(*outputs, strict=True)


FILES = ("--json", "r.json", "--html", "r.html", "--stream", "r.jsonl")  # torchrun takes --log for its own


@pytest.mark.thorough
@pytest.mark.slow
def test_under_torchrun_there_is_one_report_and_the_script_prints_what_it_prints_without(tmp_path, meetings):
    statuses, plain, _ = on_two_ranks(tmp_path, "script.py", "pass")
    assert statuses == [0, 0]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *AUDIT]
    words = [*launcher, "script.py", "--every", "2", *FILES, "--", "pass"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == plain[0]  # the weights, to the last bit
    assert done.stderr.count("Audit of script.py: no mistake seen in 5 optimizer steps of 2 ranks") == 1
    document = json.loads((tmp_path / "r.json").read_text("utf-8"))
    ended = [(each["rank"], each["steps"], each["ended"]) for each in document["ranks"]]
    assert ended == [(0, 5, ""), (1, 5, "")]
    assert "Ranks</h2>" in (tmp_path / "r.html").read_text("utf-8")
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text("utf-8").splitlines()]
    assert [line["index"] for line in lines] == list(range(5)), "rank 0's, and nobody else's"


@pytest.mark.slow
def test_ranks_that_part_are_told_of_and_all_return_the_same(tmp_path, meetings):
    apart = "model.require_backward_grad_sync = False; inputs *= 1e30 if (step, rank) == (2, 1) else 1"
    statuses, _, errors = on_two_ranks(tmp_path, *AUDIT, "script.py", "--json", "r.json", "--", apart)
    assert statuses == [1, 1]
    assert "rank 1 skipped step 3, which rank 0 made" in " ".join(errors[0].split())
    assert "Audit of" not in errors[1]
    document = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert [each["code"] for each in document["findings"]] == ["weights_apart", "skipped_apart"]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("if (step, rank) == (3, 1): raise ValueError('bad batch')", "rank 1: ValueError: bad batch"),
        ("if (step, rank) == (3, 1): os.kill(os.getpid(), 9)", "rank 1: it was killed by SIGKILL"),
    ],
)
def test_a_rank_that_dies_leaves_what_was_seen(tmp_path, meetings, how, said):
    statuses, _, errors = on_two_ranks(
        tmp_path, *AUDIT, "script.py", "--every", 1, "--json", "r.json", "--", how
    )
    assert statuses == [2, 2]
    document = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert document["ended"].startswith(said)  # it was the first
    assert document["ranks"][0]["steps"] == 3
    assert document["ranks"][1]["steps"] >= 1
    assert said in " ".join(errors[0].split())


# --- their parts


TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


def test_ranks_of_one_machine_meet_and_those_of_all_where_they_share_a_folder(tmp_path):
    errors = "TORCHELASTIC_ERROR_FILE"
    here = of_environment(TORCHRUN | {errors: "/logs/0/1/error.json"})
    assert (here.number, here.peers, here.others) == (5, (4, 5, 6, 7), (0, 1, 2, 3))
    assert not here.writes_files
    beside = of_environment(TORCHRUN | {"RANK": "6", "LOCAL_RANK": "2", errors: "/logs/0/2/error.json"})
    assert (beside.folder, beside.peers) == (here.folder, here.peers)
    everywhere = of_environment(TORCHRUN, tmp_path)
    assert (everywhere.peers, everywhere.others) == (tuple(range(8)), ())
    assert everywhere.folder.parent == tmp_path
    assert everywhere.writes_files


@pytest.mark.parametrize("variables", [{}, {"RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"RANK": "a"}])
def test_other_processes_are_no_ranks(variables):
    assert of_environment(variables) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("MASTER_PORT", "1"), ("TORCHELASTIC_RESTART_COUNT", "1"), ("TORCHELASTIC_ERROR_FILE", "/a/1/5/e.json")],
)
def test_other_launches_and_attempts_meet_elsewhere(name, value):
    assert of_environment({**TORCHRUN, name: value}).folder != of_environment(TORCHRUN).folder


@pytest.fixture
def sigterm():
    """Give SIGTERM back its handler: a rank that is through ignores it."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
def test_a_rank_that_never_comes_is_waited_for_but_not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "_ABSENT_S", 0.2)
    monkeypatch.setattr(ranks, "_SAYS_SO_AFTER_S", 0.0)
    monkeypatch.setattr(ranks.parent, "run_child", lambda *_: 0)
    told = []
    meeting = Meeting(Rank(0, 2, (0, 1), tmp_path / "meeting"))
    assert ranks.run(meeting, None, [], "s.py", lambda *seen: told.append(seen) or 2) == 2
    ((report, _),) = told
    assert "rank 1: nothing came; name a folder that all of them see with --shared" in report.not_seen
    assert not (tmp_path / "meeting").exists()


@pytest.mark.usefixtures("sigterm")
@pytest.mark.parametrize(("in_a_hurry", "ended"), [(False, {0, 1}), (True, {0})])
def test_a_rank_that_ends_late_is_waited_for_except_after_a_sigterm(tmp_path, monkeypatch, in_a_hurry, ended):
    def run_child(*_):
        if in_a_hurry:
            signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(ranks, "_HURRIED_S", 0.1)
    monkeypatch.setattr(ranks.parent, "run_child", run_child)
    meeting, late = (Meeting(Rank(number, 2, (0, 1), tmp_path / "meeting")) for number in range(2))
    late.leave(last=False)  # so that the other clears away at once
    end = threading.Timer(30.0 if in_a_hurry else 1.0, late.ended, [0])
    end.start()
    seen = []
    assert ranks.run(meeting, None, [], "s.py", lambda *_: seen.append(set(meeting.statuses())) or 2) == 2
    end.cancel()
    assert seen == [ended]


def test_what_a_killed_launch_has_left_is_not_taken_for_this_ones(tmp_path):
    ranks = [Rank(number, 2, (0, 1), tmp_path / "meeting") for number in range(2)]
    before = [Meeting(rank) for rank in ranks]
    before[1].ended(-9)
    before[0].decide(2)
    assert before[0].one_failed()
    first, second = (Meeting(rank) for rank in ranks)
    assert (first.verdict(), first.statuses(), second.absent()) == (None, {}, [])


def test_a_folder_of_somebody_else_is_no_place_to_meet(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: -1)
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        Meeting(Rank(0, 2, (0, 1), Path(tmp_path)))
