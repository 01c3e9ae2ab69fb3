"""``amp-lessons audit``, with scripts as people write them. A script that imports PyTorch costs seconds."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from amp_lessons.audit.findings import Sighting
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.seen import StepSeen
from amp_lessons.cli.audit import parent
from amp_lessons.cli.audit.child import module_program, script_program, when_imported

unix = pytest.mark.skipif(os.name == "nt", reason="signals and forks are otherwise there")

TRAINING = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

def train(steps, clip=False, dtype=torch.float16):
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = model(torch.randn(8, 4)).float().square().mean()
        scaler.scale(loss).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield step
"""


AUDIT = [sys.executable, "-m", "amp_lessons", "audit"]


def ran(folder, *command, stdin=None):
    words = [str(each) for each in command]
    return subprocess.run(words, cwd=folder, input=stdin, capture_output=True, text=True)


def plainly(folder, *arguments, stdin=None):
    """Run the script without the audit."""
    return ran(folder, sys.executable, "script.py", *arguments, stdin=stdin)


def audited(folder, source, *arguments, stdin=None):
    """Run a script under audit in its folder."""
    (folder / "script.py").write_text(source, "utf-8")
    return ran(folder, *AUDIT, "script.py", *arguments, stdin=stdin)


def steps_in(folder):
    """Return the steps of the report that the audit wrote."""
    return json.loads((folder / "r.json").read_text("utf-8"))["steps"]


# --- scripts without PyTorch, which are run as they are, and of which there is nothing to say


def test_a_script_runs_as_python_runs_it(tmp_path):
    """Its arguments, its folder on the path, its name, its input and output: as without the audit."""
    source = """
import beside, inspect, json, os, pickle, sys
class Mine: pass
pickle.loads(pickle.dumps(Mine()))
def show(): pass
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, beside.__name__, sys.stdin.read(),
                  inspect.getsource(show), sys.modules["__main__"].show is show, "torch" in sys.modules,
                  __package__, __spec__, sorted(os.environ)]))
"""
    (tmp_path / "beside.py").touch()
    done = audited(tmp_path, source, "--steps", "3", "--", "--lr", "1", "--", stdin="in")
    plain = plainly(tmp_path, "--lr", "1", "--", stdin="in")
    assert plain.stderr == ""
    assert done.stdout == plain.stdout
    assert json.loads(done.stdout)[0] == ["script.py", "--lr", "1", "--"]
    assert done.returncode == 2
    assert "ended before it had imported PyTorch" in done.stderr


def test_a_module_of_a_package_runs_with_its_relative_imports(tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "beside.py").write_text("found = 1")
    (package / "__main__.py").write_text(
        "from . import beside; import sys; print(beside.found, __package__, __spec__.name, sys.argv)"
    )
    done = ran(tmp_path, *AUDIT, "-m", "mine", "--", "x")
    assert done.stdout == ran(tmp_path, sys.executable, "-m", "mine", "x").stdout != ""
    assert "Audit of -m mine" in done.stderr


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("def fail():\n    raise ValueError('no data')\nfail()\n", 1),
        ("print('a'\n", 1),
        ("import sys; print('out'); sys.exit(3)", 3),
    ],
)
def test_how_a_script_ends_looks_as_it_does_without_the_audit(tmp_path, source, status):
    done, plain = audited(tmp_path, source), plainly(tmp_path)
    assert done.stdout == plain.stdout
    assert done.stderr.startswith(plain.stderr)
    assert f"it ended with exit status {status}" in done.stderr
    assert (done.returncode, plain.returncode) == (2, status)


def test_the_parent_never_loads_pytorch(tmp_path):
    code = """
import sys
from amp_lessons.cli import cli
cli.main(["audit", "script.py"])
print("torch" in sys.modules, "matplotlib" in sys.modules)
"""
    (tmp_path / "script.py").write_text("print('ran')")
    assert ran(tmp_path, sys.executable, "-c", code).stdout == "ran\nFalse False\n"


# --- scripts that train


