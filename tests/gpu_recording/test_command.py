"""``make gpu`` as a user types it, with a pretended device: what is kept, what is gone on with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from amp_lessons import devices
from amp_lessons.keeping import files
from tests.gpu_recording import pretended
from tools.gpu import command, process, setup
from tools.gpu.process import ROOT, environment
from tools.gpu.recording import Recording, read

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="make gpu is for Linux"),
]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The file that notes which parts were run, and how to say which parts there are."""
    path = tmp_path / "runs"
    path.touch()
    monkeypatch.setenv("PRETENDED_RUNS", str(path))
    monkeypatch.setenv("PRETENDED_PARTS", "good-1 good-2")
    return path


def names(runs: Path) -> list[str]:
    return [line.split()[0] for line in runs.read_text().splitlines()]


def run(out: Path, *options: str) -> int:
    return pretended.main(["--out", str(out), *options])


def recording_in(out: Path) -> Recording:
    (path,) = out.glob("*.json")
    return read(path)


def test_what_was_found_is_kept_with_its_page(runs, tmp_path, capsys):
    assert run(tmp_path / "out") == 0
    recording = recording_in(tmp_path / "out")
    assert recording.setup == pretended.SETUP
    assert [step.status for step in recording.steps.values()] == ["passed", "passed"]
    part = recording.step("first").parts[0]
    assert (part.name, part.status, part.figures[0].value) == ("good-1", "done", 3.5)
    page = (tmp_path / "out" / "pretended-1-torch-2.11.0-cu130.md").read_text()
    assert page == command.page(recording, "pretended-1-torch-2.11.0-cu130.json")
    said = capsys.readouterr().out
    assert "first: good-1: done" in said
    assert "To give it to the course, copy" in said
    assert "Left" not in said


def test_a_second_call_repeats_nothing(runs, tmp_path):
    run(tmp_path)
    before = recording_in(tmp_path)
    assert run(tmp_path) == 0
    assert names(runs) == ["good-1", "good-2", "good"]
    assert recording_in(tmp_path) == before


def test_a_step_can_be_named_and_measured_afresh(runs, tmp_path):
    run(tmp_path, "--only", "second")
    assert names(runs) == ["good"]
    run(tmp_path)
    run(tmp_path, "--only", "first", "--fresh")
    assert names(runs) == ["good", "good-1", "good-2", "good-1", "good-2"]
    assert list(recording_in(tmp_path).steps) == ["first", "second"]


@pytest.fixture
def killed(runs, tmp_path, monkeypatch):
    """Kill a run without mercy while its second part hangs; return the process that this part ran in."""
    monkeypatch.setenv("PRETENDED_PARTS", "good-1 hang-2 good-3")

    def kill() -> int:
        before = len(names(runs))
        own = [sys.executable, "-m", pretended.MODULE, "--out", str(tmp_path / "out")]
        running = subprocess.Popen(own, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL)
        wait_until(lambda: any(name == "hang-2" for name in names(runs)[before:]))
        running.send_signal(signal.SIGKILL)
        running.wait()
        return int(runs.read_text().splitlines()[-1].split()[1])

    return kill


def wait_until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_run_that_is_killed_leaves_what_it_had_and_no_process(killed, runs, tmp_path, monkeypatch):
    child = killed()
    wait_until(lambda: not is_running(child))
    record = recording_in(tmp_path / "out").step("first")
    assert [part.name for part in record.parts] == ["good-1"]
    assert (record.status, record.begun) == ("cut short", {"hang-2": 1})
    # The same command goes on: what hung may have been unlucky, and is tried once more.
    monkeypatch.setattr(pretended, "STEPS", (replace(pretended.STEPS[0], limit_s=1.0), pretended.STEPS[1]))
    assert run(tmp_path / "out") == 0
    assert names(runs) == ["good-1", "hang-2", "hang-2", "good"]
    # The limit has ended it: the rest of its step is for another call.
    record = recording_in(tmp_path / "out").step("first")
    assert [part.status for part in record.parts] == ["done", "cut short"]
    assert run(tmp_path / "out") == 0
    assert names(runs)[4:] == ["good-3"]


