"""Record what the course does on this machine's GPU: its tests marked gpu, its notebooks, its bench."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from amp_lessons._base import files
from amp_lessons._base.typed_json import made
from tools.gpu import parts
from tools.gpu.page import page
from tools.gpu.recording import Part, Recording, Setup, read, resumed, write
from tools.programs import Program

OWN_FOLDER = parts.ROOT / "docs" / "gpu"
SHIPPED_BENCH = parts.ROOT / "amp_lessons" / "course" / "bench" / "recordings"
LIMIT_S = {"tests": 300.0, "notebooks": 600.0, "bench": 600.0, "compiled": 900.0}
MOST_TRIES = 2
_LEAST_S = 20.0  # with less time left nothing is begun
_INTERRUPTED = 130
_EPILOG = (
    "What is finished is kept at once, and not repeated: the same command goes on where an earlier one was "
    "ended, however that was. Each setup (device, versions, threads) has a recording of its own."
)
Run = Callable[[str, Path, float], "Part | None"]


def main(argv: Sequence[str] | None = None) -> int:
    """Record what is outstanding and make the page; 0 whatever was found, 1 where that cannot be done."""
    chosen = _parser().parse_args(argv)
    if chosen.list:
        print("\n".join(f"{step:10} {words}" for step, words in parts.STEPS.items()))
        return 0
    if chosen.pages:
        return _make_pages(chosen.out)
    try:
        chosen.out.mkdir(parents=True, exist_ok=True)
        with files.acquired(chosen.out / "gpu.lock"):
            return _record(chosen, time.monotonic() + 60 * chosen.minutes)
    except files.InUseError:
        return _complain(f"Another `make gpu` is writing to {chosen.out}; start this one when it has ended.")
    except OSError as error:
        return _complain(f"A recording cannot be kept in {chosen.out}: {error.strerror or error}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("make gpu", description=__doc__, epilog=_EPILOG)
    add = parser.add_argument
    add("--out", type=Path, default=OWN_FOLDER, help=f"where results go (default: {OWN_FOLDER})")
    add("--minutes", type=float, default=25.0, help="when to stop (default: 25)")
    add("--only", nargs="+", choices=parts.STEPS, default=list(parts.STEPS), metavar="STEP")
    add("--fresh", action="store_true", help="forget what these steps found earlier")
    add("--list", action="store_true", help="name the steps, and measure nothing")
    add("--pages", action="store_true", help="make the pages again, and measure nothing")
    add("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: small sizes, to try it out")
    add("--commit", default="", help="of the course, where git cannot be asked")
    return parser


def _record(chosen: argparse.Namespace, deadline: float) -> int:
    out: Path = chosen.out.resolve()
    here = _setup(chosen.device, out / "gpu.log")
    if isinstance(here, str):
        return _complain(
            f"make gpu measures on a CUDA GPU, and {sys.executable} has none to use: {here}. Name a Python "
            "whose PyTorch sees one, make gpu PYTHON=/path/to/python3; `amp-lessons doctor` says what is "
            "missing."
        )
    path, recording = resumed(out, here)
    names = [name for step in chosen.only for name in parts.names(step)]
    if chosen.fresh:
        for name in names:
            recording.parts.pop(name, None)
    print(f"{here.device}, torch {here.torch}: {path}", flush=True)
    bench = SHIPPED_BENCH if chosen.device == "cuda" and out == OWN_FOLDER else out / "bench"

    def run(name: str, report: Path, limit_s: float) -> Part | None:
        return run_apart([name, str(report), chosen.device, str(bench)], out / "gpu.log", limit_s)

    try:
        conduct(recording, path, names, deadline, run, chosen.commit or parts.commit())
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from there.", file=sys.stderr)
        return _INTERRUPTED
    left = recording.outstanding(names)
    if left:
        print(f"Left for the next call: {len(left)} of {len(names)} parts.")
    print(f"Kept in {path} and {path.with_suffix('.md').name}; the bench keeps its own in {bench}.")
    print(f"To give it to the course, commit them in {OWN_FOLDER} and {SHIPPED_BENCH}.")
    return 0


def conduct(
    recording: Recording, path: Path, names: Sequence[str], deadline: float, run: Run, commit: str = ""
) -> None:
    """Run what is outstanding until the deadline, a time of ``time.monotonic()``; keep each part at once.

    What was begun is noted before it runs: a part that takes the whole machine down is not begun for ever.
    """
    for name in recording.outstanding(names):
        if deadline - time.monotonic() < _LEAST_S:
            return
        tries = recording.begun.get(name, 0)
        if tries >= MOST_TRIES:
            message = f"begun {tries} times, and each time everything was ended from outside"
            part: Part | None = Part("cut short", message=message)
        else:
            part = _tried(recording, path, name, deadline, run)
        if part is None:  # the deadline came first
            return
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        recording.parts[name] = replace(part, at=now, commit=commit)
        recording.begun.pop(name, None)
        keep(path, recording)
        failed = sum(result.outcome == "failed" for result in part.results)
        print(f"{name}: {f'{failed} failed' if failed else part.status} ({part.seconds:.0f} s)", flush=True)


def _tried(recording: Recording, path: Path, name: str, deadline: float, run: Run) -> Part | None:
    recording.begun[name] = recording.begun.get(name, 0) + 1
    keep(path, recording)
    begun, left_s = time.monotonic(), deadline - time.monotonic()
    limit_s = LIMIT_S[name.partition(":")[0]]
    over = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            part = run(name, Path(folder) / "report.json", min(limit_s, left_s))
        over = part is None and left_s <= limit_s
    except KeyboardInterrupt:  # somebody's wish, and no fault of the part
        over = True
        raise
    finally:
        if over:
            del recording.begun[name]
            keep(path, recording)
    if over:
        return None
    part = part or Part("cut short", message=f"it took longer than {limit_s:g} seconds")
    return replace(part, seconds=round(time.monotonic() - begun, 1))


def run_apart(arguments: Sequence[str], log: Path, limit_s: float) -> Part | None:
    """Run one part in a process of its own; return what it reports, None if it had to be ended in time."""
    command = [sys.executable, "-m", "tools.gpu.parts", *arguments]
    with Program(command, log, cwd=parts.ROOT, end_s=5.0) as program:
        code = program.wait(limit_s)
        if code is None:
            return None
        report = Path(arguments[1])
        part = made(Part, json.loads(report.read_text("utf-8"))) if report.exists() else Part("failed")
        if code:
            said = program.said().strip().rpartition("\n")[2]
            part = replace(part, message=f"its process ended with {code}: {said[:300]}")
        return part


def keep(path: Path, recording: Recording) -> None:
    """Write the recording and its page."""
    write(path, recording)
    files.replace(path.with_suffix(".md"), page(recording, path))


def _setup(device: str, log: Path) -> Setup | str:
    """Look for a GPU in another process, so that this one holds none; return its words if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "setup.json"
        command = [sys.executable, "-m", "tools.gpu.parts", "setup", str(report), device, ""]
        with Program(command, log, cwd=parts.ROOT) as program:
            program.wait(180.0)
            if report.exists():
                return made(Setup, json.loads(report.read_text("utf-8")))
            return program.said().strip().rpartition("\n")[2]


def _make_pages(folder: Path) -> int:
    for path in sorted({*folder.glob("*.json")} - {*files.were_set_aside(folder / "*.json")}):
        files.replace(path.with_suffix(".md"), page(read(path), path))
        print(path.with_suffix(".md"))
    return 0


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