@pytest.mark.slow
def test_mistakes_are_told_after_the_script_and_in_files(tmp_path):
    source = TRAINING + "for step in train(5, clip=True): print(step)\nprint(*sys.argv[1:])"
    done = audited(
        tmp_path, source, "--every", 2, "--json", "r.json", "--html", "r.html", "--", "--json", "x"
    )
    assert done.returncode == 1
    assert done.stdout == "0\n1\n2\n3\n4\n--json x\n"
    assert "Audit of script.py: 1 mistake in 5 optimizer steps" in done.stderr
    assert "clip_before_unscale" in done.stderr
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "clip_grad_norm_" in text)
    assert f"at: script.py:{line}  `nn.utils.clip_grad_norm_" in done.stderr
    document = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert [finding["count"] for finding in document["findings"]] == [5]
    assert [step["sampled"] for step in document["steps"]] == [True, False, True, False, True]
    assert "clip_before_unscale" in (tmp_path / "r.html").read_text("utf-8")
    assert done.stderr.endswith("wrote r.json\nwrote r.html\n")
    said = re.sub(r"\d+", "n", done.stderr)
    assert all(re.sub(r"\d+", "n", line.rstrip("…").strip()) in said for line in shown_in_the_readme())


def shown_in_the_readme():
    """Return the lines of the report that the README shows, of a script with the same mistake."""
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    shown = next(block for block in text.split("```") if "Audit of train.py" in block)
    return shown.replace("train.py", "script.py").strip().splitlines()


@pytest.mark.slow
def test_the_log_has_each_step_as_the_report_has_it_wherever_the_script_goes(tmp_path):
    """A script that was killed has left its steps, too: each line is there when its step is over."""
    source = TRAINING + "import os\nos.chdir('/')\nfor step in train(3): pass\nos.abort()\n"
    files = ("--log", "run.jsonl", "--json", "r.json")
    done = audited(tmp_path, "import os\nos.chdir('/')\n" + source, *files, "--every", "1")
    assert "it was killed" in done.stderr
    assert done.returncode == parent.NOT_RUN
    assert steps_in(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text("utf-8").splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2]
    assert all(line["happened"] and line["scale"] == 256.0 and line["layers"]["Linear"] for line in lines)


@pytest.mark.thorough
@pytest.mark.slow
@unix
def test_a_script_that_dies_beside_workers_threads_and_forks_leaves_one_report(tmp_path):
    source = f"""{TRAINING}
import os, subprocess, threading, multiprocessing
data = torch.utils.data.DataLoader(torch.zeros(4, 1), num_workers=1, multiprocessing_context="fork")
assert len(list(data)) == 4
threads = [threading.Thread(target=list, args=[train(2)])]
threads[0].start(); threads[0].join()
child = os.fork()
if child == 0:
    list(train(3))  # not this process's
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
torch.nn.Linear(2, 2).half()(torch.zeros(1, 2))
"""
    done = audited(tmp_path, source, "--every", 1, "--json", "r.json")
    assert done.returncode == 2
    assert done.stdout == "a child\n"
    assert done.stderr.count("Audit of script.py") == 1
    document = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert len(document["steps"]) == 2
    assert document["ended"].startswith("RuntimeError: ")
    assert document["explanation"]["known"]
    assert document["explanation"]["meaning"] in " ".join(done.stderr.split())


@pytest.mark.thorough
@pytest.mark.slow
@unix
def test_a_script_that_ends_well_without_python_has_a_report_too(tmp_path):
    done = audited(tmp_path, TRAINING + "import os\nlist(train(7))\nos._exit(0)", "--json", "r.json")
    assert done.returncode == 0
    assert "no mistake seen in 7 optimizer steps" in done.stderr
    assert len(steps_in(tmp_path)) == 7


@pytest.mark.slow
def test_a_loop_that_changes_weights_by_hand_is_told_that_nothing_can_be_said_of_it(tmp_path):
    source = """
import torch
weight = torch.ones(3, requires_grad=True)
weight.square().sum().backward()
weight.data.add_(weight.grad, alpha=-0.1)
"""
    done = audited(tmp_path, source)
    assert done.returncode == parent.NOT_RUN
    said = " ".join(done.stderr.split())
    assert "no optimizer took a step" in said
    assert "of a loop that changes weights by hand nothing can be said" in said


@pytest.mark.slow
def test_enough_steps_end_it_as_an_exit_does(tmp_path):
    source = f"""{TRAINING}
import atexit
atexit.register(print, "at exit")
try:
    for step in train(10**9): print(step)
except Exception:
    print("never")
finally:
    print("finally")
"""
    done = audited(tmp_path, source, "--steps", 3)
    assert done.stdout == "0\n1\nfinally\nat exit\n"
    assert "no mistake seen in 3 optimizer steps" in done.stderr
    assert "after step 3, where --steps ended the script" in done.stderr
    assert done.returncode == 0