def test_what_is_killed_twice_is_not_begun_a_third_time(killed, runs, tmp_path):
    for _ in range(2):
        killed()
    assert run(tmp_path / "out") == 0
    record = recording_in(tmp_path / "out").step("first")
    assert names(runs).count("hang-2") == 2
    assert record.parts[1].status == "cut short"
    assert "begun 2 times" in record.parts[1].message
    assert record.parts[2].status == "done"


def test_what_does_not_fit_into_the_time_is_left_and_said(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretended, "STEPS", (replace(pretended.STEPS[0], usual_s=600.0), pretended.STEPS[1]))
    assert run(tmp_path, "--minutes", "1") == 0
    assert names(runs) == ["good"]
    assert "Left for the next call: first." in capsys.readouterr().out
    assert recording_in(tmp_path).step("first").status == "cut short"


def test_another_setup_has_a_recording_of_its_own(runs, tmp_path, monkeypatch):
    run(tmp_path)
    for other in (
        replace(pretended.SETUP, driver="1.3"),
        replace(pretended.SETUP, torch="2.13.0"),
        replace(pretended.SETUP, device="Pretended 2"),
    ):
        monkeypatch.setattr(pretended, "SETUP", other)
        run(tmp_path)
    found = {path.name: read(path).setup for path in tmp_path.glob("*.json")}
    assert set(found) == {
        "pretended-1-torch-2.11.0-cu130.json",
        "pretended-1-torch-2.11.0-cu130-2.json",
        "pretended-1-torch-2.13.0.json",
        "pretended-2-torch-2.11.0-cu130.json",
    }
    assert len(set(found.values())) == 4
    assert len(names(runs)) == 4 * 3


def test_a_damaged_recording_is_set_aside(runs, tmp_path, capsys):
    path = tmp_path / "pretended-1-torch-2.11.0-cu130.json"
    path.write_text("{}")
    assert run(tmp_path) == 0
    assert read(path).step("first").status == "passed"
    (aside,) = files.were_set_aside(path)
    assert aside.read_text() == "{}"
    assert f"set aside as {aside.name}" in capsys.readouterr().err


