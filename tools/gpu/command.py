"""The command line of ``make gpu``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from amp_lessons.keeping import files
from tools.gpu import setup
from tools.gpu.conductor import Conductor, Step
from tools.gpu.found import Place
from tools.gpu.page import page
from tools.gpu.process import ROOT
from tools.gpu.recording import (
    Recording,
    Setup,
    UnreadableRecordingError,
    path_for,
    read,
    recordings,
    write,
)
from tools.gpu.steps import STEPS

OWN_FOLDER = ROOT / "docs" / "gpu"
SHIPPED_BENCH = ROOT / "amp_lessons" / "bench" / "recordings"
INTERRUPTED = 130

_NO_GPU = (
    "make gpu measures on a CUDA GPU, and {python} has none to use: {why}. Name a Python whose PyTorch sees "
    "one, make gpu PYTHON=/path/to/python3; `amp-lessons doctor` says what is missing."
)
_EPILOG = (
    "What is finished is kept at once, and not repeated: the same command goes on where an earlier one was "
    "ended, however that was. Each setup (device, versions, threads) has a recording of its own."
)


def main(
    argv: Sequence[str] | None = None,
    *,
    steps: Sequence[Step] = STEPS,
    ask_setup: Callable[[str], Setup] = setup.this_setup,
) -> int:
    """Measure what is outstanding and write the page; 0 whatever was found, 1 where that cannot be done."""
    chosen = _parser(steps).parse_args(argv)
    if not chosen.minutes > 0:
        _parser(steps).error("--minutes must be above 0")
    if chosen.list:
        print("\n".join([*(f"{step.name:10} {step.title}" for step in steps), *_lacking()]))
        return 0
    if chosen.pages:
        return _make_pages(chosen.out)
    deadline = time.monotonic() + 60 * chosen.minutes
    try:
        here = ask_setup(chosen.device)
    except setup.NoDeviceError as error:
        return _complain(_NO_GPU.format(python=sys.executable, why=error))
    wanted = [step for step in steps if chosen.only is None or step.name in chosen.only]
    try:
        return _measure(chosen, wanted, [step.name for step in steps], here, deadline)
    except files.InUseError:
        return _complain(f"Another `make gpu` is writing to {chosen.out}; start this one when it has ended.")
    except OSError as error:
        return _complain(f"A recording cannot be kept in {chosen.out}: {error.strerror or error}.")


def _parser(steps: Sequence[Step]) -> argparse.ArgumentParser:
    names = [step.name for step in steps]
    parser = argparse.ArgumentParser("make gpu", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "--out", type=Path, default=OWN_FOLDER, help=f"where results go (default: {OWN_FOLDER})"
    )
    parser.add_argument("--minutes", type=float, default=25.0, help="when to stop (default: 25)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="STEP", help=f"of {', '.join(names)}")
    parser.add_argument("--fresh", action="store_true", help="forget what these steps found earlier")
    parser.add_argument("--list", action="store_true", help="name the steps, and measure nothing")
    parser.add_argument("--pages", action="store_true", help="make the pages again, and measure nothing")
    parser.add_argument(
        "--device", default="cuda", choices=("cuda", "cpu"), help="cpu: small sizes, to try it out"
    )
    parser.add_argument("--commit", default="", help="of the course, where git cannot be asked")
    return parser


def _measure(
    chosen: argparse.Namespace, steps: Sequence[Step], order: Sequence[str], here: Setup, deadline: float
) -> int:
    """Measure what is outstanding of ``steps``, while no other process writes to the folder."""
    out: Path = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with files.acquired(out / "gpu.lock"):
        path = path_for(out, here)
        forgotten = tuple(step.name for step in steps) if chosen.fresh else ()
        recording = _resumed(path, here).without(forgotten).with_all(order)
        conductor = _conductor(path, here.device_type, deadline, chosen.commit)
        print("\n".join([f"{here.device}, torch {here.torch}: {path}", *_lacking()]), flush=True)
        try:
            recording = conductor.conduct(steps, recording)
        except KeyboardInterrupt:
            print("\nInterrupted; the same command goes on from there.", file=sys.stderr)
            return INTERRUPTED
        keep(path, recording)
    print("\n".join(_last_words(recording, conductor, path)))
    return 0


def _conductor(path: Path, device_type: str, deadline: float, commit: str) -> Conductor:
    return Conductor(
        place=_place(device_type, path.parent),
        deadline=deadline,
        log=path.with_name("gpu.log"),
        keep=lambda recording: keep(path, recording),
        say=lambda words: print(words, flush=True),
        commit=commit or setup.commit(),
    )


def _place(device: str, out: Path) -> Place:
    """Say where to measure; what the bench finds belongs to the course where all of it does."""
    on_gpu = device == "cuda"
    bench = SHIPPED_BENCH if on_gpu and out == OWN_FOLDER else out / "bench"
    return Place(device, "full" if on_gpu else "small", str(bench))


def keep(path: Path, recording: Recording) -> None:
    """Write the recording and its page."""
    write(path, recording)
    _write_page(path, recording)


def _write_page(path: Path, recording: Recording) -> None:
    files.replace(path.with_suffix(".md"), page(recording, path.name))


def _make_pages(folder: Path) -> int:
    """Make the page of every recording in a folder, as it reads now."""
    for path, recording in recordings(folder):
        _write_page(path, recording)
        print(path.with_suffix(".md"))
    return 0


def _lacking() -> list[str]:
    """Say which packages are missing, if any are."""
    names = setup.lacking()
    return [f"This Python lacks {', '.join(names)}: what needs them says so."] if names else []


def _resumed(path: Path, here: Setup) -> Recording:
    """Go on with this setup's recording, or begin one; one that cannot be read is set aside."""
    if not path.exists():
        return Recording(here)
    try:
        return read(path)
    except UnreadableRecordingError as error:
        print(f"{error}. It was set aside as {files.set_aside(path).name}.", file=sys.stderr)
        return Recording(here)


def _last_words(recording: Recording, conductor: Conductor, path: Path) -> list[str]:
    lines = [f"{name:10} {step.status}" for name, step in recording.steps.items()]
    if conductor.left_for_next:
        lines.append(f"Left for the next call: {', '.join(conductor.left_for_next)}.")
    lines.append(f"Kept in {path} and {path.with_suffix('.md').name}.")
    if path.parent == OWN_FOLDER:
        lines.append(f"To give it to the course, commit {path.parent} and {SHIPPED_BENCH}.")
    else:
        lines.append(
            f"To give it to the course, copy {path.stem}.json and .md to {OWN_FOLDER}, and what is in "
            f"{conductor.place.bench_folder} to {SHIPPED_BENCH}."
        )
    return lines


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return 1