def running_script(folder, source):
    """Start the audit of a script, as the only job of its terminal."""
    (folder / "script.py").write_text(source)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*AUDIT, "script.py"], cwd=folder, start_new_session=True, **pipes)


@pytest.mark.slow
@unix
def test_an_interruption_goes_to_the_script_and_the_report_comes_all_the_same(tmp_path):
    source = f"""{TRAINING}
try:
    for step in train(10**9): print(step, flush=True)
except KeyboardInterrupt:
    print("interrupted")
    raise
"""
    with running_script(tmp_path, source) as running:
        assert running.stdout.readline() == "0\n"
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate()
    assert out.endswith("interrupted\n")
    assert "Audit of script.py: no mistake seen" in err
    assert "KeyboardInterrupt" in err.split("How it ended")[1]
    assert running.returncode == 130


@unix
def test_who_ends_the_command_ends_the_script(tmp_path):
    source = "import time; print('ready', flush=True); time.sleep(60)"
    with running_script(tmp_path, source) as running:
        assert running.stdout.readline() == "ready\n"
        start = time.monotonic()
        running.terminate()
        _, err = running.communicate()
    assert time.monotonic() - start < 30
    assert "it was killed by SIGTERM" in err


# --- its parts


@pytest.mark.parametrize(
    ("passed", "steps", "status", "expected"),
    [
        (True, 1, 0, 0),
        (False, 1, 0, 1),
        (False, 0, 1, 1),  # a mistake that PyTorch refuses, before any step
        (True, 0, 0, 2),
        (True, 1, 3, 2),
        (True, 1, -9, 2),
        (True, 1, -2, 130),
        (True, 1, 130, 130),
        (False, 1, 130, 1),
    ],
)
def test_the_exit_status(passed, steps, status, expected):
    findings = () if passed else (Sighting("no_step", "failed", "a mistake"),)
    report = Report(findings, steps=(StepSeen(0, 0, True, 1.0),) * steps)
    assert parent.exit_status(report, status) == expected


@pytest.mark.parametrize(
    ("status", "said"), [(-9, "the script ended before any optimizer had"), (0, "no optimizer took a step")]
)
def test_a_report_without_steps_says_why_and_gives_no_advice(tmp_path, status, said):
    kept = tmp_path / "kept.json"
    kept.write_text(Report(()).as_json(), "utf-8")
    report = parent.report_of(kept, "script.py", status)
    assert parent.exit_status(report, status) == parent.NOT_RUN
    (told,) = report.not_seen
    assert told.startswith(said)
    assert "enabled=False" not in str(report)


def test_something_is_done_once_a_module_is_complete_and_not_before(tmp_path, monkeypatch):
    """Not while it is only looked for, as transformers does before it imports PyTorch, nor where it fails."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("FAILS_ONCE", raising=False)
    (tmp_path / "awaited.py").write_text("import os, awaited\nos.environ['FAILS_ONCE']\npart = 1\n")
    seen, finders = [], list(sys.meta_path)
    when_imported("awaited", lambda: seen.append(sys.modules["awaited"].part))
    for _ in range(2):
        assert importlib.util.find_spec("awaited").origin == str(tmp_path / "awaited.py")
    with pytest.raises(KeyError):
        importlib.import_module("awaited")
    assert seen == []
    monkeypatch.setenv("FAILS_ONCE", "")
    module = importlib.import_module("awaited")
    assert seen == [1]
    assert "exec_module" not in vars(module.__loader__)
    assert sys.meta_path == finders
    when_imported("awaited", lambda: seen.append(2))
    assert seen == [1, 2]
    monkeypatch.delitem(sys.modules, "awaited")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    "first", ["import importlib.util; importlib.util.find_spec('torch')", "import transformers"]
)
def test_a_training_is_seen_whatever_asks_for_pytorch_first(tmp_path, first):
    if "transformers" in first:
        pytest.importorskip("transformers")
    done = audited(tmp_path, f"{first}\n{TRAINING}\nlist(train(3))", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    assert len(steps_in(tmp_path)) == 3


def test_what_is_not_there_is_refused_and_under_safe_path_no_folder_is_put_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "script.py").touch()
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    with pytest.raises(ModuleNotFoundError, match="No module named not_there"):
        module_program("not_there")
    sys.path[:] = before
    monkeypatch.setattr(sys, "flags", SimpleNamespace(safe_path=True))
    script_program(str(tmp_path / "script.py"))
    assert sys.path == before