def test_without_a_gpu_it_says_what_to_do(tmp_path, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert command.main(["--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("make gpu measures on a CUDA GPU, and ")
    assert "CPU only" in said or "CUDA" in said
    assert "make gpu PYTHON=" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options", [["--only", "nonsense"], ["--minutes", "0"], ["--minutes", "soon"], ["--nonsense"]]
)
def test_wrong_usage_is_answered_with_what_would_be_right(options, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, *options)
    assert ended.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_the_steps_are_named_in_their_order(capsys):
    assert command.main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert [name for name in listed if name != "This"] == [
        "peaks",
        "tests",
        "autocast",
        "products",
        "census",
        "bench",
        "notebooks",
        "compiled",
    ]


def test_an_interruption_ends_it_and_is_no_fault_of_the_part(runs, tmp_path, monkeypatch, capsys):
    ask = process.Child.ask

    def interrupted(self, request, limit_s):
        if request == "good-2":
            raise KeyboardInterrupt
        return ask(self, request, limit_s)

    with monkeypatch.context() as patch:
        patch.setattr(process.Child, "ask", interrupted)
        for _ in range(3):
            assert run(tmp_path) == command.INTERRUPTED
    assert "the same command goes on" in capsys.readouterr().err
    record = recording_in(tmp_path).step("first")
    assert ([part.name for part in record.parts], record.begun) == (["good-1"], {})
    assert run(tmp_path) == 0
    assert recording_in(tmp_path).step("first").status == "passed"


def test_a_page_can_be_made_again_without_a_gpu(runs, tmp_path, capsys):
    run(tmp_path)
    (page,) = tmp_path.glob("*.md")
    before = page.read_text()
    page.write_text("edited by hand")
    assert command.main(["--out", str(tmp_path), "--pages"]) == 0
    assert page.read_text() == before
    assert capsys.readouterr().out.endswith(f"{page}\n")


def test_two_at_once_are_refused(runs, tmp_path, capsys):
    with files.acquired(tmp_path / "gpu.lock"):
        assert run(tmp_path) == 1
    assert "Another `make gpu` is writing" in capsys.readouterr().err
    assert names(runs) == []


def test_a_folder_that_is_a_file_is_named(runs, tmp_path, capsys):
    (tmp_path / "out").touch()
    assert run(tmp_path / "out") == 1
    assert "A recording cannot be kept in" in capsys.readouterr().err


def test_a_python_that_lacks_a_package_is_told_which(tmp_path):
    (tmp_path / "lazy_loader.py").write_text("raise ModuleNotFoundError('none', name='lazy_loader')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tools.gpu", "--list"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("make gpu needs the Python package lazy_loader")
    assert "Traceback" not in done.stderr


def test_the_process_that_conducts_imports_no_pytorch():
    code = "import sys, tools.gpu.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment()).returncode == 0


def test_this_machine_is_described():
    here = setup.this_setup("cpu")
    assert (here.torch, here.device_type) == (torch.__version__, "cpu")
    assert here.device == here.cpu
    assert here.threads >= 1
    assert re.fullmatch(r"\d+\.\d+\.\d+", here.course)


@pytest.fixture
def pretended_gpu(monkeypatch):
    """A machine on which PyTorch finds a GPU, as far as it is asked about one."""
    gpu = devices.Gpu("NVIDIA H200", (9, 0), 143771, 1, ("fp16", "bf16"), "native")
    machine = replace(devices.describe(), gpu=gpu)
    monkeypatch.setattr(devices, "describe", lambda: machine)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return gpu


def test_a_gpu_is_described(pretended_gpu, monkeypatch):
    monkeypatch.setattr(setup, "driver", lambda: "580.95.05")
    here = setup._described("cuda")
    assert (here.device, here.device_type, here.capability) == ("NVIDIA H200", "cuda", "9.0")
    assert (here.driver, here.cuda) == ("580.95.05", "13.0")
    assert setup._described("cpu").device == here.cpu
    assert setup._described("cpu").driver == ""


@pytest.mark.parametrize(
    ("said", "version"),
    [("580.95.05\n", "580.95.05"), ("580.1\n580.1\n", "580.1"), ("", ""), ("NVIDIA-SMI has failed\n", "")],
)
def test_the_driver_is_what_nvidia_smi_says(tmp_path, monkeypatch, said, version):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert setup.driver() == version


def test_without_nvidia_smi_there_is_no_driver(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert setup.driver() == ""
    assert setup.commit() == ""


def test_packages_that_are_missing_are_named_at_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text(
        'version = "1.2.3"\ndependencies = [\n    "torch>=2.9",\n    "nowhere-a>=1",  # [why]\n]\n\n'
        '[project.optional-dependencies]\nlab = ["nowhere-b>=1"]\nmodels = ["nowhere-c>=5.0"]  # before\n'
    )
    assert setup.lacking(tmp_path) == ["nowhere-a", "nowhere-c"]
    assert setup.course_version(tmp_path) == "1.2.3"
    assert setup.lacking() == []
    monkeypatch.setattr(setup, "lacking", lambda: ["nowhere-a", "nowhere-c"])
    command.main(["--list"])
    assert "This Python lacks nowhere-a, nowhere-c: what needs them says so." in capsys.readouterr().out


def test_the_bench_of_a_gpu_belongs_to_the_course_where_the_recording_does(tmp_path):
    assert command._place("cuda", command.OWN_FOLDER).bench_folder == str(command.SHIPPED_BENCH)
    assert command._place("cuda", tmp_path).bench_folder == str(tmp_path / "bench")
    assert command._place("cpu", command.OWN_FOLDER).bench_folder == str(command.OWN_FOLDER / "bench")
    assert command._place("cuda", tmp_path).is_full
    assert not command._place("cpu", tmp_path).is_full
