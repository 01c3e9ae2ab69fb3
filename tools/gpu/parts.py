"""The parts of a recording, and how one is run: ``python -m tools.gpu.parts NAME REPORT DEVICE BENCH``.

Each runs in a process of its own, so that none breaks another's CUDA context, and writes its report whenever
it knows more. Tests come first, file by file, then notebooks, then the bench, and what is compiled last.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from amp_lessons._base import files
from amp_lessons._base.text.words import COMPUTED_MARK, MEASURED_MARK
from tools.gpu.recording import Part, Result, Setup

ROOT = Path(__file__).resolve().parents[2]
STEPS = {
    "tests": "the tests that are marked gpu, file by file",
    "notebooks": "every notebook, run from top to bottom",
    "bench": "amp-lessons bench at full size, one model at a time",
    "compiled": "the same, compiled: last, because a compiler takes its time",
}
# by its own mark, or by that of tests/cuda.py, which tests/audit/where.py passes on
_MARK = re.compile(
    r"""^[^"'#\n]*\bpytest\.mark\.gpu\b|^from tests\.(cuda|audit\.where) import""", re.MULTILINE
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_CELL_TIMEOUT_S = 240
_MOST = 400  # characters of a message


def names(step: str, root: Path = ROOT) -> list[str]:
    """Name the parts of a step; the word before the colon is the step's."""
    if step == "tests":
        paths = sorted((root / "tests").rglob("test_*.py"))
        found = [path for path in paths if _MARK.search(path.read_text("utf-8"))]
        return [f"tests: {path.relative_to(root)}" for path in found]
    if step == "notebooks":
        return [f"notebooks: {path.name}" for path in sorted((root / "notebooks").glob("*.ipynb"))]
    from amp_lessons.course.bench import benched

    return [f"{step}: {model}" for model in benched()]


class PartReport:
    """A part while it runs: the file holds all that is known of it so far."""

    def __init__(self, path: Path) -> None:
        self._path, self.part = path, Part("failed", message="its process ended before it did")

    def add(self, *results: Result, lines: tuple[str, ...] = ()) -> None:
        """Add what is known now."""
        part = self.part
        self._write(replace(part, results=(*part.results, *results), lines=(*part.lines, *lines)))

    def end(self, status: Any, message: str = "") -> None:
        """Describe how it ended."""
        self._write(replace(self.part, status=status, message=" ".join(message.split())[:_MOST]))

    def _write(self, part: Part) -> None:
        self.part = part
        files.replace(self._path, json.dumps(asdict(part)))

    # what pytest calls

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a test that has ended, or that could not even begin."""
        if report.when == "call" or not report.passed:
            self.add(Result(report.nodeid, report.outcome, _last_line(report)))

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that could not be read."""
        if report.failed:
            lacking = re.search(r"No module named '([\w.]+)'", str(report.longrepr))
            if lacking:
                raise ModuleNotFoundError(name=lacking[1])
            self.add(Result(report.nodeid, "failed", _last_line(report)))


def _last_line(report: Any) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:_MOST]
    crash = getattr(report.longrepr, "reprcrash", None)
    words = crash.message if crash else str(report.longrepr or "")
    return " ".join(words.split())[:_MOST]


def run(name: str, report: PartReport, device: str, bench_folder: str, root: Path = ROOT) -> None:
    """Run one part to its end. What this machine lacks raises ModuleNotFoundError or MissingExtraError."""
    step, _, what = name.partition(": ")
    if step == "tests":
        _run_tests(what, report, root)
    elif step == "notebooks":
        _run_notebook(root / "notebooks" / what, report)
    else:
        _run_bench(what, "compiled" if step == "compiled" else "eager", report, device, bench_folder)
    report.end("done")


def _run_tests(name: str, report: PartReport, root: Path) -> None:
    """Ask pytest for less than pyproject.toml does: marks and plugins that are not here are no error."""
    import pytest

    options = ["-q", "-m", "gpu", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    pytest.main([str(root / name), f"--rootdir={root}", *options], plugins=[report])


def _run_notebook(path: Path, report: PartReport) -> None:
    """Run a notebook in its folder, to its end even where cells raise; the file stays as it is."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, 4)
    client = NotebookClient(
        notebook,
        timeout=_CELL_TIMEOUT_S,
        interrupt_on_timeout=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        allow_errors=True,
    )
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as home:  # not the progress of whoever runs this
        client.execute(env={**_environment(), "AMP_LESSONS_HOME": home})
    outputs = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    errors = [*filter(None, map(_error, notebook.cells))]
    said = "; ".join(errors)[:_MOST] or f"ran in {time.monotonic() - begun:.0f} s"
    texts = [each.get("text") or each.get("data", {}).get("text/plain", "") for each in outputs]
    lines = [line for text in texts for line in text.splitlines()]
    marked = tuple(line for line in lines if line.startswith((MEASURED_MARK, COMPUTED_MARK)))
    report.add(Result(path.name, "failed" if errors else "passed", said), lines=marked)


def _error(cell: Any) -> str:
    """Say in which cell what was raised, and print where; empty if nothing was."""
    for each in cell.get("outputs", ()):
        if each.output_type == "error":
            where = _COLOUR.sub("", "\n".join(each.traceback))
            print(f"{cell.id}\n{where}", flush=True)
            line = re.search(r"^-+> *\d+ (.*)$", where, re.MULTILINE)
            return f"{cell.id}: {each.ename}: {each.evalue or (line[1].strip() if line else '')}"
    return ""


def _run_bench(model: str, mode: str, report: PartReport, device: str, folder: str) -> None:
    """Run the command; its own file knows what was measured already, and lesson 05 shows it."""
    from amp_lessons.cli import bench
    from amp_lessons.course.bench.workloads import require_transformers

    require_transformers()
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    preset = "full" if device == "cuda" else "small"
    what = ["--device", device, "--preset", preset, "--models", model, "--modes", mode]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        # what an earlier call was ended in the middle of stands there as a failure
        code = bench.run(parser.parse_args([*what, "--results", folder, "--retry"]))
    rows = tuple(line for line in said.getvalue().splitlines() if model in line)
    report.add(Result(f"{model} {mode}", "failed" if code else "passed"), lines=rows)


def setup(device: str) -> Setup:
    """Describe the machine and its versions. Raises SystemExit where it has no such device."""
    import torch

    from amp_lessons import devices

    machine = devices.describe()
    gpu = machine.gpu if device == "cuda" else None
    if device == "cuda" and gpu is None:
        raise SystemExit(devices.cuda_obstacle())
    return Setup(
        device=gpu.name if gpu else machine.cpu.name,
        capability=devices.dotted(gpu.capability) if gpu else "",
        driver=_asked("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if gpu else "",
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        python=platform.python_version(),
        transformers=_version_of("transformers"),
        course=_version_of("amp-lessons"),
        threads=machine.cpu.threads,
    )


def commit() -> str:
    """Name the commit that is checked out, and say whether files differ from it; empty without git."""
    return _asked("git", "-C", str(ROOT), "describe", "--always", "--dirty=+changes", "--exclude=*")


def _asked(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else ""


def _version_of(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def main() -> None:
    """Run the part that the command line names, and end with its report written."""
    name, path, device, bench_folder = sys.argv[1:]
    if name == "setup":
        Path(path).write_text(json.dumps(asdict(setup(device))))
        return
    report = PartReport(Path(path))
    try:
        run(name, report, device, bench_folder)
    except ModuleNotFoundError as error:
        own = str(error.name).partition(".")[0] in ("amp_lessons", "tools", "tests")
        report.end("failed" if own else "not possible", f"this Python lacks {error.name}")
    except Exception as error:
        traceback.print_exc()
        lacks = type(error).__name__ == "MissingExtraError"
        report.end("not possible" if lacks else "failed", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
